"""What a run tells its owner: files of trainer 0 and of every trainer, and what happens when they cannot be written."""

import json
import math
import time

import pytest

from trainer import usage
from trainer.progress_files import find_slowest, job_speed, read_job, read_trainers, write_progress
from trainer.records import read_all_records
from trainer.reporter import Reporter, Target, find_target
from trainer.usage import Usage
from trainer.writer import Writer


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Sums:
    samples = 64

    def average_cost(self):
        return 0.25

    def text(self):
        return "error=0.5 "


def test_usage_adds_up_to_the_time_that_has_passed():
    clock = Clock()
    spent = Usage(clock)
    for phase, seconds in ((usage.DATA, 1), (usage.COMPUTE, 2), (usage.EXCHANGE, 4), (usage.COMPUTE, 8)):
        spent.switch(phase)
        clock.now += seconds
    spent.count(1, 32, 0.5)
    totals = spent.totals()
    assert totals["seconds"] == 15
    assert [totals[f"{phase}_seconds"] for phase in ("data", "compute", "exchange", "other")] == [1, 10, 4, 0]
    assert (totals["samples"], spent.switch(usage.TEST)) == (32, usage.COMPUTE)


def run(reporter):
    reporter.start(**{"pass": 0, "batch": 0})
    reporter.start_pass(0)
    reporter.add(1, 64, 0.25)
    reporter.add_batch_line(Sums(), Sums())
    reporter.finish_pass(Sums())
    reporter.add_test(Sums())
    reporter.add_save("out/pass-00000")
    reporter.show()


def test_trainer_0_writes_records_and_progress(tmp_path):
    reporter = Reporter(Target(tmp_path, None, 0, ""), passes=4)
    run(reporter)
    reporter.end(0)
    records = read_all_records(tmp_path)
    assert [one["kind"] for one in records] == ["start", "batch", "pass", "test", "save", "end"]
    assert records[1]["window_evaluators"] == {"error": 0.5}
    assert records[2]["usage"]["0"]["samples"] == 64
    progress = read_job(tmp_path)
    assert (progress["status"], progress["pass"], progress["passes"], progress["job_fraction"]) == ("finished", 0, 4, 1)
    assert (progress["cost"], progress["evaluators"], progress["pass_samples"]) == (0.25, {"error": 0.5}, 64)


def test_another_trainer_writes_its_own_progress_only(tmp_path):
    (tmp_path / "node_1").mkdir()
    target = find_target("elsewhere", 1, {"PADDLE_OUTPUT": str(tmp_path), "PADDLE_ATTEMPT": "2.ab"})
    reporter = Reporter(target, passes=4)
    run(reporter)
    reporter.end(75, "trainer 2 is lost")
    assert [path.name for path in tmp_path.iterdir()] == ["node_1"]
    assert list(read_trainers(tmp_path, "2.ab")) == ["1"]
    assert read_trainers(tmp_path, "1.ab") == {}


def test_nothing_is_written_where_nobody_would_look():
    assert find_target("out", 1, {}) is None
    run(Reporter(None))


@pytest.mark.parametrize(("status", "said"), [(0, "finished"), (143, "stopped"), (65, "failed")])
def test_the_end_is_told(tmp_path, status, said):
    reporter = Reporter(Target(tmp_path, None, 0, "1.ab"), passes=4)
    run(reporter)
    reporter.end(status, "why")
    assert read_job(tmp_path)["status"] == said
    end = read_all_records(tmp_path)[-1]
    assert (end["status"], end["message"], end["attempt"]) == (status, "why", "1.ab")


def test_a_line_of_progress_comes_once_a_period(tmp_path):
    clock = Clock()
    reporter = Reporter(None, passes=2, line_period_s=30, clock=clock)
    reporter.start_pass(0)
    lines = []
    for batch in range(1, 62):
        clock.now += 1
        lines.append(reporter.add(batch, 10, 0.5))
    assert [number for number, line in enumerate(lines, 1) if line] == [30, 60]
    assert lines[29] == "progress: pass 1 of 2, 300 samples, 10 samples/s"


def test_a_half_line_of_an_earlier_writer_spoils_no_other(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"kind": "ba')
    reporter = Reporter(Target(tmp_path, None, 0, ""), passes=1)
    run(reporter)
    reporter.end(0)
    assert len(read_all_records(tmp_path)) == 6


def test_records_wait_for_a_volume_that_comes_back_and_one_warning_says_so(tmp_path, capsys):
    output = tmp_path / "output"
    fails = iter([True, True])

    def write():
        if next(fails, False):
            raise OSError("volume full")
        output.mkdir(exist_ok=True)

    writer = Writer(output, write, has_report=False)
    writer.append("1\n")
    writer.start()
    deadline = time.monotonic() + 20
    while not output.exists() and time.monotonic() < deadline:
        writer.append("2\n")
        writer.show()
    writer.end(20)
    assert (output / "records.jsonl").read_text().startswith("1\n2\n")
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_the_warning_names_the_file(tmp_path, capsys):
    (tmp_path / "progress.json").mkdir()
    reporter = Reporter(Target(tmp_path, None, 0, ""), passes=4)
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
    assert job_speed({**trainers, "3": trainer(5, 1, 1, time=time.time() - 3600)}) == 30


def test_a_damaged_progress_is_no_trainer(tmp_path):
    half = [{"attempt": "1.a"}, {"attempt": "1.a", "time": "x"}]
    for number, text in enumerate(["", "{", "[]", *map(json.dumps, half)]):
        (tmp_path / f"node_{number}").mkdir()
        (tmp_path / f"node_{number}/progress.json").write_text(text)
    (tmp_path / "node_10").mkdir()
    write_progress(tmp_path / "node_10", trainer(1, 1, 1))
    assert list(read_trainers(tmp_path, "1.a")) == ["10"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, 10**400, "1", None], ids=str)
@pytest.mark.parametrize("name", ["time", "samples_per_second", "pass", "compute_seconds"])
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
    reporter = Reporter(Target(tmp_path, None, 0, ""), passes=2, line_period_s=1e-9)
    reporter.start_pass(0)
    assert "of the pass" not in reporter.add(1, 10, 0.5)


def write_progress_of(directory, progress):
    directory.mkdir()
    write_progress(directory, progress)
