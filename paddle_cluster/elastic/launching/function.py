"""Function mode: every worker of a job runs a function in place of a command.

Workers on this machine are forked, and so have the function and its arguments in memory. Any function is allowed, for
example a function of a notebook. A worker that an agent starts, or that another `executable` runs, imports the function
by its name (`paddle_cluster.elastic.launching.references`). Results are sent as JSON and arrays through a store that
requires the secret of the job.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import UsageError
from paddle_cluster.elastic.http_server import KVStoreServer
from paddle_cluster.elastic.launching.call import FunctionCall, work_forked
from paddle_cluster.elastic.launching.forking import ForkServer
from paddle_cluster.elastic.launching.judging import JobFailedError
from paddle_cluster.elastic.launching.processes import StartProcess, start_command
from paddle_cluster.elastic.launching.program import WorkerProgram
from paddle_cluster.elastic.launching.references import (
    ASK_S,
    KEY,
    RESULTS,
    SCOPE,
    VARIABLE,
    describe_function,
    dump_bounded_object,
    make_path,
    name_function,
)
from paddle_cluster.elastic.process.objects import load_object
from paddle_cluster.elastic.rendezvous.client import RendezvousClient

LOOPBACK = "127.0.0.1"


class FunctionStore:
    """Sends the name and arguments of the function to workers that are not forked, and receives all results."""

    def __init__(self, call: FunctionCall, secret: str) -> None:
        self._call = call
        self._server = KVStoreServer(secret=secret)
        self._port = self._server.start_server()
        self._client = RendezvousClient(LOOPBACK, self._port, secret, ASK_S)

    def list_variables(self, address: str) -> dict[str, str]:
        """Return the variables of a worker that has a copy of the function and reaches this machine at an address."""
        return {VARIABLE: f"{address}:{self._port}"}

    def offer(self, address: str) -> dict[str, str]:
        """Return the variables of a worker that fetches the function from this store.

        Raises: UsageError: the function has no name, an argument is neither plain data nor an array, or the arguments
            are too large.
        """
        reference = name_function(self._call.function)
        given = {"reference": reference, "args": self._call.args, "kwargs": dict(self._call.kwargs)}
        self._client.put(SCOPE, KEY, dump_bounded_object(given, f"the arguments of {reference}"))
        return self.list_variables(address)

    def results(self) -> list[Any]:
        """Return the results of the function by rank.

        Raises: JobFailedError: a rank has sent no result.  DataError: the result of a rank cannot be parsed.
        """
        found: list[Any] = []
        size = 1
        while len(found) < size:
            content = self._client.get(RESULTS, str(len(found)))
            if content is None:
                name = describe_function(self._call.function)
                raise JobFailedError(f"rank {len(found)} has not returned from {name}; look at its output")
            given = load_object(content)
            size = given["size"]
            found.append(given["result"])
        return found

    def close(self) -> None:
        """Stop the store."""
        self._server.shutdown_server()


def run_function(call: FunctionCall, executable: str | None, launch: Callable[[WorkerProgram], None]) -> list[Any]:
    """Run a function on the workers of a job, and return the results by rank.

    Args: executable: path of another Python, in which workers import the function; None: the workers are forked.
        launch: runs a job whose workers run the given program.
    Raises: UsageError: the function, or an argument, cannot be sent to another program.
        JobFailedError: a rank has sent no result.
    """
    environ = os.environ
    if environ.get(VARIABLE):
        raise UsageError(
            "a worker of run() has called run() itself: if workers import the function of a script, the script must "
            'call run() below `if __name__ == "__main__":`'
        )
    secret = read_environment(environ).secret or secrets.token_hex(32)
    command = [executable or sys.executable, "-m", "paddle_cluster.elastic.launching.call"]
    with ExitStack() as stack:
        if executable is None:  # the fork must come before this process starts threads
            forks = ForkServer(partial(work_forked, call))
            stack.callback(forks.close)
            start: StartProcess = forks.start
        else:
            start = start_command(command)
        store = FunctionStore(call, secret)
        stack.callback(store.close)
        if executable is None:
            variables = store.list_variables(LOOPBACK)
        else:
            variables = {"PYTHONPATH": make_path(environ), **store.offer(LOOPBACK)}
        launch(WorkerProgram(command, {**environ, **variables}, start, store.offer, secret))
        return store.results()
