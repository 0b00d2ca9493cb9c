"""Trainers of a master as processes: they share a job, come, go, die, freeze, and are told what is wrong."""

import json
import re
import signal

import pytest
from task_jobs import BATCH, LINES, TaskJob

from paddle_base.runtime.errors import ConfigError, DataError, StoppedError, UsageError

MODES = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
ENDED = [0, 0, 0]  # master and servers


@pytest.fixture
def make_job(tmp_path, paddle, tools):
    def make(**options):
        return TaskJob(tmp_path / "job", paddle, tools.make_lines, **options)

    return make


@MODES
@pytest.mark.parametrize("trainers", [1, 3])
def test_a_job_ends_by_itself_and_every_task_was_finished_once(make_job, is_async, trainers):
    job = make_job(is_async=is_async)
    names = [f"trainer-{number}" for number in range(trainers)]
    job.start_all(*names)
    assert job.wait() == [*ENDED, *[0] * trainers], [job.log(name) for name in names]
    assert job.accounts() == [job.whole_pass()] * 2
    assert job.trained(*names) == 2 * job.tasks * LINES
    assert job.saved() == job.all_saved() and len(job.tests(*names)) == 2
    assert all(cost < 0.75 for cost in job.tests(*names))


@MODES
def test_a_killed_trainers_task_is_trained_by_another_one(make_job, is_async):
    job = make_job(is_async=is_async)
    job.hold("part-2")
    job.start_all("one", "two")
    victim = job.await_holder("part-2", "one", "two")
    job.kill(victim)
    job.release("part-2")
    assert job.wait() == [*ENDED, 0]
    assert job.accounts() == [job.whole_pass(more=1), job.whole_pass()]
    assert job.saved() == job.all_saved()


def test_a_round_does_not_wait_for_the_lease_of_a_killed_trainer(make_job):
    """The lease outlasts the test: the master sees that the connection is closed."""
    job = make_job(master=["--member_ttl=600s"])
    job.hold("part-2")
    job.start_all("one", "two")
    victim = job.await_holder("part-2", "one", "two")
    other = "two" if victim == "one" else "one"
    job.kill(victim)
    job.await_all(f"of pass 0 is done: {LINES // BATCH} batches", job.tasks - 1, "one", "two")
    assert job.log(other).count("of pass 0 is done") >= 1


@MODES
def test_a_frozen_trainer_holds_up_nobody_and_goes_on_when_it_thaws(make_job, is_async):
    job = make_job(is_async=is_async, passes=3)
    job.hold("part-2")
    job.start_all("one", "two")
    victim = job.await_holder("part-2", "one", "two")
    other = "two" if victim == "one" else "one"
    job.signal(victim, signal.SIGSTOP)
    job.await_holder("part-2", other)
    job.hold("part-3")
    job.release("part-2")
    job.await_holder("part-3", other)
    job.signal(victim, signal.SIGCONT)
    job.await_text("repe", victim)  # "which count as repeated", "has repeated"
    job.release("part-3")
    assert job.wait() == [*ENDED, 0, 0], job.log(victim)
    assert job.accounts() == [job.whole_pass(more=1), job.whole_pass(), job.whole_pass()]
    repeated = "is done by another trainer" if is_async else r"is given up after \d+ samples"
    assert re.search(f"task 2 of pass 0 {repeated}", job.log(victim))


@MODES
def test_a_stopped_trainer_gives_its_task_back(make_job, is_async):
    job = make_job(is_async=is_async, master=["--task_timeout_max=0"])  # what counts as a failure discards the task
    job.hold("part-2")
    job.start_all("one", "two")
    victim = job.await_holder("part-2", "one", "two")
    job.signal(victim, signal.SIGTERM)
    assert job.wait(victim) == [StoppedError.exit_code]
    job.release("part-2")
    del job.programs[victim]
    assert job.wait() == [*ENDED, 0]
    assert job.accounts() == [job.whole_pass(more=1), job.whole_pass()]
    assert re.search(r"task 2 of pass 0 is given back after \d+ samples, which count as repeated", job.log(victim))
    assert "stopped by SIGTERM" in job.log(victim)


