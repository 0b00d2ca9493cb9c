"""Make a DataSource from a DataConfig message, which names a list file, a provider and the user's arguments."""

from __future__ import annotations

import contextlib
import errno
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.config.scripts.script_errors import hidden_module_hint
from trainer.data import random_states
from trainer.data.checks import ContentCheck, user_code
from trainer.data.foreign_config import MOST_LIST_BYTES, REMEDY, check_provider
from trainer.data.input_types import DataType, InputType
from trainer.data.older import multi, wrapped
from trainer.data.older.providers import is_of_files, make_provider
from trainer.data.older.wrapper import GeneralPyDataProvider
from trainer.data.provider2 import DataProvider, deserialize_args, unpickle_args
from trainer.data.source import BatchSource, DataSource, DataStreams
from trainer.data.tables import provider as tables

MOST_OWN_LIST_BYTES = 1 << 28  # maximum bytes of a list file that the user's config script names

# for each type of data that a Python module gives: the class of its providers, and what names them in a config
_BASES: Mapping[str, type] = {"py2": DataProvider, wrapped.KIND: GeneralPyDataProvider}
_NAMED_BY = {"py2": "define_py_data_sources2", wrapped.KIND: "define_py_data_source(s) or PyData(type='py')"}

MOST_LOOKED_UP = 1000  # maximum number of entries of a list that are looked up; a look-up on a volume takes about 1 ms


def check_data(config: DataConfig) -> None:
    """Check that the type of the data is supported.

    Raises: ConfigError: the type is not supported; the text names it.
    """
    if config.type == multi.KIND:
        for one in config.sub_data_configs:
            check_data(one)
        return
    if config.type in _BASES or _needs_no_module(config.type):
        return
    purpose = "test" if config.for_test else "training"
    raise ConfigError(
        f"{purpose} data of type '{config.type}' is not supported; write the provider with @provider of "
        "paddle.trainer.PyDataProvider2 and name it by define_py_data_sources2"
    )


def _needs_no_module(kind: str) -> bool:
    """Return whether data of this type is read without a provider of the user."""
    return kind == tables.KIND or is_of_files(kind)


def open_source(
    config: DataConfig,
    inputs: Sequence[Mapping[str, int]],
    *,
    is_train: bool,
    streams: DataStreams,
    check: Callable[[], None],
    shuffles: bool = True,
    is_own: bool = False,
) -> BatchSource:
    """Import the provider, run its init_hook, and return its data source without reading a sample.

    Args: inputs: for each network of the model, the sizes of its data layers, in input order. A model of several
        networks has one source for each network. check: a function that is called repeatedly during a wait for the
        provider; an error that it raises ends the wait. shuffles: whether a provider may shuffle (not with --job=test).
    Raises: see `open_provider`.
    """
    configs = config.sub_data_configs if config.type == multi.KIND else [config]
    if len(configs) != len(inputs):
        raise ConfigError(
            f"the {'test' if config.for_test else 'training'} data has {len(configs)} sources, but the model has "
            f"{len(inputs)} networks; give model_type('multi_nn') a MultiData with one source for each network"
        )
    sources = []
    if is_train and any(one.type == wrapped.KIND for one in configs):
        random_states.seed_if_unused(streams.mixing.state)  # the provider shuffles with Python's generator
    for one, sizes in zip(configs, inputs, strict=True):
        opened = open_provider(one, sizes, is_train=is_train, is_own=is_own)
        source = DataSource(
            opened.provider,
            opened.entries,
            shuffled=shuffles and opened.is_shuffled,
            streams=streams,
            check=check,
            list_name=one.files,
            constants=opened.constants,
        )
        sources.append(multi.SharedSource(source, one.data_ratio, one.is_main_data))
    return sources[0].source if config.type != multi.KIND else multi.MultiSource(sources, is_train=is_train)


@dataclass(frozen=True)
class OpenedProvider:
    """A user's provider after its init_hook.

    Attributes: entries: the lines of the list file. constants: the numbers of the constant slots, by name of the data
        layer. is_shuffled: whether samples are picked randomly.
    """

    provider: DataProvider
    entries: list[str]
    constants: Mapping[str, float]
    is_shuffled: bool


