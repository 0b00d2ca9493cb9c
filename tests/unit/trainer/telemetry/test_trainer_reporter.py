"""What a run tells its owner: files of trainer 0 and of every trainer, and what happens when they cannot be written."""

import json
import math
import threading
import time

import pytest
from each import each

from paddle_base.runtime.environment import read_environment
from trainer.records.progress_files import (
    STALE_S,
    TrainerWatch,
    find_slowest,
    job_speed,
    read_job,
    read_trainers,
    sum_last_pass,
    write_progress,
)
from trainer.records.records import read_all_records
from trainer.report.facts import Reader
from trainer.report.state import describe_state
from trainer.telemetry import time_breakdown
from trainer.telemetry.reporter import OutputTarget, Reporter, find_target, find_task_target
from trainer.telemetry.time_breakdown import TimeBreakdown
from trainer.telemetry.trainer_metrics import TrainerMetrics
from trainer.telemetry.writer import Writer


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


SNAPSHOT = Reporter(None, passes=4).snapshot


class Sums:
    samples = 64

    def average_cost(self):
        return 0.25

    def results(self):
        return {"error": "0.5"}


def test_usage_adds_up_to_the_time_that_has_passed():
    clock = Clock()
    spent = TimeBreakdown(clock)
    for phase, seconds in (
        (time_breakdown.DATA, 1),
        (time_breakdown.COMPUTE, 2),
        (time_breakdown.EXCHANGE, 4),
        (time_breakdown.COMPUTE, 8),
    ):
        spent.switch(phase)
        clock.now += seconds
    spent.count(1, 32)
    totals = spent.spent().describe()
    assert totals["seconds"] == 15
    assert [totals[f"{phase}_seconds"] for phase in ("data", "compute", "exchange", "other")] == [1, 10, 4, 0]
    assert (totals["samples"], spent.switch(time_breakdown.TEST)) == (32, time_breakdown.COMPUTE)


def run(reporter):
    reporter.start(**{"pass": 0, "batch": 0})
    reporter.start_pass(0)
    reporter.add(1, 64)
    reporter.add_batch_line(Sums(), Sums())
    reporter.finish_pass(Sums())
    reporter.add_test(Sums())
    reporter.add_save("out/pass-00000")
    reporter.show()


def test_trainer_0_writes_records_and_progress(tmp_path):
    reporter = Reporter(OutputTarget(tmp_path, None, 0, ""), passes=4)
    run(reporter)
    reporter.end(0)
    records = read_all_records(tmp_path)
    assert [one["kind"] for one in records] == ["start", "batch", "pass", "test", "save", "end"]
    assert records[1]["window_evaluators"] == {"error": 0.5}
    assert records[2]["usage"]["0"]["samples"] == 64
    progress = read_job(tmp_path)
    assert (progress["status"], progress["pass"], progress["passes"], progress["job_fraction"]) == ("finished", 0, 4, 1)
    assert (progress["cost"], progress["evaluators"], progress["pass_samples"]) == (0.25, {"error": 0.5}, 64)


