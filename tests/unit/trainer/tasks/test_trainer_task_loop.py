"""The training loop in tasks, with a master, a source and an updater of the test's own."""

import contextlib
import signal

import numpy as np
import pytest
from training_parts import BATCH, CountingUpdater, SignalledStopper, make_parts

from paddle_base.registry.records import JobEnd
from paddle_base.runtime.errors import DataError, MissingInputError, PeerUnreachableError, StoppedError, VolumeError
from paddle_cluster.master.client import PassOver, TaskGrant
from paddle_cluster.master.tasks.events import BUSY, GRANTED, SAVED
from paddle_cluster.master.tasks.records import TaskView
from trainer.tasks.job_end import JobOverError
from trainer.tasks.loop import TaskTraining, show_files
from trainer.updaters.tasks.errors import TaskTakenError

ENDING = PassOver(9, is_last=True)


def grant(number, pass_number=0, files=("a",)):
    return TaskGrant(number, 1, pass_number, tuple(files), 60.0)


class ScriptedMaster:
    """Answers with what the test gives; keeps all that it is told."""

    number, num_passes = 0, 2

    def __init__(self, *answers, saves=(), refused=(), members=(0,)):
        self.answers, self.saves, self.refused = list(answers), list(saves), refused
        self.view = TaskView(1, members)
        self.told = []

    def get_task(self, pass_number):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        self.told.append(("asks", pass_number))
        return answer() if callable(answer) else answer

    def finish(self, task, samples, *, wants_next):
        assert wants_next
        self.told.append(("finished", task.number, samples))
        return task.number not in self.refused

    def fail(self, task, reason, samples):
        self.told.append(("failed", task.number, reason, samples))
        return True

    def give_back(self, task, samples, patience=None):
        self.told.append(("back", task.number, samples))
        return False

    def request_save(self, pass_number, block):
        return self.saves.pop(0) if self.saves else SAVED

    def report_saved(self, pass_number):
        self.told.append(("saved", pass_number))
        return True

    def leave(self):
        self.told.append(("leaves",))

    def said(self, *kinds):
        return [one for one in self.told if one[0] in kinds]


class Tasks:
    """Each file is a batch of two samples, or what it is to raise; "stop" is a batch in which a signal comes."""

    def __init__(self, stopper, faults):
        self.stopper, self.faults, self.files, self.is_open = stopper, faults, [], False

    def start_task(self, files, name):
        self.files, self.is_open = list(files), True

    def next_batch(self, size):
        if not self.files:
            return None
        file = self.files.pop(0)
        if file in self.faults:
            raise self.faults[file]
        if file == "stop":
            self.stopper.arrive()
        if file == "nan":
            return {**BATCH, "x": BATCH["x"].with_value(np.full((2, 1), np.nan, np.float32))}, 2
        return BATCH, 2

    def close(self):
        self.is_open = False


class TestData:
    __test__ = False

    def __init__(self, stopper=None):
        self.stopper, self.left = stopper, 0

    def start_pass(self):
        self.left = 2

    def next_batch(self, size):
        if self.stopper is not None:
            self.stopper.arrive()
        self.left -= 1
        return (BATCH, 2) if self.left >= 0 else None


class TaskSteps(CountingUpdater):
    def __init__(self, table, stopper, stop=0):
        super().__init__(table, stopper, stop)
        self.passes, self.has_left = [], False

    def set_pass(self, number):
        self.passes.append(number)

    def check(self):
        pass

    def finish(self):
        self.has_left = True


