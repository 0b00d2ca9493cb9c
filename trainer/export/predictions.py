"""Costs are no part of inference: the layers from which a cost is computed take its place. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.layers import LAYERS
from trainer.layers.recurrent.subnetworks import Group

# measure a prediction, as a cost does, and give no value
VALIDATIONS = ("auc-validation", "pnpair-validation")
COSTS = sorted(kind for kind in LAYERS if LAYERS[kind].is_cost or LAYERS[kind].is_likelihood or kind in VALIDATIONS)
_PAIRED = {"rank-cost"}  # costs whose second input is a prediction, too
_WEIGHTED = {"hsigmoid", "nce"}  # costs whose inputs with a parameter are predictions


def find_predictions(configs: Mapping[str, LayerConfig], outputs: Sequence[str]) -> list[str]:
    """Return the outputs with the predictions of a cost in place of each cost, and of each layer that reads a cost.

    Args: configs: the layers by name, in order.
    Raises: ConfigError: there is no such layer, or nothing is left.
    """
    found: list[str] = []
    costly: set[str] = set()  # costs, and layers that depend on one, such as a sum of costs
    for name, config in configs.items():
        if config.type in COSTS or any(one.input_layer_name in costly for one in config.inputs):
            costly.add(name)
    waiting = list(reversed(outputs))
    while waiting:
        name = waiting.pop()
        if name not in configs:
            raise ConfigError(f"the network has no layer {name}")
        config = configs[name]
        if name not in costly:
            found.append(name)
        elif config.type in COSTS:
            waiting += reversed(_list_predictions(config))
        else:
            waiting += reversed([one.input_layer_name for one in config.inputs if one.input_layer_name in costly])
    kept = [name for name in dict.fromkeys(found) if configs[name].type != "data"]
    if not kept:
        raise ConfigError("the outputs of the network are costs of its inputs alone; there is nothing to export")
    return kept


def _list_predictions(cost: LayerConfig) -> list[str]:
    count = 2 if cost.type in _PAIRED else 1
    if cost.type in _WEIGHTED:
        count = sum(bool(one.input_parameter_name) for one in cost.inputs)
    return [one.input_layer_name for one in cost.inputs[:count]]


def find_inner_predictions(
    model: ModelConfig, groups: Mapping[str, Group], outputs: Sequence[str]
) -> tuple[ModelConfig, list[str]]:
    """Return the model and the outputs, with the predictions of a cost in place of each cost inside a recurrent group.

    Args: model, groups: as `separate_groups` returns them; the groups get the predictions as results in place of the
        costs.
    """
    result = ModelConfig()
    result.CopyFrom(model)
    names = {one.name: one for one in model.layers}
    found: list[str] = []
    for name in outputs:
        inner = _find_inner_cost(names.get(name), groups)
        if inner is None:
            found.append(name)
            continue
        group, cost = inner
        links = {one.link_name: one.layer_name for one in group.record.in_links}
        for one in _list_predictions(cost):
            found.append(links.get(one, one))
            if one not in links and one not in names:
                _add_result(result, group, next(each for each in group.step.layers if each.name == one))
    for group in groups.values():
        costs = {one.name for one in group.step.layers if one.type in COSTS}
        kept = [one for one in group.record.out_links if one.layer_name not in costs]
        del group.record.out_links[:]
        group.record.out_links.extend(kept)
        remembered = [one for one in group.step.output_layer_names if one not in costs]
        del group.step.output_layer_names[:]
        group.step.output_layer_names.extend(remembered)
    return result, found


def _find_inner_cost(layer: LayerConfig | None, groups: Mapping[str, Group]) -> tuple[Group, LayerConfig] | None:
    """Return the cost inside a group whose result a layer is, with the group; None if the layer is none."""
    if layer is None or layer.type != "gather_agent" or not layer.inputs:
        return None
    group = groups.get(layer.inputs[0].input_layer_name)
    if group is None:
        return None
    argument = layer.inputs[0].input_layer_argument
    inner = {one.layer_name for one in group.record.out_links if one.link_name == argument}
    costs = [one for one in group.step.layers if one.name in inner and one.type in COSTS]
    return (group, costs[0]) if costs else None


def _add_result(model: ModelConfig, group: Group, layer: LayerConfig) -> None:
    """Make a layer of a group's step a result of the group, with its own name."""
    group.record.out_links.add(layer_name=layer.name, link_name=layer.name)
    if layer.name not in group.step.output_layer_names:
        group.step.output_layer_names.append(layer.name)
    agent = model.layers.add(name=layer.name, type="gather_agent", size=layer.size)
    agent.inputs.add(input_layer_name=group.record.name, input_layer_argument=layer.name)
