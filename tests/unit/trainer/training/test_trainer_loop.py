"""Training and testing in one process, with sources and an updater of the test's own."""

import contextlib
import json
import random
import signal
from dataclasses import replace

import numpy as np
import pytest
from training_parts import BATCH, CountingUpdater, SignalledStopper, make_parts

from paddle_base.runtime.errors import DataError, LostPeerError, MissingInputError, StoppedError
from trainer.data import random_states
from trainer.telemetry.training_log import TrainingLog
from trainer.training import checkpoint_policy, testing
from trainer.training.checkpoint_policy import CheckpointPolicy
from trainer.training.loop import Training
from trainer.training.position import Position


class Source:
    """Passes of three batches; at `stop` (pass, batch) a signal comes while the data is waited for."""

    def __init__(self, stopper, stop):
        self.stopper, self.stop = stopper, stop
        self.place = [-1, 0]

    def start_pass(self):
        self.place = [self.place[0] + 1, 0]

    def track(self):
        pass

    is_read = True

    def position(self, batches):
        return {"batches": batches}

    def resume(self, position, size):
        pass

    def next_batch(self, size):
        if tuple(self.place) == self.stop:
            self.stopper.arrive()
        self.place[1] += 1
        return (BATCH, 2) if self.place[1] <= 3 else None


class AveragingUpdater(CountingUpdater):
    """Its averages are 0.5 less; a signal comes in the middle of the first exchange of values ("get", "give back")."""

    def __init__(self, table, stopper, exchange):
        super().__init__(table, stopper)
        self.exchange, self.raw = exchange, None

    @contextlib.contextmanager
    def averaged(self):
        if self.raw is None:
            self.raw = self.table.values.copy()
            self.arrive("get")
            self.table.values -= 0.5
        try:
            yield
        finally:
            self.arrive("give back")
            self.table.values[:] = self.raw
            self.raw = None

    def arrive(self, exchange):
        if exchange == self.exchange:
            self.exchange = ""
            self.stopper.arrive()


@pytest.fixture
def stopper(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # a test leaves the process's signals alone
    return SignalledStopper()


def train(parts, updater, stopper):
    parts.session.updater = updater
    Training(parts, stopper).run()


def run(folder, stopper, *flags, at=None, in_step=0):
    parts = make_parts(folder, *flags, train=Source(stopper, at))
    train(parts, CountingUpdater(parts.session.table, stopper, in_step), stopper)


def saved(folder):
    """What is saved, with the number of steps in it."""
    return {path.name: np.fromfile(path / "w", "<f4", offset=16)[0] for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("flags", "stop", "expected"),
    [
        ([], {"at": (0, 0)}, {}),
        ([], {"at": (0, 2)}, {"pass-00000-001": 2}),
        ([], {"in_step": 2}, {"pass-00000-001": 2}),
        ([], {"at": (1, 0)}, {"pass-00000": 3}),
        ([], {"at": (1, 3)}, {"pass-00000": 3, "pass-00001-001": 6}),
        (["--saving_period=5"], {"at": (2, 0)}, {"pass-00000": 3, "pass-00001": 6}),
        (["--saving_period_by_batches=1"], {"at": (0, 2)}, {"pass-00000-001": 2}),
        (["--saving_period_by_batches=1"], {"in_step": 3}, {"pass-00000-001": 2, "pass-00000-002": 3}),
        (["--start_pass=7"], {"at": (0, 1)}, {"pass-00007-001": 1}),
    ],
)
def test_a_signal_saves_what_was_learnt_since_the_last_save(tmp_path, stopper, flags, stop, expected):
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        run(tmp_path, stopper, *flags, **stop)
    assert saved(tmp_path) == expected


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "to go on with the parameters of pass-00001-001: paddle train --init_model_path={}/pass-00001-001 "),
        (["--checkpoint_period_by_batches=9"], "to go on from this state: paddle train "),
    ],
)
def test_a_stopped_run_says_how_to_go_on(tmp_path, stopper, capsys, monkeypatch, flags, told):
    """It said only "stopped by SIGINT"."""
    with pytest.raises(StoppedError):
        run(tmp_path, stopper, *flags, at=(1, 3))
    assert told.format(tmp_path) in capsys.readouterr().err
    monkeypatch.setenv("PADDLE_ATTEMPT", "1.ab")  # the launcher goes on by itself
    with pytest.raises(StoppedError):
        run(tmp_path, stopper, *flags, at=(1, 3))
    assert "to go on" not in capsys.readouterr().err


