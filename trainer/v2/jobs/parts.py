"""Which records of a master's tasks `SGD.train` has trained.

Between a reader of tasks and the optimiser stand functions of the program, which keep samples for a while (shuffle,
buffered, xmap_readers). A task counts as finished when the optimiser has trained its records. Therefore a reader that
`SGD.train` iterates ends after each task. The functions in between then hand over all that they have kept, `SGD.train`
trains and reports it, and begins the next iteration in the same pass.

Source: spec/v2.md section 13; the client of v0.11 reported a task when its last record was in the queue.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from paddle_base.recordio.reading import RecordIOReader
from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from trainer.updaters.tasks.errors import TaskTakenError

if TYPE_CHECKING:
    from paddle_cluster.master.client import PassOver, TaskGrant

Decode = Callable[[bytes], Any]
LEAVE_S = 5.0  # maximum seconds for returning a task when the program ends. Source: the grace period of a pod, 30 s


class Tasks(Protocol):
    """The job whose tasks a reader reads; the implementation is `trainer.v2.jobs.membership.Member`."""

    trained_passes: int

    @property
    def num_passes(self) -> int:
        """The number of passes of the job."""

    def present_pass(self) -> int:
        """Return the number of the pass in which the job is."""

    def take(self, number: int) -> tuple[TaskGrant | None, PassOver | None]:
        """Return a task of a pass, or the end of the pass."""

    def finish(self, task: TaskGrant, samples: int) -> None:
        """Report a task whose records are trained."""

    def fail(self, task: TaskGrant, error: BaseException, samples: int) -> None:
        """Report a task whose records cannot be trained."""

    def give_back(self, task: TaskGrant, samples: int, reason: str, patience: float | None = None) -> None:
        """Return a task."""

    def must_save(self, number: int) -> bool:
        """Return whether a pass has ended, and no program has saved it, or is saving it."""

    def settle(self) -> None:
        """Tell the master that the pass that has ended is saved."""


READING: list[Tasks] = []  # the jobs whose tasks this process reads


def name_of(task: TaskGrant) -> str:
    """Return the name of a task for messages."""
    return f"task {task.number} of pass {task.pass_number}"


def read_task(task: TaskGrant, decode: Decode) -> Iterator[Any]:
    """Yield the records of a task, decoded."""
    for name in task.files:
        with RecordIOReader(name) as records:
            yield from map(decode, records)


def read_pass(member: Tasks, number: int, decode: Decode) -> Generator[Any, None, PassOver | None]:
    """Yield the decoded records of the tasks of a pass. The generator returns the end of the pass.

    A task is finished when the record after its last one is requested. A task that cannot be read has failed.
    """
    while True:
        task, over = member.take(number)
        if task is None:
            return over
        count = 0
        records = read_task(task, decode)
        while True:
            try:
                record = next(records)
            except StopIteration:
                member.finish(task, count)
                break
            except Exception as error:
                member.fail(task, error, count)
                break
            try:
                yield record
            except GeneratorExit:
                member.give_back(task, count, "the program has left the loop", LEAVE_S)
                raise
            count += 1


class TaskFaultError(Exception):
    """The records of a task cannot be trained; the cause is `__cause__`."""


class Part:
    """One iteration of the reader of `SGD.train` in a pass: all of a local reader, or one task.

    In the `with` block of this object, readers of tasks yield its task. At the end of the block the task is finished,
    and after an exception it has failed or is given back. A failed task is no error of the training.

    Attributes: samples: the number of samples that are trained. over: the end of the pass, once the master has told it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._member: Tasks | None = None
        self._task: TaskGrant | None = None
        self._is_read = False
        self.samples = 0
        self.over: PassOver | None = None

    @property
    def goes_on(self) -> bool:
        """Whether a further part of the same pass follows."""
        return self._task is not None

    def records(self, member: Tasks, decode: Decode) -> Iterator[Any]:
        """Yield the records of one task, or nothing if the pass is over. A second reader yields nothing.

        The second reader must not wait for a task, because the master may wait for the report of the first.
        """
        with self._lock:
            if self._member is not None:
                return
            self._member = member
        self._task, self.over = member.take(self._number)
        if self._task is not None:
            yield from read_task(self._task, decode)
            self._is_read = True

    @contextlib.contextmanager
    def guard(self, *kinds: type[Exception]) -> Iterator[None]:
        """A context whose exceptions are faults of the task, if there is one."""
        try:
            yield
        except kinds as error:
            if self._task is None:
                raise
            raise TaskFaultError from error

    def __enter__(self) -> Self:
        _parts.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        _parts.remove(self)
        task, member = self._task, self._member
        if task is None or member is None:
            return False
        if isinstance(error, TaskFaultError):
            member.fail(task, error.__cause__ or error, self.samples)
            return True
        if error is not None:
            is_taken = isinstance(error, TaskTakenError)
            with contextlib.suppress(*() if is_taken else (PaddleError,)):
                reason = str(error) or type(error).__name__
                member.give_back(task, self.samples, reason, None if is_taken else LEAVE_S)
            return is_taken
        if not self._is_read:
            glog.warning(f"the reader has ended before the last record of {name_of(task)}, which counts as finished")
        member.finish(task, self.samples)
        return False


_parts: list[Part] = []  # that are being trained; a handler may train another network


class CloudReader:
    """A reader of the tasks of a job: each call reads a pass. In `SGD.train`, each call reads one task of its pass.

    Args: decode: the function that makes a sample of a record.
    """

    def __init__(self, member: Tasks, decode: Decode) -> None:
        self._member, self._decode = member, decode
        self._next: int | None = None  # the pass of the next call; each reader counts for itself

    def __call__(self) -> Iterator[Any]:
        """Return the samples."""
        return _parts[-1].records(self._member, self._decode) if _parts else self._read()

    def _read(self) -> Iterator[Any]:
        number = self._member.present_pass() if self._next is None else self._next
        over = yield from read_pass(self._member, number, self._decode)
        self._next = number + 1 if over is None else over.next_pass
