"""The fork server: imports what the programs import, and forks a process for each request.

usage: python -m forked DESCRIPTOR

Over the socket comes {argv, folder, environ} with the descriptors of stdout and stderr; back go {pid} at once and
{ended: pid, status} after the end. The server ends when the other side closes the socket.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from typing import Any

import kernels
import paddle.command
import pserver.aggregate.staleness
import pserver.flags
import pserver.server.event_loop
import trainer.__main__
import trainer.training.assembly
from runtime.health.liveness import LIVENESS

PRELOADED = (kernels, paddle, pserver, trainer)
MESSAGE_LIMIT = 1 << 20


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks until there are no more requests. Returns: in a forked process its request, in the server None."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 10)
            report_ends(requests)
        if requests not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_LIMIT, 2)
        if not message:
            return None
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for source, target in zip(descriptors, (1, 2), strict=True):
                os.dup2(source, target)
            for descriptor in {*descriptors, woken, wake, requests.detach()}:
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(json.dumps({"pid": pid}).encode())


def report_ends(requests: socket.socket) -> None:
    """Tells the status of every process that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        requests.send(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def become(request: dict[str, Any]) -> None:
    """Goes on as `python -m` with these arguments does."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    LIVENESS.turned = time.monotonic()  # it counts from the import
    module, *arguments = request["argv"]
    sys.argv = [module, *arguments]
    sys.path.insert(0, request["folder"])
    runpy.run_module(module, run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    gc.freeze()
    own = serve(socket.socket(fileno=int(sys.argv[1])))
    if own is not None:
        become(own)