def open_provider(
    config: DataConfig, inputs: Mapping[str, int], *, is_train: bool, is_own: bool = False
) -> OpenedProvider:
    """Import the provider, and run its init_hook.

    Args: inputs: the sizes of the network's data layers, in input order. The provider's slots come first, and then the
        constant slots of the config. is_own: whether a config script wrote `config` in this process. If `config` comes
        from a model file, the names in it are restricted (trainer/data/foreign_config.py).
    Raises: MissingInputError: the list file or the module does not exist.  ConfigError: the module has no such
        provider, or its input types do not fit the data layers.  DataError: the user's code raised an error.
    """
    check_data(config)
    if config.type == multi.KIND:
        raise ConfigError(
            "MultiData combines several sources; with a master, the training data must be a single source"
        )
    if not is_own and not _needs_no_module(config.type):
        check_provider(config.load_data_module)
    entries = read_entries(config, is_own=is_own)
    if is_own:
        warn_of_absent(entries, config.files)
    made, arguments = _find_class(config, entries, is_own=is_own)
    sizes, constants = _split_inputs(inputs, config.constant_slots)
    with user_code(f"init of the data provider {config.load_data_module}::{config.load_data_object}"):
        provider = made(entries, is_train=is_train, input_order=list(sizes), **arguments)
    wanted = is_train if provider.should_shuffle is None else provider.should_shuffle
    check_sizes(sizes, provider.slots, is_by_name=provider.is_by_name)
    for slot in provider.slots_of_data_layers:
        slot.size = sizes[slot.name]
        slot.compare()
        if is_train and slot.name not in provider.unread:
            slot.content = ContentCheck(slot.name, slot.kind, slot.size)
    return OpenedProvider(provider, entries, constants, bool(wanted))


def check_sizes(inputs: Mapping[str, int], kinds: Sequence[InputType], *, is_by_name: bool) -> None:
    """Check that each vector fits its data layer. Ids may have any range, because their own size counts (see Slot).

    Args: is_by_name: whether the provider's input_types are a dict. The order of a list is a frequent fault.

    Raises: ConfigError: a dense vector has another length, or a sparse vector may have larger ids; the text names the
        data layer and the input type.
    """
    for (name, size), kind in zip(inputs.items(), kinds, strict=True):
        if (kind.type == DataType.Dense and kind.dim != size) or (kind.type != DataType.Index and kind.dim > size):
            order = (
                ""
                if is_by_name or len(kinds) == 1
                else f"; a list of input_types has the order of the network's inputs, which is {', '.join(inputs)}: "
                "correct the size or the order, name the data layers in this order in inputs(...), or give a dict"
            )
            raise ConfigError(f"data_layer {name} has size {size}, but the provider's input_types say {kind}{order}")


def _split_inputs(inputs: Mapping[str, int], constants: Sequence[float]) -> tuple[dict[str, int], dict[str, float]]:
    """Return the sizes of the provider's data layers by name, and the constants of all other data layers by name."""
    names = list(inputs)
    split = len(names) - len(constants)
    if constants and split < 1:
        raise ConfigError(
            f"the data has {len(constants)} constant_slots, and the network has {len(names)} inputs "
            f"({', '.join(names)}); at least one input must come from the provider"
        )
    for name in names[split:]:
        if inputs[name] != 1:
            raise ConfigError(f"data_layer {name} has size {inputs[name]}, but its slot is a constant of size 1")
    return {name: inputs[name] for name in names[:split]}, dict(zip(names[split:], constants, strict=True))


