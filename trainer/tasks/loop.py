"""The training loop over tasks and passes, for a job in which a master assigns tasks.

Log lines, tests and saves are those of v0.10 as far as possible. A trainer counts only the batches and samples of its
own tasks. One of the trainers saves and tests at the end of a pass.

Source: spec/distributed.md 5.8.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError, StoppedError, VolumeError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.saves import pass_name
from paddle_cluster.master.client import MasterClient, PassOver, TaskGrant
from paddle_cluster.master.tasks.events import GRANTED
from trainer.arrays.arguments import Argument
from trainer.data.task_source import TaskSource
from trainer.tasks.job_end import JobOverError, tell_end
from trainer.telemetry.time_breakdown import EXCHANGE
from trainer.training.loop import BatchLoop
from trainer.training.parts import Parts
from trainer.training.position import Position
from trainer.training.stopping import Stopper
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.updater import TaskUpdater

BATCH_LIMIT_S = 15  # maximum seconds that a batch may still take after a signal. Source: half a pod's grace period
LEAVE_S = 5.0  # maximum seconds for returning a task after a signal. Source: the grace period of a pod, 30 s
SAVE_BLOCK_S = 3600.0  # seconds for saving a pass, in which the master asks no other trainer to save it
LOOK_S = 0.5  # seconds between two checks for a signal
LONGEST_REST_S = 30.0  # maximum seconds of a pause after successive failed tasks
NAMES_SHOWN = 3  # maximum number of files of a task in a log line


@dataclass
class TaskProgress:
    """The numbers of batches and samples of a task that have been trained."""

    batches: int = 0
    samples: int = 0


class TaskTraining(BatchLoop):
    """The training of one trainer with tasks.

    After a signal this trainer ends when its current batch is complete. It returns its task to the master, and this
    does not count as a failure of the task. If the data of a task is bad, or if the master has taken a task away, the
    trainer continues with the next task.

    Args: first_pass: number of the current pass. wait: a function that waits for a number of seconds.
    Raises (run): DataError: the job has failed or has discarded tasks, or the values are not finite.
        PeerUnreachableError: the master or the servers were unreachable for too long.  VolumeError: a save failed.
        StoppedError: a signal arrived.
    """

    def __init__(
        self,
        parts: Parts,
        source: TaskSource,
        stopper: Stopper,
        master: MasterClient,
        *,
        first_pass: int = 0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(parts, stopper, Position(first_pass))
        self._source, self._master, self._wait = source, master, wait
        self._updater = cast("TaskUpdater", parts.session.updater)
        self._failed = 0  # successive failed tasks
        stopper.limit(BATCH_LIMIT_S)

    def place(self) -> dict[str, int]:
        """Return the pass and the batch at which training begins, and the number of passes of the job."""
        return super().place() | {"passes": self._master.num_passes}

    def run(self) -> None:
        """Train tasks until the master reports the end of the job."""
        with np.errstate(all="ignore"):  # numpy's warnings are unnecessary, because an infinite cost is an error
            try:
                # a signal must not interrupt an operation, so it waits until the next call of `Stopper.leave`
                with self._stopper:
                    while not (over := self._run_pass()).is_last:
                        pass
            except StoppedError:
                self._log.end_dots()
                if self._stopper.is_clean:
                    self._leave()
                raise
            except JobOverError as told:
                self._updater.finish()
                tell_end(told.end)
                return
        self._leave()
        if over.discarded:
            raise DataError(over.discarded)

    def _leave(self) -> None:
        """Leave the servers and the master. The master then assigns this trainer's tasks to other trainers."""
        self._updater.finish()
        with contextlib.suppress(JobOverError):  # the master has already ended
            self._master.leave()

    def _run_pass(self) -> PassOver:
        """Train this trainer's tasks of a pass. Return the master's message about the end of the pass."""
        position, reporter = self._position, self._parts.reporter
        glog.bind(position.number, 0)
        self._log.since_start.reset()
        reporter.start_pass(position.number)
        got = self._run_tasks()
        # if the trainer that had to save an earlier pass has left, the master asks the other trainers to save it
        while not got.is_last and got.next_pass <= position.number:
            self._save_pass(got.next_pass - 1)
            got = self._run_tasks()
        if got.next_pass > position.number:
            self._finish_pass()
        if got.is_last:
            return got
        self._save_pass(got.next_pass - 1)
        position.begin_next_pass()
        position.number = got.next_pass
        reporter.show()
        return got

    def _run_tasks(self) -> PassOver:
        """Train tasks until the master has no task for this trainer. Return the message about the end of the pass."""
        number = self._position.number
        while isinstance(got := self._wait_for(lambda: self._master.get_task(number)), TaskGrant):
            self._run_task(got)
        return got

    # ----- A task

    def _run_task(self, task: TaskGrant) -> None:
        name = f"task {task.number} of pass {task.pass_number}"
        began, done = time.monotonic(), TaskProgress()
        self._updater.set_pass(task.pass_number)
        self._session.network.states.restart()
        try:
            self._source.start_task(task.files, name)
            while (batch := self._wait_for(lambda: self._source.next_batch(self._parts.batch_size))) is not None:
                self._run_batch(*batch)
                done.batches, done.samples = done.batches + 1, done.samples + batch[1]
                self._stopper.leave()
        except (DataError, MissingInputError, VolumeError) as error:
            self._fail(task, name, error, done.samples)
            return
        except StoppedError:
            if self._stopper.is_clean:
                self._log.end_dots()
                glog.info(f"{name} is given back after {done.samples} samples, which count as repeated")
                # a master that cannot be reached now detects later that this trainer has left
                with contextlib.suppress(PaddleError, JobOverError):
                    self._master.give_back(task, done.samples, LEAVE_S)
            raise
        except TaskTakenError as error:
            self._log.end_dots()
            glog.warning(f"{name} is given up after {done.samples} samples, which count as repeated: {error}")
            self._master.give_back(task, done.samples)
            return
        finally:
            self._source.close()
        is_accepted = self._master.finish(task, done.samples, wants_next=True)
        took = time.monotonic() - began
        self._log.end_dots()
        ending = "is done" if is_accepted else "is done by another trainer, so this trainer has repeated its samples"
        glog.info(
            f"{name} {ending}: {done.batches} batches, {done.samples} samples in {took:.2f} s: {show_files(task.files)}"
        )
        if not done.samples:
            glog.warning(f"the data provider delivers no sample of {name}: {show_files(task.files)}")
        self._failed = 0

    def _fail(self, task: TaskGrant, name: str, error: PaddleError, samples: int) -> None:
        """Report a failed task. Pause after successive failures, so that other trainers take the next tasks.

        Without the pause, all tasks could fail at a trainer that has lost its volume, before other trainers take them.
        """
        self._log.end_dots()
        glog.error(f"{name} has failed: {error}")
        self._master.fail(task, str(error), samples)
        self._failed += 1
        if self._failed > 1 and set(self._master.view.members) - {self._master.number}:
            self._rest(min(2.0 ** (self._failed - 2), LONGEST_REST_S))

    def _run_batch(self, slots: Mapping[str, Argument], samples: int) -> None:
        result = self._compute(slots, samples)
        self._session.update(samples)
        self._count(result)
        self._write()

    # ----- The end of a pass

    def _finish_pass(self) -> None:
        position = self._position
        self._log.end_dots()
        if position.batches:
            self._log.write_pass(position.number, position.batches)
        else:
            glog.info(f"this trainer got no task of pass {position.number}")

    def _save_pass(self, number: int) -> None:
        """Save and test a pass, if the master selects this trainer."""
        if self._master.request_save(number, SAVE_BLOCK_S) != GRANTED:
            return
        parts, position = self._parts, Position(number)
        is_due = number % parts.flags.saving_period == 0 or number + 1 >= self._master.num_passes
        before = self._breakdown.switch(EXCHANGE)
        self._updater.set_pass(number)
        try:
            self._updater.finish_pass()
            with self._updater.averaged(), self._saves.telling(pass_name(number) if is_due else ""):
                if is_due:
                    self._saves.write(pass_name(number), position)
                # before the test: after a fault of the test data, another trainer would save values of a later step
                self._master.report_saved(number)
                self._test(contextlib.nullcontext(), each_batch=lambda *_: self._stopper.leave())
        except TaskTakenError as error:
            glog.info(f"pass {number} is not saved here: {error}")
        self._breakdown.switch(before)

    # -----

    def _rest(self, seconds: float) -> None:
        """Wait for this time. A signal ends the wait."""
        for _ in range(math.ceil(seconds / LOOK_S)):
            LIVENESS.turn()
            self._stopper.leave()
            self._wait(LOOK_S)


def show_files(files: tuple[str, ...]) -> str:
    """Return the names of a task's first files, and the number of its other files, as text."""
    shown = ", ".join(files[:NAMES_SHOWN])
    return shown if len(files) <= NAMES_SHOWN else f"{shown} and {len(files) - NAMES_SHOWN} more"