@pytest.fixture
def stopper(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # a test leaves the process's signals alone
    monkeypatch.setattr(signal, "alarm", lambda _: None)
    return SignalledStopper()


class Job:
    def __init__(self, folder, stopper, master, *flags, faults=None, test=None, in_step=0, first_pass=0):
        self.folder, self.master = folder, master
        parts = make_parts(folder, *flags, test=test)
        self.updater = parts.session.updater = TaskSteps(parts.session.table, stopper, in_step)
        self.source = Tasks(stopper, faults or {})
        self.waits = []
        self.training = TaskTraining(parts, self.source, stopper, master, first_pass=first_pass, wait=self.waits.append)

    def saved(self):
        """What is saved, with the number of steps in it."""
        names = sorted(path.name for path in self.folder.iterdir() if path.name != "state")
        return {name: np.fromfile(self.folder / name / "w", "<f4", offset=16)[0] for name in names}


def test_every_task_is_trained_and_finished_with_its_samples(tmp_path, stopper, capsys):
    master = ScriptedMaster(
        grant(3, files=["a", "b", "c"]), grant(1), PassOver(1, is_last=False), grant(2, 1), PassOver(2, is_last=True)
    )
    job = Job(tmp_path, stopper, master, "--log_period=2")
    job.training.run()
    assert master.said("finished") == [("finished", 3, 6), ("finished", 1, 2), ("finished", 2, 2)]
    assert master.said("asks") == [("asks", 0)] * 3 + [("asks", 1)] * 2
    assert job.updater.steps == 5 and job.updater.passes == [0, 0, 1]
    assert master.told[-1] == ("leaves",) and job.updater.has_left and not job.source.is_open
    log = capsys.readouterr().err
    assert "task 3 of pass 0 is done: 3 batches, 6 samples in " in log and ": a, b, c" in log
    for line in (" Batch=2 samples=4 AvgCost=", " Pass=0 Batch=4 samples=8 AvgCost=", " Pass=1 Batch=1 samples=2 "):
        assert line in log


def test_the_one_that_the_master_chooses_tests_and_saves(tmp_path, stopper, capsys):
    master = ScriptedMaster(grant(0), PassOver(1, is_last=False), grant(0, 1), ENDING, saves=[GRANTED])
    job = Job(tmp_path, stopper, master, test=TestData())
    job.training.run()
    assert job.saved() == {"pass-00000": 1} and (tmp_path / "pass-00000" / "done").exists()
    assert master.said("saved", "asks") == [("asks", 0), ("asks", 0), ("saved", 0), ("asks", 1), ("asks", 1)]
    log = capsys.readouterr().err
    assert log.index(" Pass=0 ") < log.index(" Test samples=4 ") < log.index("Saving parameters to ")


@pytest.mark.parametrize("answer", [BUSY, SAVED])
def test_the_others_go_on(tmp_path, stopper, answer, capsys):
    master = ScriptedMaster(grant(0), PassOver(1, is_last=False), grant(0, 1), ENDING, saves=[answer])
    job = Job(tmp_path, stopper, master, test=TestData())
    job.training.run()
    assert job.saved() == {} and master.said("saved") == []
    assert " Test samples=" not in capsys.readouterr().err


def test_a_pass_that_is_not_due_is_reported_and_the_last_one_is_always_saved(tmp_path, stopper):
    master = ScriptedMaster(
        *(one for number in range(3) for one in (grant(0, number), PassOver(number + 1, is_last=False))),
        ENDING,
        saves=[GRANTED] * 3,
    )
    master.num_passes = 3
    job = Job(tmp_path, stopper, master, "--saving_period=4")
    job.training.run()
    assert job.saved() == {"pass-00000": 1, "pass-00002": 3}
    assert master.said("saved") == [("saved", 0), ("saved", 1), ("saved", 2)]


def test_the_last_pass_is_saved_by_another_one_when_the_first_is_lost(tmp_path, stopper):
    """The master asks for the pass behind the last one only when nobody saves."""
    master = ScriptedMaster(
        grant(0, 1),
        PassOver(2, is_last=False),
        PassOver(2, is_last=False),
        PassOver(2, is_last=True),
        saves=[BUSY, GRANTED],
    )
    job = Job(tmp_path, stopper, master, first_pass=1)
    job.training.run()
    assert job.saved() == {"pass-00001": 1}
    assert master.said("asks") == [("asks", 1)] * 2 + [("asks", 2)] * 2


def test_a_pass_is_saved_in_the_middle_of_the_next_one_when_its_first_saver_is_lost(tmp_path, stopper, capsys):
    master = ScriptedMaster(
        grant(0),
        PassOver(1, is_last=False),
        grant(0, 1, "ab"),
        PassOver(1, is_last=False),
        grant(1, 1, "c"),
        PassOver(2, is_last=True),
        saves=[BUSY, GRANTED],
    )
    job = Job(tmp_path, stopper, master, "--log_period=1")
    job.training.run()
    assert list(job.saved()) == ["pass-00000"] and master.said("saved") == [("saved", 0)]
    assert " Pass=1 Batch=3 " in capsys.readouterr().err, "the pass goes on where it was"


def test_a_trainer_that_comes_late_skips_passes_without_a_line_of_theirs(tmp_path, stopper, capsys):
    master = ScriptedMaster(PassOver(3, is_last=False), grant(0, 3), ENDING)
    job = Job(tmp_path, stopper, master)
    job.training.run()
    assert master.said("asks") == [("asks", 0), ("asks", 3), ("asks", 3)]
    log = capsys.readouterr().err
    assert "this trainer got no task of pass 0" in log and " Pass=0 " not in log and " Pass=3 Batch=1 " in log


@pytest.mark.parametrize("error", [DataError, MissingInputError, VolumeError])
def test_bad_data_fail_their_task_and_no_other(tmp_path, stopper, error, capsys):
    master = ScriptedMaster(grant(0, files=["a", "bad"]), grant(1), ENDING)
    job = Job(tmp_path, stopper, master, faults={"bad": error("line 3 of bad is odd")})
    job.training.run()
    assert master.said("failed", "finished") == [("failed", 0, "line 3 of bad is odd", 2), ("finished", 1, 2)]
    assert "task 0 of pass 0 has failed: line 3 of bad is odd" in capsys.readouterr().err
    assert job.waits == []


def test_a_number_that_is_not_finite_fails_its_task_and_is_not_pushed(tmp_path, stopper):
    master = ScriptedMaster(grant(0, files=["nan"]), grant(1), ENDING)
    job = Job(tmp_path, stopper, master)
    job.training.run()
    [(_, number, reason, samples)] = master.said("failed")
    assert (number, samples) == (0, 0) and reason.startswith("the cost of layer cost is nan in batch 1 of pass 0")
    assert job.updater.steps == 1


@pytest.mark.parametrize(("members", "waits"), [((0,), 0), ((0, 4), 1 + 2), ((4,), 1 + 2)])
def test_a_trainer_that_fails_task_after_task_leaves_them_to_others(tmp_path, stopper, members, waits):
    tasks = [grant(number, files=["bad"]) for number in range(3)]
    master = ScriptedMaster(*tasks, ENDING, members=members)
    job = Job(tmp_path, stopper, master, faults={"bad": MissingInputError("no such file")})
    job.training.run()
    assert sum(job.waits) == waits


def test_a_task_that_another_trainer_has_finished_is_a_repetition(tmp_path, stopper, capsys):
    master = ScriptedMaster(grant(5), ENDING, refused=[5])
    Job(tmp_path, stopper, master).training.run()
    assert "task 5 of pass 0 is done by another trainer, so this trainer has repeated its samples" in (
        capsys.readouterr().err
    )


def test_a_task_without_samples_is_finished_with_a_warning(tmp_path, stopper, capsys):
    master = ScriptedMaster(grant(5, files=[]), ENDING)
    Job(tmp_path, stopper, master).training.run()
    assert master.said("finished") == [("finished", 5, 0)]
    assert "the data provider delivers no sample of task 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "in_step", "steps"), [(["a", "stop", "b"], 0, 2), (["a", "b", "c"], 2, 2), (["stop"], 0, 1)]
)
def test_a_signal_ends_behind_the_batch_and_the_task_goes_back(tmp_path, stopper, files, in_step, steps):
    master = ScriptedMaster(grant(0, files=files))
    job = Job(tmp_path, stopper, master, in_step=in_step)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        job.training.run()
    assert job.updater.steps == steps
    assert master.told == [("asks", 0), ("back", 0, 2 * steps), ("leaves",)] and job.updater.has_left
    assert job.saved() == {}