@MODES
def test_trainers_come_late_and_all_may_go(make_job, is_async):
    """1 -> 2 -> 0 -> 1."""
    job = make_job(is_async=is_async)
    job.hold(*job.parts)
    job.start_all("first")
    job.await_text("holds ", "first")
    job.start_trainer("second")
    job.await_text("holds ", "second")
    for name in ("first", "second"):
        job.signal(name, signal.SIGTERM)
    assert job.wait("first", "second") == [StoppedError.exit_code] * 2
    job.release(*job.parts)
    job.start_trainer("third", "--log_json=third.jsonl")
    for name in ("first", "second"):
        del job.programs[name]
    assert job.wait() == [*ENDED, 0], job.log("third")
    assert job.accounts() == [job.whole_pass(more=2), job.whole_pass()]
    assert "trainer 2 of job 'job'" in job.log("third")
    lines = [json.loads(line) for line in (job.folder / "third.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines if "Pass=" in line["message"]][-1] == 2 and lines[0]["id"] is None
    assert job.saved() == job.all_saved()


@MODES
def test_bad_data_fail_their_task_alone_and_are_named(make_job, is_async):
    job = make_job(is_async=is_async, master=["--task_timeout_max=1"])
    job.write("part-3", ["1 2 3 0", "1 2 tree 0"])
    (job.folder / "part-4").unlink()
    job.start_all("one", "two")
    failed = DataError.exit_code
    assert job.wait() == [failed, 0, 0, failed, failed]
    whole = job.tasks - 2
    assert job.accounts() == [(whole, 2, whole + 4, whole * LINES)] * 2
    assert job.saved() == job.all_saved()
    text = "the job is done without 4 tasks that have failed too often: of pass 0 task "
    for name in ("master", "one", "two"):  # who comes after the end says in another line how the job has ended
        (last,) = [line for line in job.log(name).splitlines() if line.startswith("F")]
        assert text in last and "; of pass 1 task " in last
    job.start_trainer("late")
    assert job.wait("late") == [failed] and text in job.log("late")
    log = job.log("one") + job.log("two")
    assert "could not convert string to float: 'tree'" in log and "No such file or directory: 'part-4'" in log
    assert "could not convert string to float: 'tree'" in job.log()


def test_a_job_whose_data_are_all_bad_ends_with_the_reason(make_job):
    job = make_job(tasks=2, master=["--task_timeout_max=0"])
    for part in job.parts:
        job.write(part, ["1 2 tree 0"])
    job.start_all("one", "two")
    assert job.wait("master", "one", "two") == [DataError.exit_code] * 3
    for name in ("one", "two"):
        assert "the master has ended the job: all 2 tasks of pass 0 have failed" in job.log(name)


def test_a_master_that_dies_and_a_server_that_dies_are_waited_for(make_job):
    job = make_job(is_async=True, master=["--ttl=1s"])
    job.hold("part-2")
    job.start_all("one", "two")
    job.await_holder("part-2", "one", "two")
    job.kill("server-a")
    job.kill("master")
    job.release("part-2")
    job.start_server("server-c")
    job.start_master("second-master")
    assert job.wait() == [0] * 5, job.log("one")
    assert job.accounts("second-master") in ([job.whole_pass()] * 2, [job.whole_pass(more=1), job.whole_pass()])
    assert job.saved() == job.all_saved()


def test_what_is_not_of_the_job_is_refused_with_one_message(make_job):
    job = make_job()
    job.hold("part-0")
    job.start_all("one")
    job.await_holder("part-0", "one")
    job.write("other.list", job.parts[1:])
    other = (job.folder / "config.py").read_text()
    (job.folder / "other_list.py").write_text(other.replace("train.list", "other.list"))
    (job.folder / "empty_list.py").write_text(other.replace("train.list", "empty.list"))
    job.write("empty.list", [])
    cases = {
        "config": (["--config_args=batch=8"], ConfigError, "give every trainer the same config"),
        "list": (["--config=other_list.py"], ConfigError, "give every trainer the same files in the same order"),
        "empty": (["--config=empty_list.py"], DataError, "the list of training data empty.list is empty"),
        "flags": (["--pservers=a,b"], UsageError, "--pservers=a,b cannot be used with --store_dir"),
    }
    for name, (flags, error, message) in cases.items():
        job.start_trainer(name, *flags)
        assert job.wait(name) == [error.exit_code], job.log(name)
        assert job.log(name).count(message) == 1
        del job.programs[name]
    job.release("part-0")
    assert job.wait() == [*ENDED, 0]


def test_a_trainer_that_comes_when_the_job_is_over_ends_as_the_job_did(make_job):
    """No master is there any more."""
    job = make_job(tasks=1, passes=1)
    job.start_all("one")
    assert job.wait() == [*ENDED, 0]
    job.start_trainer("late")
    assert job.wait("late") == [0]
    assert "the job is over: all its passes are done" in job.log("late")


def test_passes_of_an_earlier_job_are_moved_by_the_trainer_that_begins_the_next(make_job):
    job = make_job(tasks=3, passes=1)
    for _ in range(2):
        job.start_all("one", "two")
        assert job.wait() == [*ENDED, 0, 0]
        job.forget_store()
    assert job.saved() == ["pass-00000"]
    assert [path.name for path in (job.folder / "out" / "run-1").iterdir()] == ["pass-00000"]
    assert [path.name for path in (job.folder / "out").iterdir() if path.name.startswith("run-")] == ["run-1"]
