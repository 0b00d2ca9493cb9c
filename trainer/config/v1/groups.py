"""Sub-models, recurrent groups and memories in the oldest configurations.

Source: legacy config_parser.py; spec/config.md sections 12 and 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.state import current
from trainer.config.building.sub_models import (
    GroupLink,
    add_memory,
    add_result,
    begin_group,
    begin_sub_model,
    end_group,
    end_sub_model,
    set_generator,
    set_memory_input,
)


@dataclass
class _Generator:
    max_num_frames: int
    eos_layer_name: str
    num_results_per_sample: int
    beam_size: int
    log_prob: bool | None


def _links(argument: str, links: Iterable[Any]) -> list[GroupLink]:
    return [link if isinstance(link, GroupLink) else GroupLink(to_text(argument, link)) for link in to_list(links)]


@helper("v1")
def Link(name: str, has_subseq: bool = False) -> GroupLink:
    """Name an input or a result of a recurrent group; has_subseq changes only the message in the form of v0.10."""
    return GroupLink(to_text("name", name), bool(has_subseq))


@helper("v1")
def Generator(
    max_num_frames: int,
    eos_layer_name: str = "eos_check",
    num_results_per_sample: int = 1,
    beam_size: int = 1,
    log_prob: bool | None = None,
) -> _Generator:
    """Return an object that describes how a recurrent group generates sequences."""
    return _Generator(
        to_size("max_num_frames", max_num_frames),
        to_text("eos_layer_name", eos_layer_name),
        to_size("num_results_per_sample", num_results_per_sample),
        to_size("beam_size", beam_size),
        log_prob,
    )


@helper("v1")
def RecurrentLayerGroupWithoutOutLinksBegin(
    name: str, in_links: Any, seq_reversed: bool = False, target_inlinkname: str = ""
) -> None:
    """Open a recurrent group over the given layers."""
    links = _links("in_links", in_links)
    begin_group(to_text("name", name), links, reverse=bool(seq_reversed), target=target_inlinkname)


@helper("v1")
def RecurrentLayerGroupSetOutLink(link: Any) -> None:
    """Make a layer of the group available in the enclosing model; the layer may be created later."""
    add_result(_links("link", [link])[0])


@helper("v1")
def RecurrentLayerGroupSetGenerator(generator: Any = None) -> None:
    """Declare that the group generates its own input."""
    if not isinstance(generator, _Generator):
        raise wrong("generator", generator, "it must be the result of Generator()")
    set_generator(**vars(generator))


@helper("v1")
def RecurrentLayerGroupBegin(
    name: str,
    in_links: Any,
    out_links: Any,
    generator: Any = None,
    target_inlinkname: str = "",
    seq_reversed: bool = False,
) -> None:
    """Open a recurrent group. The in_links are the group's inputs, and the out_links are its results."""
    links = _links("in_links", in_links)
    begin_group(to_text("name", name), links, reverse=bool(seq_reversed), target=target_inlinkname)
    for link in _links("out_links", out_links):
        add_result(link)
    if generator is not None:
        RecurrentLayerGroupSetGenerator(generator)
        if to_list(in_links):
            raise wrong("in_links", in_links, "a group with a generator must have no in_links")


@helper("v1")
def RecurrentLayerGroupEnd(name: str) -> None:
    """Close the recurrent group."""
    end_group(to_text("name", name))


@helper("v1")
def SubModelBegin(name: str) -> None:
    """Open a sub-model."""
    begin_sub_model(to_text("name", name))


@helper("v1")
def SubModelEnd(name: str | None = None) -> None:
    """Close the sub-model."""
    opened = current().opened
    end_sub_model(opened[-1].name.partition("@")[0] if name is None and opened else str(name))


@helper("v1")
def EnableSubmodelSuffix(flag: bool = True) -> None:
    """Give the suffix @NAME to the layers of every sub-model NAME; by default only recurrent groups have a suffix."""
    current().suffix_all_sub_models = bool(flag)


@helper("v1")
def Memory(
    name: str | None,
    size: int,
    is_sequence: bool = False,
    boot_layer: str | None = None,
    boot_bias: Any = False,
    boot_bias_active_type: str = "",
    boot_with_const_id: int | None = None,
    memory_name: str | None = None,
) -> str:
    """Add a memory of a layer, and return the name of the memory's agent."""
    if boot_bias and not isinstance(boot_bias, ParameterAttribute):
        if boot_bias is not True:
            raise ArgumentError("boot_bias must be True or a Bias()")
        # a stated deviation, because an attribute without one is "smart" (spec/config.md 4.2)
        boot_bias = ParameterAttribute(initial_std=current().defaults.initial_std)
    return add_memory(
        name,
        to_size("size", size),
        memory_name=memory_name,
        is_sequence=bool(is_sequence),
        boot_layer=boot_layer,
        boot_bias=boot_bias or None,
        boot_bias_active_type=to_text("boot_bias_active_type", boot_bias_active_type),
        boot_with_const_id=None if boot_with_const_id is None else to_int("boot_with_const_id", boot_with_const_id),
    )


@helper("v1")
def SetMemoryInput(memory_name: str, layer_name: str) -> None:
    """Set the layer that a memory remembers."""
    set_memory_input(to_text("memory_name", memory_name), to_text("layer_name", layer_name))
