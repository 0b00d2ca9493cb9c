"""Recurrent groups: networks that are evaluated once per step of their input sequences and remember earlier steps.

A layer x of a group NAME is called `x@NAME` in the message. Agents connect a group with the enclosing model. The
group has a scatter_agent for each input sequence and an agent for each memory, and the enclosing model has a
gather_agent for each result.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; spec/config.md section 12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, size_of, to_activation, to_layer
from trainer.config.building.log import logger
from trainer.config.building.names import public
from trainer.config.building.state import current
from trainer.config.building.sub_models import (
    GroupLink,
    add_memory,
    add_result,
    begin_group,
    end_group,
    set_generator,
    set_memory_input,
)
from trainer.config.language.layers.basic import eos_layer, maxid_layer
from trainer.config.language.layers.mixed import embedding_layer


@public("layers")
class StaticInput:
    """An input of a group that does not change between steps: one row or, with is_seq, one sequence per sample."""

    def __init__(self, input: Any, is_seq: bool = False, size: int | None = None):
        self.input = to_layer("input", input)
        self.is_seq = is_seq
        if size is not None and to_size("size", size) != self.input.size:
            raise wrong("size", size, f"the input's size is {self.input.size}")


@public("layers")
class SubsequenceInput:
    """An input of a recurrent group whose steps are sub-sequences.

    As in v0.10, only the data determine whether steps are sub-sequences. The class changes nothing except the text
    form of the message.
    """

    def __init__(self, input: Any):
        self.input = to_layer("input", input)


@public("layers")
class BaseGeneratedInput:
    """An input of a beam search: each step reads a value that the previous step produced."""

    def __init__(self) -> None:
        self.bos_id: int | None = None
        self.eos_id: int | None = None

    def before_real_step(self) -> LayerOutput:
        """Return the argument that the user's step function receives."""
        raise ArgumentError(f"{type(self).__name__} is only a base class; use GeneratedInput")

    def after_real_step(self, *_results: Any) -> list[LayerOutput]:
        """Return the results of the step, beginning with the chosen ids."""
        raise ArgumentError(f"{type(self).__name__} is only a base class; use GeneratedInput")


@public("layers")
class GeneratedInput(BaseGeneratedInput):
    """The embedding of the id that a beam search chose in the previous step.

    Args:
        size: number of ids.
        embedding_name: the name of the parameter that is the embedding table.
        embedding_size: the size of the rows of the table.
    """

    def __init__(self, size: int, embedding_name: str, embedding_size: int):
        super().__init__()
        self.size = to_size("size", size)
        self.embedding_name = to_text("embedding_name", embedding_name)
        self.embedding_size = to_size("embedding_size", embedding_size)

    def before_real_step(self) -> LayerOutput:
        """Return the embedding of the previous id; at the first step the previous id is bos_id."""
        if self.bos_id is not None and not 0 <= self.bos_id < self.size:
            raise wrong("bos_id", self.bos_id, f"it must be an id below {self.size}, the size of the GeneratedInput")
        last = memory(name=_PREDICTION, size=self.size, boot_with_const_id=self.bos_id)
        table = ParameterAttribute(name=self.embedding_name)
        return embedding_layer(input=last, size=self.embedding_size, param_attr=table)

    def after_real_step(self, *results: Any) -> list[LayerOutput]:
        """Return the ids with the highest probabilities, and the further results of the step."""
        given = [layer for result in results for layer in to_list(result)]
        if not given:
            raise wrong("step", given, "the step function must return the layer of probabilities")
        return [maxid_layer(input=given[0], name=_PREDICTION), *given[1:]]


_PREDICTION = "__beam_search_predict__"
_GroupInput = LayerOutput | StaticInput | SubsequenceInput


# --- functions and classes for users -------------------------------------------------------------------------------


class MemoryOutput(LayerOutput):
    """The result of `memory`; for a memory without a name, set_input() sets the layer that the memory remembers."""

    def set_input(self, input: Any) -> None:
        """Set the layer of the step whose value the memory remembers."""
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
    """Return the output of the layer `name` in the previous step; the step function may create this layer later.

    Args:
        name: the layer's name; if it is None, `set_input()` sets the layer.
        size: the layer's size.
        memory_name: the agent's name, if name is None.
        is_seq: whether the memory is the whole sequence of boot_layer. The argument has no effect, because the data
            determine whether the memory is a sequence.
        boot_layer: the layer that gives the value at the first step of a sequence. Without the boot_* arguments the
            value is 0.
        boot_bias: the attributes of a trained vector, which is the value at the first step.
        boot_bias_active_type: an activation, which is applied to the vector.
        boot_with_const_id: an id that is the value at the first step.
    """
    # without memory_name, the counter of automatic names always advances, even if the agent gets the layer's name
    automatic = current().auto_name("memory") if memory_name is None else memory_name
    boot = None if boot_layer is None else to_layer("boot_layer", boot_layer)
    if boot_bias is not None and not isinstance(boot_bias, ParameterAttribute):
        raise wrong("boot_bias", boot_bias, "it must be a ParamAttr")
    agent_name = add_memory(
        None if name is None else to_text("name", name),
        to_size("size", size),
        memory_name=None if name is not None else automatic,
        is_sequence=bool(is_seq),
        boot_layer=None if boot is None else boot.name,
        boot_bias=boot_bias,
        boot_bias_active_type=to_activation("boot_bias_active_type", boot_bias_active_type).name,
        boot_with_const_id=None if boot_with_const_id is None else to_int("boot_with_const_id", boot_with_const_id),
    )
    return MemoryOutput(agent_name, "memory", parents=None if boot is None else [boot], size=int(size))


