"""Long short-term memory: the layer that runs over whole sequences, and its single step for recurrent groups.

One step computes the output h and the state c from the output h' and the state c' of the previous step. The sums
z = (z_a, z_i, z_f, z_o) are the input plus h' W plus a bias. In the formulas, a is the candidate; i, f and o are the
input, forget and output gates; p_i, p_f and p_o are the peephole weights:

    a = act(z_a)   i = gate(z_i + p_i c')   f = gate(z_f + p_f c')   c = a i + c' f
    o = gate(z_o + p_o c)   h = o state(c)

Source: spec/config.md 6, numerics; gserver/layers/LstmLayer.cpp, LstmStepLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.kernels import recurrent as hot
from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import ParameterTable
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


@dataclass(frozen=True)
class LstmActivations:
    """The activations of a layer: `act` for the candidate, `gate` for the three gates, and `state` for the state c."""

    candidate: StepActivation
    gate: StepActivation
    state: StepActivation
    names: Mapping[str, str]

    @classmethod
    def of(cls, config: LayerConfig, layer: Layer) -> LstmActivations:
        """Return the activations of a layer.

        Raises: ConfigError: an activation cannot be used inside a step.
        """
        names = {"candidate": config.active_type, "gate": config.active_gate_type, "state": config.active_state_type}
        return cls(
            names=names,
            candidate=find_step_activation(config.active_type, layer, "activation"),
            gate=find_step_activation(config.active_gate_type, layer, "gate activation"),
            state=find_step_activation(config.active_state_type, layer, "state activation"),
        )


def step_forward(gates: Array, peepholes: Array, c_before: Array, c: Array, h: Array, acts: LstmActivations) -> None:
    """Replace the sums z in `gates` by the values (a, i, f, o), and write c and h, the new state and output.

    Shapes: gates: (n, 4 * size); peepholes: (3, size), for i, f, o; c_before, c, h: (n, size).
    """
    if hot.lstm_forward(gates, peepholes, c_before, c, h, **acts.names):
        return
    size = c.shape[1]
    a, i, f, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
    acts.candidate.apply(a)
    i += c_before * peepholes[0]
    f += c_before * peepholes[1]
    acts.gate.apply(gates[:, size : 3 * size])
    np.multiply(a, i, out=c)
    c += c_before * f
    o += c * peepholes[2]
    acts.gate.apply(o)
    h[:] = c
    acts.state.apply(h)
    h *= o


def step_backward(
    gates: Array,
    peepholes: Array,
    c_before: Array,
    c: Array,
    d_h: Array,
    d_c: Array,
    d_peepholes: Array,
    acts: LstmActivations,
) -> None:
    """Replace (a, i, f, o) in `gates` by the gradients of the sums z.

    Replace the gradient of c in `d_c` by the gradient of c_before.

    Shapes: as in `step_forward`; d_h, d_c: (n, size), the gradients of h and c from later steps (d_h is overwritten);
        d_peepholes: (3, size), to which the gradient is added.
    """
    if hot.lstm_backward(gates, peepholes, c_before, c, d_h, d_c, d_peepholes, **acts.names):
        return
    size = c.shape[1]
    a, i, f, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
    y = c.copy()  # the peepholes' gradient needs c itself
    acts.state.apply(y)
    d_o = d_h * y
    acts.gate.descend(d_o, o)
    d_h *= o
    acts.state.descend(d_h, y)
    d_c += d_h
    # the output gate reads the new c, so its gradient has to be part of d_c before the other gates take theirs
    d_c += d_o * peepholes[2]
    o[:] = d_o
    d_a, d_i, d_f = d_c * i, d_c * a, d_c * c_before
    acts.candidate.descend(d_a, a)
    acts.gate.descend(d_i, i)
    acts.gate.descend(d_f, f)
    d_c *= f
    d_c += d_i * peepholes[0]
    d_c += d_f * peepholes[1]
    a[:], i[:], f[:] = d_a, d_i, d_f
    d_peepholes[0] += np.einsum("ij,ij->j", d_i, c_before)
    d_peepholes[1] += np.einsum("ij,ij->j", d_f, c_before)
    d_peepholes[2] += np.einsum("ij,ij->j", d_o, c)


class LstmLayer(StatefulLayer):
    """The layer that runs over whole sequences.

    The bias parameter has 4 * size biases and then 3 * size peephole weights. If state is carried between batches,
    sequence number k starts with the final h and c of sequence number k of the previous batch. No gradient flows
    through this state.

    Shapes: x: (frames, 4 * size), already multiplied by the input weights; W: (size, 4 * size).
    """

    applies_activation = True
    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._weight = require_weight(self, 0, 4 * self.size * self.size)
        bias = require_bias(self, 7 * self.size)
        if bias is None:
            raise ConfigError(f"{self} needs a bias; leave bias_attr out instead of giving False")
        self._bias = bias
        self._acts = LstmActivations.of(config, self)
        self._kept = Workspace()
        self._packing: PackedOrder
        self._input: PackedInput
        self._run: hot.LstmRun
        self._gates: Array
        self._c: Array
        self._h: Array
        # h and c before the first step, with the longest sequence first
        self._first: tuple[Array, Array] | None = None

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h of every frame."""
        x, index = require_repeated_matrix(self, inputs[0], 4 * self.size)
        packing = PackedOrder(require_starts(self, inputs[0]), self.config.reversed)
        self._input = PackedInput(x, index, packing)
        size, dtype = self.size, x.dtype
        self._packing = packing
        self._gates = gates = self._kept.rows("gates", packing.frames, 4 * size, dtype)
        self._c = c = self._kept.rows("c", packing.frames, size, dtype)
        self._h = h = self._kept.rows("h", packing.frames, size, dtype)
        y = self._kept.rows("y", packing.frames, size, dtype)
        self._run = hot.LstmRun(gates, self._peepholes(), c, y, packing.bounds, self._acts.names)
        self._first = self._find_first(dtype) if self.goes_on else None
        # the compiled loop begins every sequence with zeros
        if self._first is None and self._run.fits():
            w, bias = self._weight.matrix(size, 4 * size), self._bias.value[: 4 * size]
            self._run.forward(x, self._input.rows, w, bias, h)
        else:
            self._step_forward()
        if self.goes_on:
            self._keep_last()
        result = self._kept.rows("result", packing.frames, size, dtype)
        take_rows(h, packing.places, result)
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Run the steps from the last to the first; compute the gradients of the parameters over all frames at once."""
        packing, size, dtype = self._packing, self.size, gradient.dtype
        d_c = self._kept.zeros("d_c", packing.live[0] if packing.steps else 0, size, dtype)
        d_peepholes = np.zeros((3, size), dtype)
        transposed = np.ascontiguousarray(self._weight.matrix(size, 4 * size).T)
        if self._first is None and self._run.fits():
            self._run.backward(gradient, packing.rows, transposed, d_c, d_peepholes)
        else:
            self._step_backward(gradient, transposed, d_c, d_peepholes)
        self._add_gradients(d_peepholes)
        return [self._input.gradient(self._gates, self._kept) if wanted[0] else None]

    def _step_forward(self) -> None:
        """Run the steps one by one, from the first to the last."""
        packing, gates, c, h, size = self._packing, self._gates, self._c, self._h, self.size
        most = packing.live[0] if packing.steps else 0
        product = self._kept.rows("product", most, 4 * size, gates.dtype)
        h_before, c_before = self._first or (None, self._kept.zeros("first c", most, size, gates.dtype))
        w, bias, peepholes = self._weight.matrix(size, 4 * size), self._bias.value[: 4 * size], self._peepholes()
        for step, live in enumerate(packing.live):
            this, flowing = packing.span(step), None
            if step:
                before = packing.span_before(step)
                h_before, c_before = h[before], c[before]
            if h_before is not None:
                flowing = np.matmul(h_before, w, out=product[:live])
            self._input.copy_step(step, gates[this], bias, flowing)
            step_forward(gates[this], peepholes, c_before[:live], c[this], h[this], self._acts)

    def _step_backward(self, gradient: Array, transposed: Array, d_c: Array, d_peepholes: Array) -> None:
        """Run the steps one by one, from the last to the first."""
        packing, gates, c, size = self._packing, self._gates, self._c, self.size
        flowing = PackedInput(gradient, None, packing)
        d_h, product = (self._kept.rows(name, len(d_c), size, gates.dtype) for name in ("d_h", "d_h of the next step"))
        first_c = self._first[1] if self._first else self._kept.zeros("first c", len(d_c), size, gates.dtype)
        for step in reversed(range(packing.steps)):
            this, n, from_next = packing.span(step), packing.live[step], None
            if step + 1 < packing.steps:
                following = gates[packing.span(step + 1)]
                from_next = np.matmul(following, transposed, out=product[: len(following)])
            flowing.copy_step(step, d_h[:n], more=from_next)
            c_before = c[packing.span_before(step)] if step else first_c
            step_backward(
                gates[this], self._peepholes(), c_before[:n], c[this], d_h[:n], d_c[:n], d_peepholes, self._acts
            )

    def _peepholes(self) -> Array:
        return self._bias.value[4 * self.size :].reshape(3, self.size)

    def _find_first(self, dtype: np.dtype[np.floating]) -> tuple[Array, Array]:
        """Return the final h and c of the previous batch, in packed order, for the sequences that are not empty."""
        packing = self._packing
        self.require_sequences(len(packing.order))
        if not self.state:
            self.state = (np.zeros((len(packing.order), self.size), dtype),) * 2
        first = packing.order[: packing.begins[min(1, packing.steps)]]
        return self.state[0][first], self.state[1][first]

    def _keep_last(self) -> None:
        """Keep h and c of the last frame of each sequence; for an empty sequence, keep the previous h and c."""
        packing, state = self._packing, tuple(one.copy() for one in self.state)
        for step, live in enumerate(packing.live):  # the rows of a step belong to the longest sequences
            for kept, packed in zip(state, (self._h, self._c), strict=True):
                kept[packing.order[:live]] = packed[packing.span(step)]
        self.state = state

    def _add_gradients(self, d_peepholes: Array) -> None:
        """Add to the gradients of the parameters; `gates` holds the gradients of the sums z."""
        packing, gates, size = self._packing, self._gates, self.size
        if not self._weight.is_static:
            h_before = self._kept.rows("h before", len(packing.previous), size, gates.dtype)
            take_rows(self._h, packing.previous, h_before)
            self._weight.add_product(h_before, gates[packing.frames - len(h_before) :])
            if self._first is not None:
                self._weight.add_product(self._first[0], gates[: len(self._first[0])])
        if not self._bias.is_static:
            self._bias.add_gradient(np.concatenate([sum_columns(gates), d_peepholes.reshape(-1)]))


class LstmStepLayer(Layer):
    """A single step.

    Inputs: z: (rows, 4 * size), which includes h' W and the bias; c': (rows, size). The bias parameter has 3 * size
    peephole weights.

    Additional output: "state", which is c.
    """

    applies_activation = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        require_bias(self, 3 * self.size)
        self._acts = LstmActivations.of(config, self)
        self._gates: Array
        self._c_before: Array
        self._c: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h, with c as additional output."""
        z = require_matrix(self, inputs[0], 4 * self.size)
        self._c_before = require_matrix(self, inputs[1], self.size)
        require_aligned(self, inputs)
        self._gates = z.copy()
        self._c, h = np.empty_like(self._c_before), np.empty_like(self._c_before)
        step_forward(self._gates, self._peepholes(), self._c_before, self._c, h, self._acts)
        return Argument(value=h, starts=inputs[0].starts, sub_starts=inputs[0].sub_starts, extras={"state": self._c})

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of z and of c'."""
        flowing = self.extra_gradients.get("state")
        d_c = np.zeros_like(self._c) if flowing is None else flowing.copy()
        d_peepholes = np.zeros((3, self.size), self._c.dtype)
        step_backward(
            self._gates, self._peepholes(), self._c_before, self._c, gradient.copy(), d_c, d_peepholes, self._acts
        )
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(d_peepholes)
        return [self._gates if wanted[0] else None, d_c if wanted[1] else None]

    def _peepholes(self) -> Array:
        if self.bias is None:
            return np.zeros((3, self.size), self._c_before.dtype)
        return self.bias.value.reshape(3, self.size)
