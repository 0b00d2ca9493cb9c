"""The activations as nodes of ONNX; `trainer/arrays/activations.py` has their definitions and bounds. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from trainer.arrays.activations import (
    BRELU_CEILING,
    SIGMOID_CEILING,
    SIGMOID_FLOOR,
    SOFTMAX_FLOOR,
    SOFTRELU_LIMIT,
    STANH_SCALE,
    STANH_SLOPE,
)
from trainer.export.onnx.graph import Graph
from trainer.export.onnx.registry import CannotExportError
from trainer.export.onnx.values import Value


def _clip(graph: Graph, z: str, lower: float, upper: float) -> str:
    return graph.add("Clip", z, graph.constant(lower), graph.constant(upper))


def _softmax(graph: Graph, z: str) -> str:
    """Softmax over the columns; z - max is at least SOFTMAX_FLOOR, so that no probability becomes 0."""
    top = graph.add("ReduceMax", z, axes=[-1], keepdims=1)
    powers = graph.add("Exp", graph.add("Max", graph.add("Sub", z, top), graph.constant(SOFTMAX_FLOOR)))
    return graph.add("Div", powers, graph.add("ReduceSum", powers, axes=[-1], keepdims=1))


def _softrelu(graph: Graph, z: str) -> str:
    return graph.add("Softplus", _clip(graph, z, -SOFTRELU_LIMIT, SOFTRELU_LIMIT))


def _stanh(graph: Graph, z: str) -> str:
    tanh = graph.add("Tanh", graph.add("Mul", z, graph.constant(STANH_SLOPE)))
    return graph.add("Mul", tanh, graph.constant(STANH_SCALE))


def _softsign(graph: Graph, z: str) -> str:
    return graph.add("Softsign", z)


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "abs": lambda graph, z: graph.add("Abs", z),
    "brelu": lambda graph, z: _clip(graph, z, 0, BRELU_CEILING),
    "exponential": lambda graph, z: graph.add("Exp", z),
    "log": lambda graph, z: graph.add("Log", z),
    "reciprocal": lambda graph, z: graph.add("Reciprocal", z),
    "relu": lambda graph, z: graph.add("Relu", z),
    "sigmoid": lambda graph, z: graph.add("Sigmoid", _clip(graph, z, SIGMOID_FLOOR, SIGMOID_CEILING)),
    "softmax": _softmax,
    "softrelu": _softrelu,
    "softsign": _softsign,
    "sqrt": lambda graph, z: graph.add("Sqrt", z),
    "square": lambda graph, z: graph.add("Mul", z, z),
    "stanh": _stanh,
    "tanh": lambda graph, z: graph.add("Tanh", z),
}


def activate_rows(graph: Graph, kind: str, z: str) -> str:
    """Return the activation of a tensor whose last dimension is the columns.

    Raises: CannotExportError: there is no such activation for rows.
    """
    if kind in ("", "linear"):
        return z
    if kind not in _ACTIVATIONS:
        raise CannotExportError(f"its activation '{kind}' has no form in ONNX here")
    return _ACTIVATIONS[kind](graph, z)


def activate(graph: Graph, kind: str, value: Value) -> Value:
    """Return the activation of a layer's values.

    Raises: CannotExportError: there is no such activation.
    """
    if kind in ("", "linear"):
        return value
    if kind == "sequence_softmax":
        return _sequence_softmax(graph, value)
    return value.with_name(activate_rows(graph, kind, value.name))


def _sequence_softmax(graph: Graph, value: Value) -> Value:
    """Softmax over the frames of each sequence; a frame is one number.

    A nested sequence has a softmax over all frames of a sample, as the frames of a sequence in `starts` are.
    """
    if not value.levels or value.size != 1:
        raise CannotExportError("the sequence_softmax activation needs a layer of size 1 whose rows are sequences")
    axes = [-2, -3][: value.levels]
    mask = graph.add("Unsqueeze", graph.is_frame(value), graph.integers([-1]))
    low = graph.add("Where", mask, value.name, graph.constant(-3.0e38))
    # a sequence without frames, or a batch without any, has no maximum
    top = graph.add("Max", graph.add("ReduceMax", _one_more(graph, low, value), axes=axes, keepdims=1))
    powers = graph.add("Exp", graph.add("Max", graph.add("Sub", low, top), graph.constant(SOFTMAX_FLOOR)))
    powers = graph.add("Where", mask, powers, graph.constant(0.0))
    total = graph.add("ReduceSum", powers, axes=axes, keepdims=1)
    return value.with_name(graph.add("Div", powers, total))


def _one_more(graph: Graph, frames: str, value: Value) -> str:
    """Return frames with one more at the end of each level, so that a maximum over them exists."""
    pads = [0] * (value.levels + 2) + [0, *([1] * value.levels), 0]
    return graph.add("Pad", frames, graph.integers(pads), graph.constant(-3.0e38))
