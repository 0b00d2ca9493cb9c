"""tasks.json: which leader writes it, what a reader takes, and how old it is when clocks differ."""

import json
import queue
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from each import each
from master_story import Story

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.runtime.errors import DamagedError
from paddle_base.runtime.status_files import LATE_S
from paddle_cluster.master.recording import RegistryLink, TaskRecorder
from paddle_cluster.master.tasks.events import FAILED
from paddle_cluster.master.tasks.state import MOST_EVENTS
from paddle_cluster.master.tasks_file import NAME, describe, read_record, read_settled


def recorder(tmp_path: Path, leader: int, job: str = "job") -> TaskRecorder:
    link = RegistryLink(DirectoryRegistry(tmp_path / "registry", 5.0), looks=True)
    one = TaskRecorder(tmp_path, {"job": job, "leader": leader, "address": "10.0.0.1:1"}, link)
    one.start()
    return one


def write(tmp_path: Path, story: Story, leader: int = 1, status: int = 0, reason: str = "") -> dict[str, Any]:
    recorder(tmp_path, leader).close(story.state, status, reason)
    return read_record(tmp_path / NAME)


def lines(record: dict[str, Any], age: float = 0.5, *, is_late: bool = False) -> list[str]:
    return list(describe(record, age, is_late=is_late))


def busy() -> Story:
    story = Story(3, num_passes=2, failures_max=0)
    story.join("a", "b")
    story.take("a")
    story.report("b", story.take("b"), FAILED)
    return story


def test_a_record_is_what_its_reader_takes_and_people_read(tmp_path: Path) -> None:
    record = write(tmp_path, busy())
    found = lines(record | {"end": None})
    assert found[0] == "job job: pass 0 of 2; 0 trainers wait for a task"
    assert found[1] == "the master at 10.0.0.1:1, leader 1, wrote this state 0.5 s ago"
    assert found[2] == "tasks of pass 0: 1 todo, 1 pending, 0 done, 1 failed, of 3"
    assert found[3:7] == [
        "pending:",
        f"  task 0 (part-00000): trainer 0, a.1, for {(record['written'] + 0.5 - 1000) / 3600:.1f} h",
        "discarded for this pass:",
        "  1 (part-00001)",
    ]
    assert [one for one in found if " joined" in one and one.startswith("  ")]


def test_a_directory_that_is_removed_during_the_job_is_made_again(tmp_path: Path) -> None:
    one = recorder(tmp_path, 1)
    shutil.rmtree(tmp_path)
    one.close(busy().state, 75, "as the test says")
    assert read_record(tmp_path / NAME)["end"] == {"status": 75, "reason": "as the test says"}


