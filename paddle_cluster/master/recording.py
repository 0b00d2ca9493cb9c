"""A leading master writes the file OUTPUT/tasks.json, and writes the end of the job into the registry.

One thread writes the file, and another thread uses the registry. A volume or an etcd that hangs therefore delays only
one thread, and never the master.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_base.registry.interface import Registry
from paddle_base.registry.records import JobEnd
from paddle_base.registry.servers import JOB_END, find_servers
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import replace_file
from paddle_base.runtime.errors import BugError, DamagedError, LeaseLostError, PaddleError, VolumeError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.health.steady_time import steady_time
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from paddle_base.runtime.status_files import INTERVAL_S, write_record
from paddle_cluster.master.summary import describe_record
from paddle_cluster.master.tasks.records import MemberEvent, Phase
from paddle_cluster.master.tasks.state import MasterState
from paddle_cluster.master.tasks_file import NAME, VERSION, read_record

CLOSING_S = 5.0  # maximum seconds that the master waits at its end until the last record is written


class RegistryLink(ServiceThread):
    """A thread that reads the servers' addresses once a second, and writes the end of the job into the registry.

    Args: looks: whether to read the addresses of the parameter servers.
    Attributes: servers: "host:port" of each server, or None for an absent server; the list is None while the addresses
        are unknown.  trouble: why the addresses are unknown.
    """

    def __init__(self, registry: Registry, *, looks: bool) -> None:
        super().__init__(self.serve, "registry-link")
        self.servers: list[str | None] | None = None
        self.trouble = "the registry is being read"
        self._registry, self._looks = registry, looks
        self._end: str | None = None
        self._changed = threading.Event()
        self._told = threading.Event()
        self._is_over = False

    def end_job(self, end: JobEnd) -> None:
        """Request that the thread writes the end of the job into the registry."""
        self._end = end.value
        self._changed.set()

    @property
    def is_told(self) -> bool:
        """Whether the end of the job is in the registry."""
        return self._told.is_set()

    def close(self) -> None:
        """Stop; do not wait for a read in progress."""
        self._is_over = True
        self._changed.set()

    def serve(self) -> None:
        """Read and write until closed."""
        while not self._is_over:
            try:
                if self._end is not None and not self._told.is_set():
                    self._registry.put(JOB_END, self._end)
                    self._told.set()
                if self._looks:
                    self.servers = [
                        f"{one.host}:{(*one.ports, *one.sparse_ports)[0]}" if one else None
                        for one in find_servers(self._registry)
                    ]
            except PaddleError as exc:
                self.servers, self.trouble = None, str(exc)[:1000]
            self._changed.wait(INTERVAL_S)
            self._changed.clear()


class TaskRecorder(threading.Thread):
    """A thread that writes tasks.json while this master leads.

    Args: facts: the fields of the file that do not change: job, leader and address.
    """

    def __init__(self, output: Path, facts: Mapping[str, Any], link: RegistryLink) -> None:
        super().__init__(name="tasks-file", daemon=True)
        self._path = output / NAME
        self._facts = {"version": VERSION, "began": steady_time(), **facts}
        self._link = link
        self._newest: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None
        self._changed = threading.Event()
        self._due = 0.0
        self._lines = RateLimit(PROBLEM_LINE_S)
        self._is_first = True

    def load_history(self, state: MasterState) -> None:
        """Load the joins and leaves that an earlier leader of the job has recorded."""
        with contextlib.suppress(OSError, DamagedError):
            record = read_record(self._path)
            if record["job"] == self._facts["job"] and record["leader"] < self._facts["leader"]:
                for one in record["history"]:
                    member = MemberId(one["uid"], one["incarnation"])
                    state.history.append(MemberEvent(one["time"], member, one["number"], one["what"], one["reason"]))

    def offer(self, state: MasterState) -> None:
        """Take the current state at most once a second; the thread writes the state."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + INTERVAL_S
            self._newest = describe_record(state, self._facts["leader"])
            self._changed.set()

    def close(self, state: MasterState, status: int, reason: str) -> None:
        """Write the last record, which contains how the master ended."""
        self._newest = describe_record(state, self._facts["leader"])
        self._end = {"status": status, "reason": reason[:4000]}
        self._changed.set()
        self.join(CLOSING_S)

    def abandon(self) -> None:
        """Stop writing, because another leader writes."""
        self._newest, self._end = None, {}
        self._changed.set()

    def run(self) -> None:
        """Write the newest offered record after each change, until the recorder is closed."""
        while True:
            self._changed.wait()
            self._changed.clear()
            end, newest = self._end, self._newest  # `_end` is read first, because `close` sets it last
            if newest is not None:
                self._write(newest, end)
            if end is not None:
                return

    def _write(self, newest: dict[str, Any], end: dict[str, Any] | None) -> None:
        servers = {"servers": self._link.servers, "servers_trouble": self._link.trouble}
        record = {**self._facts, **newest, **servers, "end": end, "written": steady_time()}
        try:
            if self._is_first or not self._is_replaced():
                write_record(self._path, json.dumps(record))
            self._is_first = False
        except OSError as exc:
            if self._lines.is_due(time.monotonic()) or end is not None:
                glog.warning(f"{self._path} cannot be written: {exc.strerror}")

    def _is_replaced(self) -> bool:
        """Return whether a later leader has written the file, which happens only if this master was frozen.

        The first record of a leader is written without this check, because the file of a later leader may belong to a
        store that was removed.
        """
        with contextlib.suppress(OSError, DamagedError):
            found = read_record(self._path)
            return bool(found["job"] == self._facts["job"] and found["leader"] > self._facts["leader"])
        return False


class JobRecords:
    """Starts and stops the threads `RegistryLink` and `TaskRecorder`, and passes the master's state to the threads.

    Args: output: the directory of tasks.json, or None.
    """

    def __init__(self, state: MasterState, registry: Registry, output: Path | None, facts: Mapping[str, Any]) -> None:
        self._state = state
        self._link = RegistryLink(registry, looks=output is not None)
        self._recorder = TaskRecorder(output, facts, self._link) if output else None
        self._is_ended = False
        if self._recorder:
            self._recorder.load_history(state)
            self._recorder.start()
        self._link.start()

    def turn(self) -> None:
        """Give the state to the two threads."""
        head = self._state.head
        if self._recorder:
            self._recorder.offer(self._state)
        if head is not None and self._state.is_over and not self._is_ended:
            self._is_ended = True
            is_done = head.phase is Phase.DONE
            self._link.end_job(JobEnd(discarded=self._state.discarded) if is_done else JobEnd(head.reason))

    @property
    def is_end_told(self) -> bool:
        """Whether the end of the job is in the registry."""
        return self._link.is_told

    @property
    def trouble(self) -> str:
        """Why the registry cannot be used, if the reason is known."""
        return self._link.trouble

    def __enter__(self) -> JobRecords:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._link.close()
        if self._recorder is None:
            return
        if isinstance(error, LeaseLostError):
            self._recorder.abandon()
        elif error is None:
            self._recorder.close(self._state, 0, "")
        else:
            status = error.exit_code if isinstance(error, PaddleError) else BugError.exit_code
            self._recorder.close(self._state, status, f"{error}" or type(error).__name__)


def check_output(output: Path) -> None:
    """Check that tasks.json can be written. A leader and a standby may check at the same time.

    Raises: VolumeError: the file cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{NAME}.", dir=output) as directory:
            replace_file(Path(directory) / NAME, "")
    except OSError as exc:
        raise VolumeError(f"--output={output} cannot be written: {exc.strerror}; give another directory") from exc
