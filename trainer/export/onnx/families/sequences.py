"""Layers that make new sequences from sequences: they repeat, join, cut, select or mix frames. No I/O.

The axis of time of a result is as long as its inputs allow, not as long as its longest sequence: inside a recurrent
group the results of all steps have one shape.
"""

from __future__ import annotations

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ProjectionConfig
from trainer.arrays.arguments import Array
from trainer.export.onnx.families.mixed import projects
from trainer.export.onnx.families.pooling import require_sequences
from trainer.export.onnx.graph import FLOAT, INT64, Graph
from trainer.export.onnx.padding import (
    LAST,
    count_frames,
    count_up,
    flatten,
    last_of,
    reshape,
    sequence_like,
    take_frames,
    unflatten,
    unsqueeze,
)
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value


@exports("expand")
def _expand(call: LayerExport) -> Value:
    """Each row, repeated for every frame of its sequence, or of its sub-sequence."""
    graph, rows, like = call.graph, call.inputs[0], require_sequences(call, 1)
    by_parts = call.config.trans_type == "seq"
    if rows.levels != int(by_parts) or (by_parts and like.levels < 2):
        raise CannotExportError("its first input has no row for each sequence of its second input")
    name = unsqueeze(graph, rows.name, *([1] if like.levels == 1 else [2] if by_parts else [1, 2]))
    sizes = graph.add("Shape", like.name, start=0, end=1 + like.levels)
    repeated = graph.add("Expand", name, graph.add("Concat", sizes, graph.integers([1]), axis=0))
    return Value(call.add_bias(repeated), rows.size, False, like.lengths, like.inner)


@exports("seqconcat")
def _concatenate(call: LayerExport) -> Value:
    """Each sequence of the first input, followed by the sequence of the second."""
    graph = call.graph
    first, second = (flatten(graph, require_sequences(call, position)) for position in (0, 1))
    both = graph.add("Concat", first.name, second.name, axis=1)
    places = unsqueeze(graph, count_up(graph, graph.dim(both, 1)), 0)
    end = unsqueeze(graph, first.lengths, 1)
    behind = graph.add("Add", graph.add("Sub", places, end), graph.dim(first.name, 1))
    frames = take_frames(graph, both, graph.add("Where", graph.add("Less", places, end), places, behind))
    return sequence_like(first, call.add_bias(frames), graph.add("Add", first.lengths, second.lengths))


@exports("seqreshape")
def _rearrange(call: LayerExport) -> Value:
    """The numbers of each sequence, in frames of `size` numbers."""
    graph, one = call.graph, flatten(call.graph, require_sequences(call))
    old, new = graph.integers([one.size]), graph.integers([call.size])
    numbers = graph.add("Mul", graph.dim(one.name, 1), old)
    frames = graph.add("Div", graph.add("Add", numbers, graph.integers([call.size - 1])), new)
    missing = graph.add("Sub", graph.add("Mul", frames, new), numbers)
    flat = graph.reshape(one.name, [0, -1])
    flat = graph.add("Pad", flat, graph.add("Concat", graph.integers([0, 0, 0]), missing, axis=0))
    lengths = graph.add("Div", graph.add("Mul", one.lengths, old), new)
    shaped = reshape(graph, flat, graph.dim(flat, 0), frames, call.size)
    return Value(call.add_bias(shaped), call.size, lengths=lengths)


@exports("subseq")
def _part(call: LayerExport) -> Value:
    """Some frames of each sequence: inputs x, the first frame, and the number of frames, as ids."""
    graph, one = call.graph, flatten(call.graph, require_sequences(call))
    offsets, sizes = (_rows(call, position) for position in (1, 2))
    index = graph.add("Add", unsqueeze(graph, offsets, 1), count_up(graph, graph.dim(one.name, 1)))
    return sequence_like(one, call.add_bias(take_frames(graph, one.name, index)), sizes)


@exports("seq_slice")
def _slices(call: LayerExport) -> Value:
    """Slices of each sequence, each as a sequence of its own: (batch, time, size) -> (all slices, time, size)."""
    graph, one = call.graph, require_sequences(call)
    if one.levels > 1:
        raise CannotExportError("slices of sub-sequences have no form in ONNX here; slice plain sequences")
    given = [_rows(call, position) for position in range(1, len(call.inputs))]
    there = _before_the_end(graph, given[0])
    if len(given) > 1:
        there = graph.add("And", there, _before_the_end(graph, given[1]))
    has_begins = len(given) > 1 or call.config.select_first
    has_ends = len(given) > 1 or not call.config.select_first
    whole = unsqueeze(graph, one.lengths, 1)
    begins = given[0] if has_begins else graph.add("Sub", given[0], given[0])
    ends = graph.add("Add", given[-1], graph.integers(1)) if has_ends else whole
    every = graph.integers([-1])
    chosen = graph.add("Reshape", there, every)
    lengths = graph.add("Compress", graph.add("Reshape", graph.add("Sub", ends, begins), every), chosen, axis=0)
    time = graph.dim(one.name, 1)
    index = graph.add("Add", unsqueeze(graph, begins, 2), count_up(graph, time))
    frames = reshape(graph, take_frames(graph, one.name, graph.reshape(index, [0, -1])), -1, time, one.size)
    return sequence_like(one, call.add_bias(graph.add("Compress", frames, chosen, axis=0)), lengths)


def _rows(call: LayerExport, position: int) -> str:
    """Return an input with a row for each sequence, as int64."""
    one = call.inputs[position]
    if one.levels:
        raise CannotExportError(f"its input {call.input_configs[position].name} is a sequence; it must have one row")
    return call.graph.cast(one.name, INT64)


