"""The client of a fork server, and a program that the fork server has forked for it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from paddle_base.runtime.forking.requests import PID, ForkRequest, send_request

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
# seconds in which the fork server imports and forks; a start of a program itself would take longer than that, too
ANSWER_S = 20.0
ENDED = "it has ended"
_ADOPTION = threading.Lock()  # which process adopts is a property of the whole process


class ForkedProgram:
    """A program that the fork server has forked, with what the client uses of subprocess.Popen."""

    def __init__(self, pid: int, stdout: BinaryIO | None = None) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the status of the ended program, or None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # code of the user has collected the status; subprocess says 0 then, too
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program, and return its status. Raises: subprocess.TimeoutExpired."""
        if self.poll() is None:
            pidfd = os.pidfd_open(self.pid)
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(pidfd, selectors.EVENT_READ)
                    selector.select(timeout)
            finally:
                os.close(pidfd)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the program."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:  # this process has not collected the status, so the pid is still the program's
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkClient:
    """Asks a fork server, which is a child of this process, for programs.

    Args: connection: this side of the pair of sockets; closed by `close`. wakeup: a descriptor that is readable after a
        signal, which ends the wait for an answer; None: only time does.

    Thread safety: any thread may use it.
    """

    def __init__(self, connection: socket.socket, wakeup: int | None = None) -> None:
        self._connection, self._wakeup = connection, wakeup
        connection.settimeout(ANSWER_S)

    def fork(
        self, argv: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int], *, is_leader: bool = False
    ) -> int:
        """Return the pid of a forked program, which is a child of this process.

        Args: environ: the whole environment. descriptors: stdin, stdout, stderr, and more for the program.
        Raises: ConnectionError: the fork server has ended. TimeoutError: it has not answered in time, or before a
            signal; it may answer too late, so it is of no more use. OSError: the program cannot be forked.
        """
        request = ForkRequest(argv, environ, resource.getrlimit(resource.RLIMIT_NOFILE), is_leader)
        started, start = os.pipe()
        try:
            with _ADOPTION, adopting():
                pid = self._ask(request, [started, *descriptors])
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # fails if it is no child of this process
            os.write(start, b"x")
        finally:
            os.close(started)
            os.close(start)
        return pid

    def _ask(self, request: ForkRequest, descriptors: Sequence[int]) -> int:
        if self._connection.fileno() < 0:
            raise ConnectionError(ENDED)
        try:
            send_request(self._connection, request, descriptors)
            return self._receive_pid()
        except (ConnectionError, TimeoutError):
            self.close()
            raise

    def _receive_pid(self) -> int:
        """Return the answer. Raises: OSError: there is none in time, or before a signal."""
        answer, deadline = b"", time.monotonic() + ANSWER_S
        own = self._connection.fileno()
        with selectors.DefaultSelector() as selector:
            for source in (own, *([] if self._wakeup is None else [self._wakeup])):
                selector.register(source, selectors.EVENT_READ)
            while len(answer) < PID.size:
                ready = {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if own not in ready:
                    raise TimeoutError("it has not answered" if not ready else "a signal has come")
                chunk = self._connection.recv(PID.size - len(answer))
                if not chunk:
                    raise ConnectionError(ENDED)
                answer += chunk
        return int(PID.unpack(answer)[0])

    def close(self) -> None:
        """Close the connection, which ends the fork server; the programs go on."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # effective even if another process has a copy of the socket
        self._connection.close()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Make this process the parent of programs whose parent ends inside this block."""
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
