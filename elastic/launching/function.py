"""Function mode: a function as the work of every worker of a job, in place of a command.

The function travels as a name, `module:qualname`, which every worker imports. Arguments and results travel as JSON and
arrays (`elastic.process.objects`), through a store of the job with its secret. No object of another process is
unpickled: a function whose code is not in a module that can be imported is refused.
"""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from elastic.http_server import KVStoreServer
from elastic.keyvalue.store import MOST_VALUE_BYTES
from elastic.launching.judging import JobFailedError
from elastic.process.objects import dump_object, load_object
from elastic.rendezvous.client import RendezvousClient
from runtime.environment import read_environment
from runtime.errors import UsageError

VARIABLE = "PADDLE_ELASTIC_FUNCTION"  # the store of the function, address:port; a worker has it
SCOPE, KEY, RESULTS = "runfunc", "func", "runfunc_result"
LOOPBACK = "127.0.0.1"
ASK_S = 30.0  # seconds for the store of this machine to answer
# argument of `run` -> flag of `paddle elastic run`
FLAGS = {
    "num_proc": "-np",
    "np": "-np",
    "min_num_proc": "--min-np",
    "min_np": "--min-np",
    "max_num_proc": "--max-np",
    "max_np": "--max-np",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout",
    "output_filename": "--output-filename",
    "verbose": "--verbose",
    "network_interface": "--network-interface",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
}
_NO_SSH = "the driver starts workers on its own machine"
NOT_HERE = {
    "use_mpi": "the workers speak over connections of their own",
    "mpi_args": "the workers speak over connections of their own",
    "ssh_port": _NO_SSH,
    "ssh_identity_file": _NO_SSH,
}


class FunctionCall(NamedTuple):
    """What every worker does. `reference`: of the function, `module:qualname`."""

    reference: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def name_function(func: Callable[..., Any]) -> str:
    """Return the reference of a function, by which another process finds it.

    Raises: UsageError: it has none: it is a lambda, an inner function, or something that is no function of a module.
    """
    name = getattr(func, "__qualname__", "")
    shown = f"{getattr(func, '__module__', '?')}:{name or type(func).__name__}"
    if not isinstance(func, FunctionType) or "<" in name:
        raise UsageError(
            f"run() cannot give {shown} to other processes: a function travels by its name; define it by def at the "
            "top level of a module, and pass values that it needs by args"
        )
    module = func.__module__
    if module == "__main__":
        module = _name_main(shown)
    elif _find(sys.modules.get(module), name) is not func:
        raise UsageError(f"run() cannot give {shown} to other processes: {module}.{name} is another object")
    return f"{module}:{name}"


def _name_main(shown: str) -> str:
    """Return the name by which other processes import the script of this one."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).stem.isidentifier():
        raise UsageError(f"run() cannot give {shown} to other processes: it is in no file that Python can import")
    return Path(file).stem


def _find(module: object, name: str) -> object:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def find_function(reference: str) -> Callable[..., Any]:
    """Return the function of a reference.

    Raises: ImportError: there is no such module.  UsageError: or no such function in it.
    """
    module, _, name = reference.partition(":")
    found = _find(importlib.import_module(module), name)
    if not callable(found):
        raise UsageError(f"there is no function {name} in {module} ({sys.modules[module].__file__})")
    return found


def dump_bounded_object(value: object, what: str) -> bytes:
    """Return arguments or results as bytes.

    Raises: UsageError: they are neither data nor arrays, or too large.
    """
    try:
        content = dump_object(value)
    except TypeError as exc:
        why = str(exc).partition("; unsafe_pickle")[0]  # which is for ranks among each other
        raise UsageError(f"{what} cannot be sent to another process: {why}") from exc
    if len(content) > MOST_VALUE_BYTES:
        raise UsageError(
            f"{what} have {len(content)} bytes, at most {MOST_VALUE_BYTES} can be sent; write them to a file and send "
            "its name"
        )
    return content


class FunctionStore:
    """Gives the workers of a job their function, and takes their results.

    Raises: UsageError: an argument is neither data nor an array, or they are too large.
    """

    def __init__(self, call: FunctionCall, secret: str) -> None:
        given = {"reference": call.reference, "args": tuple(call.args), "kwargs": dict(call.kwargs)}
        content = dump_bounded_object(given, f"the arguments of {call.reference}")
        self._reference = call.reference
        self._server = KVStoreServer(secret=secret)
        port = self._server.start_server()
        self._client = RendezvousClient(LOOPBACK, port, secret, ASK_S)
        self._client.put(SCOPE, KEY, content)
        self.variables = {VARIABLE: f"{LOOPBACK}:{port}"}

    def results(self) -> list[Any]:
        """Return what the function has returned, by rank.

        Raises: JobFailedError: a rank has returned nothing.  DataError: or something that is no object.
        """
        found: list[Any] = []
        size = 1
        while len(found) < size:
            content = self._client.get(RESULTS, str(len(found)))
            if content is None:
                raise JobFailedError(f"rank {len(found)} has not returned from {self._reference}; look at its output")
            given = load_object(content)
            size = given["size"]
            found.append(given["result"])
        return found

    def close(self) -> None:
        """End it."""
        self._server.shutdown_server()


def make_path(environ: Mapping[str, str]) -> str:
    """Return PYTHONPATH for workers that import what this process can import."""
    root = str(Path(__file__).resolve().parents[2])
    entries = [one or str(Path.cwd()) for one in sys.path] + [root]
    given = [one for one in environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return os.pathsep.join(dict.fromkeys([*given, *(one for one in entries if Path(one).is_dir())]))


def make_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the flags of `paddle elastic run` that mean the same as arguments of `run` (pure).

    Raises: UsageError: an argument asks for what there is not.
    """
    for name, why in NOT_HERE.items():
        if options.get(name):
            raise UsageError(f"run({name}=...) is not supported: {why}")
    for name, older in (("num_proc", "np"), ("min_num_proc", "min_np"), ("max_num_proc", "max_np")):
        if options.get(name) is not None and options.get(older) is not None:
            raise UsageError(f"run() has {name} and {older}, which are two names of one argument")
    words: list[str] = []
    for name, flag in FLAGS.items():
        value = options.get(name)
        if value is None or value is False:
            continue
        words.append(flag)
        if value is not True:
            words += [str(one) for one in (value if isinstance(value, tuple | list) else [value])]
    return words


def run_function(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    executable: str | None,
    launch: Callable[[list[str], Mapping[str, str]], None],
) -> list[Any]:
    """Return what a function returns on the workers of a job, by rank.

    Args: launch: runs a job whose workers have this command and these variables to its end.
    Raises: UsageError: the function, or an argument, cannot be given to another process.
        JobFailedError: a rank has returned nothing.
    """
    environ = os.environ
    if environ.get(VARIABLE):
        raise UsageError(
            "a worker that imports its function has called run() itself: put the call below `if __name__ == "
            '"__main__":`'
        )
    secret = read_environment(environ).secret or secrets.token_hex(32)
    store = FunctionStore(FunctionCall(name_function(func), args, kwargs or {}), secret)
    try:
        own = {**store.variables, "PADDLE_SECRET": secret, "PYTHONPATH": make_path(environ)}
        launch([executable or sys.executable, "-m", "elastic.launching.call"], {**environ, **own})
        return store.results()
    finally:
        store.close()
