"""Programs of ours as processes that are forked from one which has imported them already.

A start of Python that imports numpy and the trainer takes 0.3 s of processor time; tests of what trainers and servers
do with each other start a thousand of them. The start itself is proven where the commands run as users run them:
tests/e2e, tests/integration/paddle and tests/integration/launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class ForkServer:
    """The process that forks the others. Not started before the first of them is wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = own
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PADDLE_")}
        environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        with theirs:
            command = [sys.executable, "-m", "forked", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[2],
                env=environ,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, argv: Sequence[str], folder: Path, environ: Mapping[str, str], outputs: Sequence[int]) -> Forked:
        """Starts `python -m` argv in a folder.

        Args: outputs: the file descriptors of its stdout and stderr.
        """
        request = json.dumps({"argv": list(argv), "folder": str(folder), "environ": dict(environ)})
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], list(outputs))
            while "pid" not in (answer := self._receive(60.0)):
                continue
            self._ended.pop(answer["pid"], None)  # of an earlier process with this pid
        return Forked(self, answer["pid"])

    def status_of(self, pid: int, timeout: float) -> int | None:
        """Returns the exit status of a process, negative for a signal; None when it still runs after the timeout."""
        end = time.monotonic() + timeout
        while True:
            with self._lock, contextlib.suppress(TimeoutError):
                # in pieces, because another thread may be waiting for a process of its own
                left = min(0.1, end - time.monotonic())
                while pid not in self._ended:
                    self._receive(max(left, 0.0001))
            if pid in self._ended or time.monotonic() >= end:
                return self._ended.get(pid)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)

    def _receive(self, timeout: float) -> dict[str, int]:
        self._socket.settimeout(timeout)
        message = self._socket.recv(1 << 10)
        assert message, "the fork server has ended"
        answer: dict[str, int] = json.loads(message)
        if "ended" in answer:
            self._ended[answer["ended"]] = answer["status"]
        return answer


class Forked:
    """A process of a ForkServer; what tests use of subprocess.Popen."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
