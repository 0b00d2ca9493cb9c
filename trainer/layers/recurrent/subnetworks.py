"""Separation of recurrent layer groups: the layers of each group move from the model into a separate model.

Source: spec/config.md 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig, SubModelConfig
from paddle_base.runtime.errors import ConfigError

# the type GENERATOR occurs only in the separated model
GROUP, GENERATOR = "recurrent_layer_group", "generating_layer_group"


# types of layers that process each row (or sequence) independently, so that the rows of all steps can be joined
_ROW_BY_ROW = frozenset(
    {
        "addto",
        "average",
        "concat",
        "concat2",
        "cos",
        "fc",
        "interpolation",
        "max",
        "maxid",
        "mixed",
        "multi-class-cross-entropy",
        "scaling",
        "seqlastins",
        "slope_intercept",
        "square_error",
    }
)


@dataclass(frozen=True)
class Group:
    """The record of a group, the layers of one step as a separate model, and the names of the costs among them."""

    record: SubModelConfig
    step: ModelConfig
    costs: Set[str] = frozenset()


@dataclass(frozen=True)
class StepParts:
    """A step of a group, split into up to three models, which run one after the other.

    Only the middle model must run step by step. A layer is an output of its model if another model or a memory reads
    the layer, or if the layer is a result of the group or a cost. For each value that comes from another model or from
    the group's inputs, a model has an agent.
    """

    before: ModelConfig
    steps: ModelConfig
    after: ModelConfig


def separate_groups(config: ModelConfig) -> tuple[ModelConfig, dict[str, Group]]:
    """Return the model without the layers of its groups, and the groups by the name of the layer that represents them.

    In the returned model, the inputs of a group's layer are the layers that the group reads, and the input of a gather
    agent is the layer of its group. The layers of groups and the gather agents are therefore ordinary layers. If an
    evaluator reads a layer inside a group, this layer becomes a result of the group under its own name.

    Raises: ConfigError: a group lacks a layer.
    """
    records = {one.name: one for one in config.sub_models if one.is_recurrent_layer_group}
    if not records:
        return config, {}
    owners = {name: record.name for record in records.values() for name in record.layer_names}
    layers = {one.name: one for one in config.layers}
    outer = ModelConfig()
    outer.CopyFrom(config)
    del outer.layers[:], outer.sub_models[:]
    groups: dict[str, Group] = {}
    for name, record in records.items():
        if name not in owners:  # a group inside another group belongs to the other group's step
            groups[name] = _take_group(config, record, records, owners, layers)
    givers = {link.link_name: group.record.name for group in groups.values() for link in group.record.out_links}
    for layer in config.layers:
        if layer.name in owners and layer.name not in givers:
            continue
        added = outer.layers.add()
        if layer.name in owners:  # an evaluator reads this layer
            added.MergeFrom(LayerConfig(name=layer.name, type="gather_agent", size=layer.size))
        else:
            added.CopyFrom(layer)
        if layer.name in groups:
            added.type = GENERATOR if groups[layer.name].record.HasField("generator") else GROUP
            for source in _find_sources(groups[layer.name].record):
                added.inputs.add(input_layer_name=source)
        elif layer.name in givers:
            del added.inputs[:]
            added.type = "gather_agent"  # in the message, the result of a group that generates has the type "data"
            added.inputs.add(input_layer_name=givers[layer.name], input_layer_argument=layer.name)
    return outer, groups


def _take_group(
    config: ModelConfig,
    record: SubModelConfig,
    records: Mapping[str, SubModelConfig],
    owners: Mapping[str, str],
    layers: Mapping[str, LayerConfig],
) -> Group:
    """Return a group with all groups inside it; the results of each include the layers that evaluators read."""
    inside = {record.name: _copy(record)}
    waiting = [record]
    for one in waiting:
        inner = [records[name] for name in one.layer_names if name in records]
        inside.update((each.name, _copy(each)) for each in inner)
        waiting += inner
    for name in (name for evaluator in config.evaluators for name in evaluator.input_layers):
        owner = owners.get(name)
        while owner in inside:  # from the group of the layer to the outermost group
            if not any(link.link_name == name for link in inside[owner].out_links):
                inside[owner].out_links.add(layer_name=name, link_name=name)
            owner = owners.get(owner)
    kept = inside.pop(record.name)
    step = ModelConfig(type=config.type)
    members = {name for one in (kept, *inside.values()) for name in one.layer_names}
    missing = sorted(name for name in members if name not in layers)
    if missing:
        raise ConfigError(f"group {record.name} has a layer {missing[0]}, which is not in the config")
    step.layers.extend(one for one in config.layers if one.name in members)
    step.sub_models.extend(inside.values())
    remembered = [one.layer_name for one in record.memories if one.layer_name != one.link_name]
    step.output_layer_names.extend(dict.fromkeys([*(link.layer_name for link in kept.out_links), *remembered]))
    return Group(kept, step)


def _copy(record: SubModelConfig) -> SubModelConfig:
    copy = SubModelConfig()
    copy.CopyFrom(record)
    return copy


def _find_sources(record: SubModelConfig) -> list[str]:
    """Return the layers of the enclosing network that a group reads."""
    boots = [one.boot_layer_name for one in record.memories if one.boot_layer_name]
    return list(dict.fromkeys([*(link.layer_name for link in record.in_links), *boots]))


# ----- Splitting a step: layers that depend on no previous step, and layers on which no later step depends -----


def split_step(group: Group) -> StepParts:
    """Return the parts of a step; the parts `before` and `after` run on the rows of all steps at once.

    A part without layers has no outputs. A step that contains a group is not split: the part `steps` has all layers.
    """
    if group.step.sub_models:
        return StepParts(before=ModelConfig(), steps=group.step, after=ModelConfig())
    record, layers = group.record, {one.name: one for one in group.step.layers}
    inputs = {name: [each.input_layer_name for each in one.inputs] for name, one in layers.items()}
    agents = {one.link_name for one in record.in_links}
    memories = {one.link_name for one in record.memories}
    results = group.costs | {one.layer_name for one in record.out_links}
    remembered = {one.layer_name for one in record.memories} - memories
    printing = {name for name, one in layers.items() if one.type == "print"}  # in v0.10 they print step by step
    needed = find_ancestors(results | remembered | printing, inputs)
    before: set[str] = set()
    held = remembered | printing  # layers that must run step by step
    for name, layer in layers.items():
        if name not in needed or name in agents or name in memories:
            continue
        if not _is_row_by_row(layer) or not memories.isdisjoint(inputs[name]):
            held.add(name)
        elif all(one in agents or one in before for one in inputs[name]):
            before.add(name)
    steps = find_ancestors(held, inputs) - before - agents - memories
    after = needed - steps - before - agents - memories
    outside = results | {one for name in after for one in inputs[name]}
    return StepParts(
        before=_make_part(group.step, before, {one for name in steps for one in inputs[name]} | outside | remembered),
        steps=_make_part(group.step, steps, outside | remembered | printing, also=remembered if steps else set()),
        after=_make_part(group.step, after, results),
    )


def _is_row_by_row(layer: LayerConfig) -> bool:
    plain = not any(one.input_layer_argument for one in layer.inputs) and layer.coeff == 1.0 and not layer.drop_rate
    return layer.type in _ROW_BY_ROW and len(layer.inputs) > 0 and plain


def find_ancestors(names: Iterable[str], inputs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the layers `names` and all layers on which these layers depend."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += inputs.get(name, ())
    return found


def _make_part(step: ModelConfig, own: Set[str], read: Set[str], also: Set[str] = frozenset()) -> ModelConfig:
    """Return a model of some layers of a step, with agents for the values that come from outside this model.

    Args: own: the layers of the part. read: the layers that other parts read, and the results of the group; the layers
        in both `own` and `read` are outputs of the part. also: further outputs, which may be agents.
    """
    part = ModelConfig(type=step.type)
    taken = {one.input_layer_name for layer in step.layers if layer.name in own for one in layer.inputs} | also
    for layer in step.layers:
        if layer.name in own:
            part.layers.add().CopyFrom(layer)
        elif layer.name in taken:
            part.layers.add(name=layer.name, type="scatter_agent", size=layer.size)
        if (layer.name in own and layer.name in read) or layer.name in also:
            part.output_layer_names.append(layer.name)
    return part
