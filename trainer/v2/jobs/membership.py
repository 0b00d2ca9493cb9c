"""A program as a trainer of a job with a master: it joins the job, takes tasks, and reports to the master.

Source: spec/v2.md section 13.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import threading
import time
from collections.abc import Iterator, Sequence

from paddle_base.recordio.index import name_chunks
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, MissingInputError, PaddleError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_cluster.master.client import PassOver, TaskGrant
from paddle_cluster.master.tasks.events import GRANTED
from trainer.flags import Values
from trainer.tasks.job_end import JobOverError, tell_end
from trainer.tasks.joining import open_job
from trainer.tasks.loop import LONGEST_REST_S, SAVE_BLOCK_S, show_files
from trainer.v2.jobs.parts import READING, name_of
from trainer.v2.jobs.reports import Seat
from trainer.v2.jobs.stores import store_flags
from trainer.v2.process import describe_failure, end_with_status, process

_members: dict[tuple[str, ...], Member] = {}


def join(flags: Values) -> Member:
    """Join the job in the store of the flags, or return the place that this process has in it.

    Raises: see `open_job`, and `MasterClient.number`.
    """
    key = (flags.store_dir and os.path.abspath(flags.store_dir), flags.etcd_endpoints, flags.job_name)  # noqa: PTH100
    if key not in _members:
        _members[key] = Member(flags)
    return _members[key]


def join_store(store: str) -> Member:
    """Join the job in a store, with the other flags of this process. Raises: see `join` and `store_flags`."""
    flags = process().flags
    return join(Values({name: getattr(flags, name) for name in flags.given} | store_flags(store)))


class Member:
    """The place of this process in a job with a master. Its methods may be called by any thread.

    Attributes: job: the client of the master, and the servers of the job. trained_passes: the pass after the last one
        that `SGD.train` has trained. seat: the number that the master has assigned, and the number of passes; None: the
        job was over.
    """

    def __init__(self, flags: Values) -> None:
        end_with_status()
        self.job = open_job(flags, os.environ, "", LIVENESS.turn, lambda: None)
        self.trained_passes = 0
        self.seat: Seat | None = None
        self._lock = threading.RLock()
        self._unsettled: int | None = None  # the pass that has ended, and that this trainer has not asked to save
        self._granted: int | None = None  # the pass that the master lets this trainer save
        self._is_over, self._failed = False, 0
        glog.info(f"joining job '{self.job.name}' as {self.job.master.member}")
        with self._noticing_end():
            glog.identify(self.job.master.number)
            self.seat = self.job.master.number, self.job.master.num_passes
        atexit.register(self.leave)

    @contextlib.contextmanager
    def _noticing_end(self) -> Iterator[None]:
        """A context for requests: the job may be over, and its master gone.

        Raises: DataError: the job has failed.
        """
        try:
            yield
        except JobOverError as told:
            self._is_over = True
            tell_end(told.end)

    def set_dataset(self, paths: str | Sequence[str]) -> None:
        """Offer the RecordIO files of some patterns as the job's data. All trainers must offer the same files.

        Raises: MissingInputError: a pattern has no file. ConfigError: the job has other files. DamagedChunkError.
        """
        files: list[str] = []
        for pattern in paths.split(",") if isinstance(paths, str) else paths:
            found = sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern may be absolute
            if not found:
                raise MissingInputError(f"there is no RecordIO file {pattern}; write it by dataset.common.convert")
            files += found
        if self not in READING:
            READING.append(self)
        with self._lock, self._noticing_end():
            self.job.master.set_dataset(list(name_chunks(files)))

    @property
    def num_passes(self) -> int:
        """The number of passes of the job; 0 if the job was over before this process has joined it."""
        return self.job.master.num_passes

    def present_pass(self) -> int:
        """Return the number of the pass in which the job is."""
        with self._lock, self._noticing_end():
            return int(self.job.master.status()["pass"])
        return self.num_passes

    def take(self, number: int) -> tuple[TaskGrant | None, PassOver | None]:
        """Return a task of a pass, or the end of this pass; wait while other trainers may still give back tasks.

        Raises: DataError: the job has failed. PeerUnreachableError: the master does not answer.
        """
        with self._lock, self._noticing_end():
            self.settle()
            got = self.job.master.get_task(number) if not self._is_over else None
            # if the trainer that had to save an earlier pass has left, the master asks the other trainers
            while isinstance(got, PassOver) and not got.is_last and got.next_pass <= number:
                self._unsettled = got.next_pass - 1
                self.settle()
                got = self.job.master.get_task(number)
            if isinstance(got, PassOver):
                self._unsettled = got.next_pass - 1
                return None, got
            if got is not None:
                return got, None
        return None, PassOver(number + 1, is_last=True)

    def finish(self, task: TaskGrant, samples: int) -> None:
        """Report a task whose records are trained."""
        with self._lock, self._noticing_end():
            accepted = self.job.master.finish(task, samples, wants_next=True)
            ending = "is done" if accepted else "is done by another trainer, so this trainer has repeated its samples"
            glog.info(f"{name_of(task)} {ending}: {samples} samples: {show_files(task.files)}")
        self._failed = 0

    def fail(self, task: TaskGrant, error: BaseException, samples: int) -> None:
        """Report a task whose records cannot be trained. After successive failures, leave others the next tasks."""
        text = str(error) if isinstance(error, PaddleError) else f"{type(error).__name__}: {error}"
        glog.error(f"{name_of(task)} has failed: {text}")
        with self._lock, self._noticing_end():
            self.job.master.fail(task, text, samples)
        self._failed += 1
        if self._failed > 1 and set(self.job.master.view.members) - {self.job.master.number}:
            time.sleep(min(2.0 ** (self._failed - 2), LONGEST_REST_S))

    def give_back(self, task: TaskGrant, samples: int, reason: str, patience: float | None = None) -> None:
        """Return a task to the master; its samples count as repeated."""
        glog.warning(f"{name_of(task)} is given back after {samples} samples, which count as repeated: {reason}")
        with self._lock, self._noticing_end():
            self.job.master.give_back(task, samples, patience)

    # ----- The model of a pass

    def request_save(self, block: float) -> bool:
        """Return whether this trainer is the one that saves the model of the pass that has ended."""
        with self._lock, self._noticing_end():
            number = self._unsettled
            if number is None:
                raise ConfigError("a model is saved at the end of a pass, and no pass has ended at this trainer")
            if self._granted != number and self.job.master.request_save(number, block) == GRANTED:
                self._granted = number
            return self._granted == number
        return False

    def must_save(self, number: int) -> bool:
        """Return whether a pass has ended, and no program has saved it, or is saving it. `settle` follows then."""
        if number < 0 or self._is_over:
            return False
        with self._lock:
            self._unsettled = number
            if not self.request_save(SAVE_BLOCK_S):
                self._unsettled = None
            return self._unsettled is not None

    def settle(self) -> None:
        """Tell the master that the pass that has ended is saved, so that the job can end: the program saves it itself.

        Without a pass that has ended, do nothing.
        """
        with self._lock:
            if self._unsettled is None or self._is_over:
                return
            if self.request_save(SAVE_BLOCK_S):
                with self._noticing_end():
                    self.job.master.report_saved(self._unsettled)
            self._unsettled = None

    def leave(self) -> None:
        """Leave the job. The master then gives this trainer's tasks to other trainers."""
        atexit.unregister(self.leave)
        for key in [key for key, one in _members.items() if one is self]:
            del _members[key]
        if self in READING:
            READING.remove(self)
        if not describe_failure():  # a program that has failed in its handler may not have saved the pass
            with contextlib.suppress(PaddleError, JobOverError):
                self.settle()
        with contextlib.suppress(JobOverError):
            self.job.close(leaves=not self._is_over)