class InfiniteAverages(CountingUpdater):
    """Its averages are infinite, as those of values that have just become large are."""

    @contextlib.contextmanager
    def averaged(self):
        raw = self.table.values.copy()
        self.table.values[:] = np.inf
        yield
        self.table.values[:] = raw


def test_averages_that_are_not_finite_are_logged_and_end_no_training(tmp_path, stopper, capsys):
    flags = ["--average_test_period=1", "--log_period=1", "--saving_period=9", "--num_passes=1"]
    parts = replace(make_parts(tmp_path, *flags, train=Source(stopper, None)), averages=True)
    updater = InfiniteAverages(parts.session.table, stopper)
    with pytest.raises(DataError, match="they are not saved"):  # the save of the pass takes the averages
        train(parts, updater, stopper)
    assert updater.steps == 3
    assert "cost=inf" in capsys.readouterr().err


def checkpoints(folder):
    """What is in the checkpoints, with the number of steps, the batches of the pass, and whether tests are due."""
    found = {}
    for path in sorted((folder / "state").iterdir()):
        job = json.loads((path / "job.json").read_text())
        place = job["place"]
        assert (path / "done").exists()
        steps = np.fromfile(path / "parameters" / "w", "<f4", offset=16)[0]
        found[path.name] = (steps, place["number"], place["stage"], place["batches"], place["is_due"])
    return found


BY_BATCHES = ["--checkpoint_period_by_batches=2", "--checkpoints_kept=9"]


@pytest.mark.parametrize(
    ("flags", "stop", "expected"),
    [
        (BY_BATCHES, {"at": (0, 0)}, {}),
        (BY_BATCHES, {"at": (0, 1)}, {"pass-00000-001": (1, 0, "inside", 1, False)}),
        (BY_BATCHES, {"at": (0, 2)}, {"pass-00000-001": (2, 0, "inside", 2, True)}),
        (BY_BATCHES, {"in_step": 1}, {"pass-00000-001": (1, 0, "inside", 1, True)}),
        (BY_BATCHES, {"in_step": 2}, {"pass-00000-001": (2, 0, "inside", 2, True)}),
        (
            BY_BATCHES,
            {"at": (0, 3)},
            {"pass-00000-001": (2, 0, "inside", 2, True), "pass-00000-002": (3, 0, "inside", 3, False)},
        ),
        (
            BY_BATCHES,
            {"at": (1, 0)},
            {"pass-00000": (3, 1, "before", 0, False), "pass-00000-001": (2, 0, "inside", 2, True)},
        ),
        ([*BY_BATCHES, "--checkpoints_kept=1"], {"at": (1, 0)}, {"pass-00000": (3, 1, "before", 0, False)}),
        (
            ["--checkpoint_period_by_batches=9", "--saving_period=2"],
            {"at": (2, 0)},
            {"pass-00000": (3, 1, "before", 0, False), "pass-00002-001": (6, 2, "inside", 0, False)},
        ),
        (["--local=0"], {"at": (0, 0)}, {"pass-00000-001": (1, 0, "inside", 1, True)}),
        (["--local=0"], {"at": (0, 1)}, {"pass-00000-001": (2, 0, "inside", 2, True)}),
        (["--local=0"], {"in_step": 2}, {"pass-00000-001": (3, 0, "inside", 3, True)}),
        (["--local=0"], {"in_step": 3}, {"pass-00000": (3, 1, "before", 0, False)}),
    ],
)
def test_a_signal_makes_a_checkpoint_in_the_place_of_a_save(tmp_path, stopper, flags, stop, expected, monkeypatch):
    """With servers it can be made only right after a step that all trainers know of, or after the pass."""
    monkeypatch.setattr(signal, "alarm", lambda _: None)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        run(tmp_path, stopper, *flags, **stop)
    assert checkpoints(tmp_path) if expected else not (tmp_path / "state").exists()
    assert {name for name in saved_names(tmp_path) if "-0" in name[10:]} == set()
    if expected:
        assert checkpoints(tmp_path) == expected