def test_trainers_of_a_master_write_records_and_progress_of_their_own(tmp_path):
    for number in (0, 7):
        target = find_task_target(str(tmp_path), number, {"POD_NAME": f"pod-{number}"})
        reporter = Reporter(target, passes=4, in_tasks=True)
        run(reporter)
        reporter.end(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node_0", "node_7"]
    assert [path.name for path in sorted((tmp_path / "node_7").iterdir())] == ["progress.json", "records.jsonl"]
    assert [one["kind"] for one in read_all_records(tmp_path / "node_7")][-3:] == ["test", "save", "end"]
    trainers = read_trainers(tmp_path, "")
    assert [(one["host"], one["pass"], one["status"]) for one in trainers.values()] == [
        ("pod-0", 0, "finished"),
        ("pod-7", 0, "finished"),
    ]


def test_a_trainer_of_a_master_does_not_know_its_share_of_a_pass():
    reporter = Reporter(passes=4, in_tasks=True)
    run(reporter)
    assert reporter.snapshot.place.pass_fraction is None and reporter.snapshot.place.passes == 4


def test_after_the_removal_of_its_directory_a_trainer_still_reports(tmp_path):
    """After `rm -rf output`, status said until the end of the attempt that trainer 0 has reported nothing."""
    output = tmp_path / "output"
    target = find_target("elsewhere", 0, {"PADDLE_OUTPUT": str(output), "PADDLE_ATTEMPT": "2.ab"})
    reporter = Reporter(target, passes=4)
    with pytest.raises(FileNotFoundError):
        reporter._write_progress(reporter.snapshot)
    assert not output.exists()  # the next save creates it, and warns that it was removed
    output.mkdir()
    reporter._write_progress(reporter.snapshot)
    assert read_job(output)["status"] == "training"
    assert list(read_trainers(output, "2.ab")) == ["0"]


def test_the_progress_of_the_job_is_written_if_that_of_the_trainer_cannot_be_written(tmp_path):
    (tmp_path / "node_0").write_text("is in the way of the directory")
    target = find_target("elsewhere", 0, {"PADDLE_OUTPUT": str(tmp_path), "PADDLE_ATTEMPT": "2.ab"})
    reporter = Reporter(target, passes=4)
    with pytest.raises(FileExistsError):
        reporter._write_progress(reporter.snapshot)
    assert read_job(tmp_path)["status"] == "training"


def test_another_trainer_writes_its_own_progress_only(tmp_path):
    (tmp_path / "node_1").mkdir()
    target = find_target("elsewhere", 1, {"PADDLE_OUTPUT": str(tmp_path), "PADDLE_ATTEMPT": "2.ab"})
    reporter = Reporter(target, passes=4)
    run(reporter)
    reporter.end(75, "trainer 2 is lost")
    assert [path.name for path in tmp_path.iterdir()] == ["node_1"]
    assert list(read_trainers(tmp_path, "2.ab")) == ["1"]
    assert read_trainers(tmp_path, "1.ab") == {}


def test_a_trainer_that_waits_reports_since_when_and_in_which_phase(tmp_path):
    """Its progress.json was renewed every 5 s, and nothing in it told a job that hangs from one that trains."""
    clock = Clock()
    (tmp_path / "node_1").mkdir()
    target = find_target("elsewhere", 1, {"PADDLE_OUTPUT": str(tmp_path), "PADDLE_ATTEMPT": "2.ab"})
    reporter = Reporter(target, passes=4, clock=clock)
    run(reporter)
    reporter.breakdown.switch(time_breakdown.EXCHANGE)
    clock.now += 100.0
    reporter.end(75, "trainer 2 is lost")
    told = read_trainers(tmp_path, "2.ab")["1"]
    assert (told["phase"], told["idle_seconds"]) == ("exchange", 100.0)


def test_nothing_is_written_where_nobody_would_look():
    assert find_target("out", 1, {}) is None
    run(Reporter(None))


@pytest.mark.parametrize(("status", "said"), [(0, "finished"), (130, "stopped"), (143, "stopped"), (65, "failed")])
def test_the_end_is_told(tmp_path, status, said):
    reporter = Reporter(OutputTarget(tmp_path, None, 0, "1.ab"), passes=4)
    run(reporter)
    reporter.end(status, "why")
    assert read_job(tmp_path)["status"] == said
    end = read_all_records(tmp_path)[-1]
    assert (end["status"], end["message"], end["attempt"]) == (status, "why", "1.ab")
    assert describe_state(Reader(tmp_path).read()).name == said


def test_a_line_of_progress_comes_once_a_period(tmp_path):
    clock = Clock()
    reporter = Reporter(None, passes=2, line_period_s=30, clock=clock)
    reporter.start_pass(0)
    lines = []
    for batch in range(1, 62):
        clock.now += 1
        lines.append(reporter.add(batch, 10))
    assert [number for number, line in enumerate(lines, 1) if line] == [30, 60]
    assert lines[29] == "progress: pass 1 of 2, 300 samples, 10 samples/s"


def test_the_line_of_progress_is_that_of_the_batch_it_comes_after():
    """It was up to five seconds old: "0 samples" after 1280, "100% of the pass" in the middle of a later one."""
    clock = Clock()
    reporter = Reporter(None, passes=10, line_period_s=1, clock=clock)
    reporter.start()
    lines = []
    for number in range(3):
        reporter.start_pass(number)
        for batch in range(1, 3):
            clock.now += 1
            lines.append(reporter.add(batch, 32))
        reporter.finish_pass(Sums())
    assert lines == [
        "progress: pass 1 of 10, 32 samples, 32 samples/s",
        "progress: pass 1 of 10, 64 samples, 32 samples/s",
        "progress: pass 2 of 10, 50% of the pass, 15% of the job, 32 samples/s, 0:00:17 left",
        "progress: pass 2 of 10, 100% of the pass, 20% of the job, 32 samples/s, 0:00:16 left",
        "progress: pass 3 of 10, 50% of the pass, 25% of the job, 32 samples/s, 0:00:15 left",
        "progress: pass 3 of 10, 100% of the pass, 30% of the job, 32 samples/s, 0:00:14 left",
    ]


def numbers_told(reporter):
    """What /metrics says."""
    metrics = TrainerMetrics(0, read_environment({}))
    metrics.begin(reporter)
    return {one.metric.name: one.value for one in metrics.read()}


def test_metrics_of_a_trainer_of_a_master_have_its_number():
    metrics = TrainerMetrics(None, read_environment({}))
    assert {one.labels for one in metrics.read() if one.metric.name.startswith("paddle_trainer")} == {("none",)}
    metrics.begin(Reporter(), 3)
    labels = {one.labels[0] for one in metrics.read() if one.metric.name.startswith("paddle_trainer")}
    assert labels == {"3"}


@pytest.mark.parametrize("batches", [0, 1, 7])
def test_metrics_and_progress_say_the_same_of_a_run_in_its_middle(tmp_path, batches):
    reporter = Reporter(OutputTarget(tmp_path, None, 0, ""), passes=4)
    reporter.start(**{"pass": 0, "batch": 0, "trainers": 1})
    reporter.start_pass(0)
    reporter.finish_pass(Sums())
    reporter.start_pass(1)
    for batch in range(1, batches + 1):
        reporter.add(batch, 8)
    told = numbers_told(reporter)
    reporter.end(75, "the volume is full")
    progress = read_job(tmp_path)
    assert (told["paddle_trainer_pass"], told["paddle_trainer_batch"]) == (1, batches)
    assert told["paddle_trainer_samples_total"] == 8 * batches
    assert told["paddle_trainer_cost"] == progress["cost"] == 0.25
    assert (progress["pass"], progress["batch"], progress["samples"]) == (1, batches, 8 * batches)
    assert progress["pass_fraction"] == min(batches / 8, 1)
    assert progress["job_fraction"] == (1 + batches / 8) / 4
    assert (progress["status"], progress["message"], progress["seconds_left"]) == ("failed", "the volume is full", None)


def test_a_reader_in_another_thread_sees_numbers_of_one_moment(tmp_path):
    reporter = Reporter(None, passes=4)
    reporter.start()
    reporter.start_pass(0)
    is_over = threading.Event()
    odd = []

    def read():
        while not is_over.is_set():
            seen = reporter.snapshot
            if not seen.batch * 8 == seen.place.samples == seen.spent.samples == seen.batches * 8:
                odd.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(1, 3000):
        reporter.add(batch, 8)
    is_over.set()
    reader.join()
    assert odd == []


def test_the_phases_add_up_whenever_another_thread_asks():
    """A phase that ended between two reads was counted twice."""
    clock = Clock()
    spent = TimeBreakdown(clock)
    switch_meanwhile = iter([time_breakdown.COMPUTE])

    def ask_clock():
        clock.now += 5
        for phase in switch_meanwhile:  # the other thread is quicker than this one
            spent.switch(phase)
        return clock.now

    spent.switch(time_breakdown.DATA)
    spent._clock = ask_clock
    found = spent.spent()
    assert sum(found.phases.values()) == found.seconds


def test_a_finished_job_has_the_mean_speed_of_all_trainers(tmp_path):
    clock = Clock()
    output = tmp_path / "output"
    for node in ("node_0", "node_1"):
        (output / node).mkdir(parents=True)
    write_progress(output / "node_1", trainer(500, 1, 1, usage={"samples": 500, "seconds": 50.0}, samples_per_second=9))
    reporter = Reporter(OutputTarget(output, output / "node_0", 0, "1.a"), passes=1, clock=clock)
    reporter.start(**{"pass": 0, "batch": 0, "trainers": 2})
    reporter.start_pass(0)
    for batch, seconds in enumerate((10.0, 1.0, 9.0), 1):
        clock.now += seconds
        reporter.add(batch, 100)
    assert reporter.snapshot.place.samples_per_second == 20  # of the last ten seconds
    reporter.end(0)
    assert read_job(output)["samples_per_second"] == 300 / 20 + 500 / 50


COSTS = {"0": (0, 151, 0.4), "1": (0, 152, 0.5), "2": (0, 152, 0.6)}


def told_passes(**changed):
    places = {**COSTS, **changed}
    return {
        number: {"last_pass": dict(zip(("pass", "samples", "cost"), one, strict=True))}
        for number, one in places.items()
    }


def test_the_cost_of_the_last_pass_is_that_of_all_samples_if_all_have_told_theirs():
    cost = float(f"{(151 * 0.4 + 152 * 0.5 + 152 * 0.6) / 455:g}")
    assert sum_last_pass(told_passes(), 3) == {"pass": 0, "samples": 455, "cost": cost, "trainers": 3}


@pytest.mark.parametrize(
    ("changed", "count"),
    [({}, 4), ({"1": (1, 152, 0.5)}, 3), ({"2": (0, "152", 0.5)}, 3), ({"2": (None, 152, 0.5)}, 3)],
    ids=["one is missing", "one is further", "one has odd samples", "one has told nothing"],
)
def test_else_it_is_that_of_trainer_0_and_says_so(changed, count):
    assert sum_last_pass(told_passes(**changed), count) == {"pass": 0, "samples": 151, "cost": 0.4, "trainers": 1}


def test_before_the_first_pass_there_is_no_cost_of_a_pass():
    assert sum_last_pass({"0": {"last_pass": None}, "1": told_passes()["1"]}, 2) is None
    assert sum_last_pass({}, 2) is None


def test_a_cost_that_is_not_finite_is_none():
    found = sum_last_pass(told_passes(**{"1": (0, 152, None)}), 3)
    assert found == {"pass": 0, "samples": 455, "cost": None, "trainers": 3}


def test_a_half_line_of_an_earlier_writer_spoils_no_other(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"kind": "ba')
    reporter = Reporter(OutputTarget(tmp_path, None, 0, ""), passes=1)
    run(reporter)
    reporter.end(0)
    assert len(read_all_records(tmp_path)) == 6


def test_records_wait_for_a_volume_that_comes_back_and_one_warning_says_so(tmp_path, capsys):
    output = tmp_path / "output"
    fails = iter([True, True])

    def write(_snapshot):
        if next(fails, False):
            raise OSError("volume full")
        output.mkdir(exist_ok=True)

    writer = Writer(output, write, has_report=False)
    writer.tell(SNAPSHOT, "1\n")
    writer.start()
    deadline = time.monotonic() + 20
    while not output.exists() and time.monotonic() < deadline:
        writer.tell(SNAPSHOT, "2\n")
        writer.show()
    writer.end(20)
    assert (output / "records.jsonl").read_text().startswith("1\n2\n")
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_the_warning_names_the_file(tmp_path, capsys):
    (tmp_path / "progress.json").mkdir()
    reporter = Reporter(OutputTarget(tmp_path, None, 0, ""), passes=4)
    run(reporter)
    reporter.end(0)
    assert str(tmp_path / "progress.json") in capsys.readouterr().err


def trainer(samples, data, compute, **fields):
    spent = {"samples": samples, "data_seconds": data, "compute_seconds": compute}
    own = {"time": time.time(), "samples_per_second": 10.0, "pass": 0, "batch": 1, "attempt": "1.a"}
    return {**own, "usage": spent, **fields}


def test_the_slowest_is_who_was_busy_longest():
    trainers = {"0": trainer(5, 1, 2), "1": trainer(5, 1, 5, host="b"), "2": trainer(0, 99, 0)}
    assert find_slowest(trainers) == {"trainer": 1, "host": "b", "busy_seconds": 6, "mean_busy_seconds": 4.5}
    assert find_slowest({"0": trainers["0"]}) is None
    assert job_speed(trainers) == 30


def test_a_trainer_is_silent_by_the_clock_of_who_watches_it(tmp_path):
    """The speed of a trainer whose clock was ten minutes behind was left out, and a frozen one with a fast clock was
    counted for ten minutes more."""
    clock, now = Clock(), {"0": time.time(), "1": time.time() - 600, "2": time.time() + 600}

    def write(number):
        (tmp_path / f"node_{number}").mkdir(exist_ok=True)
        now[number] += 5.0
        write_progress(tmp_path / f"node_{number}", trainer(5, 1, 1, time=now[number]))

    watch = TrainerWatch(clock)
    for number in now:
        write(number)
    watch.read(tmp_path, "1.a")
    assert job_speed(watch.trainers, watch.silent) == 30
    clock.now += STALE_S + 1
    write("0")
    write("1")
    now["1"] -= 1200.0  # its clock is set back
    watch.read(tmp_path, "1.a")
    assert watch.silent == {"2"} and job_speed(watch.trainers, watch.silent) == 20
    clock.now += STALE_S + 1
    write("1")
    watch.read(tmp_path, "1.a")
    assert watch.silent == {"0", "2"}


def test_a_damaged_progress_is_no_trainer(tmp_path):
    half = [{"attempt": "1.a"}, {"attempt": "1.a", "time": "x"}]
    for number, text in enumerate(["", "{", "[]", *map(json.dumps, half)]):
        (tmp_path / f"node_{number}").mkdir()
        (tmp_path / f"node_{number}/progress.json").write_text(text)
    (tmp_path / "node_10").mkdir()
    write_progress(tmp_path / "node_10", trainer(1, 1, 1))
    assert list(read_trainers(tmp_path, "1.a")) == ["10"]


@each("odd", [math.nan, math.inf, 10**400, "1", None], ids=str)
@each("name", ["time", "samples_per_second", "pass", "compute_seconds"])
def test_progress_that_cannot_be_added_up_is_that_of_nobody(tmp_path, name, odd):
    own = trainer(10, 1.0, 2.0)
    write_progress_of(tmp_path / "node_1", own)
    for node in ("node_2", "node_x"):
        damaged = {**own, "usage": {**own["usage"]}}
        (damaged if name in damaged else damaged["usage"])[name] = odd if node == "node_2" else own.get(name, 1.0)
        write_progress_of(tmp_path / node, damaged)
    assert list(read_trainers(tmp_path, "1.a")) == ["1"]


@pytest.mark.parametrize("known", [-5, 10**400, 1.5, "x", None], ids=lambda known: str(known)[:5])
def test_a_count_of_samples_that_cannot_be_is_not_known(tmp_path, known):
    write_progress(tmp_path, {"pass_samples": known})
    reporter = Reporter(OutputTarget(tmp_path, None, 0, ""), passes=2, line_period_s=1e-9)
    reporter.start_pass(0)
    assert "of the pass" not in reporter.add(1, 10)


def write_progress_of(directory, progress):
    directory.mkdir()
    write_progress(directory, progress)
