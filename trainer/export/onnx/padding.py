"""Frames of padded sequences at other places, and nested sequences as plain ones. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.export.onnx.graph import INT64, Graph
from trainer.export.onnx.values import Value

LAST: int = np.iinfo(np.int64).max  # as the end of a slice: to the end of the axis


def count_up(graph: Graph, size: str) -> str:
    """Return 0, 1, ... below `size`, int64 [1]."""
    return graph.add("Range", graph.integers(0), graph.add("Squeeze", size, graph.integers([0])), graph.integers(1))


def unsqueeze(graph: Graph, name: str, *axes: int) -> str:
    """Return a tensor with further axes of size 1."""
    return graph.add("Unsqueeze", name, graph.integers(axes))


def join_sizes(graph: Graph, *sizes: str | int) -> str:
    """Return a shape as a tensor. A size is a number, or int64 [any]."""
    parts = [graph.integers([one]) if isinstance(one, int) else one for one in sizes]
    return graph.add("Concat", *parts, axis=0)


def reshape(graph: Graph, name: str, *sizes: str | int) -> str:
    """Return a tensor in a new shape; see `join_sizes`."""
    return graph.add("Reshape", name, join_sizes(graph, *sizes))


def last_of(graph: Graph, size: str) -> str:
    """Return the last position below a size, int64 [1]."""
    return graph.add("Sub", size, graph.integers([1]))


def take_frames(graph: Graph, frames: str, index: str) -> str:
    """Return the frames at the given positions, which are moved into the axis of time.

    Shapes: frames: (batch, time, ...), index: (batch, taken) -> (batch, taken, ...).
    """
    first = graph.integers(0)
    index = graph.add("Max", graph.add("Min", index, last_of(graph, graph.dim(frames, 1))), first)
    return graph.add("GatherND", frames, unsqueeze(graph, index, -1), batch_dims=1)


def merge_levels(graph: Graph, value: Value) -> tuple[str, str]:
    """Return the frames (batch, time, ...) of a sequence, and which of them exist (batch, time).

    All frames of nested sequences stand in one axis, with the padding between them.
    """
    kept = graph.is_frame(value)
    if value.levels < 2:
        return value.name, kept
    width: Sequence[int] = [] if value.is_ids else [value.size]
    return graph.reshape(value.name, [0, -1, *width]), graph.reshape(kept, [0, -1])


def count_frames(graph: Graph, kept: str, *, keepdims: bool = False) -> str:
    """Return how many frames exist: (..., time) -> (...)."""
    return graph.add("ReduceSum", graph.cast(kept, INT64), axes=[-1], keepdims=int(keepdims))


def flatten(graph: Graph, value: Value) -> Value:
    """Return nested sequences as plain sequences of all their frames, without padding between the frames.

    Shapes: (batch, outer, inner, ...) -> (batch, outer * inner, ...).
    """
    if value.levels < 2:
        return value
    frames, kept = merge_levels(graph, value)
    size = graph.dim(kept, 1)
    # existing frames first, each kind in the order of time
    key = graph.add("Add", graph.add("Where", kept, graph.integers(0), size), count_up(graph, size))
    order = graph.add_several("TopK", key, size, outputs=2, axis=1, largest=0)[1]
    return sequence_like(value, take_frames(graph, frames, order), count_frames(graph, kept))


def unflatten(graph: Graph, plain: Value, like: Value) -> Value:
    """Return the frames of plain sequences in the nested sequences `like`, from which `flatten` made them."""
    if like.levels < 2:
        return plain
    begins = graph.add("CumSum", like.inner, graph.integers(1), exclusive=1)
    inner = graph.dim(like.name, 2)
    index = graph.add("Add", unsqueeze(graph, begins, -1), count_up(graph, inner))
    frames = take_frames(graph, plain.name, graph.reshape(index, [0, -1]))
    width: Sequence[int] = [] if plain.is_ids else [plain.size]
    shaped = reshape(graph, frames, graph.add("Shape", index), *width)
    return sequence_like(plain, shaped, like.lengths, like.inner)


def sequence_like(value: Value, name: str, lengths: str, inner: str = "") -> Value:
    """Return a tensor as a sequence whose frames are of the kind of the given value's."""
    return Value(name, value.size, value.is_ids, lengths, inner)


def rank_of(value: Value) -> int:
    """Return the number of axes of a value's tensor."""
    return (1 if value.is_ids else 2) + value.levels
