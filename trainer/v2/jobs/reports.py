"""What a program reports from a pod, as `paddle train` does: progress, records, report.html, metrics and log lines."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, InterruptError, PaddleError
from paddle_base.runtime.health.liveness import LIVENESS
from trainer.evaluators import Accumulator
from trainer.flags import Values
from trainer.session import BatchResult, Session
from trainer.telemetry.description import describe_run
from trainer.telemetry.place import leave_place
from trainer.telemetry.reporter import Reporter, find_target, find_task_target
from trainer.telemetry.snapshot import TRAINING
from trainer.telemetry.time_breakdown import SAVE, TEST
from trainer.telemetry.trainer_metrics import Watched
from trainer.telemetry.training_log import TrainingLog
from trainer.training.position import Position

Seat = tuple[int, int]  # the number of a trainer that a master has assigned, and the number of passes of the job


class Reports:
    """The reports of one call of `SGD.train`. Those of this class are none: the program runs outside a pod."""

    def begin(self, position: Position, passes: int) -> None:
        """Begin to train from a position. Args: passes: the number of the last pass, plus 1."""

    def begin_pass(self, position: Position, whole: Accumulator) -> None:
        """Begin a pass, or go on in it. Args: whole: the sums of the pass so far."""

    def begin_batch(self, batches: int) -> None:
        """Begin a batch after `batches` batches of the pass."""

    def count(self, position: Position, whole: Accumulator, result: BatchResult) -> None:
        """Add a completed batch, which `position` counts, to the sums of its pass."""
        whole.add(*result)

    def end_pass(self, position: Position, whole: Accumulator) -> None:
        """End a pass, with its sums."""
        whole.finish()

    def add_checkpoint(self, name: str) -> None:
        """Tell that a checkpoint has been made."""

    def end(self, error: BaseException | None = None) -> None:
        """End the training: it is complete, or an exception ends it."""


class PodReports(Reports):
    """The reports of a call of `SGD.train` in a pod.

    Args: prints: whether the log gets the lines of `paddle train`.
    """

    def __init__(
        self, process: ProcessReports, flags: Values, session: Session, config: TrainerConfig, *, prints: bool
    ) -> None:
        self._process, self._flags, self._session, self._config = process, flags, session, config
        self._first = 0 if flags.is_task_job else process.passes  # a program counts the passes of each call from 0
        self._reporter = process.reporter
        session.breakdown = self._reporter.breakdown
        has_dots = "dot_period" in flags.given
        flags = flags if has_dots else Values({**{name: getattr(flags, name) for name in flags.given}, "dot_period": 0})
        self._log = TrainingLog(flags, session.evaluators, session.table, self._reporter, is_quiet=not prints)

    def begin(self, position: Position, passes: int) -> None:
        """See `Reports`."""
        LIVENESS.turn()
        place = {"pass": self._first + position.number, "batch": position.batches}
        total = {"start_pass": 0, "passes": self._first + passes, "config": " ".join(sys.argv)}
        facts = describe_run(self._flags, self._config, self._session.table)
        self._process.begin(self._first + passes, {**place, **facts, **place, **total})

    def begin_pass(self, position: Position, whole: Accumulator) -> None:
        """See `Reports`."""
        self._log.since_start = whole
        glog.bind(self._first + position.number, position.batches)
        self._reporter.start_pass(self._first + position.number, position.batches, whole.samples)

    def begin_batch(self, batches: int) -> None:
        """See `Reports`."""
        self._log.start_batch(batches)

    def count(self, position: Position, whole: Accumulator, result: BatchResult) -> None:
        """See `Reports`."""
        self._log.count(position.batches, *result)
        self._log.write_batch(self._first + position.number, position.batches, self._session.updater.rates)

    def end_pass(self, position: Position, whole: Accumulator) -> None:
        """See `Reports`."""
        if not whole.samples:  # nothing is trained; the pass may be one that other programs have trained
            whole.finish()
            return
        self._log.write_pass(self._first + position.number, position.batches)
        self._process.passes = self._first + position.number + 1
        self._reporter.show()

    def add_checkpoint(self, name: str) -> None:
        """See `Reports`."""
        self._reporter.add_checkpoint(name)

    def end(self, error: BaseException | None = None) -> None:
        """See `Reports`."""
        self._process.rest(error)


class ProcessReports:
    """The reports of this process: all its trainings have one reporter, and their passes are counted on.

    Attributes: reporter: the reporter. passes: the number of the newest pass that has ended, plus 1.

    Args: seat: the place of this program in a job with a master.
    """

    def __init__(self, flags: Values, seat: Seat | None) -> None:
        number, passes = seat or (flags.trainer_id, 0)
        find = find_task_target if seat else find_target
        target = find(flags.save_dir, number, os.environ)
        self.reporter = Reporter(target, passes, flags.progress_period, in_tasks=seat is not None)
        self.passes = 0
        self._has_begun, self._left = False, 0  # and the status with which a training has left the program
        self._pid = os.getpid()
        self._watched = Watched(flags)
        self._watched.__enter__().begin(self.reporter, number)
        if flags.log_json:
            glog.to_json(flags.log_json, role="trainer", number=number, attempt=os.environ.get("PADDLE_ATTEMPT", ""))
        atexit.register(self.end)

    def begin(self, passes: int, facts: dict[str, Any]) -> None:
        """Begin a training. Args: passes: the number of its last pass, plus 1. facts: of the start record."""
        self._left = 0
        self.reporter.extend(passes)
        if not self._has_begun:
            self._has_begun = True
            self.reporter.start(**facts)

    def rest(self, error: BaseException | None) -> None:
        """End a training, whose program may go on."""
        status = find_status(error)
        self._left = status if isinstance(error, SystemExit) else 0
        self.reporter.rest(status, "" if error is None else _describe(error))

    def end(self) -> None:
        """Record the end of the process, and write the last files. A process that is forked from it ends in silence."""
        if os.getpid() != self._pid:
            return
        failure = getattr(sys, "last_value", None)
        status = self._left if failure is None else find_status(failure)
        self.reporter.end(status, "" if failure is None else _describe(failure))
        self._watched.__exit__()


def find_status(error: BaseException | None) -> int:
    """Return the exit status of a process that ends with an exception; None: it ends well."""
    if error is None:
        return 0
    if isinstance(error, PaddleError):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return InterruptError.exit_code if isinstance(error, KeyboardInterrupt) else BugError.exit_code


def _describe(error: BaseException) -> str:
    return str(error) if isinstance(error, PaddleError) else f"{type(error).__name__}: {error}"


_found: list[ProcessReports] = []


def open_reports(flags: Values, session: Session, config: TrainerConfig, seat: Seat | None, *, prints: bool) -> Reports:
    """Return the reports of a training: in a pod, to the files of the job and to the pages of --metrics_port.

    Args: seat: the place of this program in a job with a master; None: the flags say its place. prints: whether the
        program leaves the log lines to us. They are also written where the flag log_period is given.
    """
    if not _found:
        leave_place()
        is_over = flags.is_task_job and seat is None
        if not os.environ.get("PADDLE_OUTPUT") or flags.collective or is_over:
            return Reports()
        _found.append(ProcessReports(flags, seat))
    return PodReports(_found[0], flags, session, config, prints=prints or "log_period" in flags.given)


@contextmanager
def testing(session: Session) -> Iterator[None]:
    """A context for a test of a session, whose time counts as the time of a test."""
    before = session.breakdown.switch(TEST)
    yield
    session.breakdown.switch(before)


@contextmanager
def saving(session: Session) -> Iterator[None]:
    """A context for a checkpoint of a session, whose time counts as the time of a save."""
    before = session.breakdown.switch(SAVE)
    yield
    session.breakdown.switch(before)


def add_test(result: Accumulator) -> None:
    """Record a test that an event handler makes, if this process reports."""
    if _found and _found[0].reporter.snapshot.status == TRAINING:
        _found[0].reporter.add_test(result)
