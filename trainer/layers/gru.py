"""Gated recurrent units: the layer that runs over whole sequences, and its single step for recurrent groups.

A step, where (x_u, x_r, x_c) is the input plus the bias, and ' marks the step before:

    u = gate(x_u + h' W_u)   r = gate(x_r + h' W_r)   c = act(x_c + (r h') W_c)   h = h' - u h' + u c

The weight holds a (size, 2 * size) matrix W_u | W_r and after it the (size, size) matrix W_c.

Source: spec/config.md 6, numerics; gserver/layers/GatedRecurrentLayer.cpp, GruStepLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto.ModelConfig_pb2 import LayerConfig
from trainer.arguments import Argument, Array, Flowing
from trainer.layers.base import Layer
from trainer.layers.checks import require_bias, require_matrix, require_repeated_matrix, require_starts, require_weight
from trainer.layers.packing import PackedInput, Packing, sum_rows, take_rows
from trainer.layers.step_activations import StepActivation, find_step_activation
from trainer.layers.workspace import Workspace
from trainer.parameters import Parameter, ParameterTable


def reset_forward(gates: Array, h_before: Array, reset: Array, gate: StepActivation) -> None:
    """Turn the sums of u and r in `gates` into u and r in place, and write r h'.

    Shapes: gates: (n, 3 * size); h_before, reset: (n, size).
    """
    size = h_before.shape[1]
    gate.apply(gates[:, : 2 * size])
    np.multiply(gates[:, size : 2 * size], h_before, out=reset)


def output_forward(gates: Array, h_before: Array, h: Array, candidate: StepActivation) -> None:
    """Turn the sums of c in `gates` into c in place, and write h. Shapes: as `reset_forward`."""
    size = h_before.shape[1]
    u, c = gates[:, :size], gates[:, 2 * size :]
    candidate.apply(c)
    np.subtract(c, h_before, out=h)
    h *= u
    h += h_before


def output_backward(gates: Array, h_before: Array, d_h: Array, candidate: StepActivation, gate: StepActivation) -> None:
    """Turn u and c in `gates` into the gradients of their sums, and d_h into what h' has directly of it."""
    size = h_before.shape[1]
    u, c = gates[:, :size], gates[:, 2 * size :]
    d_c, d_u = d_h * u, c - h_before
    candidate.descend(d_c, c)
    d_u *= d_h
    gate.descend(d_u, u)
    d_h -= d_h * u
    u[:], c[:] = d_u, d_c


def reset_backward(gates: Array, h_before: Array, d_reset: Array, d_h: Array, gate: StepActivation) -> None:
    """Turn r in `gates` into the gradient of its sum, and add to d_h what h' has through r h'; d_reset is used up."""
    size = h_before.shape[1]
    r = gates[:, size : 2 * size]
    d_h += d_reset * r
    d_reset *= h_before
    gate.descend(d_reset, r)
    r[:] = d_reset


class _Gru(Layer):
    """What the layer and the step have in common: parameters and activations."""

    applies_activation = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._weight: Parameter = require_weight(self, 0, 3 * self.size * self.size)
        require_bias(self, 3 * self.size)
        self._gate = find_step_activation(config.active_gate_type, self, "gate activation")
        self._candidate = find_step_activation(config.active_type, self, "activation")

    def _matrices(self, flat: Array) -> tuple[Array, Array]:
        """Return W_u | W_r and W_c."""
        split = 2 * self.size * self.size
        return flat[:split].reshape(self.size, 2 * self.size), flat[split:].reshape(self.size, self.size)

    def _add_gradients(self, gates: Array, h_before: Array, reset: Array) -> None:
        """Add to the parameters' gradients; of the last rows of `gates` the h' and r h' are given, of others zero."""
        if not self._weight.is_static:
            sums = gates[len(gates) - len(h_before) :]
            of_gates, of_candidate = self._matrices(self._weight.gradient)
            of_gates += h_before.T @ sums[:, : 2 * self.size]
            of_candidate += reset.T @ sums[:, 2 * self.size :]
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(sum_rows(gates))