def read_entries(config: DataConfig, *, is_own: bool = True) -> list[str]:
    """Return the lines of the list file; every line is an entry, even a blank line. Only a line feed ends a line.

    Raises: MissingInputError: the list file cannot be read. ConfigError: a model file names a device, a pipe, or a file
        that is too long for a list.
    """
    kind = "test" if config.for_test else "training"
    path = Path(config.files)
    if not is_own and os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - they never fail
        raise ConfigError(f"the model file names {config.files} as its list of {kind} data, which is no file; {REMEDY}")
    try:
        data = read_text_file(path, MOST_OWN_LIST_BYTES if is_own else MOST_LIST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG and not is_own:
            raise ConfigError(
                f"the model file names {config.files} as its list of {kind} data, which has over {MOST_LIST_BYTES} "
                f"bytes; {REMEDY}"
            ) from error
        raise MissingInputError(
            f"the list of {kind} data {config.files} cannot be read from {Path.cwd()}: {error.strerror}; "
            "correct its name, or start in the directory to which the name is relative"
        ) from error
    lines = os.fsdecode(data).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def warn_of_absent(entries: Sequence[str], list_name: str) -> None:
    """Warn of entries that name no file where most of the list do. An entry may be any text, so this is no error.

    v0.10 and this program open an entry when its samples are due, which may be late in a pass.
    """
    some = entries[:MOST_LOOKED_UP]
    absent = [(line, entry) for line, entry in enumerate(some, 1) if not os.path.exists(entry)]  # noqa: PTH110
    if absent and len(absent) < len(some) / 2:
        line, entry = absent[0]
        more = f", and {len(absent) - 1} more" if len(absent) > 1 else ""
        glog.warning(
            f"{list_name}: line {line} ('{entry}'){more}: there is no such file, although {len(some) - len(absent)} "
            "other lines name files"
        )


def _find_class(
    config: DataConfig, entries: Sequence[str], *, is_own: bool
) -> tuple[type[DataProvider], dict[str, Any]]:
    """Return the class of the provider, and the keyword arguments of its init_hook."""
    if config.type == wrapped.KIND:
        packed = _pack_for_class(config, is_own=is_own) if config.load_data_args else None
        return wrapped.adapt(_find_provider(config), packed), {}
    if config.type == tables.KIND:
        return tables.make_provider(read_arguments(config, is_own=is_own)), {}
    made = make_provider(config, entries) if is_of_files(config.type) else _find_provider(config)
    return made, read_arguments(config, is_own=is_own)


def _find_provider(config: DataConfig) -> Any:
    """Return the class that the config names, a sub-class of the base of its type."""
    module = _import_module(config.load_data_module)
    found = getattr(module, config.load_data_object, None)
    base = _BASES[config.type]
    packs = config.type == wrapped.KIND and inspect.isclass(found) and hasattr(found, "getNextBatch")
    if inspect.isclass(found) and issubclass(found, base) and not packs:
        return found
    other = next((kind for kind, one in _BASES.items() if inspect.isclass(found) and issubclass(found, one)), None)
    if other is not None and not packs:
        raise ConfigError(
            f"{config.load_data_module}::{config.load_data_object} is a provider of type {other}, but the config "
            f"names it as data of type {config.type}; use {_NAMED_BY[other]}"
        )
    providers = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and value is not base
    ]
    what = "has no" if found is None else "has no @provider before its"
    if packs:
        what = "packs bytes itself (getNextBatch), instead of giving samples (generateData, @provider), in its"
    raise ConfigError(
        f"the data provider module {config.load_data_module} {what} {config.load_data_object}; "
        f"its providers are: {', '.join(providers) or 'none'}{hidden_module_hint(config.load_data_module)}"
    )


def _import_module(name: str) -> ModuleType:
    try:
        with user_code(f"import of the data provider module {name}"):
            return importlib.import_module(name)
    except DataError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == name:
            raise MissingInputError(
                f"there is no data provider module {name} in {Path.cwd()} or beside the config; "
                "define_py_data_sources2(module=...) names it without .py, and --python_path=... names further "
                "directories to search"
            ) from error
        raise


def read_arguments(config: DataConfig, *, is_own: bool) -> dict[str, Any]:
    """Return the keyword arguments of the init_hook.

    Arguments that a config script pickled in this process may contain objects of the user's classes, because the
    process runs the user's code anyway. Arguments in a model file may contain plain values only.
    """
    if not config.load_data_args:
        return {}
    name = f"{config.load_data_module}::{config.load_data_object}"
    with _explain_args(name, is_own=is_own):
        arguments = (unpickle_args if is_own else deserialize_args)(config.load_data_args)
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"args of the data provider {name} must be a dict, not a {type(arguments).__name__}")
    return {str(name): value for name, value in arguments.items()}


def _pack_for_class(config: DataConfig, *, is_own: bool) -> str | bytes:
    """Return the value of `load_data_args` for a class of PyDataProviderWrapper."""
    with _explain_args(f"{config.load_data_module}::{config.load_data_object}", is_own=is_own):
        return wrapped.pack_for_class(config.load_data_args, is_own=is_own)


@contextlib.contextmanager
def _explain_args(name: str, *, is_own: bool) -> Iterator[None]:
    """Turn an error of reading the args of a provider into ConfigError."""
    try:
        yield
    except Exception as error:  # unpickling can raise any error of the pickled classes
        if is_own:
            raise ConfigError(f"args of the data provider {name} cannot be unpickled: {error}") from error
        raise ConfigError(
            f"args of the data provider {name} in the model file cannot be read: {error}; a model file holds numbers, "
            f"texts, and lists, tuples and dicts of them; {REMEDY}, whose args may hold other types"
        ) from error
