"""Layers that reduce stretches of frames to one row each: max, average and seqlastins. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainer.export.onnx.graph import FLOAT, INT64, Graph
from trainer.export.onnx.padding import (
    count_frames,
    count_up,
    merge_levels,
    reshape,
    take_frames,
    unsqueeze,
)
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value

# Reduces the axis before the last: (call, frames (..., time, size), which frames exist (..., time)) -> (..., size)
Reduction = Callable[[LayerExport, str, str], str]


@exports("max")
def _max(call: LayerExport) -> Value:
    if call.config.output_max_index:
        raise CannotExportError("output_max_index counts frames over all samples of a batch")
    return pool(call, reduce_max)


@exports("average")
def _average(call: LayerExport) -> Value:
    return pool(call, reduce_sum)


@exports("seqlastins")
def _end(call: LayerExport) -> Value:
    return pool(call, reduce_end)


def pool(call: LayerExport, reduction: Reduction) -> Value:
    """Return a row for each sequence, sub-sequence or piece of `seq_pool_stride` frames, plus the bias.

    Shapes: (batch, time, size) -> (batch, size), or (batch, pieces, size).
    """
    graph, one = call.graph, require_sequences(call)
    lengths = ""
    if call.config.trans_type == "seq":
        if one.levels < 2:
            raise CannotExportError("it needs an input of sub-sequences")
        frames, kept, lengths = one.name, graph.is_frame(one), one.lengths
    elif call.config.seq_pool_stride > 0:
        frames, kept, lengths = _cut_strides(call, one)
    else:
        frames, kept = merge_levels(graph, one)
    return Value(call.add_bias(reduction(call, frames, kept)), one.size, lengths=lengths)


def require_sequences(call: LayerExport, position: int = 0) -> Value:
    """Return an input that has sequences.

    Raises: CannotExportError: it has none.
    """
    one = call.inputs[position]
    if not one.levels:
        source = call.input_configs[position]
        raise CannotExportError(
            f"its input {source.name} has no sequences; declare the data as a sequence type (--input_types)"
        )
    return one


def _cut_strides(call: LayerExport, one: Value) -> tuple[str, str, str]:
    """Return the frames of each piece, which of them exist, and the number of pieces of each sequence.

    Shapes: (batch, time, size) -> (batch, pieces, stride, size), (batch, pieces, stride), (batch,).
    """
    graph, stride = call.graph, int(call.config.seq_pool_stride)
    if one.levels > 1:
        raise CannotExportError("seq_pool_stride cannot be used with sub-sequences")
    number = graph.integers([stride])
    lengths, pieces = (
        graph.add("Div", graph.add("Add", size, graph.integers([stride - 1])), number)
        for size in (one.lengths, graph.dim(one.name, 1))
    )
    places = unsqueeze(graph, count_up(graph, graph.add("Mul", pieces, number)), 0)
    shape = graph.add("Concat", graph.dim(one.name, 0), graph.integers([1]), axis=0)
    places = graph.add("Add", places, graph.add("Expand", graph.integers([[0]]), shape))
    if call.config.type == "seqlastins" and call.config.select_first:
        # counted from the end, so the first piece may be short
        missing = graph.add("Sub", graph.add("Mul", lengths, number), one.lengths)
        places = graph.add("Sub", places, unsqueeze(graph, missing, 1))
    inside = graph.add("Less", places, unsqueeze(graph, one.lengths, 1))
    kept = graph.add("And", graph.add("GreaterOrEqual", places, graph.integers(0)), inside)
    split: list[str | int] = [graph.dim(one.name, 0), pieces, stride]
    frames = reshape(graph, take_frames(graph, one.name, places), *split, one.size)
    return frames, reshape(graph, kept, *split), lengths


def reduce_max(call: LayerExport, frames: str, kept: str) -> str:
    """Return the maximum of each column, and zero without a frame."""
    graph = call.graph
    hidden = graph.add("Where", unsqueeze(graph, kept, -1), frames, graph.constant(-np.inf))
    largest = graph.add("ReduceMax", hidden, axes=[-2], keepdims=0)
    some = graph.add("Greater", count_frames(graph, kept, keepdims=True), graph.integers(0))
    return graph.add("Where", some, largest, graph.constant(0))


def reduce_sum(call: LayerExport, frames: str, kept: str) -> str:
    """Return the sum of the frames, divided as the strategy of the layer says."""
    graph, strategy = call.graph, call.config.average_strategy or "average"
    total = select_sum(graph, frames, kept)
    if strategy == "sum":
        return total
    number = graph.add("Max", count_frames(graph, kept, keepdims=True), graph.integers(1))
    number = graph.cast(number, FLOAT)
    return graph.add("Div", total, number if strategy == "average" else graph.add("Sqrt", number))


def select_sum(graph: Graph, frames: str, kept: str) -> str:
    """Return the sum of some frames: (..., time, size), (..., time) -> (..., size)."""
    hidden = graph.add("Where", unsqueeze(graph, kept, -1), frames, graph.constant(0))
    return graph.add("ReduceSum", hidden, axes=[-2], keepdims=0)


def reduce_end(call: LayerExport, frames: str, kept: str) -> str:
    """Return the last or the first frame, and zero without a frame. The sum has one term, so nothing is rounded."""
    graph = call.graph
    # the numbers of the existing frames, from 1, in the order in which the wanted frame is the first
    from_the_end = int(not call.config.select_first)
    numbers = graph.add("CumSum", graph.cast(kept, INT64), graph.integers(-1), reverse=from_the_end)
    wanted = graph.add("And", kept, graph.add("Equal", numbers, graph.integers(1)))
    return select_sum(graph, frames, wanted)
