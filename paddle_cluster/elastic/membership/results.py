"""The results of the workers of a job."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.elastic.constants import HOROVOD_FAILURE_WORDS
from paddle_cluster.elastic.hosts import SlotInfo

# Seconds of a single wait for a thread. If a signal arrives just before a wait, Python handles it after the wait.
SIGNAL_S = 0.5


class WorkerEvents(list[threading.Event]):
    """The events that end a worker: the event of the job, the event of its host, and the event of the worker.

    Attributes: incarnation: name of the process.  generation: generation in which the process starts.  host_uid: unique
        id of the host; "": the discovery gives no id.
    """

    def __init__(
        self, events: Sequence[threading.Event], incarnation: str, generation: int, host_uid: str = ""
    ) -> None:
        super().__init__(events)
        self.incarnation, self.generation, self.host_uid = incarnation, generation, host_uid


class WorkerExit(NamedTuple):
    """The end of a worker process; a plain tuple of the first two fields is a valid result of a worker, too.

    Attributes:
    - exit_code: exit code of the process; -n after signal n.
    - end: time of the end in seconds since 1970.
    - was_stopped: whether the driver has ended the process.
    - needs_done: whether the process succeeds only if it has reported that its work is done.
    - is_known: whether the exit code comes from the process; if not, the code stands for a lost agent.
    """

    exit_code: int
    end: float
    was_stopped: bool = False
    needs_done: bool = True
    is_known: bool = True


def describe_exit(code: int) -> str:
    """Return a text about the end of a process. Args: code: as in `WorkerExit`."""
    return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"


CreateWorker = Callable[[SlotInfo, WorkerEvents], "tuple[int, float] | WorkerExit"]


class Results(NamedTuple):
    """The results of a job.

    Attributes: error_message: why the job was stopped; None: the workers' exit codes decide about success.
        worker_results: exit code and end time of each worker of the last generation, by "host[local rank]".
    """

    error_message: str | None
    worker_results: dict[str, tuple[int, float]]


class ResultsRecorder:
    """Keeps the threads that run the workers, and the results of the workers.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._error_message: str | None = None
        self._worker_results: dict[str, tuple[int, float]] = {}
        self._worker_threads: queue.Queue[threading.Thread] = queue.Queue()
        self._lock = threading.Lock()

    def expect(self, worker_thread: threading.Thread) -> None:
        """Add a thread of a worker."""
        self._worker_threads.put(worker_thread)

    def set_error_message(self, error_message: str | None) -> None:
        """Set the reason why the job is stopped; the first reason counts."""
        with self._lock:
            self._error_message = self._error_message or error_message

    def add_result(self, key: str, value: tuple[int, float]) -> None:
        """Store the result of a worker; the first result of a slot counts."""
        with self._lock:
            self._worker_results.setdefault(key, value)

    def get_results(self) -> Results:
        """Wait for all threads, including threads that start during the wait, and return the results of the workers."""
        while not self._worker_threads.empty():
            thread = self._worker_threads.get()
            while thread.is_alive():
                thread.join(SIGNAL_S)
        with self._lock:
            return Results(self._error_message, dict(self._worker_results))


class JobFailedError(RuntimeError):
    """A job has failed.

    Attributes: exit_code: exit code of the command that ran the job. The value is the exit code of the worker that
        failed first. It is 75 if a signal ended that worker, if the job was stopped with an error, or if no worker has
        failed.
    """

    def __init__(self, text: str, exit_code: int = LostPeerError.exit_code) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def judge(results: Results) -> None:
    """Check that a job has succeeded.

    Raises: JobFailedError: the job was stopped with an error, a worker has failed (the message names the first failure
        by time), or no worker has finished its work.
    """
    if results.error_message is not None:
        raise JobFailedError(results.error_message)
    failed = [(end, name, code) for name, (code, end) in results.worker_results.items() if code]
    if failed:
        _, name, code = min(failed)
        raise JobFailedError(
            f"{name} {'was ' if code < 0 else ''}{describe_exit(code)}, as the first of {len(failed)} workers that "
            f"have failed; look at its output (Horovod's message: {HOROVOD_FAILURE_WORDS})",
            code if code > 0 else LostPeerError.exit_code,
        )
    if not results.worker_results:
        raise JobFailedError("no worker has finished its work; look at the output of the workers")
