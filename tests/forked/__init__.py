"""Programs of ours as processes that are forked from one which has imported them already.

A start of Python that imports numpy, requests, zmq and the trainer takes 0.2 to 0.5 s of processor time; tests of what
programs do with each other start thousands of them. The start itself is proven where the commands run as users run
them: tests/e2e, test_forked_programs and test_paddle_interrupts of tests/integration/paddle, and at least one test of
each program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
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
from typing import TextIO

DEADLINE_S = 60.0
START_S = 100.0  # for the imports of the server, beside heavy load; they take a second


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

    def start(
        self, argv: Sequence[str | Path], folder: Path, environ: Mapping[str, str], descriptors: Sequence[int]
    ) -> Forked:
        """Starts `python -m` argv in a folder.

        Args: descriptors: the file descriptors of its stdout and stderr, and, if there is a third, of its stdin.
        """
        request = json.dumps({"argv": [str(one) for one in argv], "folder": str(folder), "environ": dict(environ)})
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], list(descriptors))
            while "pid" not in (answer := self._receive(START_S)):
                continue
            self._ended.pop(answer["pid"], None)  # of an earlier process with this pid
        return Forked(self, answer["pid"])

    def open(
        self,
        argv: Sequence[str | Path],
        folder: Path,
        environ: Mapping[str, str] | None = None,
        *,
        merged: bool = False,
    ) -> Forked:
        """Starts `python -m` argv with pipes for its text, which are `stdout` and `stderr` of the process.

        Args: environ: None: that of this process.  merged: both go to `stdout`.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            streams, descriptors = [], []
            for _ in range(1 if merged else 2):
                readable, writable = os.pipe()
                theirs.callback(os.close, writable)
                descriptors.append(writable)
                streams.append(ours.enter_context(open(readable, encoding="utf-8")))  # noqa: PTH123
            environ = os.environ if environ is None else environ
            process = self.start(argv, folder, environ, [descriptors[0], descriptors[-1]])
            ours.pop_all()
        process.stdout, process.stderr = streams[0], None if merged else streams[1]
        return process

    def run(
        self,
        argv: Sequence[str | Path],
        folder: Path,
        environ: Mapping[str, str] | None = None,
        *,
        merged: bool = False,
        timeout: float = DEADLINE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `python -m` argv to its end."""
        with self.open(argv, folder, environ, merged=merged) as process:
            stdout, stderr = process.communicate(timeout)
            return subprocess.CompletedProcess(list(argv), process.wait(timeout), stdout, stderr)

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
        """End the server, and whatever it has forked that still runs."""
        self._socket.close()
        self._process.wait(DEADLINE_S)

    def _receive(self, timeout: float) -> dict[str, int]:
        self._socket.settimeout(timeout)
        message = self._socket.recv(1 << 10)
        assert message, "the fork server has ended"
        answer: dict[str, int] = json.loads(message)
        if "ended" in answer:
            self._ended[answer["ended"]] = answer["status"]
        return answer


@functools.cache
def server() -> ForkServer:
    """Returns the fork server of this process, which ends with it."""
    made = ForkServer()
    atexit.register(made.close)
    return made


class Forked:
    """A process of a ForkServer; what tests use of subprocess.Popen."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process if it still runs, and close the pipes."""
        self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float = DEADLINE_S) -> int:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout)
        return self.returncode

    def communicate(self, timeout: float = DEADLINE_S) -> tuple[str, str]:
        """Reads both pipes until their ends, and waits for the end of the process."""
        end = time.monotonic() + timeout
        streams, texts = (self.stdout, self.stderr), {}
        readers = [
            threading.Thread(target=lambda one=one, stream=stream: texts.update({one: stream.read()}), daemon=True)
            for one, stream in enumerate(streams)
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout)
        self.wait(max(0.0, end - time.monotonic()))
        return texts.get(0, ""), texts.get(1, "")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
