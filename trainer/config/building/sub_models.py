"""The sub-models of the message: recurrent groups with their links, memories and generators.

Source: legacy config_parser.py; spec/config.md section 12.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainer.config.building.argument_errors import ArgumentError
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.layer import LayerBuilder
from trainer.config.building.state import current


@dataclass
class GroupLink:
    """An input or a result of a recurrent group: the name of its layer, and whether its items are sub-sequences."""

    name: str
    has_subseq: bool = False


def begin_sub_model(name: str) -> None:
    """Open a sub-model; a nested sub-model is called `name@outer`."""
    parse = current()
    full_name = f"{name}@{parse.opened[-1].name}" if parse.opened else name
    if any(sub_model.name == full_name for sub_model in parse.model.sub_models):
        raise ArgumentError(f"there is a sub-model {full_name!r} already")
    parse.opened.append(parse.model.sub_models.add(name=full_name))


def end_sub_model(name: str) -> None:
    """Close the sub-model that was opened last."""
    parse = current()
    if not parse.opened:
        raise ArgumentError(f"there is no sub-model to end ({name!r})")
    if parse.sub_model.name.partition("@")[0] != name:
        raise ArgumentError(f"the sub-model {parse.sub_model.name!r} must be ended before {name!r}")
    parse.opened.pop()


def begin_group(name: str, inputs: Iterable[GroupLink], *, reverse: bool, target: str | None = None) -> None:
    """Open a recurrent group over sequences of the enclosing model; `target` is the name of the targetInlink layer."""
    parse = current()
    if parse.model.type != "recurrent_nn":
        raise ArgumentError(f"the model's type is {parse.model.type!r}; call model_type('recurrent_nn') first")
    LayerBuilder(name, "recurrent_layer_group")
    begin_sub_model(name)
    parse.sub_model.is_recurrent_layer_group = True
    parse.sub_model.reversed = reverse
    for index, link in enumerate(inputs):
        outer = parse.outer_name(link.name)
        if outer not in parse.layers:
            raise ArgumentError(f"the recurrent group {name!r} has the input {outer!r}, which does not exist")
        source = parse.layers[outer]
        # the agent represents the row of the input that a step reads
        agent = LayerBuilder(link.name, "scatter_agent", size=source.size)
        if source.height and source.width:
            agent.message.height, agent.message.width = source.height, source.width
        parse.sub_model.in_links.add(layer_name=outer, link_name=agent.full_name)
        if link.has_subseq:
            parse.marks.nested.add(agent.full_name)
        if link.name == target:
            parse.marks.targets[parse.sub_model.name] = index


def in_group(what: str) -> None:
    """Raise ArgumentError outside of a recurrent group."""
    if not current().sub_model.is_recurrent_layer_group:
        raise ArgumentError(f"{what} can be used only inside of the step function of a recurrent_group")


def add_result(link: GroupLink) -> None:
    """Make a layer of the open group available in the enclosing model."""
    parse = current()
    in_group("a result of a group")
    parse.sub_model.out_links.add(layer_name=parse.full_name(link.name), link_name=parse.outer_name(link.name))
    if link.has_subseq:
        parse.marks.nested.add(parse.full_name(link.name))


def set_generator(**fields: Any) -> None:
    """Declare that the open group generates its own input."""
    parse = current()
    in_group("a generator")
    generator = parse.sub_model.generator
    for key, value in fields.items():
        if value is not None:
            setattr(generator, key, value)
    generator.eos_layer_name = parse.full_name(generator.eos_layer_name)


def end_group(name: str) -> None:
    """Close the recurrent group: check its memories, and add the results to the enclosing model."""
    parse = current()
    in_group("the end of a recurrent group")
    group = parse.sub_model
    # checked here and not in `memory`, because a step may make the remembered layer later
    for memory_ in group.memories:
        if memory_.layer_name not in parse.layers:
            target = memory_.layer_name.partition("@")[0] or "?"
            raise ArgumentError(
                f"the recurrent group {group.name!r} has a memory of the layer {target!r}, which its step does not make"
                if memory_.layer_name
                else f"the memory {memory_.link_name!r} has no name, and set_input() was not called"
            )
        size, width = parse.layers[memory_.layer_name].size, parse.layers[memory_.link_name].size
        if size != width:
            raise ArgumentError(
                f"memory {memory_.link_name!r} has size {width}, but the layer that it remembers has size {size}"
            )
    # first, because the layers of the results belong to the enclosing model
    end_sub_model(name)
    # "data" as in the original; the trainer replaces it (`separate_groups`)
    kind = "data" if group.HasField("generator") else "gather_agent"
    for link in group.out_links:
        if link.layer_name not in parse.layers:
            raise ArgumentError(
                f"the recurrent group {group.name!r} has the result {link.layer_name!r}, which does not exist"
            )
        LayerBuilder(link.link_name.partition("@")[0], kind, size=parse.layers[link.layer_name].size)


def add_memory(
    name: str | None,
    size: int,
    *,
    memory_name: str | None = None,
    is_sequence: bool = False,
    boot_layer: str | None = None,
    boot_bias: ParameterAttribute | None = None,
    boot_bias_active_type: str = "",
    boot_with_const_id: int | None = None,
) -> str:
    """Add a memory of the layer `name`, and return the name of the memory's agent; see `memory` in groups.py."""
    parse = current()
    in_group("memory()")
    if name is None and not memory_name:
        raise ArgumentError("a memory needs the name of the layer that it remembers")
    agent_name = memory_name or f"{name}+delay1"
    agent = LayerBuilder(agent_name, "agent", size=size)
    message = parse.sub_model.memories.add(link_name=agent.full_name)
    if is_sequence:
        parse.marks.whole.add(agent.full_name)
    if name is not None:
        message.layer_name = parse.full_name(name)
    if sum((boot_layer is not None, boot_bias is not None, boot_with_const_id is not None)) > 1:
        raise ArgumentError("give only one of boot_layer, boot_bias and boot_with_const_id")
    if boot_layer is not None:
        message.boot_layer_name = parse.outer_name(boot_layer)
        if message.boot_layer_name not in parse.layers:
            raise ArgumentError(f"boot_layer {boot_layer!r} is not a layer of the enclosing model")
    elif boot_bias is not None:
        agent.add_bias(boot_bias, default=False, size=size)
        message.boot_bias_parameter_name = agent.message.bias_parameter_name
        # the parameter is the first value of the memory; add_bias has only made it, under the default name
        agent.message.ClearField("bias_parameter_name")
        message.boot_bias_active_type = boot_bias_active_type
    elif boot_with_const_id is not None:
        message.boot_with_const_id = boot_with_const_id
    return agent_name


def set_memory_input(memory_name: str, layer_name: str) -> None:
    """Set the layer that a memory without a name remembers."""
    parse = current()
    agent = parse.full_name(memory_name)
    for message in parse.sub_model.memories:
        if message.link_name == agent:
            message.layer_name = parse.full_name(layer_name)
            return
    raise ArgumentError(f"there is no memory {memory_name!r} in this recurrent group")