def test_a_signal_while_a_task_is_waited_for(tmp_path, stopper):
    def wait():
        stopper.arrive()
        stopper.leave()  # as the client's `look` does

    master = ScriptedMaster(wait)
    job = Job(tmp_path, stopper, master)
    with pytest.raises(StoppedError):
        job.training.run()
    assert master.told == [("asks", 0), ("leaves",)] and job.updater.has_left


def test_a_signal_in_a_test_ends_it_and_the_pass_counts(tmp_path, stopper):
    master = ScriptedMaster(grant(0), PassOver(1, is_last=False), saves=[GRANTED])
    job = Job(tmp_path, stopper, master, test=TestData(stopper))
    with pytest.raises(StoppedError):
        job.training.run()
    assert master.said("saved", "leaves") == [("saved", 0), ("leaves",)] and job.saved() == {"pass-00000": 1}


def test_a_pass_counts_when_it_is_saved_although_its_test_fails(tmp_path, stopper):
    """It was reported after the test: the next trainer saved it again, with values of the next pass, and failed too."""

    class Wrong(TestData):
        def next_batch(self, size):
            raise DataError("line 3 of test.txt has no label")

    master = ScriptedMaster(grant(0), PassOver(1, is_last=False), saves=[GRANTED])
    job = Job(tmp_path, stopper, master, test=Wrong())
    with pytest.raises(DataError, match=r"line 3 of test\.txt"):
        job.training.run()
    assert master.said("saved") == [("saved", 0)] and job.saved() == {"pass-00000": 1}


