"""Records of a run: what is read back, and what a later attempt has undone."""

import json
import math

from each import each

from trainer.records.records import drop_undone, encode_record, numbers_of, read_all_records, read_records


def record(kind, number=0, batch=0, **fields):
    return {"kind": kind, "time": 1.0, "attempt": "1.aa", "pass": number, "batch": batch, **fields}


def test_what_is_no_record_is_passed_over(tmp_path):
    good = [record("start"), record("batch", 0, 100, cost=0.5), {"kind": "end", "time": 2.0, "attempt": ""}]
    odd = [b"", b"{}", b'{"kind": "batch", "time": 1}', b"[1]", b"\xff\xfe", b'{"kind": 3}', b"[" * 100000]
    lines = [*(encode_record(one).encode().strip() for one in good), *odd, encode_record(good[1])[:30].encode()]
    (tmp_path / "records.jsonl").write_bytes(b"\n".join(lines))
    assert read_all_records(tmp_path) == good


def test_no_file_is_no_record(tmp_path):
    assert read_records(tmp_path) == []


def places(records):
    return [(one["kind"], one["pass"], one["batch"]) for one in records if one["kind"] != "start"]


def test_an_attempt_undoes_what_came_after_its_start():
    first = [record("start"), *(record("batch", 0, batch) for batch in (10, 20, 30))]
    first += [record("pass", 0, 35), record("test", 0, 35), record("save", 0, 35), record("checkpoint", 0, 35)]
    first += [record("batch", 1, 10), record("checkpoint", 1, 15), record("batch", 1, 20)]
    again = [record("start", 1, 15), record("batch", 1, 20, cost=7), record("pass", 1, 35)]
    kept = drop_undone([*first, *again])
    assert places(kept) == [*places(first)[:-1], ("batch", 1, 20), ("pass", 1, 35)]
    assert [one["cost"] for one in kept if "cost" in one] == [7]


def test_a_pass_whose_end_is_said_again_counts_once():
    first = [record("start"), record("pass", 0, 35), record("test", 0, 35, cost=1)]
    again = [record("start", 0, 35), record("pass", 0, 35), record("test", 0, 35, cost=2)]
    kept = drop_undone([*first, *again])
    assert places(kept) == [("pass", 0, 35), ("test", 0, 35)]
    assert kept[-1]["cost"] == 2


def test_a_run_from_the_beginning_undoes_all():
    first = [record("start"), record("batch", 0, 10), record("pass", 0, 35), record("checkpoint", 0, 35)]
    assert places(drop_undone([*first, record("start")])) == []


class Sums:
    def average_cost(self):
        return 1 / 3

    def results(self):
        return {"classification_error_evaluator": "0.0195313", "sum": "nan", "auc": "inf", "odd": "text"}


def test_numbers_are_what_the_log_shows_and_what_is_not_finite_is_null():
    numbers = numbers_of(Sums(), "window_")
    assert numbers["window_cost"] == 0.333333
    assert numbers["window_evaluators"] == {
        "classification_error_evaluator": 0.0195313,
        "sum": None,
        "auc": None,
        "odd": None,
    }
    assert json.loads(encode_record(numbers)) == numbers


def test_a_flag_that_is_no_number_is_null(tmp_path):
    line = encode_record(record("start", flags={"ratio": math.inf, "config": "c"}, sizes=[math.nan, 1.5]))
    (tmp_path / "records.jsonl").write_text(line)
    found = read_all_records(tmp_path)[0]
    assert (found["flags"], found["sizes"]) == ({"ratio": None, "config": "c"}, [None, 1.5])


@each("name", ["time", "pass", "batch"])
@each("value", ["1e999", "NaN", "1" + "0" * 400, "-1" + "0" * 400])
def test_a_place_or_time_beyond_all_counts_is_no_record(tmp_path, name, value):
    whole = json.dumps(record("batch") | {name: "X"})
    (tmp_path / "records.jsonl").write_text(whole.replace('"X"', "1") + "\n" + whole.replace('"X"', value) + "\n")
    assert len(read_all_records(tmp_path)) == 1
