"""Recurrent groups: a network that is evaluated once per step of its input sequences, with memories of earlier steps.

The layers of a group NAME are called `x@NAME` in the message. Its inputs reach it through agents: a scatter_agent per
input sequence, an agent per memory, and in the enclosing model a gather_agent per result.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; the specification's section 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, size_of, to_activation, to_layer
from trainer.config.building.log import logger
from trainer.config.building.names import public
from trainer.config.building.state import current
from trainer.config.language.layers.basic import eos_layer, maxid_layer
from trainer.config.language.layers.mixed import embedding_layer


@public("layers")
class StaticInput:
    """An input that a group sees whole at every step: one row, or with is_seq a sequence, per sample."""

    def __init__(self, input: Any, is_seq: bool = False, size: int | None = None):
        self.input = to_layer("input", input)
        self.is_seq = is_seq
        if size is not None and to_size("size", size) != self.input.size:
            raise wrong("size", size, f"the input's size is {self.input.size}")


@helper("layers")
def SubsequenceInput(input: Any) -> LayerOutput:
    """Return the layer: whether steps are rows or sub-sequences is decided by its data."""
    return to_layer("input", input)


@public("layers")
class BaseGeneratedInput:
    """The input of a beam search that comes from its own last step."""

    def __init__(self) -> None:
        self.bos_id: int | None = None
        self.eos_id: int | None = None

    def before_real_step(self) -> LayerOutput:
        """Return what the user's step gets."""
        raise ArgumentError(f"{type(self).__name__} cannot be used itself; use GeneratedInput")

    def after_real_step(self, *_results: Any) -> list[LayerOutput]:
        """Return what the step gives, beginning with the chosen ids."""
        raise ArgumentError(f"{type(self).__name__} cannot be used itself; use GeneratedInput")


@public("layers")
class GeneratedInput(BaseGeneratedInput):
    """The embedding of the id that a beam search chose last.

    Args:
        size: number of ids.
        embedding_name: of the table's parameter.
        embedding_size: of its rows.
    """

    def __init__(self, size: int, embedding_name: str, embedding_size: int):
        super().__init__()
        self.size = to_size("size", size)
        self.embedding_name = to_text("embedding_name", embedding_name)
        self.embedding_size = to_size("embedding_size", embedding_size)

    def before_real_step(self) -> LayerOutput:
        """Return the embedding of the last id, of bos_id at the first step."""
        last = memory(name=_PREDICTION, size=self.size, boot_with_const_id=self.bos_id)
        table = ParameterAttribute(name=self.embedding_name)
        return embedding_layer(input=last, size=self.embedding_size, param_attr=table)

    def after_real_step(self, *results: Any) -> list[LayerOutput]:
        """Return the ids with the highest probabilities, and the step's further results."""
        given = [layer for result in results for layer in to_list(result)]
        if not given:
            raise wrong("step", given, "the step function must return the layer of probabilities")
        return [maxid_layer(input=given[0], name=_PREDICTION), *given[1:]]


_PREDICTION = "__beam_search_predict__"


# --- sub-models ---------------------------------------------------------------------------------------------------


def begin_sub_model(name: str) -> None:
    """Open a sub-model; nested in another it is called `name@outer`."""
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
        raise ArgumentError(f"the sub-model {parse.sub_model.name!r} has to be ended before {name!r}")
    parse.opened.pop()


def begin_group(name: str, inputs: Iterable[str], *, reverse: bool) -> None:
    """Open a recurrent group over sequences of the enclosing model, by their names there."""
    parse = current()
    if parse.model.type != "recurrent_nn":
        raise ArgumentError(f"the model's type is {parse.model.type!r}; model_type('recurrent_nn') has to come first")
    LayerBuilder(name, "recurrent_layer_group")
    begin_sub_model(name)
    parse.sub_model.is_recurrent_layer_group = True
    parse.sub_model.reversed = reverse
    for link in inputs:
        outer = parse.outer_name(link)
        if outer not in parse.layers:
            raise ArgumentError(f"the recurrent group {name!r} has the input {outer!r}, which does not exist")
        source = parse.layers[outer]
        agent = LayerBuilder(link, "scatter_agent", size=source.size)  # stands for the input's row of the step
        if source.height and source.width:
            agent.message.height, agent.message.width = source.height, source.width
        parse.sub_model.in_links.add(layer_name=outer, link_name=agent.full_name)


def in_group(what: str) -> None:
    """Raise ArgumentError outside of a recurrent group."""
    if not current().sub_model.is_recurrent_layer_group:
        raise ArgumentError(f"{what} works inside of the step function of a recurrent_group only")


