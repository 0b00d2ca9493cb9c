"""The fork server of this launcher, which starts its programs without their imports.

The programs are started as always where no fork server can be used, or where it fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from paddle_base.runtime.forking.client import ForkClient, ForkedProgram
from paddle_cluster.launcher.text import say

FORK_SERVER = "fork-server"  # the argument of `paddle` that starts a fork server
# Variables of libraries of products. The fork server has one thread, which is also their default here.
THREADS = ("PADDLE_BLAS_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class PodForkServer:
    """The fork server of this launcher. Only the main thread may use it."""

    def __init__(self, paddle: str, programs: Sequence[str], wakeup: int) -> None:
        """Args: paddle: path of the command. programs: what to import. wakeup: readable after a signal."""
        own, theirs = socket.socketpair()
        self._client, self._programs = ForkClient(own, wakeup), programs
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
        try:
            return self._client.fork(argv, environ, streams)
        except OSError as problem:
            say(f"the programs of this pod start without a fork server: {problem}")
            self.close()
            return 0

    def close(self) -> None:
        """End the fork server; the programs go on."""
        if self._process is not None:
            self._client.close()
            self._process.kill()
            self._process.wait()
            self._process = None


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
