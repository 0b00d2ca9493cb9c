"""A pool of threads that share the work on one array, and single worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from paddle_base.runtime.health.service_threads import ServiceThread

Task = Callable[[], object]
Result = SimpleQueue[BaseException | None]
Piece = TypeVar("Piece")

LEAVE_TIMEOUT_S = 2.0  # seconds that `close` waits for a running task


class Worker:
    """A thread that executes tasks one by one until it is closed. The process can end while the thread still runs.

    Args: begin: function that the thread executes before all tasks.
    """

    def __init__(self, name: str, begin: Task | None = None) -> None:
        self._begin = begin
        self._tasks: SimpleQueue[tuple[Task, Result] | None] = SimpleQueue()
        self._thread = ServiceThread(self._work, name)
        self._thread.start()

    def start(self, task: Task) -> Result:
        """Start a task; at its end, the queue receives the error of the task, or None."""
        result: Result = SimpleQueue()
        self._tasks.put((task, result))
        return result

    def close(self) -> None:
        """End the thread after its current task."""
        self._tasks.put(None)
        self._thread.join(LEAVE_TIMEOUT_S)

    def _work(self) -> None:
        if self._begin is not None:
            self._begin()
        with np.errstate(all="ignore"):  # numpy keeps this setting separately for each thread
            while (given := self._tasks.get()) is not None:
                task, result = given
                try:
                    task()
                except BaseException as error:
                    result.put(error)
                else:
                    result.put(None)


def run_together(workers: Sequence[Worker], tasks: Sequence[Task]) -> None:
    """Execute the first task in this thread, and further tasks in the workers. Wait for all; raise the first error."""
    results = [worker.start(task) for worker, task in zip(workers, tasks[1:], strict=False)]
    try:
        for task in tasks[:1]:
            task()
    finally:
        errors = [result.get() for result in results]
    for error in errors:
        if error is not None:
            raise error


def run_in_turn(tasks: Sequence[Task]) -> None:
    """Execute the tasks one by one."""
    for task in tasks:
        task()


@dataclass(frozen=True)
class ThreadPool:
    """Up to `count` threads that work on one job together.

    `run` executes up to `count` tasks at the same time. `run` returns when all tasks are done, and raises the error of
    a task.
    """

    count: int = 1
    run: Callable[[Sequence[Task]], None] = run_in_turn

    def share(self, pieces: Sequence[Piece], work: Callable[[int, Piece], None]) -> None:
        """Call work(number of the thread, piece) for each piece; the next free thread takes the next piece."""
        if self.count == 1 or len(pieces) == 1:
            for piece in pieces:
                work(0, piece)
            return
        waiting = deque(pieces)

        def work_on(number: int) -> None:
            while True:
                try:
                    piece = waiting.popleft()
                except IndexError:
                    return
                work(number, piece)

        self.run([partial(work_on, number) for number in range(min(self.count, len(pieces)))])


SINGLE_THREAD = ThreadPool()


def start_thread_pool(count: int) -> ThreadPool:
    """Return a pool of the calling thread and `count` - 1 more threads, which live as long as the process."""
    if count < 2:
        return SINGLE_THREAD
    return ThreadPool(count, partial(run_together, [Worker(f"pool {number}") for number in range(1, count)]))
