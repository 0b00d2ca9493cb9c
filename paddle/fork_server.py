"""The fork server of a launcher imports what the programs of a pod need, and forks a program for each request.

A start of Python that imports numpy and the trainer takes 0.4 s of processor time, and a pod starts a pserver, a probe
and a trainer in each attempt. The launcher starts the fork server while it waits for the other pods.

A forked program is a child of the launcher, and it cannot be told from one that `paddle` has started: it has the same
command line, environment, streams, limits and signals, and it runs the same code from `paddle.command.main` on. The
fork server itself runs no code of the user, starts no thread, and ends with the launcher.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle import process_title
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.forking.requests import ForkRequest
from paddle_base.runtime.forking.server import begin_program, serve_forks
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

    def be_idle() -> bool:
        if pending:
            preload(pending.pop(0)[1])
        return bool(pending)

    def prepare(request: ForkRequest) -> None:
        while any(name == request.argv[0] for name, _ in pending):
            preload(pending.pop(0)[1])
        if len(list(_TASKS.iterdir())) > 1:
            os._exit(1)  # a fork would copy the locks of the other threads, but not the threads
        gc.freeze()  # otherwise a collection in a program would copy the memory that it shares with this process

    become(*serve_forks(connection, prepare, be_idle))


def preload(module: str) -> None:
    """Import a module. If a package is absent, leave it to the program to say so."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(module)


def become(request: ForkRequest, streams: Sequence[int]) -> None:
    """Make this process the requested program, up to the first line of its code."""
    begin_program(request, streams)
    words = [*sys.orig_argv[: -len(sys.argv) + 1], *request.argv]
    process_title.show(words, request.environ)
    sys.orig_argv, sys.argv[1:] = words, request.argv
    LIVENESS.turn()
    gc.enable()
