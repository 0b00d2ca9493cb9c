"""The workers of an agent; the agent ends a worker if no driver sends requests for this worker any more."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from typing import IO

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_cluster.elastic.agent.protocol import KINDS, MOST_CHUNK, OutputAnswer, StreamMark, StreamPart, WorkerLaunch
from paddle_cluster.elastic.launching.processes import keep_exported, run_process, start_command
from paddle_cluster.elastic.membership.results import describe_exit

MOST_KEPT = 256 << 10  # number of kept bytes of a stream from which on the worker has to wait


@dataclass
class _KeptStream:
    """The kept bytes of a stream, which begin at the offset `first` of the stream."""

    data: bytearray = field(default_factory=bytearray)
    first: int = 0
    is_open: bool = False

    @property
    def total(self) -> int:
        return self.first + len(self.data)

    def forget(self, end: int) -> None:
        gone = min(max(0, end - self.first), len(self.data))
        del self.data[:gone]
        self.first += gone


class WorkerOutput:
    """The standard output, the standard error and the exit code of a worker.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._streams = {kind: _KeptStream() for kind in KINDS}
        self._exit: int | None = None
        self._is_unwanted = False

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Record that both streams are open; return no files, because the driver writes the output files."""
        with self._changed:
            for stream in self._streams.values():
                stream.is_open = True
        return dict.fromkeys(KINDS)

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Read one stream of a worker to its end, and keep the bytes; wait while there is no room."""
        stream = self._streams[kind]
        try:
            with contextlib.closing(source):
                while chunk := source.read(1 << 16):
                    with self._changed:
                        self._changed.wait_for(lambda: self._is_unwanted or len(stream.data) < MOST_KEPT)
                        stream.data += chunk
                        if self._is_unwanted:
                            stream.forget(stream.total)
                        self._changed.notify_all()
        finally:
            with self._changed:
                stream.is_open = False
                self._changed.notify_all()

    def finish(self, exit_code: int) -> None:
        """Wait until each stream has ended or has room for more bytes; then store the exit code of the worker."""
        with self._changed:
            streams = self._streams.values()
            self._changed.wait_for(lambda: all(not one.is_open or len(one.data) < MOST_KEPT for one in streams))
            self._exit = exit_code
            self._changed.notify_all()

    def discard(self) -> None:
        """Drop all present and further output, because no driver asks for the output."""
        with self._changed:
            self._is_unwanted = True
            for stream in self._streams.values():
                stream.forget(stream.total)
            self._changed.notify_all()

    def read(self, marks: Mapping[str, StreamMark], most: int, wait: float) -> OutputAnswer:
        """Return output that the driver has not shown yet; wait for new output at most `wait` seconds.

        Args: most: maximum number of returned bytes of each stream.
        """

        def is_news() -> bool:
            return self._exit is not None or any(one.total > marks[kind].seen for kind, one in self._streams.items())

        with self._changed:
            for kind, mark in marks.items():
                self._streams[kind].forget(mark.shown)
            self._changed.notify_all()
            self._changed.wait_for(is_news, wait)
            limit = min(most, MOST_CHUNK)
            parts = {
                kind: StreamPart(one.first, bytes(one.data[:limit]), one.total) for kind, one in self._streams.items()
            }
            return OutputAnswer(parts, self._exit)

    @property
    def is_empty(self) -> bool:
        """Whether the driver has shown all output."""
        with self._changed:
            return not any(one.data for one in self._streams.values())


MOST_LIVE = 256  # maximum number of running workers
MOST_ENDED = 1024  # maximum number of ended workers whose exit codes are kept
NO_START = 126  # exit code for a worker that could not be started


class AgentBusyError(Exception):
    """The agent starts no worker now."""


@dataclass
class AgentWorker:
    """A process that the driver has requested.

    Attributes: asked: time of the driver's last request in seconds of `time.monotonic`.  askers: number of unanswered
        requests.
    """

    name: str
    launch: WorkerLaunch
    asked: float
    askers: int = 0
    output: WorkerOutput = field(default_factory=WorkerOutput)
    end: threading.Event = field(default_factory=threading.Event)
    is_over: bool = False


