"""Collects the samples of several requests into batches, which the main thread computes."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, PaddleError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from trainer.serving.tally import Tally

# seconds of a wait for requests. A signal that comes just before a wait does not end the wait, but Python calls its
# handler after it.
LOOK_S = 0.5


class BatchLimits(NamedTuple):
    """The limits of batches.

    - samples: of a batch, and of a request.
    - values: numbers and ids of a batch with several requests.
    - wait_s: seconds that a batch waits for further requests after its first one.
    - answer_s: seconds after whose end nobody waits for the answer to a request.
    """

    samples: int = 32
    values: int = 1 << 16
    wait_s: float = 0.0
    answer_s: float = 10.0


class BatchModel(Protocol):
    """What computes batches; see `trainer.serving.model.ServedModel`."""

    def read(self, samples: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return samples as arrays."""

    def compute(self, parts: Sequence[list[tuple[Any, ...]]], samples: int) -> list[list[Any]]:
        """Return the outputs for each sample."""


class LateError(Exception):
    """The answer to a request has not been ready in time."""


@dataclass
class Job:
    """The samples of a request, and their outputs or the error when `done` is set."""

    part: list[tuple[Any, ...]]
    samples: int
    deadline: float
    done: threading.Event = field(default_factory=threading.Event)
    answers: list[list[Any]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def values(self) -> int:
        """The number of numbers and ids."""
        return sum(int(array.size) for arrays in self.part for array in arrays)

    def end(self, answers: list[list[Any]], error: Exception | None = None) -> None:
        """Hand over the result."""
        self.answers, self.error = answers, error
        self.done.set()


class Batcher:
    """Computes the samples of requests in batches.

    Thread safety: any thread may use `ask`, and any thread or signal handler `stop`; one thread computes by `run`.
    """

    def __init__(self, model: BatchModel, limits: BatchLimits, tally: Tally) -> None:
        self._model, self._limits, self._tally = model, limits, tally
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # its `put` may interrupt itself
        self._next: Job | None = None  # a request that did not fit the last batch
        self._lines = RateLimit(PROBLEM_LINE_S)
        self._is_stopped = self.is_computing = False

    def ask(self, samples: Sequence[Any]) -> list[list[Any]]:
        """Return the outputs for samples.

        Raises: DataError: a sample is wrong. LateError: the limit of time has passed. PaddleError: another error.
        """
        deadline = time.monotonic() + self._limits.answer_s
        try:
            part = self._model.read(samples)
        except Exception as error:
            raise self._explain(error) from error
        job = Job(part, len(samples), deadline)
        self._queue.put(job)
        if not job.done.wait(self._limits.answer_s):
            raise LateError(f"the answer was not ready within {self._limits.answer_s:g} s")
        if job.error is not None:
            raise job.error
        return job.answers

    def run(self) -> None:
        """Compute batches until `stop`."""
        while not self._is_stopped:
            self.compute_batch(LOOK_S)

    def stop(self) -> None:
        """End `run` after the present batch; `compute_batch` still computes what has come."""
        self._is_stopped = True
        self._queue.put(None)

    def compute_batch(self, seconds: float) -> None:
        """Wait for a request, and compute a batch.

        Args: seconds: maximum time of the wait.
        """
        first = self._next or self._take(seconds)
        self._next = None
        if first is None:
            return
        jobs = self._collect(first)
        LIVENESS.turn()
        self.is_computing = True
        began = time.monotonic()
        live = [job for job in jobs if began < job.deadline]
        if live:
            self._compute(live)
            self._tally.count_batch(sum(job.samples for job in live), time.monotonic() - began)
        self.is_computing = False

    def _collect(self, first: Job) -> list[Job]:
        """Return the requests of a batch."""
        jobs, samples, values = [first], first.samples, first.values
        deadline = time.monotonic() + self._limits.wait_s
        while samples < self._limits.samples:
            job = self._take(max(0.0, deadline - time.monotonic()))
            if job is None:
                break
            samples, values = samples + job.samples, values + job.values
            if samples > self._limits.samples or values > self._limits.values:
                self._next = job
                break
            jobs.append(job)
        return jobs

    def _take(self, seconds: float) -> Job | None:
        """Return the next request; None: there is none in time, or `stop` was called."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None

    def _compute(self, jobs: Sequence[Job]) -> None:
        """Compute a batch; after an error, each request alone, because the error may belong to another one."""
        try:
            found = self._model.compute([job.part for job in jobs], sum(job.samples for job in jobs))
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._compute([job])
            else:
                jobs[0].end([], self._explain(error))
            return
        rows = iter(found)
        for job in jobs:
            job.end([next(rows) for _ in range(job.samples)])

    def _explain(self, error: Exception) -> Exception:
        """Return the error for the client; log one that no client can cause, because the service goes on."""
        if isinstance(error, PaddleError):
            return error
        if self._lines.is_due(time.monotonic()):
            glog.error("".join(traceback.format_exception(error)).rstrip())
        return BugError(f"{type(error).__name__}: {error}")
