"""Gated recurrent units: the layer that runs over whole sequences, and its single step for recurrent groups.

One step computes the output h from the output h' of the previous step. (x_u, x_r, x_c) is the input plus the bias. u
and r are the update gate and the reset gate, and c is the candidate:

    u = gate(x_u + h' W_u)   r = gate(x_r + h' W_r)   c = act(x_c + (r h') W_c)   h = h' - u h' + u c

The weight holds a (size, 2 * size) matrix W_u | W_r, followed by the (size, size) matrix W_c.

Source: spec/config.md 6, numerics; gserver/layers/GatedRecurrentLayer.cpp, GruStepLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.recurrent import GruRun, GruStep
from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import (
    require_aligned,
    require_bias,
    require_matrix,
    require_repeated_matrix,
    require_starts,
    require_weight,
)
from trainer.layers.ragged import PackedInput, PackedOrder, take_rows
from trainer.layers.recurrent.state import StatefulLayer
from trainer.layers.recurrent.step_activations import StepActivation, find_step_activation
from trainer.layers.workspace import Workspace


def reset_forward(u_r: Array, h_before: Array, reset: Array, gate: StepActivation) -> None:
    """Replace the sums of both gates in `u_r` by the gates u and r, and write r * h_before to `reset`.

    Shapes: u_r: (n, 2 * size); h_before, reset: (n, size).
    """
    gate.apply(u_r)
    np.multiply(u_r[:, h_before.shape[1] :], h_before, out=reset)


def output_forward(u_r: Array, c: Array, h_before: Array, h: Array, candidate: StepActivation) -> None:
    """Replace the candidate's sum in `c` by the candidate, and write the output to `h`.

    Shapes: u_r: (n, 2 * size); all other arrays: (n, size).
    """
    candidate.apply(c)
    np.subtract(c, h_before, out=h)
    h *= u_r[:, : h_before.shape[1]]
    h += h_before


def output_backward(
    u_r: Array, c: Array, h_before: Array, d_h: Array, d_u_r: Array, d_c: Array, candidate: StepActivation
) -> None:
    """Write the gradient of the update gate u to `d_u_r`, and the gradient of the candidate's sum to `d_c`.

    Also replace d_h, the gradient of h, by its part that reaches h_before through the term h_before - u * h_before.
    """
    size = h_before.shape[1]
    d_u = d_u_r[:, :size]
    np.subtract(c, h_before, out=d_u)
    d_u *= d_h
    np.multiply(d_h, u_r[:, :size], out=d_c)
    d_h -= d_c
    candidate.descend(d_c, c)


def reset_backward(u_r: Array, h_before: Array, d_reset: Array, d_h: Array, d_u_r: Array, gate: StepActivation) -> None:
    """Write the gradients of the sums of both gates to `d_u_r`, which holds the gradient of u before the call.

    Also add to d_h the gradient that reaches h_before through the term r * h_before.
    """
    size = h_before.shape[1]
    np.multiply(d_reset, h_before, out=d_u_r[:, size:])
    gate.descend(d_u_r, u_r)
    d_reset *= u_r[:, size:]
    d_h += d_reset


class _Gru(Layer):
    """The common part of GruRunLayer and GruStepLayer: parameters and activations."""

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

    def _add_gradients(self, sums_gradient: Array, h_before: Array, reset: Array) -> None:
        """Add to the parameters' gradients.

        The first rows of the sums belong to the first step, where h' is zero. `h_before` and `reset` may lack these
        rows.
        """
        if not self._weight.is_static:
            sums = sums_gradient[len(sums_gradient) - len(h_before) :]
            self._weight.add_product(h_before, sums[:, : 2 * self.size])
            self._weight.add_product(reset, sums[:, 2 * self.size :], begin=2 * self.size * self.size)
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(sum_columns(sums_gradient))


class GruRunLayer(_Gru):
    """The layer that runs over whole sequences.

    The network also uses this layer for a group that contains only a GRU (trainer/network/groups.py).

    Shapes: x: (frames, 3 * size), already multiplied by the input weights; weight: 3 * size * size numbers;
        bias: (3 * size,).
    """

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._kept = Workspace()
        self._packing: PackedOrder
        self._input: PackedInput
        self._run: GruRun

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h of every frame."""
        x, index = require_repeated_matrix(self, inputs[0], 3 * self.size)
        packing = PackedOrder(require_starts(self, inputs[0]), self.config.reversed)
        self._input = PackedInput(x, index, packing)
        size, dtype = self.size, x.dtype
        self._packing = packing
        self._run = run = GruRun(
            gates=self._kept.rows("gates", packing.frames, 3 * size, dtype),
            reset=self._kept.rows("reset", packing.frames, size, dtype),
            h=self._kept.rows("h", packing.frames, size, dtype),
            begins=packing.bounds,
            gate=self.config.active_gate_type,
            candidate=self.config.active_type,
        )
        if run.fits():
            run.forward(x, self._input.rows, self._weight.value, None if self.bias is None else self.bias.value)
        else:
            self._step_forward(run)
        result = self._kept.rows("result", packing.frames, size, dtype)
        take_rows(run.h, packing.places, result)
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Run the steps from the last to the first; compute the gradients of the parameters over all frames at once."""
        packing, run, size = self._packing, self._run, self.size
        transposed = [w.T for w in self._matrices(self._weight.value)]
        if run.fits():
            run.backward(gradient, packing.rows, np.concatenate([w.reshape(-1) for w in transposed]))
        else:
            self._step_backward(run, gradient, [np.ascontiguousarray(w) for w in transposed])
        followers = len(packing.previous)
        before = self._kept.rows("h before", followers, size, gradient.dtype)
        take_rows(run.h, packing.previous, before)
        self._add_gradients(run.gates, before, run.reset[packing.frames - followers :])
        return [self._input.gradient(run.gates, self._kept) if wanted[0] else None]

    def _step_forward(self, run: GruRun) -> None:
        """Run the steps one by one, from the first to the last."""
        packing, size = self._packing, self.size
        of_gates, of_candidate = self._matrices(self._weight.value)
        bias = None if self.bias is None else self.bias.value
        h_before = self._first_h(run.h.dtype)
        for step, live in enumerate(packing.live):
            this = packing.span(step)
            gates, reset = run.gates[this], run.reset[this]
            u_r, c = gates[:, : 2 * size], gates[:, 2 * size :]
            self._input.copy_step(step, gates, bias)
            h_before = run.h[packing.span_before(step)] if step else h_before[:live]
            u_r += h_before @ of_gates
            reset_forward(u_r, h_before, reset, self._gate)
            c += reset @ of_candidate
            output_forward(u_r, c, h_before, run.h[this], self._candidate)

    def _step_backward(self, run: GruRun, gradient: Array, transposed: Sequence[Array]) -> None:
        """Run the steps one by one, from the last to the first."""
        packing, size, dtype = self._packing, self.size, gradient.dtype
        flowing, first_h = PackedInput(gradient, None, packing), self._first_h(dtype)
        d_h, d_u_r, d_c = (
            self._kept.rows(name, len(first_h), width * size, dtype)
            for name, width in (("d_h", 1), ("d_u, d_r", 2), ("d_c", 1))
        )
        of_gates, of_candidate = transposed
        from_next = None
        for step in reversed(range(packing.steps)):
            n, gates = packing.live[step], run.gates[packing.span(step)]
            u_r, c = gates[:, : 2 * size], gates[:, 2 * size :]
            flowing.copy_step(step, d_h[:n], more=from_next)
            h_before = run.h[packing.span_before(step)] if step else first_h[:n]
            output_backward(u_r, c, h_before, d_h[:n], d_u_r[:n], d_c[:n], self._candidate)
            reset_backward(u_r, h_before, d_c[:n] @ of_candidate, d_h[:n], d_u_r[:n], self._gate)
            from_next = d_u_r[:n] @ of_gates
            from_next += d_h[:n]
            u_r[:], c[:] = d_u_r[:n], d_c[:n]

    def _first_h(self, dtype: np.dtype[np.floating]) -> Array:
        """Return h before the first step: zeros."""
        return self._kept.zeros("first h", self._packing.live[0] if self._packing.steps else 0, self.size, dtype)


class GruLayer(StatefulLayer, GruRunLayer):
    """The GRU layer that a config can name (its type is `gated_recurrent`)."""

    can_go_on = False  # as in v0.10, this layer cannot carry its state from batch to batch


class GruStepLayer(_Gru):
    """A single step. Inputs: x: (rows, 3 * size); h': (rows, size). In the message, the weight belongs to x."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._step: GruStep
        self._c: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h."""
        sums = require_matrix(self, inputs[0], 3 * self.size)
        h_before = require_matrix(self, inputs[1], self.size)
        require_aligned(self, inputs)
        if self.bias is not None:
            sums = sums + self.bias.value
        h, kinds = np.empty_like(h_before), (self.config.active_gate_type, self.config.active_type)
        self._step = step = GruStep(self._multiply(h_before), h_before, np.empty_like(h_before), *kinds)
        if step.fits(sums):
            step.compute_gates(sums)
            self._c = self._multiply(step.reset, of_candidate=True)
            step.compute_output(sums, self._c, h)
            return inputs[0].with_value(h)
        step.u_r[:] += sums[:, : 2 * self.size]
        reset_forward(step.u_r, h_before, step.reset, self._gate)
        self._c = self._multiply(step.reset, of_candidate=True)
        self._c += sums[:, 2 * self.size :]
        output_forward(step.u_r, self._c, h_before, h, self._candidate)
        return inputs[0].with_value(h)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of x and of h'."""
        step, d_h, d_sums = self._step, gradient.copy(), np.empty((len(gradient), 3 * self.size), gradient.dtype)
        if step.fits(d_sums):
            d_u_r, d_c = d_sums[:, : 2 * self.size], d_sums[:, 2 * self.size :]
            step.descend_output(self._c, d_h, d_sums)
            step.descend_gates(self._multiply(d_c, of_candidate=True, is_transposed=True), d_h, d_sums)
        else:
            d_u_r, d_c = np.empty_like(step.u_r), np.empty_like(self._c)
            output_backward(step.u_r, self._c, step.h_before, d_h, d_u_r, d_c, self._candidate)
            d_reset = self._multiply(d_c, of_candidate=True, is_transposed=True)
            reset_backward(step.u_r, step.h_before, d_reset, d_h, d_u_r, self._gate)
            np.concatenate([d_u_r, d_c], axis=1, out=d_sums)
        d_h += self._multiply(d_u_r, is_transposed=True)
        self._add_gradients(d_sums, step.h_before, step.reset)
        return [d_sums if wanted[0] else None, d_h if wanted[1] else None]

    def _multiply(self, x: Array, *, of_candidate: bool = False, is_transposed: bool = False) -> Array:
        """Return the product of x and W_u | W_r, or of x and W_c, or of x and the transpose of this matrix."""
        begin, columns = (2 * self.size * self.size, self.size) if of_candidate else (0, 2 * self.size)
        return self._weight.multiply(x, (self.size, columns), begin, is_transposed=is_transposed)


# the type of the layer that replaces a group of a single gru_step layer (trainer/network/groups.py); a config cannot
# name this type
GROUP_RUN = "gru of a group"