def test_a_batch_that_does_not_end_in_time_is_cut_and_nobody_is_told(tmp_path, stopper):
    """What was cut may hold a lock of the client; its lease ends soon enough."""

    def hang():
        stopper.arrive()
        stopper._handle(signal.SIGALRM, None)

    master = ScriptedMaster(hang)
    job = Job(tmp_path, stopper, master)
    with pytest.raises(StoppedError):
        job.training.run()
    assert master.told == [("asks", 0)] and not job.updater.has_left


def test_another_error_is_the_trainers_end(tmp_path, stopper):
    master = ScriptedMaster(PeerUnreachableError("the master is away"))
    job = Job(tmp_path, stopper, master)
    with pytest.raises(PeerUnreachableError):
        job.training.run()


def test_the_files_of_a_task_in_a_line() -> None:
    assert show_files(("a", "b")) == "a, b"
    assert show_files(tuple("abcde")) == "a, b, c and 2 more"


def test_a_task_that_is_taken_away_in_its_middle_is_given_up(tmp_path, stopper, capsys):
    master = ScriptedMaster(grant(0, files=["a", "taken", "b"]), grant(1), ENDING)
    job = Job(tmp_path, stopper, master, faults={"taken": TaskTakenError("it is with trainer 2 now")})
    job.training.run()
    assert master.said("back", "finished") == [("back", 0, 2), ("finished", 1, 2)]
    log = capsys.readouterr().err
    assert "task 0 of pass 0 is given up after 2 samples, which count as repeated: it is with trainer 2 now" in log


def test_a_pass_that_cannot_be_tested_because_the_job_is_over_is_left(tmp_path, stopper):
    master = ScriptedMaster(grant(0), PassOver(1, is_last=False), ENDING, saves=[GRANTED])
    job = Job(tmp_path, stopper, master)

    def finish_pass():
        raise TaskTakenError("the job is over")

    job.updater.finish_pass = finish_pass
    job.training.run()
    assert master.said("saved") == [] and job.saved() == {}


@pytest.mark.parametrize(("reason", "error"), [("", None), ("all 3 tasks have failed", DataError)])
def test_a_trainer_that_finds_the_job_over_ends_as_the_job_has(tmp_path, stopper, reason, error):
    """It was frozen until the master had gone."""
    master = ScriptedMaster(JobOverError(JobEnd(reason)))
    job = Job(tmp_path, stopper, master)
    with pytest.raises(error, match=reason) if error else contextlib.nullcontext():
        job.training.run()
    assert job.updater.has_left and master.told == []


def test_a_trainer_whose_master_ends_before_it_has_left_ends_well(tmp_path, stopper):
    """The master was killed at the end, and no other one came: found by a trial of chaos."""
    master = ScriptedMaster(grant(0), ENDING)

    def leave():
        raise JobOverError(JobEnd(""))

    master.leave = leave
    job = Job(tmp_path, stopper, master)
    job.training.run()
    assert job.updater.has_left