def add_result(name: str) -> None:
    """Hand a layer of the group in the making to the enclosing model."""
    parse = current()
    in_group("a result of a group")
    parse.sub_model.out_links.add(layer_name=parse.full_name(name), link_name=parse.outer_name(name))


def set_generator(**fields: Any) -> None:
    """Make the group in the making generate its own input."""
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
    for memory_ in group.memories:
        if memory_.layer_name not in parse.layers:
            target = memory_.layer_name.partition("@")[0] or "?"
            raise ArgumentError(
                f"the recurrent group {group.name!r} has a memory of the layer {target!r}, which its step does not make"
                if memory_.layer_name
                else f"the memory {memory_.link_name!r} has no name and no set_input()"
            )
        size, width = parse.layers[memory_.layer_name].size, parse.layers[memory_.link_name].size
        if size != width:
            raise ArgumentError(
                f"memory {memory_.link_name!r} has size {width}; the layer it remembers has size {size}"
            )
    end_sub_model(name)
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
    memory_name: str | None = None,
    boot_layer: str | None = None,
    boot_bias: ParameterAttribute | None = None,
    boot_bias_active_type: str = "",
    boot_with_const_id: int | None = None,
) -> str:
    """Add what the layer `name` gave one step ago, and return the agent's name; see `memory`."""
    parse = current()
    in_group("memory()")
    if name is None and not memory_name:
        raise ArgumentError("a memory needs the name of a layer")
    agent_name = memory_name or f"{name}+delay1"
    agent = LayerBuilder(agent_name, "agent", size=size)
    message = parse.sub_model.memories.add(link_name=agent.full_name)
    if name is not None:
        message.layer_name = parse.full_name(name)
    if sum((boot_layer is not None, boot_bias is not None, boot_with_const_id is not None)) > 1:
        raise ArgumentError("give one of boot_layer, boot_bias and boot_with_const_id")
    if boot_layer is not None:
        message.boot_layer_name = parse.outer_name(boot_layer)
        if message.boot_layer_name not in parse.layers:
            raise ArgumentError(f"boot_layer {boot_layer!r} is not a layer of the enclosing model")
    elif boot_bias is not None:
        agent.add_bias(boot_bias, default=False, size=size)
        message.boot_bias_parameter_name = agent.message.bias_parameter_name
        agent.message.ClearField("bias_parameter_name")
        message.boot_bias_active_type = boot_bias_active_type
    elif boot_with_const_id is not None:
        message.boot_with_const_id = boot_with_const_id
    return agent_name


def set_memory_input(memory_name: str, layer_name: str) -> None:
    """Say which layer a memory without a name remembers."""
    parse = current()
    agent = parse.full_name(memory_name)
    for message in parse.sub_model.memories:
        if message.link_name == agent:
            message.layer_name = parse.full_name(layer_name)
            return
    raise ArgumentError(f"there is no memory {memory_name!r} here")


# --- what users call ----------------------------------------------------------------------------------------------


class MemoryOutput(LayerOutput):
    """A memory; one that was made without a name is told by set_input() what to remember."""

    def set_input(self, input: Any) -> None:
        """Remember this layer of the same step."""
        set_memory_input(self.name, to_layer("input", input).name)


@helper("layers")
def memory(
    name: str | None,
    size: int,
    memory_name: str | None = None,
    is_seq: bool = False,
    boot_layer: Any = None,
    boot_bias: Any = None,
    boot_bias_active_type: Any = None,
    boot_with_const_id: int | None = None,
) -> LayerOutput:
    """Return what the layer called `name` gave one step ago: it may be made later in the same step function.

    Args:
        name: the layer's, or None; then `set_input()` names it.
        size: the layer's.
        memory_name: of the agent, where name is None.
        is_seq: taken and ignored.
        boot_layer: its row for a sequence is the value at the sequence's first step; else it is
        boot_bias: a learnt vector, after boot_bias_active_type; or
        boot_with_const_id: an id; or zeros.
    """
    # an automatic name is counted at every call, also where the agent is called after the layer
    automatic = current().auto_name("memory") if memory_name is None else memory_name
    boot = None if boot_layer is None else to_layer("boot_layer", boot_layer)
    if boot_bias is not None and not isinstance(boot_bias, ParameterAttribute):
        raise wrong("boot_bias", boot_bias, "it must be a ParamAttr")
    agent_name = add_memory(
        None if name is None else to_text("name", name),
        to_size("size", size),
        memory_name=None if name is not None else automatic,
        boot_layer=None if boot is None else boot.name,
        boot_bias=boot_bias,
        boot_bias_active_type=to_activation("boot_bias_active_type", boot_bias_active_type).name,
        boot_with_const_id=None if boot_with_const_id is None else to_int("boot_with_const_id", boot_with_const_id),
    )
    return MemoryOutput(agent_name, "memory", parents=None if boot is None else [boot], size=int(size))