def saved_names(folder):
    return [path.name for path in folder.iterdir() if path.name != "state"]


def make_policy(parts, stopper, **options):
    log = TrainingLog(parts.flags, parts.session.evaluators, parts.session.table, parts.reporter)
    parts.session.updater = CountingUpdater(parts.session.table, stopper)
    return CheckpointPolicy(parts, stopper, log, **options)


def test_the_clock_asks_for_checkpoints_too(tmp_path, stopper):
    parts = make_parts(tmp_path, "--checkpoint_period_seconds=10", train=Source(stopper, None))
    now = [0.0]
    made = make_policy(parts, stopper, clock=lambda: now[0])
    assert not made.is_wanted(1)
    now[0] = 10.0
    assert made.is_wanted(1)
    made.make(Position(0, "inside", 1, checkpoints=1), "pass-00000-001")
    assert not made.is_wanted(2)


@pytest.mark.parametrize("exchange", ["get", "give back"])
def test_a_signal_waits_until_averages_are_exchanged_for_a_test(tmp_path, stopper, exchange):
    parts = make_parts(tmp_path, train=Source(stopper, None), test=Source(stopper, None))
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        train(parts, AveragingUpdater(parts.session.table, stopper, exchange), stopper)
    assert saved(tmp_path) == {"pass-00000": 2.5}
    assert parts.session.table.values == 3


class DrawingSource(Source):
    """Its provider draws a random number for each batch."""

    def next_batch(self, size):
        random.random()
        return super().next_batch(size)


@pytest.mark.parametrize("stop", [(0, 2), (1, 0)], ids=["after a batch", "after a pass"])
def test_a_signal_in_a_test_keeps_the_random_numbers_that_the_test_draws(tmp_path, stopper, monkeypatch, stop):
    """The run that resumed made the test again with the next numbers, and the next pass had other samples."""
    states = []
    monkeypatch.setattr(CheckpointPolicy, "make", lambda own, *place: states.append(own.describe(place[0])["random"]))
    random.seed(3)
    before = random_states.write(random_states.take())
    if stop == (1, 0):
        for _ in range(4):  # three batches and the end of the first test
            random.random()
        before = random_states.write(random_states.take())
        random.seed(3)
    test = DrawingSource(stopper, stop)
    flags = ["--checkpoint_period_by_batches=9", "--test_period=2"]
    parts = make_parts(tmp_path, *flags, train=Source(stopper, None), test=test)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        train(parts, CountingUpdater(parts.session.table, stopper), stopper)
    assert states[-1] == before


class AheadSource(Source):
    """Picks samples with the random stream, as a shuffled source does; the provider fails at batch `fault`."""

    def __init__(self, stopper, events, fault=None):
        super().__init__(stopper, None)
        self.events, self.fault, self.stream = events, fault, None

    def is_ready(self, size):
        return True

    def next_batch(self, size):
        batch = super().next_batch(size)
        if self.place[1] == self.fault:
            raise DataError("no sample")
        self.events.append(f"read {self.place[1]}")
        self.stream.draw()
        return batch


class AheadUpdater(CountingUpdater):
    looks_ahead = True
    events = None

    def announce(self, slots):
        assert slots is BATCH
        self.events.append("announce")

    def step(self, samples, checkpoint=False):
        self.events.append("step")
        return super().step(samples, checkpoint)


def train_ahead(folder, stopper, *flags, fault=None):
    """Return what was done in order, and the states of the random stream that a checkpoint after each step has."""
    events, marks = [], []
    parts = make_parts(folder, "--num_passes=1", *flags, train=AheadSource(stopper, events, fault))
    parts.train.stream = stream = parts.session.stream
    updater = AheadUpdater(parts.session.table, stopper)
    updater.events, parts.session.updater = events, updater
    training = Training(parts, stopper)
    training._checkpoints.mark = lambda: marks.append(stream.state)
    try:
        training.run()
    except DataError as error:
        events.append(str(error))
    return events, marks


