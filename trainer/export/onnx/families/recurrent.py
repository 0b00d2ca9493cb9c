"""Recurrent layers: those that run over whole sequences, and their single steps for recurrent groups. No I/O.

A reversed layer runs over each sequence in reverse order (ReverseSequence), so that its first step reads the last
frame; the padding stays at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.export.onnx.activations import activate_rows
from trainer.export.onnx.families.pooling import require_sequences
from trainer.export.onnx.graph import FLOAT, Graph
from trainer.export.onnx.padding import flatten, unflatten
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.scan import Scan
from trainer.export.onnx.values import Value
from trainer.layers.recurrent.gru import GROUP_RUN

# from a step's graph, its frame and its states to its new states; the first of them is the output
Step = Callable[[Graph, str, Sequence[str]], Sequence[str]]


@exports("recurrent")
def _simple(call: LayerExport) -> Value:
    """h = act(x + h' W + bias)."""
    size = call.size
    weight = call.matrix(0, size, size)

    def step(body: Graph, x: str, states: Sequence[str]) -> list[str]:
        z = body.add("Add", x, body.add("MatMul", states[0], weight))
        return [activate_rows(body, call.config.active_type, z)]

    return run_steps(call, size, 1, step)


@exports("lstmemory")
def _lstm(call: LayerExport) -> Value:
    size = call.size
    weight = call.matrix(0, size, 4 * size)
    peepholes = split_peepholes(call, 4 * size)

    def step(body: Graph, x: str, states: Sequence[str]) -> Sequence[str]:
        sums = body.add("Add", x, body.add("MatMul", states[0], weight))
        return step_lstm(call, body, sums, states[1], peepholes)

    return run_steps(call, 4 * size, 2, step)


@exports("lstm_step")
def _lstm_step(call: LayerExport) -> Value:
    """One step: inputs z, the sums with h' W and the bias, and c'. The further output "state" is c."""
    one, state = call.inputs
    _require_columns(one, 4 * call.size)
    h, c = step_lstm(call, call.graph, one.name, state.name, split_peepholes(call, 0))
    result = one.with_name(h, call.size)
    extras = {"state": one.with_name(c, call.size)}
    return Value(h, call.size, False, result.lengths, result.inner, extras)


@exports("gated_recurrent", GROUP_RUN)
def _gru(call: LayerExport) -> Value:
    weights = split_gru(call)

    def step(body: Graph, x: str, states: Sequence[str]) -> list[str]:
        return [step_gru(call, body, x, states[0], weights)]

    return run_steps(call, 3 * call.size, 1, step)


@exports("gru_step")
def _gru_step(call: LayerExport) -> Value:
    """One step: inputs x and h'."""
    one, state = call.inputs
    _require_columns(one, 3 * call.size)
    sums = call.graph.add("Add", one.name, bias) if (bias := call.bias(3 * call.size)) else one.name
    h = step_gru(call, call.graph, sums, state.name, split_gru(call))
    return one.with_name(h, call.size)


def run_steps(call: LayerExport, width: int, states: int, step: Step) -> Value:
    """Return the outputs of a layer over whole sequences, whose states begin with zeros; the bias is added before.

    Args: width: the columns of the input. states: how many there are.
    """
    graph, one = call.graph, require_sequences(call)
    _require_columns(one, width)
    plain = flatten(graph, one)
    frames = _turn(call, plain.name, plain)
    name = call.config.bias_parameter_name
    if name:
        bias = call.parameters[name].value.reshape(-1)[:width]
        if len(bias) < width:
            raise CannotExportError(f"its bias has {len(bias)} values instead of {width}")
        frames = graph.add("Add", frames, graph.parameter(name, bias))
    zeros = zero_rows(graph, graph.dim(frames, 0), call.size)
    scan = Scan(graph)
    before = [scan.state(zeros) for _ in range(states)]
    after = step(scan.body, scan.item(frames), before)
    outputs = scan.run(after, [(after[0], 2, FLOAT)])[1]
    result = Value(_turn(call, outputs[0], plain), call.size, lengths=plain.lengths)
    return unflatten(graph, result, one)


def _turn(call: LayerExport, frames: str, plain: Value) -> str:
    """Return the frames of a reversed layer in reverse order."""
    if not call.config.reversed:
        return frames
    return call.graph.add("ReverseSequence", frames, plain.lengths, batch_axis=0, time_axis=1)


def zero_rows(graph: Graph, batch: str, size: int) -> str:
    """Return zeros, (batch, size)."""
    shape = graph.add("Concat", batch, graph.integers([size]), axis=0)
    return graph.add("Expand", graph.constant([[0]]), shape)


def _require_columns(one: Value, width: int) -> None:
    if one.is_ids or one.size != width:
        raise CannotExportError(f"its input has the size {one.size} instead of {width}")


# ----- Single steps: from the sums of a step and its states to its results -----


def split_columns(graph: Graph, name: str, widths: Sequence[int]) -> list[str]:
    """Return the columns of a matrix in parts of the given widths."""
    return graph.add_several("Split", name, graph.integers(widths), outputs=len(widths), axis=-1)


def split_peepholes(call: LayerExport, begin: int) -> list[str]:
    """Return the peephole weights for i, f and o, which follow `begin` biases; [] without a bias parameter."""
    name, size = call.config.bias_parameter_name, call.size
    if not name:
        return []
    values = call.parameters[name].value.reshape(-1)
    if len(values) != begin + 3 * size:
        raise CannotExportError(f"its bias has {len(values)} values instead of {begin + 3 * size}")
    return [call.graph.parameter(name, part) for part in values[begin:].reshape(3, size)]


def step_lstm(call: LayerExport, body: Graph, sums: str, c_before: str, peepholes: Sequence[str]) -> list[str]:
    """Return h and c. Shapes: sums: (batch, 4 * size), for a, i, f and o."""
    config, size = call.config, call.size

    def open_gate(number: int, z: str, c: str) -> str:
        if peepholes:
            z = body.add("Add", z, body.add("Mul", c, peepholes[number]))
        return activate_rows(body, config.active_gate_type, z)

    z_a, z_i, z_f, z_o = split_columns(body, sums, [size] * 4)
    a = activate_rows(body, config.active_type, z_a)
    i, f = open_gate(0, z_i, c_before), open_gate(1, z_f, c_before)
    c = body.add("Add", body.add("Mul", a, i), body.add("Mul", c_before, f))
    o = open_gate(2, z_o, c)
    return [body.add("Mul", o, activate_rows(body, config.active_state_type, c)), c]


def split_gru(call: LayerExport) -> tuple[str, str]:
    """Return the weights of both gates, (size, 2 * size), and of the candidate, (size, size)."""
    size, parameter = call.size, call.weight(0)
    values = parameter.value.reshape(-1)
    if values.size != 3 * size * size:
        raise CannotExportError(f"its parameter {parameter.name} has {values.size} values instead of {3 * size * size}")
    of_gates, of_candidate = np.split(values, [2 * size * size])
    return (
        call.graph.parameter(parameter.name, of_gates.reshape(size, 2 * size)),
        call.graph.parameter(parameter.name, of_candidate.reshape(size, size)),
    )


def step_gru(call: LayerExport, body: Graph, sums: str, h_before: str, weights: tuple[str, str]) -> str:
    """Return h. Shapes: sums: (batch, 3 * size), for u, r and the candidate."""
    config, size = call.config, call.size
    of_gates, of_candidate = weights
    z, x = split_columns(body, sums, [2 * size, size])
    gates = activate_rows(body, config.active_gate_type, body.add("Add", z, body.add("MatMul", h_before, of_gates)))
    u, r = split_columns(body, gates, [size, size])
    moved = body.add("MatMul", body.add("Mul", r, h_before), of_candidate)
    c = activate_rows(body, config.active_type, body.add("Add", x, moved))
    return body.add("Add", h_before, body.add("Mul", u, body.add("Sub", c, h_before)))