def _static_memory(static: StaticInput) -> LayerOutput:
    constant = memory(name=None, size=size_of(static.input), boot_layer=static.input)
    set_memory_input(constant.name, constant.name)
    return constant


@helper("layers")
def recurrent_group(
    step: Callable[..., Any],
    input: Any,
    reverse: bool = False,
    name: str | None = None,
    targetInlink: Any = None,
    is_generating: bool = False,
) -> Any:
    """Evaluate the network that `step` builds once per step of the input sequences.

    Args:
        step: takes one argument per input and returns a layer or several: what the group gives.
        input: layers, whose sequences are read step by step and have equal lengths; StaticInput for what every step
            sees whole.
        reverse: from the last step to the first.
        name: the group's.
        targetInlink, is_generating: of earlier versions; taken and ignored.
    Returns: one layer, or a list of layers.
    """
    _check_step(step)
    given = [input] if isinstance(input, LayerOutput | StaticInput) else to_list(input)
    for item in given:
        if not isinstance(item, LayerOutput | StaticInput):
            raise wrong("input", item, "it must be layers and StaticInputs")
    return run_group(to_text("name", name), step, given, reverse=bool(reverse))


@helper("layers")
def beam_search(
    step: Callable[..., Any],
    input: Any,
    bos_id: int,
    eos_id: int,
    beam_size: int,
    max_length: int = 500,
    name: str | None = None,
    num_results_per_sample: int | None = None,
) -> Any:
    """Generate sequences: the same step function as in training, fed with its own best results.

    Args:
        step: takes one argument per input and returns the layer of the probabilities of the next id, perhaps with
            further layers.
        input: StaticInputs and one GeneratedInput.
        bos_id, eos_id: the ids that begin and end a sequence.
        beam_size: number of sequences that are followed.
        max_length: of a sequence.
        name: the recurrent group's.
        num_results_per_sample: number of sequences that are given; beam_size unless said.
    Returns: the ids; with further results of step a list that begins with them.
    """
    _check_step(step)
    given = [input] if isinstance(input, StaticInput | BaseGeneratedInput) else to_list(input)
    places = [index for index, item in enumerate(given) if isinstance(item, BaseGeneratedInput)]
    if len(places) != 1 or not all(isinstance(item, StaticInput | BaseGeneratedInput) for item in given):
        raise wrong("input", input, "it must be StaticInputs and one GeneratedInput")
    generated: Any = given.pop(places[0])
    generated.bos_id, generated.eos_id = to_int("bos_id", bos_id), to_int("eos_id", eos_id)
    results = to_size("num_results_per_sample", num_results_per_sample or beam_size)
    if results > to_size("beam_size", beam_size):
        logger.warning("%s: num_results_per_sample is greater than beam_size; there are no more than that", name)

    def generating_step(*arguments: LayerOutput) -> list[LayerOutput]:
        eos_name = f"__{name}_eos_layer__"
        set_generator(
            max_num_frames=to_size("max_length", max_length),
            eos_layer_name=eos_name,
            num_results_per_sample=results,
            beam_size=int(beam_size),
        )
        inputs = [*arguments[: places[0]], generated.before_real_step(), *arguments[places[0] :]]
        predicted: list[LayerOutput] = generated.after_real_step(step(*inputs))
        eos_layer(input=predicted[0], eos_id=eos_id, name=eos_name)
        return predicted

    return run_group(to_text("name", name), generating_step, given, reverse=False)


def _check_step(step: object) -> None:
    if not callable(step):
        raise wrong("step", step, "it must be a function that makes the layers of one step")


def run_group(name: str, step: Callable[..., Any], given: list[Any], *, reverse: bool) -> Any:
    """Build a recurrent group; see `recurrent_group`."""
    parse = current()
    parse.model.type = "recurrent_nn"
    links = [to_layer("input", item).name for item in given if isinstance(item, LayerOutput)]
    begin_group(name, links, reverse=reverse)
    arguments = [item if isinstance(item, LayerOutput) else _static_memory(item) for item in given]
    returned = step(*arguments)
    results = [returned] if isinstance(returned, LayerOutput) else to_list(returned)
    for result in results:
        if not isinstance(result, LayerOutput):
            raise wrong("step", result, "the step function must return a layer or several")
        result.reverse = reverse
        add_result(result.name)
    end_group(name)
    for result in results:
        result.full_name = parse.full_name(result.name)  # from now on it stands for the result in the enclosing model
    return results[0] if len(results) == 1 else results