def test_a_last_record_that_cannot_be_written_is_told_after_an_earlier_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning about the last record was left out, because an earlier one was less than 30 s old."""
    warnings: queue.SimpleQueue[str] = queue.SimpleQueue()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paddle_cluster.master.recording.glog.warning", warnings.put)
    monkeypatch.setattr("paddle_cluster.master.recording.write_record", refuse)
    one = recorder(tmp_path, 1)
    one.offer(busy().state)
    assert "cannot be written" in warnings.get(timeout=60.0)
    one.close(busy().state, 0, "")
    assert warnings.get(timeout=60.0).endswith("tasks.json cannot be written: No space left on device")


def test_trainers_without_a_task_are_named_with_the_reason(tmp_path: Path) -> None:
    """`2 trainers wait for a task` did not say which ones, nor what the master waits for."""
    story = Story(1)
    story.join("a", "b", "c")
    story.take("b")
    found = lines(write(tmp_path, story) | {"end": None})
    why = "the pass ends when the 1 pending tasks are done"
    assert f"without a task: trainers 0, 2; no task is todo, and {why}" in found
    assert not [line for line in lines(write(tmp_path, busy()) | {"end": None}) if line.startswith("without a task")]


def test_of_many_trainers_the_newest_five_are_told_and_where_the_others_are(tmp_path: Path) -> None:
    story = Story(3)
    for number in range(12):
        story.now += 1
        story.join(f"t{number}")
    found = lines(write(tmp_path, story) | {"end": None})
    begin = found.index("trainers:")
    assert [line.split(":")[0].strip() for line in found[begin + 1 : begin + 6]] == ["11", "10", "9", "8", "7"]
    assert found[begin + 6] == "  and 7 more: see tasks.json"
    history = found.index("trainers that joined or left, the last first:")
    assert found[history + 6 :] == ["  and 7 more: see tasks.json"]


def test_people_read_which_model_was_saved_last(tmp_path: Path) -> None:
    record = write(tmp_path, busy()) | {"end": None, "pass": 1, "saved": 0}
    text = "job job: pass 1 of 2; 0 trainers wait for a task; the last model saved is that of pass 0"
    assert lines(record)[0] == text


def test_a_former_leader_that_thaws_does_not_replace_the_record_of_a_later_one(tmp_path: Path) -> None:
    old = recorder(tmp_path, 1)
    old.offer(busy().state)
    until = time.monotonic() + 30
    while not (tmp_path / NAME).exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    write(tmp_path, busy(), leader=2, reason="the later one")
    old.close(busy().state, 0, "the former one")
    assert read_record(tmp_path / NAME)["end"]["reason"] == "the later one"


def test_a_first_record_replaces_that_of_a_store_that_was_removed(tmp_path: Path) -> None:
    write(tmp_path, busy(), leader=7)
    assert write(tmp_path, busy(), leader=1)["leader"] == 1


def test_a_later_leader_goes_on_with_the_history_of_the_same_job(tmp_path: Path) -> None:
    story = busy()
    for number in range(2 * MOST_EVENTS):
        story.join("c", incarnation=number)
    write(tmp_path, story)
    for leader, job, expected in ((2, "job", MOST_EVENTS), (1, "job", 0), (2, "other", 0)):
        other = Story(1)
        one = recorder(tmp_path, leader, job)
        one.load_history(other.state)
        one.abandon()
        assert len(other.state.history) == expected
    (tmp_path / NAME).write_text("[]")
    recorder(tmp_path, 2).load_history(other.state)


@each(
    "text",
    [b"", b"[]", b"{}", b"null", b"{", b"\xff", b"[" * 100_000, b'{"version":1}', b'{"version":"1"}'],
    ids=lambda one: one[:12].decode("latin-1"),
)
def test_what_is_no_record_is_called_that(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(DamagedError, match="is no record of a master"):
        read_record(tmp_path / NAME)


@each("field", ["phase", "holders", "members", "passes", "history", "servers", "written", "pass"])
def test_a_record_with_a_wrong_field_is_called_that(tmp_path: Path, field: str) -> None:
    record = write(tmp_path, busy())
    for wrong in (-5, [[]], {"a": 1}, [1], float("inf")):
        (tmp_path / NAME).write_text(json.dumps(record | {field: wrong}))
        with pytest.raises(DamagedError, match="is no record of a master"):
            read_record(tmp_path / NAME)


@pytest.mark.parametrize("skew", [-1000.0, 1000.0])
def test_a_master_with_another_clock_is_not_taken_for_dead(tmp_path: Path, skew: float) -> None:
    record = write(tmp_path, busy()) | {"end": None}
    path, is_under_way, is_over = tmp_path / NAME, threading.Event(), threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            path.with_name("next").write_text(json.dumps(record | {"written": time.time() + skew}))
            path.with_name("next").replace(path)
            is_under_way.set()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    assert is_under_way.wait(30)
    try:
        _, age, is_late = read_settled(path)
    finally:
        is_over.set()
        thread.join()
    assert (age, is_late) == (0.0, False)


def test_a_master_that_writes_no_more_is_taken_for_dead(tmp_path: Path) -> None:
    record = write(tmp_path, busy()) | {"end": None}
    (tmp_path / NAME).write_text(json.dumps(record))
    found, age, is_late = read_settled(tmp_path / NAME, lambda: record["written"] + 60.0)
    assert (age, is_late) == (60.0, True)
    assert lines(found, age, is_late=is_late)[1:3] == [
        "the master has not written for 1.0 min: it was killed, is frozen or cannot write here; the lines below "
        "show the last known state",
        "a standby continues the job; without a standby, start `paddle master` with the same store",
    ]
    assert not read_settled(tmp_path / NAME, lambda: record["written"] + LATE_S - 1)[2]
