"""What the driver writes of a job, and what `paddle status` says of it, at every moment of the job."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from each import each
from membership_story import BEGAN, StoryJob
from scripted_workers import ScriptedJob
from waiting import until

from paddle.utils import status
from paddle_base.runtime.errors import DamagedError, DirectoryInUseError, VolumeError
from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.decisions import FAILURE, READY, SUCCESS
from paddle_cluster.elastic.membership.history import MOST_GENERATIONS, JobHistory, NewcomerEntry
from paddle_cluster.elastic.membership_file import (
    LOCK,
    NAME,
    MembershipRecorder,
    list_newcomers,
    lock_output,
    read_record,
    read_settled,
)
from paddle_cluster.elastic.settings import ElasticSettings

LIMIT_S = 60.0


def test_a_job_with_a_failure_and_a_host_that_comes_is_told_at_every_moment() -> None:
    job = StoryJob()
    assert job.lines()[0] == "the driver begins"
    job.history.wait_for(2)
    job.now += 3
    assert job.lines()[0] == "waits for 2 slots of workers since 3.0 s; no generation yet"
    job.begin("a", "b")
    assert job.lines()[0] == "works since 0.0 s: generation 1 of 2 workers"
    job.join(0)
    assert job.lines()[0] == "forms since 0.0 s: generation 1 of 2 workers, of which 1 have connected"
    job.join(1)
    job.now += 10
    assert job.lines()[0] == "works since 10.0 s: generation 1 of 2 workers"

    job.history.fail(("b", 0), -9, job.now)
    job.now += 1
    first = "b[0], rank 1, ended by signal 9"
    assert job.lines()[0] == (
        f"changes since 1.0 s: generation 1 of 2 workers, of which 1 still work, 1 have failed; {first}"
    )
    job.history.report(("a", 0), READY)
    job.history.report(("b", 0), FAILURE)
    changing = f"generation 1 of 2 workers, of which 1 wait for the next generation, 1 have failed; {first}"
    assert job.lines()[0] == f"changes since 1.0 s: {changing}"
    job.history.wait_for(1)
    assert job.lines()[0] == f"waits for 1 slots of workers since 0.0 s; generation 1 of 2 workers; {first}"
    assert "  rank 1: b[0], since generation 1, has failed" not in job.lines()
    assert "  rank 1: b[0], since generation 1, has ended by signal 9" in job.lines()
    job.now += 1
    job.begin("a", "b", new=("b",))
    assert "1 change of workers took 2.0 s in total" in job.lines()
    job.now += 0.5
    job.join(0, 1, 1)
    assert "1 change of workers took 2.5 s in total" in job.lines()

    job.history.note_hosts()
    job.history.report(("a", 0), READY)
    job.now += 1
    job.begin("a", "b", "c")
    lines = job.lines()
    assert "  rank 2: c[0], since generation 3, works" in lines
    assert [line.split(" from ")[0] for line in lines[-3:]] == ["  3: 3 workers", "  2: 2 workers", "  1: 2 workers"]
    assert lines[-3].endswith("; came c[0]; 1.0 s lost")
    assert lines[-2].endswith("; came b[0]; went b[0]; 2.5 s lost; until the workers changed")
    assert lines[-1].endswith(f"; until {first}")

    for host in "abc":
        job.history.report((host, 0), SUCCESS)
    assert job.lines()[0] == "works since 0.0 s: generation 3 of 3 workers; 3 of them have done their work"
    assert job.lines({"status": 0, "reason": ""}, 60.0)[:3] == [
        "finished; generation 3 of 3 workers",
        "the driver ended 1.0 min ago",
        "2 changes of workers took 3.5 s in total",
    ]


def test_the_first_failure_by_time_is_named_and_how_many_there_were() -> None:
    job = StoryJob()
    job.begin("a", "b", "c")
    job.history.fail(("c", 0), 3, BEGAN + 1)
    job.history.fail(("c", 0), 4, BEGAN + 1)
    job.history.fail(("a", 0), 1, BEGAN + 2)
    job.now += 5
    (line,) = (line for line in job.lines() if line.startswith("  1: "))
    assert line.endswith("; then c[0], rank 2, ended with status 3, the first of 2")
    assert job.lines({"status": 3, "reason": "c[0] ended"})[0] == (
        "ended with status 3: c[0] ended; generation 1 of 3 workers"
    )


def test_a_worker_that_was_ended_for_its_silence_is_named_so() -> None:
    job = StoryJob()
    job.begin("a", "b")
    job.history.fail(("a", 0), -15, BEGAN + 1, is_silent=True)
    assert job.lines()[-1].endswith("; then a[0], rank 0, was silent, and the driver has ended it")


def test_new_workers_for_which_nobody_waits_are_told_until_they_join() -> None:
    """A host was added, and nothing was told of it until its worker had joined, which may take minutes."""
    job = StoryJob()
    job.begin("a")
    job.now += 60
    found = [
        NewcomerEntry("b[0]", "i1", job.now - 3, is_ready=False),
        NewcomerEntry("c[0]", "i2", job.now - 40, is_ready=True),
    ]
    job.history.list_newcomers = lambda: found
    assert job.lines()[-5:-2] == [
        "new workers, for which the others do not wait:",
        "  b[0]: starts, begun 3.0 s ago",
        "  c[0]: is ready, and joins at the next commit, begun 40.0 s ago",
    ]
    assert not any("b[0]" in line for line in job.lines(end={"status": 0, "reason": ""}))
    old = job.record()
    del old["newcomers"]
    assert list_newcomers(old) == [], "a record of an older driver"

    again = StoryJob()
    again.now = job.now + 100
    again.history.restore(job.record())
    assert again.record()["newcomers"] == job.record()["newcomers"], "the next driver waits to lead the job"
    again.table, again.generation = job.table, 0
    again.begin("a")
    again.history.list_newcomers = lambda: [NewcomerEntry("b[0]", "i1", again.now, is_ready=False)]
    assert again.record()["newcomers"][0]["began"] == job.now - 3, "the next driver knows when it was started"


def test_the_driver_tells_of_its_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    job = ScriptedJob({"a": 1}, waits=False)
    job.start(1)
    job.discovery.set({"a": 1, "b": 1, "c": 1})
    b = job.wait_for(3)[1]

    def tell() -> list[tuple[str, bool]]:
        return [(one["name"], one["is_ready"]) for one in job.driver.history.describe()["newcomers"]]

    assert tell() == [("b[0]", False), ("c[0]", False)]
    job.ask_first(b)
    until(lambda: tell() == [("b[0]", True), ("c[0]", False)], "b to be ready")
    job.discovery.set({"a": 1, "c": 1})
    until(lambda: tell() == [("c[0]", False)], "b to be forgotten")
    job.end()


def test_a_driver_that_is_silent_comes_first_and_its_record_is_of_the_past() -> None:
    job = StoryJob()
    job.begin("a")
    lines = job.lines(age=90.0, is_late=True)
    assert lines[0].startswith("the driver vm, process 7 has not written for 1.5 min: it was killed, is frozen or ")
    assert "Its workers end with the driver. The lines below show the state at its last write" in lines[0]
    assert lines[1] == "works since 0.0 s: generation 1 of 1 worker"


def test_workers_of_a_job_that_has_ended_are_not_told_to_work() -> None:
    """Below `ended with status 1` stood `rank 0: a[0], works`, and `waits for the next generation`."""
    job = StoryJob()
    job.begin("a", "b", "c", "d")
    job.history.report(("b", 0), READY)
    job.history.fail(("c", 0), 1, BEGAN + 1)
    job.history.report(("d", 0), SUCCESS)
    told = [line.rpartition(", ")[2] for line in job.lines({"status": 1, "reason": "c[0] ended"}) if "  rank " in line]
    over = "was ended with the job"
    assert told == [over, over, "has ended with status 1", "has done its work"]
    assert any(line.endswith(", works") for line in job.lines())


def test_another_driver_goes_on_with_the_history() -> None:
    job = StoryJob()
    job.begin("a", "b")
    job.history.fail(("b", 0), 1, job.now)
    job.now += 2
    job.begin("a")
    before = job.record()
    job.history = JobHistory(lambda: job.now)
    job.history.restore(before)
    slots = [SlotInfo("a", 0, 0, 0)]
    job.history.begin(2, slots, job.table)
    after = job.record()
    assert {key: after[key] for key in ("generations", "lost", "members")} == {
        key: before[key] for key in ("generations", "lost", "members")
    }
    assert after["wanted"] is None


def test_a_driver_that_waits_to_take_over_shows_the_workers_of_the_earlier_one() -> None:
    """The list of workers was empty until the driver led the job, although all of them worked."""
    job = StoryJob()
    job.begin("a", "b")
    again = StoryJob()
    again.history.restore(job.record())
    assert again.record()["members"] == job.record()["members"]
    assert "  rank 1: b[0], since generation 1, works" in again.lines()


def test_a_failure_that_two_drivers_have_seen_counts_once() -> None:
    job = StoryJob()
    job.begin("a", "b")
    job.history.fail(("b", 0), 3, BEGAN + 1)
    before = job.record()
    job.history = JobHistory(lambda: job.now)
    job.history.restore(before)
    job.generation = 0
    job.begin("a", "b")
    job.history.fail(("b", 0), 3, BEGAN + 9)
    assert job.record()["generations"] == before["generations"]


def test_generations_beyond_a_bound_are_counted_and_their_lost_time_stays() -> None:
    job = StoryJob()
    for _ in range(MOST_GENERATIONS + 20):
        job.begin("a")
        job.history.report(("a", 0), READY)
        job.now += 1
    record = job.record()
    assert (len(record["generations"]), record["forgotten"]) == (MOST_GENERATIONS, 20)
    assert record["lost"] == MOST_GENERATIONS + 19


def test_of_many_generations_and_workers_the_newest_five_are_told_and_where_the_others_are() -> None:
    """`paddle status` printed up to fifty rows of each, several screens of them."""
    job = StoryJob()
    for size in range(1, 13):
        job.begin(*(f"h{number}" for number in range(size)))
        job.join(*range(size))
        job.now += 1
    job.history.fail(("h3", 0), -9, job.now)
    lines = job.lines()
    begin = lines.index("workers of generation 12:")
    assert [line.split(":")[0] for line in lines[begin + 1 : begin + 6]] == [
        f"  rank {rank}" for rank in (3, 8, 9, 10, 11)
    ], "the failed one and the newest ones"
    assert lines[begin + 6 : begin + 8] == [
        "  and 7 more: see report.html, which `paddle report` writes",
        "generations, the last first:",
    ]
    assert [line.split(":")[0].strip() for line in lines[begin + 8 : -1]] == ["12", "11", "10", "9", "8"]
    assert lines[-1] == "  and 7 more: see report.html, which `paddle report` writes"


def test_generations_that_the_driver_has_forgotten_count_as_more() -> None:
    job = StoryJob()
    for _ in range(MOST_GENERATIONS + 20):
        job.begin("a")
        job.history.report(("a", 0), READY)
    assert job.lines()[-1].startswith(f"  and {MOST_GENERATIONS + 20 - 5} more: ")


def test_what_the_driver_does_is_in_its_history() -> None:
    job = ScriptedJob({"a": 1, "b": 1}, failures=1)
    first, second = job.start(2)
    second.commands.put(7)
    answer = job.ask(first)
    assert answer.result(LIMIT_S) is not None
    record = job.driver.history.describe()
    assert [one["number"] for one in record["generations"]] == [1, 2]
    assert record["generations"][0]["first_name"] == "b[0]"
    assert (record["generations"][0]["first_code"], record["generations"][1]["went"]) == (7, ["b[0]"])
    job.succeed(first)
    assert job.finish() == {"a[0]": 0}
    assert job.driver.history.describe()["members"][0]["state"] == "done"


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[MembershipRecorder]:
    settings = ElasticSettings(FixedHosts({}), 1, None, None, None, output_filename=str(tmp_path))
    found = MembershipRecorder(settings, JobHistory(), is_continued=False)
    yield found
    found.close(0, "")


def test_the_file_is_there_from_the_begin_and_says_how_the_job_has_ended(
    tmp_path: Path, recorder: MembershipRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    assert read_record(path)["end"] is None
    assert status.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("the driver begins\nthe driver ")
    before = read_record(path)["written"]
    until(lambda: read_record(path)["written"] != before, "a record that is written though nothing happens")
    recorder.close(75, "b[0] was ended by signal 9")
    assert status.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("ended with status 75: b[0] was ended by signal 9; no generation yet\n")


def test_a_killed_driver_is_seen_by_its_silence(
    tmp_path: Path, recorder: MembershipRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.close(0, "")
    record = {**read_record(tmp_path / NAME), "end": None}
    (tmp_path / NAME).write_text(json.dumps(record))
    monkeypatch.setattr("paddle_base.runtime.status_files.WATCH_S", 0.0)
    _, age, is_late = read_settled(tmp_path / NAME, lambda: record["written"] + 60.0)
    assert (age, is_late) == (60.0, True)
    assert not read_settled(tmp_path / NAME, lambda: record["written"] + 4.0)[2]


@each("text", ["", "{", "[]", "{}", '{"version": 1}', "[" * 100_000])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(DamagedError, match="is no record of a driver"):
        read_record(tmp_path / NAME)
    assert status.main([str(tmp_path)]) == DamagedError.exit_code


def test_an_output_that_cannot_be_written_ends_the_job_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = ElasticSettings(FixedHosts({}), 1, None, None, None, output_filename=str(tmp_path / "file" / "x"))
    with pytest.raises(VolumeError, match=r"--output-filename: .* cannot be written"):
        MembershipRecorder(settings, JobHistory(), is_continued=False)


def test_a_directory_that_is_removed_during_the_job_is_made_again(
    tmp_path: Path, recorder: MembershipRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver warned once in 30 s, and the end of the job was nowhere."""
    shutil.rmtree(tmp_path, ignore_errors=True)
    recorder.close(75, "")
    assert read_record(tmp_path / NAME)["end"] == {"status": 75, "reason": ""}
    assert "cannot be written" not in capsys.readouterr().err


