"""The form of recurrent groups that v0.10 printed.

The form of v0.10 states for each link whether its items are sub-sequences, and for each memory whether it is a whole
sequence. These facts determine the types of the agents of links and memories. In the form of v0.10, a StaticInput X is
a memory of a mixed layer `__X_memory__`, and this layer copies the agent of the memory. In the later form, a
StaticInput is a memory of its own agent.

Source: legacy config_parser.py and layers.py of v0.10, recurrent_group; spec/config.md sections 12 and 19.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.internal.containers import RepeatedScalarFieldContainer

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.state import OlderMarks


def rewrite_groups(model: ModelConfig_pb2.ModelConfig, marks: OlderMarks) -> None:
    """Convert the recurrent groups of a network to v0.10's form."""
    _say_sequences(model, marks)
    copies = _rename_agents(model, marks)
    _add_copies(model, copies)


def _say_sequences(model: ModelConfig_pb2.ModelConfig, marks: OlderMarks) -> None:
    layers = {layer.name: layer for layer in model.layers}
    for group in model.sub_models:
        if not group.is_recurrent_layer_group:
            continue
        group.target_inlinkid = marks.targets.get(group.name, -1)
        for link in group.in_links:
            link.has_subseq = link.link_name in marks.nested
            if link.has_subseq:
                layers[link.link_name].type = "sequence_scatter_agent"
        for link in group.out_links:
            link.has_subseq = link.layer_name in marks.nested
            # the result of a group that generates sequences keeps the type "data"
            if link.has_subseq and layers[link.link_name].type == "gather_agent":
                layers[link.link_name].type = "sequence_gather_agent"
        for memory in group.memories:
            memory.is_sequence = memory.link_name in marks.whole
            if memory.is_sequence:
                layers[memory.link_name].type = "sequence_agent"


def _rename_agents(model: ModelConfig_pb2.ModelConfig, marks: OlderMarks) -> dict[str, str]:
    """Rename the agents of static inputs as in v0.10; return each agent with the name of its copying layer."""
    names: dict[str, str] = {}
    copies: dict[str, str] = {}
    for group in model.sub_models:  # the list has outer groups before inner groups
        for memory in group.memories:
            if memory.link_name in marks.static:
                source = names.get(memory.boot_layer_name, memory.boot_layer_name).partition("@")[0]
                agent = f"__{source}_memory__+delay1@{group.name}"
                names[memory.link_name] = agent
                copies[agent] = f"__{source}_memory__@{group.name}"
    _rename_layers(model, names)
    for group in model.sub_models:
        for memory in group.memories:
            memory.boot_layer_name = names.get(memory.boot_layer_name, memory.boot_layer_name)
            if not memory.boot_layer_name:
                memory.ClearField("boot_layer_name")
            memory.link_name = names.get(memory.link_name, memory.link_name)
            memory.layer_name = copies.get(memory.link_name, names.get(memory.layer_name, memory.layer_name))
        for link in [*group.in_links, *group.out_links]:
            link.layer_name = names.get(link.layer_name, link.layer_name)
    return copies


def _rename_layers(model: ModelConfig_pb2.ModelConfig, names: Mapping[str, str]) -> None:
    for layer in model.layers:
        layer.name = names.get(layer.name, layer.name)
        for entry in layer.inputs:
            entry.input_layer_name = names.get(entry.input_layer_name, entry.input_layer_name)
    for evaluator in model.evaluators:
        _replace(evaluator.input_layers, names)
    for group in model.sub_models:
        _replace(group.layer_names, names)


def _replace(listed: RepeatedScalarFieldContainer[str], names: Mapping[str, str]) -> None:
    listed[:] = [names.get(name, name) for name in listed]


def _add_copies(model: ModelConfig_pb2.ModelConfig, copies: Mapping[str, str]) -> None:
    """After each agent of a static input, insert the mixed layer that copies the agent."""
    if not copies:
        return
    longer = ModelConfig_pb2.ModelConfig()
    for layer in model.layers:
        longer.layers.add().CopyFrom(layer)
        if layer.name in copies:
            _write_copy(longer.layers.add(), layer, copies[layer.name])
    model.ClearField("layers")
    model.layers.MergeFrom(longer.layers)
    for group in model.sub_models:
        group.layer_names[:] = [
            name for agent in group.layer_names for name in ([agent, copies[agent]] if agent in copies else [agent])
        ]


def _write_copy(copy: ModelConfig_pb2.LayerConfig, agent: ModelConfig_pb2.LayerConfig, name: str) -> None:
    copy.name, copy.type, copy.size, copy.active_type = name, "mixed", agent.size, ""
    if agent.HasField("device"):
        copy.device = agent.device
    projection = copy.inputs.add(input_layer_name=agent.name).proj_conf
    projection.type, projection.name = "identity", f"_{name.partition('@')[0]}.w0"
    projection.input_size = projection.output_size = agent.size
