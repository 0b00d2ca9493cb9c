"""Starts and ends a worker by requests of the driver to an agent, and shows the output of the worker."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from types import TracebackType
from typing import TypeVar

from paddle_base.runtime import glog
from paddle_base.runtime.environment import SECRET, SECRET_FILE
from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.protocol import KINDS, MOST_CHUNK, OutputAnswer, StreamMark, StreamPart, WorkerLaunch
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.launching.output import OutputWriter
from paddle_cluster.elastic.launching.processes import make_environment
from paddle_cluster.elastic.membership.results import WorkerEvents, WorkerExit


class OutputPrinter:
    """A context manager that shows the output of a worker.

    Attributes: marks: by stream, the number of bytes that the driver has shown and the number that it has received.

    Raises: VolumeError: on entry, the files of the rank cannot be written.
    """

    def __init__(self, writer: OutputWriter, rank: int) -> None:
        self._writer, self._rank = writer, rank
        self.marks = {kind: StreamMark() for kind in KINDS}
        self._changed = threading.Condition()
        self._news: OutputAnswer | None = None
        self._is_over = False
        self._thread = ServiceThread(self._run, "output")

    def __enter__(self) -> OutputPrinter:
        self._files = self._writer.open(self._rank)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until all given output is shown; return whether all of the output is shown."""
        with self._changed:
            return self._changed.wait_for(lambda: self._news is None, seconds)

    def give(self, news: OutputAnswer) -> None:
        """Show the parts of an answer; all earlier parts must be shown already."""
        with self._changed:
            self._news = news
            self._changed.notify_all()

    def has_all(self, news: OutputAnswer) -> bool:
        """Wait until the given answer is shown; return whether all output of the worker has been shown by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._news is None)
            return all(self.marks[kind].shown >= part.total for kind, part in news.parts.items())

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                if file is not None:
                    stack.callback(file.close)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_over or self._news is not None)
                    news = self._news
                if news is None:
                    return
                marks = {
                    kind: self._show(kind, part, self._files[kind], is_last=news.exit_code is not None)
                    for kind, part in news.parts.items()
                }
                with self._changed:
                    self.marks, self._news = marks, None
                    self._changed.notify_all()

    def _show(self, kind: str, part: StreamPart, file: FileIO | None, is_last: bool) -> StreamMark:
        """Show the complete lines of a part, and an incomplete line that fills an answer or is the last line."""
        data = part.data
        end = part.first + len(data)
        lines = data[: data.rfind(b"\n") + 1] or (data if len(data) >= MOST_CHUNK else b"")
        if is_last and end >= part.total:
            lines = data
        if lines:
            self._writer.show(self._rank, kind, lines, file)
        return StreamMark(part.first + len(lines), end)


POLL_S = 0.5  # seconds that a request for output waits; the driver then checks the events that end the worker
RETRY_S = 0.2
LOST = LostPeerError.exit_code  # exit code for a worker whose agent is gone
STOPPED = 143  # exit code for a worker that was never started, because the driver had already ended it

_T = TypeVar("_T")
_OWN = (SECRET, SECRET_FILE)  # the driver sends no such variable; an agent has its own values


def describe_launch(
    command: Sequence[str], slot: SlotInfo, events: WorkerEvents, variables: Mapping[str, str]
) -> WorkerLaunch:
    """Return the request with which an agent starts the worker of a slot.

    The result has no secret, because the agent gives its own secret to the worker.
    """
    environ = make_environment({}, slot, events.incarnation, events.generation, variables)
    return WorkerLaunch(tuple(command), {name: value for name, value in environ.items() if name not in _OWN}, slot.rank)


class RemoteWorker:
    """A worker that an agent runs.

    Args: agent: name of the agent that runs or will start the worker.  name: name of the worker's process.
        timeout: seconds of silence after which the agent and its workers are lost.
    """

    def __init__(self, client: AgentClient, agent: str, name: str, launch: WorkerLaunch, timeout: float) -> None:
        self._client, self._agent, self._name, self._launch = client, agent, name, launch
        self._timeout = timeout
        self._heard = time.monotonic()

    def run(self, writer: OutputWriter, ends: Sequence[threading.Event]) -> WorkerExit:
        """Start the worker if it does not run yet, and show its output to the end; end the worker when an event is set.

        Raises: VolumeError: the output files cannot be written.
        """
        with OutputPrinter(writer, self._launch.rank) as shower:
            try:
                return self._run(shower, ends)
            except (PeerUnreachableError, LostPeerError, ConfigError) as exc:
                glog.error(f"the process {self._name} of rank {self._launch.rank} is lost: {exc}")
                end, is_to_end = steady_time(), any(event.is_set() for event in ends)
                if not is_to_end:  # the next generation must not use this host
                    self._client.report_loss()
                return WorkerExit(LOST, end, is_to_end, is_known=False)

    def _run(self, shower: OutputPrinter, ends: Sequence[threading.Event]) -> WorkerExit:
        has_begun = was_stopped = False
        while True:
            is_to_end = any(event.is_set() for event in ends)
            if not has_begun:
                if is_to_end:
                    return WorkerExit(STOPPED, steady_time(), True)
                has_begun = self._ask(self._start) is not None
            elif is_to_end and not was_stopped:
                was_stopped = self._ask(self._end, is_to_end) is not None
            else:
                news = self._follow(shower, is_to_end)
                if news is not None and news.exit_code is not None and shower.has_all(news):
                    return WorkerExit(news.exit_code, steady_time(), was_stopped)

    def _start(self) -> bool:
        self._client.start(self._agent, self._name, self._launch)
        return True

    def _end(self) -> bool:
        self._client.end(self._agent, self._name)
        return True

    def _follow(self, shower: OutputPrinter, is_to_end: bool) -> OutputAnswer | None:
        """Ask for new output.

        While earlier output is not shown yet, ask for 0 bytes; by this request the agent detects that the driver runs.
        """
        is_idle = shower.wait(POLL_S)
        most, wait = (MOST_CHUNK, POLL_S) if is_idle else (0, 0.0)
        news = self._ask(lambda: self._client.read_output(self._agent, self._name, shower.marks, most, wait), is_to_end)
        if news is None or not is_idle:
            return None
        shower.give(news)
        return news

    def _ask(self, request: Callable[[], _T], is_to_end: bool = False) -> _T | None:
        """Send a request; return the answer, or None if the agent does not answer now.

        Args: is_to_end: whether the driver ends the worker. If so, the whole time without an answer counts as silence.
        Raises: PeerUnreachableError: the silence of the agent has exceeded the timeout.
            LostPeerError, ConfigError: see `AgentClient`.
        """
        try:
            found = request()
        except PeerUnreachableError:
            now = time.monotonic()
            silence = now - self._heard if is_to_end else self._client.measure_silence(self._heard, now)
            if silence > self._timeout:
                raise
            time.sleep(RETRY_S)
            return None
        self._heard = time.monotonic()
        return found
