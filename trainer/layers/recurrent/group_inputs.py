"""The sequence inputs of a recurrent group, in the order of its steps.

Source: spec/config.md 12; gserver/gradientmachines/RecurrentGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import SubModelConfig
from paddle_base.runtime.errors import BugError, ConfigError, DataError
from trainer.arrays.arguments import Argument, Ids
from trainer.layers.base import Layer
from trainer.layers.ragged import PackedOrder, take_ragged


def find_items(argument: Argument) -> tuple[Ids, Ids | None]:
    """Return the first item of each sequence; if the items are sub-sequences, also the first row of each item."""
    if argument.starts is None:
        raise BugError("a group's input has no sequences")
    if argument.sub_starts is None:
        return argument.starts, None
    items = np.searchsorted(argument.sub_starts, argument.starts)
    items[-1] = len(argument.sub_starts) - 1
    return items, argument.sub_starts


@dataclass(frozen=True)
class InLink:
    """A sequence input of a batch."""

    agent: str
    source: int
    sub_starts: Ids | None  # the starts of the input's sub-sequences


def pack_inputs(
    layer: Layer, record: SubModelConfig, sources: Mapping[str, int], inputs: Sequence[Argument]
) -> tuple[PackedOrder, list[InLink], dict[str, Argument]]:
    """Return the packed order of the items, the inputs, and the rows of each scatter agent in packed order.

    Args: layer: the group's layer, for error messages.  record: the group's sub-model.
    sources: the position of each input, by the name of its layer.  inputs: the inputs of the batch.

    Raises: ConfigError: an input has no sequences.  DataError: the sequences of the inputs differ in length.
    """
    first: Ids | None = None
    packing: PackedOrder | None = None
    in_links = []
    packed = {}
    for link in record.in_links:
        source = sources[link.layer_name]
        if inputs[source].starts is None:
            raise ConfigError(
                f"{layer}: its input {link.layer_name} has no sequences; declare its data as a sequence type, or pass "
                "it as StaticInput"
            )
        items, sub_starts = find_items(inputs[source])
        if packing is None or first is None:
            first, packing = items, PackedOrder(items, record.reversed)
        elif not np.array_equal(first, items):
            raise DataError(_describe_lengths(layer, record, link.layer_name, first, items))
        packed[link.link_name] = take_ragged(inputs[source], sub_starts, packing.rows)
        in_links.append(InLink(link.link_name, source, sub_starts))
    assert packing is not None  # GroupLayer.open refuses a group without inputs
    return packing, in_links, packed


def _describe_lengths(layer: Layer, record: SubModelConfig, name: str, first: Ids, items: Ids) -> str:
    ours, theirs = np.diff(first), np.diff(items)
    wanted = record.in_links[0].layer_name
    if len(ours) != len(theirs):
        return f"{layer}: its input {wanted} has {len(ours)} sequences, but its input {name} has {len(theirs)}"
    where = int((ours != theirs).argmax())
    return (
        f"{layer}: its inputs must have sequences of equal lengths; sequence {where} of the batch has "
        f"{ours[where]} items in {wanted} and {theirs[where]} in {name}"
    )
