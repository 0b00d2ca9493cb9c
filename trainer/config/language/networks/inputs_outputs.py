"""inputs(), which declares the order of the data provider's slots, and outputs(), which declares the results.

Source: legacy trainer_config_helpers/networks.py of v0.10, whose line numbers the log messages contain;
spec/config.md section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig, SubModelConfig
from trainer.config.building.argument_errors import to_list, wrong
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, to_layer
from trainer.config.building.log import log
from trainer.config.building.state import current
from trainer.config.language.layers.cost import COST

_GUESSING = (
    "`outputs` routine try to calculate network's inputs and outputs order. It might not work well."
    "Please see follow log carefully."
)


_Owner = ModelConfig | SubModelConfig


def set_inputs(names: Iterable[str]) -> None:
    """Append names to the input layers of the open sub-model or, if none is open, of the model and its root."""
    for name in names:
        for owner in _owners():
            owner.input_layer_names.append(name)


def set_outputs(names: Iterable[str]) -> None:
    """Append names to the output layers of the open sub-model or, if none is open, of the model and its root."""
    for name in names:
        for owner in _owners():
            owner.output_layer_names.append(name)


def _owners() -> Sequence[_Owner]:
    parse = current()
    if parse.opened and not parse.sub_model.is_recurrent_layer_group:
        return [parse.sub_model]
    return [parse.model, parse.root]


def _gather(argument: str, layers: Any, more: Iterable[Any]) -> list[LayerOutput]:
    return [to_layer(argument, layer) for layer in [*to_list(layers), *more]]


@helper("networks")
def inputs(layers: Any, *args: Any) -> None:
    """Name the data layers in the order in which the provider delivers them."""
    set_inputs(layer.full_name for layer in _gather("layers", layers, args))


@helper("networks")
def outputs(layers: Any, *args: Any) -> None:
    """Name the output layers; without inputs(), the output layers determine the order of the inputs.

    A depth-first walk goes through the parents of the outputs. The inputs have the order in which the walk leaves the
    data layers. As in v0.10, the outputs of a job are only the layers of type cost (classification_cost and mse_cost)
    that the walk meets, if there are any.
    """
    wanted = _gather("layers", layers, args)
    if not wanted:
        raise wrong("layers", layers, "it must have at least one layer")
    parse = current()
    if parse.model.input_layer_names:
        set_outputs(layer.full_name for layer in wanted)
        return
    if len(wanted) != 1:
        log(logging.WARNING, _GUESSING, "networks.py:1454")
    found, costs = find_layers(wanted, "data"), find_layers(wanted, COST)
    names = [layer.full_name for layer in wanted]
    log(logging.INFO, f"The input order is [{', '.join(found)}]", "networks.py:1482")
    set_inputs(found)
    if costs and parse.has_data:
        names = costs
    elif costs and costs != names:  # a later call may still define the data
        places = [(owner, len(owner.output_layer_names)) for owner in _owners()]
        parse.in_jobs.append(partial(_replace_outputs, places, len(names), costs))
    _log_outputs(names)
    set_outputs(names)


def _log_outputs(names: Iterable[str]) -> None:
    log(logging.INFO, f"The output order is [{', '.join(names)}]", "networks.py:1488")


def _replace_outputs(places: Iterable[tuple[_Owner, int]], count: int, costs: list[str]) -> None:
    """Put the costs in place of `count` outputs of each owner, which begin at the given position."""
    for owner, begin in places:
        names = list(owner.output_layer_names)
        owner.output_layer_names[:] = [*names[:begin], *costs, *names[begin + count :]]
    _log_outputs(costs)


def find_layers(wanted: Iterable[LayerOutput], layer_type: str) -> list[str]:
    """Return the names of all layers of a type that `wanted` depends on, in post-order of a depth-first walk."""
    found: dict[str, None] = {}
    visited: set[int] = set()
    for layer in wanted:
        # a stack replaces recursion, because networks can be deeper than Python's recursion limit
        stack = [(layer, iter(layer.parents))] if id(layer) not in visited else []
        visited.add(id(layer))
        while stack:
            top, parents = stack[-1]
            parent = next((parent for parent in parents if id(parent) not in visited), None)
            if parent is not None:
                visited.add(id(parent))
                stack.append((parent, iter(parent.parents)))
                continue
            stack.pop()
            if top.layer_type == layer_type:
                found.setdefault(top.full_name)
    return list(found)
