"""define_py_data_sources2 and its predecessors, which name the providers of the training data and of the test data.

Source: legacy trainer_config_helpers/data_sources.py; spec/config.md section 14.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paddle_base.proto import DataConfig_pb2
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file, write_whole_file
from trainer.config.building.argument_errors import ArgumentError, is_list, to_list, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.v1.data import PyData, TestData, data_config, define


@helper("data_sources")
def define_py_data_sources2(train_list: Any, test_list: Any, module: Any, obj: Any, args: Any = None) -> None:
    """Name the data providers of training and testing: each is the function `obj` of the module `module`.

    Args:
        train_list, test_list: the path of a file with one entry per line, for example the names of data files. A Python
            list of entries is written to train.list or test.list in the working directory.
        module, obj, args: one value for both training and testing, or a list or tuple of two values.
        args: keyword arguments of the provider's init_hook, which can be any picklable objects. A string must be a
            pickle of these arguments.
    """
    _define_both("py2", train_list, test_list, module, obj, args)


@helper("data_sources")
def define_parquet_data_sources(
    train_list: Any,
    test_list: Any,
    input_types: Any,
    columns: Any = None,
    should_shuffle: Any = None,
    pool_size: Any = -1,
    min_pool_size: Any = -1,
    cache: Any = 0,
) -> None:
    """Name the Parquet or Arrow files of training and testing, and the columns of each data layer.

    Args:
        train_list, test_list: see define_py_data_sources2; each entry is the name of a file.
        input_types: the types of PyDataProvider2 (dense_vector, integer_value, ...) by the name of the data layer.
        columns: the name of the column, or a list of names, by the name of the data layer; default: the same name.
        should_shuffle, pool_size, min_pool_size, cache: see `@provider`.
    """
    if not isinstance(input_types, Mapping) or not input_types:
        raise wrong("input_types", input_types, "it must be a dict of input types by the names of data layers")
    given = {} if columns is None else columns
    if not isinstance(given, Mapping) or not set(given) <= set(input_types):
        raise wrong("columns", columns, "it must be a dict by the names of data layers that are in input_types")
    slots = []
    for name, kind in input_types.items():
        if not all(hasattr(kind, field) for field in ("dim", "seq_type", "type")):
            raise wrong("input_types", kind, f"that of {name} must be an input type with a size: dense_vector(10)")
        names = [to_text("columns", one) for one in to_list(given.get(name, name))]
        slots.append((to_text("input_types", name), kind.dim, kind.seq_type, kind.type, names))
    options = {"should_shuffle": should_shuffle, "pool_size": pool_size, "min_pool_size": min_pool_size, "cache": cache}
    arguments = pack_args({"slots": slots, **options})
    for for_test, (argument, entries) in enumerate((("train_list", train_list), ("test_list", test_list))):
        if entries is not None:
            message = data_config("parquet", _list_file(argument, entries))
            message.load_data_args = arguments
            define(message, for_test=bool(for_test))


def _define_both(
    kind: str, train_list: Any, test_list: Any, module: Any, obj: Any, args: Any, is_async: bool = False
) -> None:
    modules, objects, arguments = (_pair(value) for value in (module, obj, args))
    lists = (("train_list", train_list), ("test_list", test_list))
    for for_test, (argument, entries) in enumerate(lists):
        if entries is not None:
            _define(
                kind,
                bool(for_test),
                _list_file(argument, entries),
                to_text("module", modules[for_test]),
                to_text("obj", objects[for_test]),
                pack_args(arguments[for_test]),
                is_async and not for_test,
            )


def _pair(value: Any) -> tuple[Any, Any]:
    if is_list(value):
        if len(value) != 2:
            raise ArgumentError(f"{value!r} must have two items: one for training and one for testing")
        return value[0], value[1]
    return value, value


def _list_file(argument: str, entries: Any) -> str:
    if isinstance(entries, str):
        return entries
    name = argument.replace("_", ".")
    lines = [to_text(argument, entry) for entry in to_list(entries)]
    # v0.10 wrote the entries without line ends, so all entries became one line
    text = "".join(line if line.endswith("\n") else line + "\n" for line in lines).encode()
    before = _read_list(Path(name))
    if before != text:
        if before is not None:
            glog.warning(f"the entries of {argument} in the config replace the content of the file {name}")
        write_whole_file(Path(name), [text], f"the entries of {argument}")
    return name


def _read_list(path: Path) -> bytes | None:
    """Return the content of a list, or None if there is no such file."""
    try:
        return read_text_file(path)
    except OSError:
        return None


def pack_args(args: Any) -> str:
    """Return the arguments of a provider as a pickle of protocol 0, a text with one character for each byte."""
    if args is None:
        return ""
    if isinstance(args, str):
        return args
    try:
        return pickle.dumps(args, protocol=0).decode("latin-1")
    except Exception as error:  # __reduce__ of the user's objects can raise any exception
        raise wrong("args", args, f"it must be something that can be pickled ({error})") from error


def _define(kind: str, for_test: bool, files: str, module: str, obj: str, args: str, is_async: bool = False) -> None:
    message = data_config(kind, files, async_load_data=is_async)
    message.load_data_module = module
    message.load_data_object = obj
    message.load_data_args = args
    define(message, for_test=for_test)


@helper("unlisted")  # scripts can import the function only as data_sources.define_py_data_source
def define_py_data_source(
    file_list: Any,
    cls: Callable[[DataConfig_pb2.DataConfig], None],
    module: str,
    obj: str,
    args: Any = None,
    is_async: bool = False,
    data_cls: Callable[..., DataConfig_pb2.DataConfig] | None = PyData,
) -> None:
    """Name one data provider.

    Args: cls: the function that declares the data, TrainData or TestData. data_cls: the function that describes the
        data source, PyData; None for a provider of the type py2.
    """
    fields: dict[str, Any] = {
        "files": _list_file("test_list" if cls is TestData else "train_list", file_list),
        "async_load_data": bool(is_async),
        "load_data_module": to_text("module", module),
        "load_data_object": to_text("obj", obj),
        "load_data_args": pack_args(args),
    }
    if not callable(cls):
        raise wrong("cls", cls, "it must be TrainData or TestData")
    cls(PyData(type="py2", **fields) if data_cls is None else data_cls(**fields))


@helper("unlisted")  # scripts can import the function only as data_sources.define_py_data_sources
def define_py_data_sources(
    train_list: Any, test_list: Any, module: Any, obj: Any, args: Any = None, train_async: bool = False
) -> None:
    """Do what define_py_data_sources2 does, for providers of the oldest type, py."""
    _define_both("py", train_list, test_list, module, obj, args, bool(train_async))
