"""Function mode: every worker of a job runs a function in place of a command.

Workers on this machine are forked, and so have the function and its arguments in memory. Any function is allowed, for
example a function of a notebook. A worker that an agent starts, or that another `executable` runs, imports the function
by its name (`paddle_cluster.elastic.launching.function`). Results are sent as JSON and arrays through a store that
requires the secret of the job.
"""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import PaddleError, UsageError
from paddle_cluster.elastic import constants as names
from paddle_cluster.elastic.http_server import KVStoreServer
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES
from paddle_cluster.elastic.launching.forking import ForkServer
from paddle_cluster.elastic.launching.processes import StartProcess, WorkerProgram, start_command
from paddle_cluster.elastic.membership.results import JobFailedError
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.objects import drop_advice, dump_object, load_object
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

VARIABLE = "PADDLE_ELASTIC_FUNCTION"  # variable with the address:port of the store for the function
SCOPE, KEY, RESULTS = "runfunc", "func", "runfunc_result"
ASK_S = 30.0  # maximum seconds until the store has answered


def describe_function(func: object) -> str:
    """Return `module:qualname` of a function, even if the function cannot be imported by this name."""
    return f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', '') or type(func).__name__}"


def name_function(func: Callable[..., Any]) -> str:
    """Return the reference by which another process imports a function.

    Raises: UsageError: there is no reference, because the function is a lambda, an inner function or not part of a
        module.
    """
    name, shown = getattr(func, "__qualname__", ""), describe_function(func)
    if not isinstance(func, FunctionType) or "<" in name:
        raise UsageError(
            f"run() cannot send {shown} to another machine or another Python, because a function is sent by its name; "
            "define the function with def at the top level of a module, and pass the values that it needs by args"
        )
    module = func.__module__
    if module == "__main__":
        module = _name_main(shown)
    elif _find(sys.modules.get(module), name) is not func:
        raise UsageError(f"run() cannot send {shown} to other processes, because {module}.{name} is another object")
    return f"{module}:{name}"


def _name_main(shown: str) -> str:
    """Return the name by which other processes import the main script of this process."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).stem.isidentifier():
        raise UsageError(f"run() cannot send {shown} to other processes, because no importable file defines it")
    return Path(file).stem


def _find(module: object, name: str) -> object:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def find_function(reference: str) -> Callable[..., Any]:
    """Return the function of a reference.

    Raises: ImportError: there is no such module.  UsageError: the module has no such function.
    """
    module, _, name = reference.partition(":")
    found = _find(importlib.import_module(module), name)
    if not callable(found):
        raise UsageError(f"there is no function {name} in {module} ({sys.modules[module].__file__})")
    return found


def dump_bounded_object(value: object, what: str) -> bytes:
    """Encode arguments or results as bytes.

    Raises: UsageError: the value is neither plain data nor arrays, or is too large.
    """
    try:
        content = dump_object(value)
    except TypeError as exc:
        why = drop_advice(exc)
        raise UsageError(f"{what} cannot be sent to another process: {why}") from exc
    if len(content) > MOST_VALUE_BYTES:
        raise UsageError(
            f"{what} have {len(content)} bytes, and at most {MOST_VALUE_BYTES} can be sent; write them to a file, and "
            "send the file's name"
        )
    return content


def make_path(environ: Mapping[str, str]) -> str:
    """Return a PYTHONPATH with which workers can import the same modules as this process."""
    root = str(Path(__file__).resolve().parents[3])
    entries = [one or str(Path.cwd()) for one in sys.path] + [root]
    given = [one for one in environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return os.pathsep.join(dict.fromkeys([*given, *(one for one in entries if Path(one).is_dir())]))


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
        self._client.close()
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
    command = [executable or sys.executable, "-m", "paddle_cluster.elastic.launching.function"]
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


# ----- The program of a worker -----


class FunctionCall(NamedTuple):
    """The function that every worker calls, with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def main() -> int:
    """Run a function that is given by name; return the exit code."""
    return _report(lambda: _perform(_fetch()))


def work_forked(call: FunctionCall) -> int:
    """Run a function in a process that was forked from the caller of run(); return the exit code."""
    WORKER.forget()
    return _report(lambda: _perform(call))


def _report(work: Callable[[], None]) -> int:
    try:
        work()
    except PaddleError as exc:
        glog.fatal(str(exc))
        return exc.exit_code
    return 0


def _open_store() -> RendezvousClient:
    environ = os.environ
    address, _, port = environ[VARIABLE].rpartition(":")
    return RendezvousClient(address, int(port), read_environment(environ).secret, ASK_S)


def _fetch() -> FunctionCall:
    content = _open_store().get(SCOPE, KEY)
    if content is None:
        raise UsageError(f"the store {VARIABLE}={os.environ[VARIABLE]} has no function; let run() start this program")
    call = load_object(content)
    return FunctionCall(find_function(call["reference"]), call["args"], call["kwargs"])


def _perform(call: FunctionCall) -> None:
    environ = os.environ
    result = call.function(*call.args, **call.kwargs)
    # the variables describe the last generation, in which the rank may differ from the rank at the start
    given = {"size": int(environ[names.HOROVOD_SIZE]), "result": result}
    content = dump_bounded_object(given, f"the results of {describe_function(call.function)}")
    _open_store().put(RESULTS, environ[names.HOROVOD_RANK], content)
    driver = RendezvousClient(
        environ[names.HOROVOD_GLOO_RENDEZVOUS_ADDR],
        int(environ[names.HOROVOD_GLOO_RENDEZVOUS_PORT]),
        read_environment(environ).secret,
        ASK_S,
    )
    place = environ[names.HOROVOD_HOSTNAME], int(environ[names.HOROVOD_LOCAL_RANK])
    driver.done(*place, environ[names.PADDLE_ELASTIC_INCARNATION])


if __name__ == "__main__":
    sys.exit(main())
