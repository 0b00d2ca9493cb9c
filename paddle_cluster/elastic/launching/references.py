"""Encodes functions and results for other processes: a function as its name `module:qualname`, and data as JSON.

A worker that an agent starts, or that another Python runs, imports the function by this name. No process unpickles the
data of another process.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from paddle_base.runtime.errors import UsageError
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES
from paddle_cluster.elastic.process.objects import dump_object

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
        why = str(exc).partition("; unsafe_pickle")[0]  # drop the advice, which does not apply here
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
