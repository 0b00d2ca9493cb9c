"""Parameters as a state_dict of PyTorch and, where the network is a chain, the class that loads it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import ConfigError, UsageError
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import ParameterTable
from trainer.export.model import TrainedModel
from trainer.export.onnx.types import infer_types
from trainer.export.tensors.shapes import find_shapes
from trainer.export.tensors.torch_layers import NotInTorchError, TorchLayer, convert_layers
from trainer.export.tensors.torch_module import write_module

MODULE = ".py"  # end of the name of the file with the class, which stands beside the state_dict
MOST_SHOWN = 8  # maximum number of layers in a line


def write(model: TrainedModel, target: Path, arguments: argparse.Namespace) -> str:
    """Write a state_dict, and the text of a class for it if the network is a chain; return a description of both.

    Raises: UsageError: the file of the class stands already. ConfigError: two tensors would have the same name.
        VolumeError: a file cannot be written.
    """
    place = target.with_suffix(MODULE)
    if place == target:
        raise UsageError(f"{target} is the name of the file with the class; name the state_dict, such as model.pt")
    if place.exists() and not arguments.overwrite:
        raise UsageError(f"{place} exists already; name another file, or replace the file with --overwrite")
    layers, refused = convert_layers(model.config, model.parameters)
    state, others = make_state(model, layers)
    try:
        types = {**infer_types(model.config), **model.types}
        text = write_module(model.config, types, layers, refused, target.name, arguments.outputs)
        about = f"module {place}"
    except (NotInTorchError, ConfigError) as error:
        text, about = "", f"no module: {error}"
    save(state, target)
    if text:
        write_whole_file(place, [text.encode()])
    if others:
        shown = [f"{name}: {why}" for name, why in refused.items()]
        more = f"; and {len(shown) - MOST_SHOWN} more" * (len(shown) > MOST_SHOWN)
        glog.warning(
            f"{len(others)} parameters keep their own names, because PyTorch has no such layer: "
            f"{'; '.join(shown[:MOST_SHOWN])}{more}"
        )
    return f"{len(state)} tensors of {len(layers)} layers, and {len(others)} under their own names; {about}"


def make_state(model: TrainedModel, layers: Mapping[str, TorchLayer]) -> tuple[dict[str, Array], list[str]]:
    """Return the tensors by name, and the names of the parameters that no layer of PyTorch holds.

    Raises: ConfigError: two tensors would have the same name.
    """
    state = {f"{one.name}.{name}": array for one in layers.values() for name, array in one.arrays.items()}
    held = {name for one in layers.values() for name in one.parameters}
    others = [one.name for one in model.parameters if one.name not in held]
    for name in others:
        if name in state:
            raise ConfigError(f"the parameter {name} has the name of a tensor of PyTorch; rename it")
        state[name] = _own_array(model.parameters, name, find_shapes(model.config)[name].shape)
    return state, others


def _own_array(table: ParameterTable, name: str, shape: tuple[int, ...]) -> Array:
    parameter = table[name]
    if parameter.pattern is not None:
        return parameter.pattern.spread(parameter.value)
    return parameter.value.reshape(shape)


def save(state: Mapping[str, Array], target: Path) -> None:
    """Write a state_dict. Raises: VolumeError."""
    content = _SavedParts()
    torch.save({name: torch.from_numpy(one.copy(order="C")) for name, one in state.items()}, content)
    write_whole_file(target, content.parts)


class _SavedParts:
    """The file that torch.save writes, in memory: a file that stands already is replaced when all is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, part: bytes | memoryview) -> int:
        """Append to the content."""
        self.parts.append(bytes(part))
        return len(self.parts[-1])

    def flush(self) -> None:
        """Do nothing: no file is open."""