def test_a_last_record_that_cannot_be_written_is_told_after_an_earlier_warning(
    recorder: MembershipRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning about the last record was left out, because an earlier one was less than 30 s old."""
    warnings: queue.SimpleQueue[str] = queue.SimpleQueue()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paddle_cluster.elastic.membership_file.glog.warning", warnings.put)
    monkeypatch.setattr("paddle_cluster.elastic.membership_file.write_record", refuse)
    assert "cannot be written" in warnings.get(timeout=LIMIT_S)
    recorder.close(75, "")
    assert warnings.get(timeout=LIMIT_S).endswith("membership.json cannot be written: No space left on device")
    assert warnings.empty()


HOLD = """import sys, pathlib
from paddle_cluster.elastic.membership_file import lock_output
lock = lock_output(pathlib.Path(sys.argv[1]), False)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


def test_only_a_driver_that_takes_over_writes_beside_another_one(tmp_path: Path) -> None:
    """Two drivers truncated the same files; rank.0/stdout had NUL bytes, and membership.json was of both."""
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUseError, match=rf"writes into .* \(pid {other.pid} on .*\); wait for its end"):
            lock_output(tmp_path, False)
        assert lock_output(tmp_path, True) is None  # the other driver is frozen
        assert (tmp_path / LOCK).exists()
        other.kill()
    lock = lock_output(tmp_path, False)
    assert lock
    assert f"pid {os.getpid()} on " in (tmp_path / LOCK).read_text()
    lock.release()
    assert not (tmp_path / LOCK).exists()
