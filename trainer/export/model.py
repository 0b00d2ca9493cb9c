"""A trained network in one record, from each kind of file that has one."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TypeVar

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import (
    ConfigError,
    DataError,
    MissingInputError,
    PaddleError,
    UsageError,
    reading_error,
)
from paddle_base.runtime.regular_files import open_regular
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.config.building.names import closest
from trainer.config.scripts.python2 import use_python_path
from trainer.data.input_types import DataType, InputType
from trainer.data.loading import open_provider
from trainer.export.dictionaries import find_dictionaries
from trainer.network.several import SEVERAL
from trainer.storage.model_archive import is_archive
from trainer.storage.model_sources import find_config, find_merged_config, load_model, naming_modules
from trainer.v2.parameters import Parameters
from trainer.v2.serialized import read_topology

Read = TypeVar("Read")
# the names of all types of data, as `InputType` writes them, and their numbers
_TYPES = {
    str(InputType(0, levels, element)).partition("(")[0]: (levels, element)
    for levels, element in itertools.product(range(3), range(4))
}


@dataclass(frozen=True)
class TrainedModel:
    """A network with its parameters.

    Attributes: config: the message. parameters: their values. types: of the data layers whose types are known, by name,
        in input order. script: the text of the config script; "" if it is not known. dictionaries: see
        `find_dictionaries`.
    """

    config: ModelConfig
    parameters: ParameterTable
    types: Mapping[str, InputType] = field(default_factory=dict)
    script: str = ""
    dictionaries: Mapping[str, str] = field(default_factory=dict)

    @property
    def outputs(self) -> list[str]:
        """The names of the output layers."""
        return list(self.config.output_layer_names)

    def find_types(self, source: str) -> dict[str, InputType]:
        """Return the type of each data layer, in input order; a type that is not known is dense_vector.

        Args: source: the name of the file, for messages.
        Raises: ConfigError: there is no data layer.
        """
        sizes = {one.name: int(one.size) for one in self.config.layers if one.type == "data"}
        names = self.types if set(self.types) >= set(self.config.input_layer_names) else self.config.input_layer_names
        known = {one: self.types.get(one, InputType(sizes.get(one, 0), 0, DataType.Dense)) for one in names}
        found = {one: kind for one, kind in known.items() if one in sizes or one in self.types}
        if not found:
            raise ConfigError(f"the network of {source} has no data layer")
        return found

    def with_types(self, text: str) -> TrainedModel:
        """Return the model with further types of data layers: "name:integer_value_sequence,...".

        Raises: UsageError: the text names no data layer, or no type.
        """
        return replace(self, types={**self.types, **read_types(self.config, text)})


def read_named(arguments: argparse.Namespace) -> TrainedModel:
    """Return the model that the arguments of the command name; `program.require_one_model` has checked them.

    Raises: the errors of `read_trained` and `read_saved`.
    """
    given = arguments
    if given.model or given.v2:
        model = read_saved(given.model or given.v2, given.topology, "--v2" if given.v2 else "--model")
    else:
        model = read_trained(given.config, given.config_args, given.init_model_path, given.python_path)
    return model.with_types(given.input_types)


def read_saved(model: str, topology: str, flag: str = "--model") -> TrainedModel:
    """Return a model of files alone: a tar file of parameters with its topology, or a merged model.

    The types of the data layers are known with a topology only.

    Args: model: a tar file, or a file of paddle merge_model. topology: the network of a tar file; "" without.
        flag: the flag of `model`.
    Raises: UsageError: the topology is missing. MissingInputError, DataError, ConfigError: a file is missing or
        damaged, or the network is not supported.
    """
    if topology:
        config, types = read_topology_file(topology)
        try:
            table = _read(model, flag, Parameters.from_tar).make_table(config)
        except ValueError as error:
            raise DataError(f"{flag}={model} does not fit --topology={topology}: {error}") from error
        return TrainedModel(config, table, dict(types))
    if Path(model).is_file() and is_archive(Path(model)):
        raise UsageError(
            f"{flag}={model} has parameters only; give --topology=T, a file that Topology.serialize_for_inference wrote"
        )
    merged = find_merged_config("", model)
    if merged is None:
        raise MissingInputError(
            f"{flag}={model} is no file; give a merged model (paddle merge_model), or a tar file and --topology"
        )
    table = ParameterTable(merged.model_config.parameters)
    load_model(model, table, "never", Stream(0))
    return TrainedModel(merged.model_config, table)


def read_trained(config: str, config_args: str, model: str, python_path: str = "") -> TrainedModel:
    """Return the network of a config script with the parameters of a pass, or of another model of this config.

    The types of the data layers are those of the config's data provider, if it has one that can be opened.

    Args: config: the script; "": the one that `model` names. model: a directory, a merged file or a tar file.
    Raises: MissingInputError, DataError, ConfigError: the config or a parameter is missing or wrong.
    """
    use_python_path(python_path)
    merged = find_merged_config(config, model)
    if merged is not None:
        return read_saved(model, "")
    path = find_config(config, model)
    with naming_modules(config, path):
        parsed = parse_config(path, config_args)
    table = ParameterTable(parsed.model_config.parameters)
    load_model(model, table, "never", Stream(0))
    types, script = ask_provider(parsed), _read_script(path)
    return TrainedModel(parsed.model_config, table, types, script, find_dictionaries(parsed))


def read_types(model: ModelConfig, text: str) -> dict[str, InputType]:
    """Return types that a user writes as "name:integer_value_sequence,...".

    Raises: UsageError: the text names no data layer, or no type.
    """
    sizes = {one.name: int(one.size) for one in model.layers if one.type == "data"}
    given = {}
    for item in filter(None, (one.strip() for one in text.split(","))):
        name, _, kind = item.partition(":")
        if name not in sizes:
            raise UsageError(f"--input_types: {name!r} is no data layer; the model has {', '.join(sizes)}")
        if kind not in _TYPES:
            near = closest(kind, _TYPES) or "dense_vector"
            raise UsageError(f"--input_types: {item!r} names no type; write for example {name}:{near}")
        given[name] = InputType(sizes[name], *_TYPES[kind])
    return given


def ask_provider(config: TrainerConfig) -> dict[str, InputType]:
    """Return the types that the provider of a config script declares, by data layer; {} if there is none."""
    model = config.model_config
    sizes = {one.name: int(one.size) for one in model.layers}
    found: dict[str, InputType] = {}
    for data in (config.test_data_config, config.data_config):
        if not data.type or model.type == SEVERAL:
            continue
        try:
            opened = open_provider(
                data, {one: sizes[one] for one in model.input_layer_names}, is_train=False, is_own=True
            )
        except PaddleError as error:
            glog.warning(f"the types of the data are not asked for, because the provider cannot be opened: {error}")
            continue
        for slot in opened.provider.slots_of_data_layers:
            found.setdefault(slot.name, replace(slot.kind, dim=sizes[slot.name]))
        break
    return found


def _read_script(path: str) -> str:
    try:
        return os.fsdecode(read_text_file(Path(path)))
    except OSError as error:
        raise reading_error(MissingInputError, f"{path} cannot be read", error) from error


def read_topology_file(path: str) -> tuple[ModelConfig, list[tuple[str, InputType]]]:
    """Return the network of a file of --topology, and the name and type of each data layer.

    Raises: MissingInputError: the file cannot be read. DataError: it is damaged, or another kind of file.
    """
    return _read(path, "--topology", read_topology)


def _read(path: str, flag: str, read: Callable[[IO[bytes]], Read]) -> Read:
    try:
        with open_regular(Path(path)) as file:
            return read(file)
    except OSError as error:
        raise reading_error(MissingInputError, f"{flag}={path} cannot be read; correct its name", error) from error
