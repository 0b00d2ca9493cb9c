"""What the workers of a job have returned."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from elastic.hosts import SlotInfo


class WorkerEvents(list[threading.Event]):
    """Events of which each one ends a worker: that of the job, of its host, and its own.

    Attributes: incarnation: the name of its process.  generation: in which it begins.  host_uid: which host of its name
        it is for, "" where the discovery does not say.
    """

    def __init__(
        self, events: Sequence[threading.Event], incarnation: str, generation: int, host_uid: str = ""
    ) -> None:
        super().__init__(events)
        self.incarnation, self.generation, self.host_uid = incarnation, generation, host_uid


class WorkerExit(NamedTuple):
    """How a process of ours has ended; a function of a test returns only the first two.

    Attributes: exit_code: 128 + n after signal n.  end: in seconds since 1970.  was_stopped: the driver ended it.
        needs_done: it has succeeded only if it has said that its work is done.  is_known: the exit code is that of the
        process, and not one for an agent that is gone.
    """

    exit_code: int
    end: float
    was_stopped: bool = False
    needs_done: bool = True
    is_known: bool = True


CreateWorker = Callable[[SlotInfo, WorkerEvents], "tuple[int, float] | WorkerExit"]


class Results(NamedTuple):
    """What `get_results` returns.

    Attributes: error_message: why the job was stopped; None: the workers' exit codes say how it has ended.
        worker_results: exit code and time of each worker of the last generation, by "host[local rank]".
    """

    error_message: str | None
    worker_results: dict[str, tuple[int, float]]


class ResultsRecorder:
    """The threads to wait for, and what their workers have returned.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._error_message: str | None = None
        self._worker_results: dict[str, tuple[int, float]] = {}
        self._worker_threads: queue.Queue[threading.Thread] = queue.Queue()
        self._lock = threading.Lock()

    def expect(self, worker_thread: threading.Thread) -> None:
        """Wait for this thread, too."""
        self._worker_threads.put(worker_thread)

    def set_error_message(self, error_message: str | None) -> None:
        """Say why the job is stopped; the first reason counts."""
        with self._lock:
            self._error_message = self._error_message or error_message

    def add_result(self, key: str, value: tuple[int, float]) -> None:
        """Take what a worker has returned; the first result of a slot counts."""
        with self._lock:
            self._worker_results.setdefault(key, value)

    def get_results(self) -> Results:
        """Wait for all threads, also for those that begin meanwhile, and return what their workers have returned."""
        while not self._worker_threads.empty():
            self._worker_threads.get().join()
        with self._lock:
            return Results(self._error_message, dict(self._worker_results))