def _before_the_end(graph: Graph, numbers: str) -> str:
    """Return which numbers of each row stand before its first -1."""
    ends = graph.cast(graph.add("Equal", numbers, graph.integers(-1)), INT64)
    return graph.add("Equal", graph.add("CumSum", ends, graph.integers(1)), graph.integers(0))


@exports("sub_nested_seq")
def _choose(call: LayerExport) -> Value:
    """Some sub-sequences of each sequence; the second input has their numbers, and -1 ends a row."""
    graph, one = call.graph, call.inputs[0]
    if one.levels < 2:
        raise CannotExportError("it needs an input of sub-sequences")
    numbers = _rows(call, 1)
    there = _before_the_end(graph, numbers)
    inner = graph.add("Where", there, take_frames(graph, one.inner, numbers), graph.integers(0))
    frames = take_frames(graph, one.name, numbers)
    return sequence_like(one, call.add_bias(frames), count_frames(graph, there), inner)


@exports("kmax_seq_score")
def _top_frames(call: LayerExport) -> Value:
    """The numbers of the frames with the largest scores of each (sub-)sequence, and -1 for the rest of a row.

    Of equal scores, the first frames come first.
    """
    graph, scores, count = call.graph, require_sequences(call), int(call.config.beam_size)
    nothing, number = graph.constant(-np.inf), graph.integers([count])
    flat = graph.add("Squeeze", scores.name, graph.integers([-1]))
    hidden = graph.add("Where", graph.is_frame(scores), flat, nothing)
    rank = 1 + scores.levels
    ends = graph.integers([0] * (2 * rank - 1) + [count])
    places = graph.add_several("TopK", graph.add("Pad", hidden, ends, nothing), number, outputs=2, axis=-1)[1]
    some = graph.add("Less", count_up(graph, number), unsqueeze(graph, scores.inner or scores.lengths, -1))
    result = graph.add("Where", some, graph.cast(places, FLOAT), graph.constant(-1))
    return Value(result, count, lengths=scores.lengths if scores.levels > 1 else "")


@exports("row_conv")
def _row_convolution(call: LayerExport) -> Value:
    """The sum of w_i x_(t + i) for each frame t."""
    graph, length = call.graph, int(call.config.inputs[0].row_conv_conf.context_length)
    one = require_sequences(call)
    plain = flatten(graph, one)
    weight = call.weight(0)
    frames = graph.add("Pad", graph.masked(plain), graph.integers([0, 0, 0, 0, length - 1, 0]))
    total = ""
    for i in range(length):
        row = graph.slice(call.tensor(weight, (length, call.size)), i, i + 1, axis=0)
        part = graph.add("Mul", _shift(graph, frames, i, length - 1 - i), row)
        total = graph.add("Add", total, part) if total else part
    return unflatten(graph, sequence_like(plain, total, plain.lengths), one)


@projects("context")
def _context(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    """A window of frames around each frame; zeros, or rows of the parameter, stand in place of missing frames."""
    padding = None
    if call.config.inputs[position].input_parameter_name:
        padding = call.weight(position).value.reshape(-1, conf.input_size)
    one = require_sequences(call, position)
    return windows(call.graph, one, conf.context_start, conf.context_length, padding).name


def windows(graph: Graph, one: Value, start: int, length: int, padding: Array | None) -> Value:
    """Return for each frame t the frames t + start, ..., t + start + length - 1 side by side.

    Args: padding: rows in place of the frames before the sequence, then of those behind it; zeros if it is None.
    """
    plain = flatten(graph, one)
    before, after = max(0, -start), max(0, start + length - 1)
    if padding is None:
        frames = graph.add("Pad", graph.masked(plain), graph.integers([0, before, 0, 0, after, 0]))
    else:
        frames = _with_edges(graph, plain, before, graph.constant(padding))
    begins = [before + start + block for block in range(length)]
    parts = [_shift(graph, frames, begin, before + after - begin) for begin in begins]
    joined = parts[0] if length == 1 else graph.add("Concat", *parts, axis=2)
    wide = Value(joined, one.size * length, lengths=plain.lengths)
    return unflatten(graph, wide, one)


def _with_edges(graph: Graph, plain: Value, before: int, padding: str) -> str:
    """Return the frames of each sequence after `before` rows of the padding, and before the rest of the padding."""
    rows = graph.dim(padding, 0)
    shape = graph.add("Concat", graph.dim(plain.name, 0), graph.integers([1, 1]), axis=0)
    edges = graph.add("Expand", unsqueeze(graph, padding, 0), shape)
    time = graph.dim(plain.name, 1)
    places = count_up(graph, graph.add("Add", time, rows))
    places = unsqueeze(graph, graph.add("Sub", places, graph.integers(before)), 0)
    end = unsqueeze(graph, plain.lengths, 1)
    # the row of the padding, counted from its begin, that stands at a place outside the sequence
    zero = graph.integers(0)
    row = graph.add("Sub", places, graph.add("Where", graph.add("Less", places, zero), zero, end))
    row = graph.add("Min", graph.add("Add", row, graph.integers(before)), last_of(graph, rows))
    inside = graph.add("And", graph.add("GreaterOrEqual", places, zero), graph.add("Less", places, end))
    index = graph.add("Where", inside, places, graph.add("Add", row, time))
    return take_frames(graph, graph.add("Concat", plain.name, edges, axis=1), index)


def _shift(graph: Graph, frames: str, begin: int, rest: int) -> str:
    """Return the frames without the first `begin` and the last `rest`."""
    return graph.slice(frames, begin, -rest if rest else LAST, axis=1)