class GruLayer(_Gru):
    """x: (frames, 3 * size), already projected; weight: 3 * size * size; bias: (3 * size,)."""

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._kept = Workspace()
        self._packing: Packing
        self._input: PackedInput
        self._gates: Array
        self._reset: Array
        self._h: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h of every frame."""
        x, index = require_repeated_matrix(self, inputs[0], 3 * self.size)
        packing = Packing(require_starts(self, inputs[0]), self.config.reversed)
        self._input = PackedInput(x, index, packing)
        size, dtype = self.size, x.dtype
        self._packing = packing
        self._gates = gates = self._kept.rows("gates", packing.frames, 3 * size, dtype)
        self._reset = reset = self._kept.rows("reset", packing.frames, size, dtype)
        self._h = h = self._kept.rows("h", packing.frames, size, dtype)
        most = packing.live[0] if packing.steps else 0
        product = self._kept.rows("product", most, 2 * size, dtype)
        h_before = self._kept.zeros("first h", most, size, dtype)
        of_gates, of_candidate = self._matrices(self._weight.value)
        for step, live in enumerate(packing.live):
            this = packing.span(step)
            self._input.copy_step(step, gates[this])
            if self.bias is not None:
                gates[this] += self.bias.value
            if step:
                h_before = h[packing.span_before(step)]
                np.matmul(h_before, of_gates, out=product[:live])
                gates[this, : 2 * size] += product[:live]
            reset_forward(gates[this], h_before, reset[this], self._gate)
            if step:
                gates[this, 2 * size :] += reset[this] @ of_candidate
            output_forward(gates[this], h_before, h[this], self._candidate)
        result = self._kept.rows("result", packing.frames, size, dtype)
        take_rows(h, packing.places, result)
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Run from the last step to the first, and sum the parameters' gradients over all frames at once."""
        packing, gates, h, size, dtype = self._packing, self._gates, self._h, self.size, gradient.dtype
        live, flowing = packing.live, PackedInput(gradient, None, packing)
        most = live[0] if packing.steps else 0
        d_h = self._kept.rows("d_h", most, size, dtype)
        d_before = self._kept.zeros("d_h of the step before", most, size, dtype)
        product = self._kept.rows("product of size", most, size, dtype)
        first_h = self._kept.zeros("first h", most, size, dtype)
        of_gates, of_candidate = (np.ascontiguousarray(w.T) for w in self._matrices(self._weight.value))
        for step in reversed(range(packing.steps)):
            this, n = packing.span(step), live[step]
            flowing.copy_step(step, d_h[:n])
            d_before[:n] += d_h[:n]
            h_before = h[packing.span_before(step)] if step else first_h
            output_backward(gates[this], h_before, d_before[:n], self._candidate, self._gate)
            np.matmul(gates[this, 2 * size :], of_candidate, out=product[:n])
            reset_backward(gates[this], h_before, product[:n], d_before[:n], self._gate)
            np.matmul(gates[this, : 2 * size], of_gates, out=product[:n])
            d_before[:n] += product[:n]
        followers = len(packing.previous)
        before = self._kept.rows("h before", followers, size, dtype)
        take_rows(h, packing.previous, before)
        self._add_gradients(gates, before, self._reset[packing.frames - followers :])
        return [self._input.gradient(gates, self._kept) if wanted[0] else None]


class GruStepLayer(_Gru):
    """One step: inputs x: (rows, 3 * size) with the weight, h': (rows, size)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._gates: Array
        self._h_before: Array
        self._reset: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h."""
        self._gates = gates = require_matrix(self, inputs[0], 3 * self.size).copy()
        self._h_before = h_before = require_matrix(self, inputs[1], self.size)
        of_gates, of_candidate = self._matrices(self._weight.value)
        if self.bias is not None:
            gates += self.bias.value
        gates[:, : 2 * self.size] += h_before @ of_gates
        self._reset, h = np.empty_like(h_before), np.empty_like(h_before)
        reset_forward(gates, h_before, self._reset, self._gate)
        gates[:, 2 * self.size :] += self._reset @ of_candidate
        output_forward(gates, h_before, h, self._candidate)
        return inputs[0].with_value(h)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of x and of h'."""
        gates, d_h = self._gates, gradient.copy()
        of_gates, of_candidate = self._matrices(self._weight.value)
        output_backward(gates, self._h_before, d_h, self._candidate, self._gate)
        d_reset = gates[:, 2 * self.size :] @ of_candidate.T
        reset_backward(gates, self._h_before, d_reset, d_h, self._gate)
        d_h += gates[:, : 2 * self.size] @ of_gates.T
        self._add_gradients(gates, self._h_before, self._reset)
        return [gates if wanted[0] else None, d_h if wanted[1] else None]


LAYERS: dict[str, type[Layer]] = {"gated_recurrent": GruLayer, "gru_step": GruStepLayer}
