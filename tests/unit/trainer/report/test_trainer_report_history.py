"""Records as the report keeps them: the same that count for everybody else, read as the file grows."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.records.records import drop_undone
from trainer.report import history as history_module
from trainer.report.history import History, RecordFile

KINDS = ("pass", "test", "save", "checkpoint")


def attempts():
    """Lists of records as trainers write them: each attempt begins where an earlier one has been."""
    place = st.tuples(st.integers(0, 3), st.integers(0, 4))
    return st.lists(st.tuples(place, st.lists(st.tuples(st.sampled_from(("batch", *KINDS)), place))), max_size=5).map(
        write_attempts
    )


def write_attempts(attempts):
    records = []
    for begin, written in attempts:
        records.append(record("start", *begin))
        # in an attempt, places only grow
        records += [record(kind, *place) for kind, place in sorted(written, key=lambda one: one[1]) if place >= begin]
    return [{**one, "time": float(number)} for number, one in enumerate(records)]


def record(kind, number=0, batch=0, **fields):
    return {"kind": kind, "time": 1.0, "attempt": "", "pass": number, "batch": batch, **fields}


def times_of(history):
    return {
        "pass": [one["time"] for one in history.passes],
        "test": [one["time"] for one in history.tests],
        "save": [one["time"] for one in history.saves],
        "batch": list(history.batches.times),
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(attempts())
def test_what_counts_is_what_the_records_module_says(records):
    history = History()
    for one in records:
        history.add(one)
    kept = drop_undone(records)
    assert times_of(history) == {
        kind: [one["time"] for one in kept if one["kind"] == kind] for kind in ("pass", "test", "save", "batch")
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(attempts(), st.lists(st.integers(1, 4000), max_size=6))
def test_a_file_read_as_it_grows_says_what_it_says_as_a_whole(tmp_path_factory, records, cuts):
    path = tmp_path_factory.mktemp("output") / "records.jsonl"
    content = "".join(f"{json.dumps(one)}\n" for one in records).encode()
    growing = RecordFile(path)
    for cut in sorted(cut for cut in cuts if cut < len(content)):
        path.write_bytes(content[:cut])  # in place: the same inode
        growing.read()
    path.write_bytes(content)
    assert times_of(growing.read()) == times_of(RecordFile(path).read())


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(f"{json.dumps(record('pass', 0, 5))}\n" * 3)
    records = RecordFile(path)
    assert [one["pass"] for one in records.read().passes] == [0]
    other = tmp_path / "other"
    other.write_text(f"{json.dumps(record('pass', 7, 5))}\n" * 9)
    other.replace(path)
    assert [one["pass"] for one in records.read().passes] == [7]
    path.write_text("")
    assert records.read().passes == []


def test_no_file_and_odd_lines_are_no_error(tmp_path):
    path = tmp_path / "records.jsonl"
    assert RecordFile(path).read().passes == []
    odd = [b"", b"{}", b"[1]", b"\xff\xfe", b'{"kind": 3}', b"[" * 100000, b'{"kind": "pass", "time": 1}']
    path.write_bytes(b"\n".join([*odd, json.dumps(record("pass", 2, 5)).encode(), b'{"kind": "pass", "ti']))
    assert [one["pass"] for one in RecordFile(path).read().passes] == [2]


def test_an_evaluator_that_comes_late_has_no_values_before():
    history = History()
    history.add(record("batch", 0, 1, window_evaluators={"one": 0.5}))
    history.add(record("batch", 0, 2, window_evaluators={"two": 0.25}))
    assert history.evaluators() == ["one", "two"]
    assert [math.isnan(value) for value in history.batches.evaluators["one"]] == [False, True]
    assert [math.isnan(value) for value in history.batches.evaluators["two"]] == [True, False]


def test_the_test_of_a_pass_is_the_one_at_its_end():
    history = History()
    for one in (record("test", 0, 3, cost=1), record("pass", 0, 6), record("test", 0, 6, cost=2), record("pass", 1, 6)):
        history.add(one)
    assert [history.test_of(one).get("cost") for one in history.passes] == [2, None]


@pytest.mark.parametrize("length", [299, 300, 301, 650, 900])
def test_a_line_that_is_too_long_is_skipped_to_its_end(tmp_path, monkeypatch, length):
    """The report remained for ever at the place before such a line."""
    monkeypatch.setattr(history_module, "MOST_TEXT_BYTES", 300)
    path = tmp_path / "records.jsonl"
    records = RecordFile(path)
    with path.open("wb", buffering=0) as file:
        for part in (json.dumps(record("pass", 0, 5)).encode() + b"\n", b"x" * length, b"yz", b"\n"):
            file.write(part)
            assert [one["pass"] for one in records.read().passes] == [0]
        file.write(json.dumps(record("pass", 1, 5)).encode() + b"\n")
        assert [one["pass"] for one in records.read().passes] == [0, 1]