def _static_memory(static: StaticInput) -> LayerOutput:
    constant = memory(name=None, size=size_of(static.input), boot_layer=static.input, is_seq=static.is_seq)
    set_memory_input(constant.name, constant.name)
    current().marks.static.add(constant.full_name)
    return constant


def _step_argument(item: Any) -> Any:
    if isinstance(item, StaticInput):
        return _static_memory(item)
    return item.input if isinstance(item, SubsequenceInput) else item


@helper("layers")
def recurrent_group(
    step: Callable[..., Any],
    input: Any,
    reverse: bool = False,
    name: str | None = None,
    targetInlink: Any = None,
    is_generating: bool = False,
) -> Any:
    """For each item of the input sequences, evaluate the network that `step` builds.

    Args:
        step: takes one argument per input and returns one or more layers, the results of the group.
        input: layers, whose sequences are read step by step and have equal lengths. A SubsequenceInput is an input
            whose steps are sub-sequences. A StaticInput is an input that does not change between the steps. As in
            v0.10, `step` gets any other value, for example a size, as it is.
        reverse: whether steps run from the last to the first.
        name: the group's name.
        targetInlink: one of the inputs; this argument of earlier versions only changes the text form of the message.
        is_generating: an argument of earlier versions, which is ignored.
    Returns: one layer, or a list of layers.
    """
    _check_step(step)
    given = [input] if isinstance(input, _GroupInput) else to_list(input)
    if not any(isinstance(item, _GroupInput) for item in given):
        raise wrong("input", given[0] if given else input, "it must be layers, SubsequenceInputs and StaticInputs")
    target = getattr(targetInlink, "input", targetInlink)
    return run_group(to_text("name", name), step, given, reverse=bool(reverse), target=getattr(target, "name", None))


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
    """Generate sequences with a step function; each step reads the best ids of the previous step.

    Args:
        step: takes one argument per input and returns the layer of the probabilities of the next id, optionally with
            further layers, whose rows the search does not give.
        input: StaticInputs and one GeneratedInput.
        bos_id, eos_id: the ids that begin and end a sequence.
        beam_size: number of sequences to follow.
        max_length: maximum length of a sequence.
        name: the recurrent group's name.
        num_results_per_sample: number of sequences to return; default beam_size.
    Returns: the ids; if step has further results, a list that begins with the ids.
    """
    _check_step(step)
    given = [input] if isinstance(input, StaticInput | BaseGeneratedInput) else to_list(input)
    places = [index for index, item in enumerate(given) if isinstance(item, BaseGeneratedInput)]
    if len(places) != 1 or not all(isinstance(item, StaticInput | BaseGeneratedInput) for item in given):
        raise wrong("input", input, "it must be StaticInputs and one GeneratedInput")
    generated: Any = given.pop(places[0])
    generated.bos_id, generated.eos_id = to_int("bos_id", bos_id), to_int("eos_id", eos_id)
    if generated.eos_id < 0:  # an id above the size is allowed: then every sequence has max_length ids
        raise wrong("eos_id", eos_id, "it must not be negative")
    results = to_size("num_results_per_sample", num_results_per_sample or beam_size)
    if results > to_size("beam_size", beam_size):
        logger.warning("%s: num_results_per_sample is greater than beam_size, the largest number of results", name)

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
        # the search ends a path by this layer's id; nobody reads its output
        eos_layer(input=predicted[0], eos_id=eos_id, name=eos_name)
        return predicted

    return run_group(to_text("name", name), generating_step, given, reverse=False)


def _check_step(step: object) -> None:
    if not callable(step):
        raise wrong("step", step, "it must be a function that makes the layers of one step")


def run_group(
    name: str, step: Callable[..., Any], given: list[Any], *, reverse: bool, target: str | None = None
) -> Any:
    """Build a recurrent group; see `recurrent_group`."""
    parse = current()
    parse.model.type = "recurrent_nn"
    links = [
        GroupLink(item.input.name, has_subseq=True) if isinstance(item, SubsequenceInput) else GroupLink(item.name)
        for item in given
        if isinstance(item, LayerOutput | SubsequenceInput)
    ]
    begin_group(name, links, reverse=reverse, target=target)
    arguments = [_step_argument(item) for item in given]
    returned = step(*arguments)
    results = [returned] if isinstance(returned, LayerOutput) else to_list(returned)
    for result in results:
        if not isinstance(result, LayerOutput):
            raise wrong("step", result, "the step function must return one or more layers")
        result.reverse = reverse
        add_result(GroupLink(result.name, any(link.has_subseq for link in links)))
    end_group(name)
    for result in results:
        # outside the group, the object stands for the layer of the enclosing model that has the result
        result.full_name = parse.full_name(result.name)
    return results[0] if len(results) == 1 else results
