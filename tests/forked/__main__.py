"""The fork server: imports what the programs import, and forks a process for each request.

usage: python -m forked DESCRIPTOR

Over the socket comes {argv, folder, environ} with the descriptors of stdout and stderr, and of stdin where a test gives
one; back go {pid} at once and {ended: pid, status} after the end. The server ends when the other side closes the
socket, as it does when it is killed; what the server has forked ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import paddle.command
import paddle.elastic
import paddle_cluster.elastic.agent.service
import paddle_cluster.elastic.job
import paddle_cluster.elastic.launch
import paddle_cluster.launcher.roles.__main__
import paddle_cluster.localcluster.program
import paddle_cluster.master.__main__
import paddle_cluster.master.autoscaler.__main__
import paddle_cluster.prepare.program
import pserver.aggregate.staleness
import pserver.flags
import pserver.server.event_loop
import start_paddle
import trainer.__main__
import trainer.training.assembly
from paddle_base import kernels
from paddle_base.runtime.health.liveness import LIVENESS

PRELOADED = (kernels, paddle, paddle_cluster, pserver, start_paddle, trainer)
MESSAGE_LIMIT = 1 << 20
ROOT = Path(__file__).parents[2]


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks until there are no more requests. Returns: in a forked process its request, in the server None."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, whose end ends the server
    signal.set_wakeup_fd(wake)
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 10)
            report_ends(requests, running)
        if requests not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_LIMIT, 3)
        if not message:
            end_all(running)
            return None
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for source, target in zip(descriptors, (1, 2, 0), strict=False):
                os.dup2(source, target)
            for descriptor in {*descriptors, woken, wake, requests.detach()}:
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        running.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        tell(requests, {"pid": pid})


def tell(requests: socket.socket, answer: dict[str, int]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the tests have ended; select says so next
        requests.send(json.dumps(answer).encode())


def report_ends(requests: socket.socket, running: set[int]) -> None:
    """Tells the status of every process that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        running.discard(pid)
        tell(requests, {"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def end_all(running: set[int]) -> None:
    """Kills what still runs: a test that was interrupted leaves no process."""
    for pid in running:
        os.kill(pid, signal.SIGKILL)  # not waited for yet, so the number is still that of this process
    for pid in running:
        os.waitpid(pid, 0)


def become(request: dict[str, Any]) -> NoReturn:
    """Goes on as `python -m` with these arguments does, or as `python start_paddle.py` does."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    open_streams()
    LIVENESS.turned = time.monotonic()  # it counts from the import
    tempfile.tempdir = None  # of the environment, which is another one
    module, *arguments = request["argv"]
    sys.argv = [str(ROOT / "start_paddle.py") if module == "start_paddle" else module, *arguments]
    sys.path.insert(0, request["folder"])
    sys.modules.pop(f"{module}.__main__", None)  # it runs again
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = 1 if isinstance(ended.code, str) else ended.code or 0
    end(status)


def open_streams() -> None:
    """Makes the streams anew, because those of the server know what its own descriptors can do."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        binary = open(number, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
        is_by_line = number == 2 or binary.isatty()
        stream = io.TextIOWrapper(binary, "utf-8", errors, line_buffering=is_by_line, write_through=is_unbuffered)
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def end(status: int) -> NoReturn:
    """Ends as the interpreter does, but takes no module apart, which would copy all the memory of the server."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            traceback.print_exc()
            status = 120  # what the interpreter's last flush ends with
    os._exit(status & 0xFF)


if __name__ == "__main__":
    gc.freeze()
    own = serve(socket.socket(fileno=int(sys.argv[1])))
    if own is not None:
        become(own)
