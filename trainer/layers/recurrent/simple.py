"""The simple recurrent layer: h = act(x + h' W + bias), where h' is the h of the previous step.

Source: spec/config.md 6; gserver/layers/RecurrentLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.arrays.activations import find_activation
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import ParameterTable
from trainer.layers.checks import require_bias, require_repeated_matrix, require_starts, require_weight
from trainer.layers.ragged import PackedInput, PackedOrder, take_rows
from trainer.layers.recurrent.state import StatefulLayer
from trainer.layers.workspace import Workspace


class RecurrentLayer(StatefulLayer):
    """The simple recurrent layer.

    If state is carried between batches, each sequence starts from the last frame of the previous sequence, as in v0.10.
    No gradient flows through this state.

    Shapes: x: (frames, size), W: (size, size), bias: (size,).
    """

    applies_activation = True
    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._weight = require_weight(self, 0, self.size * self.size)
        require_bias(self, self.size)
        self._activation = find_activation(config.active_type, config.name)
        self._kept = Workspace()
        self._packing: PackedOrder
        self._input: PackedInput
        self._z: Array
        self._h: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h of every frame."""
        x, index = require_repeated_matrix(self, inputs[0], self.size)
        packing = PackedOrder(require_starts(self, inputs[0]), self.config.reversed)
        self._input = PackedInput(x, index, packing)
        size = self.size
        self._packing = packing
        self._z = self._kept.rows("z", packing.frames, size, x.dtype)
        self._h = h = self._kept.rows("h", packing.frames, size, x.dtype)
        if self.goes_on:
            self._go_on()
        else:
            self._run_steps()
        result = self._kept.rows("result", packing.frames, size, x.dtype)
        take_rows(h, packing.places, result)
        return inputs[0].with_value(result)

    def _run_steps(self) -> None:
        """Process the first frames of all sequences, then the second frames, and so on."""
        packing, z, h, size = self._packing, self._z, self._h, self.size
        product = self._kept.rows("product", packing.live[0] if packing.steps else 0, size, z.dtype)
        w, bias = self._weight.matrix(size, size), None if self.bias is None else self.bias.value
        for step, live in enumerate(packing.live):
            this = packing.span(step)
            flowing = np.matmul(h[packing.span_before(step)], w, out=product[:live]) if step else None
            self._input.copy_step(step, z[this], bias, flowing)
            h[this] = self._activation.forward(z[this], None)

    def _go_on(self) -> None:
        """Process all frames of the batch one after the other, starting from the last frame of the previous batch."""
        z, h, w = self._z, self._h, self._weight.matrix(self.size, self.size)
        np.take(self._input.matrix, self._input.rows, axis=0, out=z)
        if self.bias is not None:
            z += self.bias.value
        before = self.state[0] if self.state else np.zeros((1, self.size), z.dtype)
        for place in self._packing.places.tolist():
            frame = slice(place, place + 1)
            z[frame] += before @ w
            h[frame] = before = self._activation.forward(z[frame], None)
        self.state = (before.copy(),)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Run the steps from the last to the first; compute the gradients of the parameters over all frames at once."""
        packing, z, h, size = self._packing, self._z, self._h, self.size
        live, flowing = packing.live, PackedInput(gradient, None, packing)
        most = live[0] if packing.steps else 0
        d_h = self._kept.rows("d_h", most, size, gradient.dtype)
        product = self._kept.rows("product", most, size, gradient.dtype)
        from_next = None
        w_transposed = np.ascontiguousarray(self._weight.matrix(size, size).T)
        for step in reversed(range(packing.steps)):
            this, n = packing.span(step), live[step]
            flowing.copy_step(step, d_h[:n], more=from_next)
            z[this] = self._activation.backward(d_h[:n], h[this], z[this], None)
            from_next = np.matmul(z[this], w_transposed, out=product[:n])
        if not self._weight.is_static:
            before = self._kept.rows("h before", len(packing.previous), size, gradient.dtype)
            take_rows(h, packing.previous, before)
            self._weight.add_product(before, z[packing.frames - len(before) :])
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(sum_columns(z))
        return [self._input.gradient(z, self._kept) if wanted[0] else None]