def test_an_updater_that_looks_ahead_is_told_the_next_batch_before_the_step(tmp_path, stopper):
    events, marks = train_ahead(tmp_path / "ahead", stopper)
    assert events == ["read 1", "read 2", "announce", "step", "read 3", "announce", "step", "read 4", "step"]
    AheadUpdater.looks_ahead = False
    try:
        plain, plain_marks = train_ahead(tmp_path / "plain", stopper)
    finally:
        AheadUpdater.looks_ahead = True
    assert plain == ["read 1", "step", "read 2", "step", "read 3", "step", "read 4"] and marks == plain_marks


def test_a_batch_after_a_test_is_not_read_ahead(tmp_path, stopper):
    """The test may draw from the stream that picks the samples; the samples would be others."""
    events, _ = train_ahead(tmp_path, stopper, "--test_period=2")
    assert events == ["read 1", "read 2", "announce", "step", "step", "read 3", "read 4", "step"]


def test_a_fault_of_a_batch_that_is_read_ahead_costs_no_step(tmp_path, stopper):
    events, _ = train_ahead(tmp_path, stopper, fault=3)
    assert events == ["read 1", "read 2", "announce", "step", "step", "no sample"]


def test_a_slow_provider_is_not_waited_for_before_a_step(tmp_path, stopper, monkeypatch):
    monkeypatch.setattr(AheadSource, "is_ready", lambda *_: False)
    events, _ = train_ahead(tmp_path, stopper)
    assert events == ["read 1", "step", "read 2", "step", "read 3", "step", "read 4"]


def test_without_a_signal_every_pass_is_saved(tmp_path, stopper):
    run(tmp_path, stopper)
    assert saved(tmp_path) == {"pass-00000": 3, "pass-00001": 6, "pass-00002": 9}


def test_the_test_job_looks_every_minute_until_a_pass_is_there(tmp_path, stopper, capsys):
    run(tmp_path, stopper, "--num_passes=1")
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            run(tmp_path, stopper, "--num_passes=1", "--start_pass=1")

    flags = ["--job=test", "--test_pass=0", "--num_passes=2", "--test_wait=1"]
    testing.Testing(make_parts(tmp_path, *flags, test=Source(stopper, None)), wait).run()
    assert waits == [60, 60, 60]
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines.count("Waiting for parameters of pass 1") == 3
    assert lines[-1].startswith(" Pass=1 samples=6 AvgCost=")


def test_a_model_that_a_list_names_in_vain_is_known_before_the_others_are_tested(tmp_path, stopper):
    (tmp_path / "models").write_text(f"{tmp_path}\n{tmp_path}/absent\n")
    flags = ["--job=test", f"--model_list={tmp_path}/models"]
    with pytest.raises(MissingInputError, match=r"--model_list=\S+/models names \S+/absent, which does not exist"):
        testing.Testing(make_parts(tmp_path, *flags, test=Source(stopper, None)))


def test_an_order_that_is_too_long_for_the_servers_is_left_out_with_a_warning(tmp_path, stopper, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint_policy, "NOTES_BYTES", 100)
    flags = ["--local=0", "--num_gradient_servers=2"]
    source = Source(stopper, None)
    source.position = lambda batches: {"batches": batches, "samples": 5, "order": {"data": "x" * 51}, "is_read": True}
    parts = make_parts(tmp_path, *flags, train=source)
    made = make_policy(parts, stopper)
    for _ in range(2):
        assert made.describe(Position(0, "inside", 1))["data"]["order"] is None
    assert capsys.readouterr().err.count("order of 5 samples is too long") == 1
    monkeypatch.setattr(checkpoint_policy, "NOTES_BYTES", 102)
    assert made.describe(Position(0, "inside", 1))["data"]["order"] is not None


class FaultyTest(Source):
    """Its provider finds no file at a batch of the first test."""

    def next_batch(self, size):
        if self.place[1] == 1:
            raise DataError("no file")
        return super().next_batch(size)