class AgentWorkers:
    """All workers of an agent, each by the name of its process.

    Args: environ: variables of each worker in addition to the variables from the driver.  patience_s: seconds without
        a request of a driver after which a worker is ended.

    Attributes: is_leaving: whether the agent starts no more workers.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, environ: Mapping[str, str], patience_s: float) -> None:
        self._environ, self._patience = keep_exported(environ), patience_s
        self._changed = threading.Condition()
        self._workers: dict[str, AgentWorker] = {}
        self.is_leaving = False

    def count(self) -> int:
        """Return the number of running workers."""
        with self._changed:
            return sum(not one.is_over for one in self._workers.values())

    def start(self, name: str, launch: WorkerLaunch) -> None:
        """Start a worker; do nothing if the worker was started before.

        Raises: AgentBusyError: there are too many workers, or the agent is about to end.
        """
        with self._changed:
            if name in self._workers:
                return
            if self.is_leaving:
                raise AgentBusyError("this agent is about to end")
            if sum(not one.is_over for one in self._workers.values()) >= MOST_LIVE:
                raise AgentBusyError(f"this agent has {MOST_LIVE} workers")
            worker = self._workers[name] = AgentWorker(name, launch, time.monotonic())
            ended = [one for one in self._workers.values() if one.is_over]
            for one in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._workers[one.name]
        glog.info(f"the agent starts {name} as rank {launch.rank}: {glog.clean(' '.join(launch.argv), 200)}")
        ServiceThread(partial(self._run, worker), name).start()

    def end(self, name: str) -> None:
        """End a worker by SIGTERM, and by SIGKILL if it has not ended after a grace period.

        Raises: LostPeerError: there is no worker with this name.
        """
        self._find(name).end.set()

    def read(self, name: str, marks: Mapping[str, StreamMark], most: int, wait: float) -> OutputAnswer:
        """Return output of a worker that the driver has not shown yet; see `WorkerOutput.read`.

        Raises: LostPeerError: there is no worker with this name.
        """
        worker = self._find(name)
        with self._changed:
            worker.askers += 1
        try:
            return worker.output.read(marks, most, wait)
        finally:
            with self._changed:
                worker.askers -= 1
                worker.asked = time.monotonic()

    def check(self, now: float) -> None:
        """End every worker for which no driver has sent a request recently; `now` is in seconds of `time.monotonic`."""
        with self._changed:
            lonely = [one for one in self._workers.values() if not one.askers and now - one.asked > self._patience]
        for worker in lonely:
            if not worker.is_over and not worker.end.is_set():
                glog.error(f"{worker.name} is ended: no driver has sent a request about it for {self._patience:g} s")
            worker.end.set()
            worker.output.discard()

    def leave(self) -> None:
        """Refuse to start further workers."""
        with self._changed:
            self.is_leaving = True

    def end_all(self) -> None:
        """End every worker."""
        with self._changed:
            for worker in self._workers.values():
                worker.end.set()

    def wait_for_none(self, seconds: float) -> bool:
        """Wait at most `seconds` until no worker runs; return whether no worker runs."""
        with self._changed:
            return self._changed.wait_for(lambda: all(one.is_over for one in self._workers.values()), seconds)

    def is_all_shown(self) -> bool:
        """Return whether the driver has shown all output of the workers."""
        with self._changed:
            return all(one.output.is_empty for one in self._workers.values())

    def _find(self, name: str) -> AgentWorker:
        with self._changed:
            worker = self._workers.get(name)
        if worker is None:
            raise LostPeerError("this agent has no worker with this name")
        return worker

    def _run(self, worker: AgentWorker) -> None:
        environ = {**self._environ, **worker.launch.environ}
        code = NO_START
        try:
            start = start_command(worker.launch.argv)
            code = run_process(start, environ, worker.launch.rank, worker.output, [worker.end]).exit_code
        except (OSError, ValueError) as exc:
            glog.error(f"{worker.name} cannot be started: {exc}")
        worker.output.finish(code)
        glog.info(f"{worker.name} {describe_exit(code)}")
        with self._changed:
            worker.is_over = True
            self._changed.notify_all()
