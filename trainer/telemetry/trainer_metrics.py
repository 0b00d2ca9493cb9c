"""The metrics and the health of a trainer. The thread of `paddle_base.runtime.health` reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.environment import JobEnvironment, read_environment
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.health.liveness import LIVENESS, Liveness
from paddle_base.runtime.health.metrics import Exposition, Metric, Sample, describe_build
from paddle_base.runtime.network.interfaces import ANY_ADDRESS, resolve_nics
from trainer.flags import Values
from trainer.telemetry.snapshot import TRAINING
from trainer.telemetry.time_breakdown import COMPUTE, DATA, EXCHANGE, OTHER, SAVE, TEST

if TYPE_CHECKING:
    from paddle_base.runtime.network.front import Front
    from trainer.telemetry.reporter import Reporter

_OF = ("trainer",)
NO_NUMBER = "none"  # the label of a trainer that no master has accepted yet

READY = Metric("paddle_trainer_ready", "1 when the trainer has connected and begun its job", _OF)
PASS = Metric("paddle_trainer_pass", "number of the current pass", _OF)
BATCH = Metric("paddle_trainer_batch", "completed batches of the current pass", _OF)
WANTED = Metric("paddle_trainer_wanted_passes", "number of the last pass that the trainer will train, plus 1", _OF)
PASSES = Metric("paddle_trainer_passes_total", "passes that the trainer has finished", _OF)
BATCHES = Metric("paddle_trainer_batches_total", "batches that the trainer has trained", _OF)
SAMPLES = Metric("paddle_trainer_samples_total", "samples that the trainer has trained", _OF)
SPEED = Metric("paddle_trainer_samples_per_second", "samples per second over the last few seconds of training", _OF)
COST = Metric("paddle_trainer_cost", "average cost since the pass began, from the newest line of the log", _OF)
EVALUATOR = Metric("paddle_trainer_evaluator", "value of each evaluator since the pass began", ("trainer", "evaluator"))
SECONDS = {
    DATA: Metric("paddle_trainer_data_seconds_total", "seconds of waiting for the data provider", _OF),
    COMPUTE: Metric(
        "paddle_trainer_compute_seconds_total", "seconds of forward and backward passes and of evaluators", _OF
    ),
    EXCHANGE: Metric(
        "paddle_trainer_exchange_seconds_total", "seconds of waiting for pservers and other trainers", _OF
    ),
    TEST: Metric("paddle_trainer_test_seconds_total", "seconds of tests", _OF),
    SAVE: Metric("paddle_trainer_save_seconds_total", "seconds of saves and checkpoints", _OF),
    OTHER: Metric("paddle_trainer_other_seconds_total", "seconds of all other work", _OF),
}
TURN = Metric(
    "paddle_trainer_turn_age_seconds",
    "seconds since the trainer last began a batch of training or testing, or checked for answers of its peers",
    _OF,
)


class TrainerMetrics:
    """The state of a trainer for its health pages.

    Args: trainer_id: the number of the trainer, or None until a master has assigned a number. job: the environment of
        the job, which contains the maximum seconds without progress of the main loop.
    """

    def __init__(self, trainer_id: int | None, job: JobEnvironment, liveness: Liveness = LIVENESS) -> None:
        self._trainer, self._job, self._liveness = _label(trainer_id), job, liveness
        self._reporter: Reporter | None = None
        self._has_begun = False

    def begin(self, reporter: Reporter | None, trainer_id: int | None = 0) -> None:
        """Record that the job begins, with this trainer id. Without a reporter the job does not train.

        The order of the assignments matters, because the thread of /metrics may read between two assignments. A ready
        trainer must already have its numbers.
        """
        self._trainer = _label(trainer_id)
        self._reporter = reporter
        self._has_begun = True

    def why_stuck(self) -> str:
        """Return the problem if the main loop makes no progress (`paddle_base.runtime.health.liveness`), or "".

        A save may take any time, because a restart of the program would not make the volume faster. So may what a
        program of paddle.v2 does after its training.
        """
        age, reporter = self._liveness.age, self._reporter
        is_free = reporter and (reporter.breakdown.phase == SAVE or reporter.snapshot.status != TRAINING)
        if age <= self._job.stuck_timeout or is_free:
            return ""
        return f"the trainer has begun no batch for {age:.0f} s, and it does not wait for its peers"

    def why_not_ready(self) -> str:
        """Return the problem if the trainer has not begun its job, otherwise ""."""
        return "" if self._has_begun else "the trainer has not begun yet"

    def read(self) -> Iterator[Sample]:
        """Yield the current values."""
        of = (self._trainer,)
        yield describe_build("trainer", self._job.job, self._job.attempt)
        yield Sample(READY, self._has_begun, of)
        yield Sample(TURN, self._liveness.age, of)
        if self._reporter is not None:
            yield from _read_reporter(self._reporter, of)


def _label(trainer_id: int | None) -> str:
    return NO_NUMBER if trainer_id is None else str(trainer_id)


def _read_reporter(reporter: Reporter, of: tuple[str]) -> Iterator[Sample]:
    snapshot = reporter.snapshot  # only one snapshot, because all values must be from the same moment
    yield Sample(PASS, snapshot.place.pass_number, of)
    yield Sample(BATCH, snapshot.batch, of)
    yield Sample(WANTED, snapshot.place.passes, of)
    yield Sample(PASSES, snapshot.passes, of)
    yield Sample(BATCHES, snapshot.batches, of)
    yield Sample(SAMPLES, snapshot.spent.samples, of)
    yield Sample(SPEED, snapshot.place.samples_per_second, of)
    if snapshot.numbers["cost"] is not None:
        yield Sample(COST, snapshot.numbers["cost"], of)
    for name, value in snapshot.numbers["evaluators"].items():
        if value is not None:
            yield Sample(EVALUATOR, value, (*of, name))
    # the times include the phase that has not ended, so a long test or wait is visible
    for phase, seconds in reporter.breakdown.spent().phases.items():
        yield Sample(SECONDS[phase], seconds, of)


class Watched:
    """Serve /healthz, /readyz and /metrics until the end of the `with` block, if --metrics_port is set.

    Raises: ConfigError: see `read_environment`.
    """

    def __init__(self, flags: Values) -> None:
        trainer_id = None if flags.is_task_job else flags.trainer_id
        self.metrics = TrainerMetrics(trainer_id, read_environment(os.environ))
        self._flags = flags
        self._health: Front | None = None

    def __enter__(self) -> TrainerMetrics:
        if self._flags.metrics_port:
            self._health = self._watch(self._flags.metrics_port)
        return self.metrics

    def __exit__(self, *_: object) -> None:
        if self._health is not None:
            self._health.close()

    def _watch(self, port: int) -> Front | None:
        # this import takes 5 ms of CPU time (median of nine), a tenth of all imports of `paddle train --help`
        from paddle_base.runtime.network.pages import Pages, watch

        metrics = self.metrics
        try:
            hosts = resolve_nics(self._flags.nics) if "nics" in self._flags.given else [ANY_ADDRESS]
        except ConfigError as error:
            glog.warning(f"--metrics_port={port}: {error}; going on without /healthz, /readyz and /metrics")
            return None
        return watch(hosts, port, Pages(metrics.why_stuck, metrics.why_not_ready, Exposition(metrics.read)))
