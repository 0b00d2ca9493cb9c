"""The fork server of this launcher, which starts its programs without their imports, and a program that it has forked.

The programs are started as always where no fork server can be used, or where it fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from paddle_base.runtime.forking import FORK_SERVER, PID, ForkRequest, send_request
from paddle_cluster.launcher.text import say

PR_SET_CHILD_SUBREAPER = 36
# seconds in which the fork server imports and forks; a start of the program itself would take longer than that, too
ANSWER_S = 20.0
# Variables of libraries of products. The fork server has one thread, which is also their default here.
THREADS = ("PADDLE_BLAS_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class ForkedProgram:
    """A program that the fork server has forked, with what the launcher uses of subprocess.Popen."""

    def __init__(self, pid: int, stdout: BinaryIO | None) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the status of the ended program, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
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


class PodForkServer:
    """The fork server of this launcher. Only the main thread may use it."""

    def __init__(self, paddle: str, programs: Sequence[str], wakeup: int) -> None:
        """Args: paddle: path of the command. programs: what to import. wakeup: readable after a signal."""
        self._connection, theirs = socket.socketpair()
        self._programs, self._wakeup = programs, wakeup
        with theirs:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [paddle, FORK_SERVER, str(theirs.fileno()), *programs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self, argv: Sequence[str], environ: Mapping[str, str], stdout: int, stderr: int | None = None
    ) -> ForkedProgram | None:
        """Fork a program, or return None if it has to be started in another way.

        Args: argv: the command line; only one of a program that the fork server has imported is forked. environ: the
            whole environment. stdout: a descriptor, or subprocess.PIPE. stderr: a descriptor; None: that of stdout.
        """
        if self._process is None or argv[0] != "paddle" or argv[1] not in self._programs:
            return None
        with contextlib.ExitStack() as opened:
            stdin = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, stdin)
            readable: BinaryIO | None = None
            if stdout == subprocess.PIPE:
                own, stdout = os.pipe()
                readable = open(own, "rb")  # noqa: PTH123, SIM115  # the caller closes it
                opened.callback(os.close, stdout)
            pid = self._fork(argv[1:], environ, [stdin, stdout, stdout if stderr is None else stderr])
            if pid:
                return ForkedProgram(pid, readable)
            if readable:
                readable.close()
        return None

    def _fork(self, argv: Sequence[str], environ: Mapping[str, str], streams: Sequence[int]) -> int:
        """Return the pid of a forked program, or 0 after an error, which ends the fork server."""
        request = ForkRequest(argv, environ, resource.getrlimit(resource.RLIMIT_NOFILE))
        started, start = os.pipe()
        try:
            self._connection.settimeout(ANSWER_S)
            with adopting():
                send_request(self._connection, request, [*streams, started])
                pid = self._receive_pid()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.write(start, b"x")
        except OSError as problem:  # ChildProcessError among them: the program is no child of this process
            say(f"the programs of this pod start without a fork server: {problem}")
            self.close()
            return 0
        finally:
            os.close(started)
            os.close(start)
        return pid

    def _receive_pid(self) -> int:
        """Return the pid in the answer. Raises: OSError: there is none in time, or before a signal."""
        answer, deadline = b"", time.monotonic() + ANSWER_S
        with selectors.DefaultSelector() as selector:
            for source in (self._connection.fileno(), self._wakeup):
                selector.register(source, selectors.EVENT_READ)
            while len(answer) < PID.size:
                ready = {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if self._connection.fileno() not in ready:
                    raise TimeoutError("it has not answered" if not ready else "a signal has come")
                chunk = self._connection.recv(PID.size - len(answer))
                if not chunk:
                    raise ConnectionError("it has ended")
                answer += chunk
        return int(PID.unpack(answer)[0])

    def close(self) -> None:
        """End the fork server; the programs go on."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Make this process the parent of programs whose parent ends inside this block."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def find_own_paddle() -> str:
    """Return the path of the command `paddle` if PATH has the one of this Python; otherwise return "".

    Another file of this name may be a program of the user that starts `paddle` in its own way.
    """
    found = shutil.which("paddle")
    return found if found and Path(found).resolve() == Path(sys.executable).parent.resolve() / "paddle" else ""


def start_fork_server(programs: Sequence[str], environ: Mapping[str, str], wakeup: int) -> PodForkServer | None:
    """Start a fork server, or return None if the programs have to start without one.

    Args: programs: what it imports: names of paddle/fork_server.py. environ: this process's environment. wakeup: a
        descriptor that is readable after a signal.
    """
    paddle = find_own_paddle()
    has_threads = any(environ.get(name, "1") not in ("", "1") for name in THREADS)
    if not (paddle and programs) or has_threads:
        return None
    try:
        return PodForkServer(paddle, programs, wakeup)
    except OSError:
        return None