@pytest.mark.parametrize("flags", [[], ["--saving_period_by_batches=1"]])
def test_a_pass_is_saved_before_a_fault_of_the_test_data_ends_the_run(tmp_path, stopper, capsys, flags):
    """The whole pass was lost. The line of the save stays after the test, where get_best_pass looks for it."""
    parts = make_parts(tmp_path, *flags, train=Source(stopper, None), test=FaultyTest(stopper, None))
    with pytest.raises(DataError, match="no file"):
        train(parts, CountingUpdater(parts.session.table, stopper), stopper)
    assert saved(tmp_path) == ({"pass-00000-001": 2} if flags else {"pass-00000": 3})
    assert capsys.readouterr().err.count("Saving parameters to ") == 1


@pytest.mark.parametrize(
    ("flags", "kept", "told"),
    [
        (["--test_period=2"], "pass-00000-001", "--init_model_path=SAVES/pass-00000-001 --num_passes=3"),
        (["--saving_period=2", "--start_pass=1"], "pass-00001", "--start_pass=2 --num_passes=2"),
        (["--checkpoint_period_by_batches=9"], "state/pass-00000-001", "--resume_from=SAVES/state/pass-00000-001"),
    ],
)
def test_a_fault_of_the_test_data_costs_no_step_of_a_local_run(tmp_path, stopper, capsys, flags, kept, told):
    """The steps since the last save were lost, and the optimiser's state of a run with checkpoints."""
    parts = make_parts(tmp_path, *flags, train=Source(stopper, None), test=FaultyTest(stopper, None))
    parts.flags.arguments = flags
    with pytest.raises(DataError, match="no file"):
        train(parts, CountingUpdater(parts.session.table, stopper), stopper)
    assert (tmp_path / kept / "done").exists()
    assert told.replace("SAVES", str(tmp_path)) in capsys.readouterr().err


def test_a_fault_of_the_test_data_ends_a_trainer_with_servers_after_the_checkpoint_of_the_pass(tmp_path, stopper):
    """The state of the optimiser was lost: the next Job went on with the parameters alone."""
    parts = make_parts(tmp_path, "--local=0", train=Source(stopper, None), test=FaultyTest(stopper, None))
    with pytest.raises(DataError, match="no file"):
        train(parts, CountingUpdater(parts.session.table, stopper), stopper)
    assert all((tmp_path / one / "pass-00000" / "done").exists() for one in ("state", ""))


@pytest.mark.parametrize("passes", [1, 2])
def test_a_trainer_with_such_a_fault_waits_until_trainer_0_has_written_the_checkpoint(tmp_path, stopper, passes):
    """Trainer 0 writes what the others have sent. A trainer that gave up at once ended it in the middle of that."""
    flags = ["--local=0", "--trainer_id=1", f"--num_passes={passes}"]
    parts = make_parts(tmp_path, *flags, train=Source(stopper, None), test=FaultyTest(stopper, None))
    updater, told = CountingUpdater(parts.session.table, stopper), []
    updater.start_pass = lambda batch=0: told.append("start")
    updater.gather_checkpoint = lambda own: told.append("checkpoint")
    updater.finish = lambda: told.append("finish")
    with pytest.raises(DataError, match="no file"):
        train(parts, updater, stopper)
    assert told == ["start", "checkpoint", "start" if passes == 2 else "finish"]


def test_a_lost_trainer_in_that_checkpoint_does_not_hide_the_fault(tmp_path, stopper):
    parts = make_parts(tmp_path, "--local=0", train=Source(stopper, None), test=FaultyTest(stopper, None))
    updater = CountingUpdater(parts.session.table, stopper)

    def gather_checkpoint(own):
        raise LostPeerError("trainer 1 is lost")

    updater.gather_checkpoint = gather_checkpoint
    with pytest.raises(DataError, match="no file"):
        train(parts, updater, stopper)


def test_values_that_are_not_finite_are_not_told_as_saved(tmp_path, stopper, capsys):
    parts = make_parts(tmp_path, train=Source(stopper, None), test=Source(stopper, None))
    updater = CountingUpdater(parts.session.table, stopper)
    updater.finish_pass = lambda own: parts.session.table.values.fill(np.nan)
    with pytest.raises(DataError, match="not finite after batch 3"):
        train(parts, updater, stopper)
    assert saved(tmp_path) == {} and "Saving parameters" not in capsys.readouterr().err
