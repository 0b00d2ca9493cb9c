"""Move layers that can process all steps at once out of recurrent groups.

The functions rewrite the model and the groups that `separate_groups` returns, before the network is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig, SubModelConfig
from trainer.layers.dense.fc import FullyConnectedLayer
from trainer.layers.recurrent.gru import GROUP_RUN
from trainer.layers.recurrent.subnetworks import Group, split_step

Groups = dict[str, Group]


def simplify_groups(config: ModelConfig, groups: Groups) -> tuple[ModelConfig, Groups]:
    """Return the model and its groups (see `separate_groups`), with fewer layers in the groups.

    A group that contains only a GRU becomes one layer, which runs all steps. A fully connected layer moves into the
    enclosing model if its output is a result of the group and no layer of the group reads it. An example is the layer
    that computes the scores of all words. The rows of a moved layer and their gradients need no reordering.
    """
    return _move_results(*_join_gru_groups(config, groups))


# ----- Groups of a GRU -----


def _join_gru_groups(config: ModelConfig, groups: Groups) -> tuple[ModelConfig, Groups]:
    steps = {name: step for name, group in groups.items() if (step := _find_gru(group)) is not None}
    if not steps:
        return config, groups
    joined = ModelConfig()
    joined.CopyFrom(config)
    del joined.layers[:]
    for layer in config.layers:
        group = layer.inputs[0].input_layer_name if layer.type == "gather_agent" else ""
        if layer.name not in steps:
            joined.layers.add().CopyFrom(_join_gru(groups[group], steps[group], layer) if group in steps else layer)
    return joined, {name: group for name, group in groups.items() if name not in steps}


def _find_gru(group: Group) -> LayerConfig | None:
    """Return the GRU of a group, or None if one layer cannot replace the group.

    The GRU must be the group's only layer. The group must have one input, one result, and one memory that begins with
    zeros.
    """
    record = group.record
    layers = [one for one in group.step.layers if one.type not in ("agent", "scatter_agent")]
    if record.HasField("generator") or (len(record.in_links), len(record.out_links), len(record.memories)) != (1, 1, 1):
        return None
    if [one.type for one in layers] != ["gru_step"] or layers[0].drop_rate or layers[0].error_clipping_threshold:
        return None
    memory, link, step = record.memories[0], record.in_links[0], layers[0]
    boots = memory.boot_layer_name or memory.boot_bias_parameter_name or memory.HasField("boot_with_const_id")
    is_plain = not (boots or memory.is_sequence or link.has_subseq)
    reads = [one.input_layer_name for one in step.inputs] == [link.link_name, memory.link_name]
    is_remembered = step.name == memory.layer_name == record.out_links[0].layer_name
    return step if reads and is_remembered and is_plain else None


def _join_gru(group: Group, step: LayerConfig, result: LayerConfig) -> LayerConfig:
    joined = LayerConfig()
    joined.CopyFrom(step)
    joined.name, joined.type, joined.reversed = result.name, GROUP_RUN, group.record.reversed
    del joined.inputs[1:]
    joined.inputs[0].input_layer_name = group.record.in_links[0].layer_name
    return joined


# ----- Layers that move into the enclosing model -----


def _move_results(config: ModelConfig, groups: Groups) -> tuple[ModelConfig, Groups]:
    moved = {name: found for name, group in groups.items() if (found := _find_results(group))}
    if not moved:
        return config, groups
    rest = dict(groups)
    for name, results in moved.items():
        rest[name] = _without(groups[name], results)
    outer = ModelConfig()
    outer.CopyFrom(config)
    del outer.layers[:]
    present = {layer.name for layer in config.layers}
    for layer in config.layers:
        group = layer.inputs[0].input_layer_name if layer.type == "gather_agent" and layer.inputs else ""
        result = moved.get(group, {}).get(layer.name)
        if result is None:
            outer.layers.add().CopyFrom(layer)
            continue
        for one in result.inputs:
            name = one.input_layer_name
            # several moved layers may read the same layer of the group, and it gets one agent
            if name not in present:
                size = next(inner.size for inner in groups[group].step.layers if inner.name == name)
                agent = outer.layers.add(name=name, type="gather_agent", size=size)
                agent.inputs.add(input_layer_name=group, input_layer_argument=name)
                present.add(name)
        outer.layers.add().CopyFrom(result)
        outer.layers[-1].name = layer.name
    return outer, rest


def _find_results(group: Group) -> dict[str, LayerConfig]:
    """Return the layers that can move out of the group, by the names of the results that they compute."""
    if group.record.HasField("generator") or not group.record.in_links:
        return {}
    parts = split_step(group)
    after = {one.name: one for one in parts.after.layers}
    read = {each.input_layer_name for one in group.step.layers for each in one.inputs}
    results = [link.layer_name for link in group.record.out_links]
    steps = {one.name for one in parts.steps.layers if one.type != "scatter_agent"}
    return {
        link.link_name: after[link.layer_name]
        for link in group.record.out_links
        if link.layer_name in after
        and link.layer_name not in read
        and results.count(link.layer_name) == 1
        and _is_connected(after[link.layer_name])
        and all(one.input_layer_name in steps for one in after[link.layer_name].inputs)
    }


def _is_connected(layer: LayerConfig) -> bool:
    is_sum = layer.type == "fc" or (layer.type == "mixed" and FullyConnectedLayer.fits(layer))
    return is_sum and layer.active_type != "sequence_softmax"


def _without(group: Group, results: Mapping[str, LayerConfig]) -> Group:
    """Return the group without the layers of the given results. The inputs of these layers become results instead."""
    record, step = SubModelConfig(), ModelConfig()
    record.CopyFrom(group.record)
    step.CopyFrom(group.step)
    gone = {one.name for one in results.values()}
    links = [link for link in group.record.out_links if link.layer_name not in gone]
    given = dict.fromkeys(one.input_layer_name for layer in results.values() for one in layer.inputs)
    del record.out_links[:], step.layers[:], step.output_layer_names[:]
    record.out_links.extend(links)
    for name in given:
        if not any(link.link_name == name for link in links):
            record.out_links.add(layer_name=name, link_name=name)
    step.layers.extend(one for one in group.step.layers if one.name not in gone)
    kept = [name for name in group.step.output_layer_names if name not in gone]
    step.output_layer_names.extend(dict.fromkeys([*kept, *given]))
    return replace(group, record=record, step=step)
