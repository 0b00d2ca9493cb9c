"""The way back: a file of safetensors becomes a pass directory, or a tar file of `paddle.v2`."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping
from pathlib import Path

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.config.scripts.python2 import use_python_path
from trainer.export.model import TrainedModel, read_topology_file
from trainer.export.tensors.weights_file import read_weights
from trainer.storage.job_inputs import read_copies
from trainer.storage.model_files import save_pass
from trainer.storage.model_sources import find_config, find_merged_config
from trainer.v2.parameters import Parameters

TAR = ".tar"


def import_weights(arguments: argparse.Namespace) -> str:
    """Write the parameters of a file of safetensors in a format of v0.10, and return a description.

    A target whose name ends in .tar becomes a tar file of parameters; any other becomes a pass directory.

    Raises: UsageError: the flags name no network, or the target stands already. The errors of `read_weights`.
    """
    target: Path = arguments.target
    is_tar = target.suffix == TAR
    if target.exists() and not arguments.overwrite:
        raise UsageError(f"{target} exists already; name another one, or replace it with --overwrite")
    if target.exists() and target.is_dir() == is_tar:
        raise UsageError(f"{target} cannot become a {'tar file' if is_tar else 'pass directory'}; name another one")
    network, table, copies = _read_network(arguments, may_have_any_name=is_tar)
    read_weights(Path(arguments.weights), TrainedModel(network, table))
    if is_tar:
        write_whole_file(target, [_make_tar(network, table)])
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_pass(target, table, copies)
    return f"{len(table)} parameters, {sum(one.size for one in table)} values"


def _read_network(
    arguments: argparse.Namespace, *, may_have_any_name: bool
) -> tuple[ModelConfig, ParameterTable, Mapping[str, bytes]]:
    """Return the network, its table of parameters, and the content of the config scripts by name."""
    if arguments.v2 or arguments.init_model_path:
        raise UsageError("--import takes the parameters from its file: leave --v2 and --init_model_path out")
    if sum(map(bool, (arguments.config, arguments.model, arguments.topology))) != 1:
        raise UsageError("--import needs the network: give --config=..., --topology=T, or --model=merged.paddle")
    if arguments.config:
        use_python_path(arguments.python_path)
        path = find_config(arguments.config, "")
        parsed = parse_config(path, arguments.config_args)
        table = ParameterTable(parsed.model_config.parameters, free_names=may_have_any_name)
        return parsed.model_config, table, read_copies(path, parsed, table)
    if arguments.topology:
        network = read_topology_file(arguments.topology)[0]
    else:
        merged = find_merged_config("", arguments.model)
        if merged is None:
            raise MissingInputError(f"--model={arguments.model} is no file; give a merged model (paddle merge_model)")
        network = merged.model_config
    return network, ParameterTable(network.parameters, free_names=may_have_any_name), {}


def _make_tar(network: ModelConfig, table: ParameterTable) -> bytes:
    sparse = next((one.name for one in table if one.pattern is not None), None)
    if sparse is not None:
        raise ConfigError(f"parameter {sparse} has sparse storage, which no tar file has; name a pass directory")
    parameters = Parameters()
    for config in network.parameters:
        parameters.append_config(config)
    parameters.append_table(table)
    content = io.BytesIO()
    parameters.to_tar(content)
    return content.getvalue()
