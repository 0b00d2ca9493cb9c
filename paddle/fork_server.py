"""The fork server of a launcher imports what the programs of a pod need, and forks a program for each request.

A start of Python that imports numpy and the trainer takes 0.4 s of processor time, and a pod starts a pserver, a probe
and a trainer in each attempt. The launcher starts the fork server while it waits for the other pods.

A forked program is a child of the launcher, and it cannot be told from one that `paddle` has started: it has the same
command line, environment, streams, limits and signals, and it runs the same code from `paddle.command.main` on. The
fork server itself runs no code of the user, starts no thread, and ends with the launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import os
import random
import resource
import select
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from paddle import process_title
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.forking import PID, ForkRequest, receive_request
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.processor.blas import NAMES

# What each program has imported at its first batch, except what only some jobs need. `metrics` is no program, but the
# pages of both. The lists are a matter of time only: a program imports what it lacks.
PRELOADED: Mapping[str, Sequence[str]] = {
    "pserver": (
        "pserver.__main__",
        "pserver.client.probe",
        "pserver.life.options",
        "pserver.server.event_loop",
        "pserver.server.arithmetic",
        "encodings.idna",
    ),
    "train": (
        "trainer.__main__",
        "paddle_base.kernels",
        "trainer.training.assembly",
        "trainer.layers.dense.data",
        "trainer.layers.cost.costs",
        "trainer.updaters.parameter_servers",
        "paddle.trainer.PyDataProvider2",
        "paddle.trainer_config_helpers",
        "numpy.random",
    ),
    "metrics": ("pserver.server.server_metrics", "paddle_base.runtime.network.pages", "prometheus_client"),
}
_TASKS = Path("/proc/self/task")


def serve(arguments: Sequence[str]) -> None:
    """Fork programs until the launcher ends; then end this process. Return only in a forked program.

    In a forked program, sys.argv is its command line.
    Args: arguments: the descriptor of the connection to the launcher, and names of PRELOADED.
    """
    try:
        connection = socket.socket(fileno=int(arguments[0]))
    except (OSError, OverflowError) as problem:
        sys.stderr.write(f"paddle fork-server {arguments[0]}: {problem}; only a launcher starts this program\n")
        sys.exit(UsageError.exit_code)
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(NAMES, "1"))  # more threads would make it impossible to fork
    gc.disable()
    process_title.show([*sys.orig_argv], before)  # if the system refuses, this process ends, and the launcher goes on
    pending = [(name, module) for name in arguments[1:] for module in PRELOADED[name]]
    while True:
        if pending and not select.select([connection], [], [], 0)[0]:
            preload(pending.pop(0)[1])
            continue
        received = receive_request(connection)
        if received is None:
            os._exit(0)
        request, descriptors = received
        while any(name == request.argv[0] for name, _ in pending):
            preload(pending.pop(0)[1])
        if len(list(_TASKS.iterdir())) > 1:
            os._exit(1)  # a fork would copy the locks of the other threads, but not the threads
        gc.freeze()  # otherwise a collection in a program would copy the memory that it shares with this process
        pid = fork_child_of_parent()
        if pid == 0:
            connection.close()
            become(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(PID.pack(pid))


def preload(module: str) -> None:
    """Import a module. If a package is absent, leave it to the program to say so."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(module)


def fork_child_of_parent() -> int:
    """Fork a process whose parent is that of this process. Return its pid, and in the new process 0.

    The parent must be a child subreaper or the first process of its pid namespace.
    """
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child:
            os.write(writable, PID.pack(child))
            os._exit(0)  # the kernel gives the child to the launcher
    else:
        os.close(writable)
        os.waitpid(between, 0)
        child = int(PID.unpack(os.read(readable, PID.size))[0])
        os.close(readable)
        return child
    os.close(readable)
    os.close(writable)
    return 0


def become(request: ForkRequest, descriptors: Sequence[int]) -> None:
    """Make this process the requested program, up to the first line of its code."""
    *streams, started = descriptors
    if not os.read(started, 1):
        os._exit(1)  # the launcher has ended or given the request up
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environ)
    soft, hard = request.files
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    words = [*sys.orig_argv[: -len(sys.argv) + 1], *request.argv]
    process_title.show(words, request.environ)
    sys.orig_argv, sys.argv[1:] = words, request.argv
    open_streams()
    random.seed()
    if numbers := sys.modules.get("numpy.random"):
        numbers.seed()
    LIVENESS.turn()
    gc.enable()


def end(status: int) -> NoReturn:
    """End a forked program that runs no code of the user.

    The interpreter's own end takes all modules apart, which takes 30 ms, and copies the memory that the program shares
    with the fork server.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def open_streams() -> None:
    """Make the streams of Python anew, because those of the fork server know what its own descriptors can do."""
    stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    for name, stream in (
        ("stdin", stdin),
        ("stdout", _open_stream(1, sys.stdout)),
        ("stderr", _open_stream(2, sys.stderr)),
    ):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open_stream(number: int, before: Any) -> TextIO:
    """Return a new stream on a descriptor, with the encoding and the buffers that the environment asks for."""
    is_unbuffered = isinstance(before.buffer, io.FileIO)  # PYTHONUNBUFFERED
    binary = open(number, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    is_by_line = number == 2 or binary.isatty()
    stream: Any = io.TextIOWrapper(
        binary, before.encoding, before.errors, line_buffering=is_by_line, write_through=before.write_through
    )
    stream.mode = "w"
    return cast("TextIO", stream)
