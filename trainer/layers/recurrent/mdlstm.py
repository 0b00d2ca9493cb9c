"""Multi-dimensional long short-term memory: a recurrent layer whose frames lie on a grid, like pixels.

One step computes h and c of a frame. Let h_d and c_d be h and c of the frame's previous neighbour along dimension d, or
zero outside the grid. The sums z = (z_a, z_i, z_f of every dimension, z_o) are the input plus a bias plus the sum of
h_d W over all d. The file lstm.py explains the other names:

    a = act(z_a)   i = gate(z_i + sum of p_i c_d)   f_d = gate(z_f_d + p_f_d c_d)   c = a i + sum of c_d f_d
    o = gate(z_o + p_o c)   h = o state(c)

Source: gserver/layers/MDLstmLayer.cpp of v0.10.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_bias, require_matrix, require_starts, require_weight
from trainer.layers.recurrent.step_activations import find_step_activation


class GridOrder:
    """The order in which the frames of grids are computed, front by front: a frame depends only on earlier fronts.

    A front contains the frames with the same distance from the corner of the grid where the computation begins.

    Args: starts: where each sequence begins.  grids: (sequences, dimensions), the number of frames along each
        dimension; adjacent frames of a sequence are neighbours along the last dimension. directions: for each
        dimension, whether steps go from its first frame to its last frame.
    Attributes: fronts: the frames of each front.  before: (dimensions, frames), the previous neighbour of each frame
        along each dimension; for a frame without this neighbour, the total number of frames.
    """

    def __init__(self, starts: Ids, grids: Ids, directions: Sequence[bool]) -> None:
        frames = int(starts[-1])
        self.before: Ids = np.full((len(directions), frames), frames, np.int64)
        distances = np.zeros(frames, np.int64)
        for start, extents in zip(starts[:-1].tolist(), grids.tolist(), strict=True):
            places = np.indices(extents).reshape(len(extents), -1)
            strides = [int(np.prod(extents[dimension + 1 :])) for dimension in range(len(extents))]
            for dimension, (extent, stride, forward) in enumerate(zip(extents, strides, directions, strict=True)):
                along = places[dimension] if forward else extent - 1 - places[dimension]
                inside = np.flatnonzero(along)
                distances[start : start + len(along)] += along
                self.before[dimension, start + inside] = start + inside - (stride if forward else -stride)
        order = np.argsort(distances, kind="stable")
        self.fronts = np.split(order, np.flatnonzero(np.diff(distances[order])) + 1) if frames else []


class GridLstmLayer(Layer):
    """The layer that runs over grids.

    The bias parameter has (3 + d) * size biases, and then the peephole weights: size for i, d * size for f, and size
    for o.

    Shapes: x: (frames, (3 + d) * size), already multiplied by the input weights; W: (size, (3 + d) * size). d is the
        number of directions.
    Raises (forward): DataError: a sequence does not fit its grid, or has no grid and is not a square.
    """

    applies_activation = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._directions = list(config.directions)
        if not self._directions:
            raise ConfigError(f"{self} needs directions, one for each dimension of its grid")
        self._gates = 3 + len(self._directions)
        self._weight = require_weight(self, 0, self._gates * self.size * self.size)
        require_bias(self, (5 + 2 * len(self._directions)) * self.size)
        self._candidate = find_step_activation(config.active_type, self, "activation")
        self._gate = find_step_activation(config.active_gate_type, self, "gate activation")
        self._state = find_step_activation(config.active_state_type, self, "state activation")
        self._order: GridOrder
        self._z: Array
        self._h: Array
        self._c: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return h of every frame."""
        x, starts = require_matrix(self, inputs[0], self._gates * self.size), require_starts(self, inputs[0])
        self._order = order = GridOrder(starts, self._find_grids(inputs[0], starts), self._directions)
        w, dimensions = self._weight.matrix(self.size, -1), range(len(self._directions))
        sums, p_i, p_f, p_o = self._split_bias(x.dtype)
        self._z = x + sums
        # the last row stands for all neighbours outside the grid
        self._h, self._c = (np.zeros((len(x) + 1, self.size), x.dtype) for _ in range(2))
        for front in order.fronts:
            before = [self._c[order.before[d, front]] for d in dimensions]
            z = self._z[front]
            for d in dimensions:
                z += self._h[order.before[d, front]] @ w
            a, i, *f, o = self._parts(z)
            for d in dimensions:
                i += before[d] * p_i
                f[d] += before[d] * p_f[d]
                self._gate.apply(f[d])
            self._gate.apply(i)
            self._candidate.apply(a)
            c = sum((before[d] * f[d] for d in dimensions), a * i)
            o += c * p_o
            self._gate.apply(o)
            h = c.copy()
            self._state.apply(h)
            h *= o
            self._z[front], self._c[front], self._h[front] = z, c, h
        return inputs[0].with_value(self._h[:-1].copy())

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Run the fronts from the last to the first; afterwards `_z` holds the gradients of the sums."""
        order, c, w = self._order, self._c, self._weight.matrix(self.size, -1)
        dimensions = range(len(self._directions))
        _, p_i, p_f, p_o = self._split_bias(gradient.dtype)
        d_h, d_c = np.concatenate([gradient, np.zeros_like(self._h[:1])]), np.zeros_like(c)
        peepholes = np.zeros((2 + len(dimensions), self.size), gradient.dtype)
        for front in reversed(order.fronts):
            before = [c[order.before[d, front]] for d in dimensions]
            z = self._z[front]
            a, i, *f, o = (part.copy() for part in self._parts(z))
            y = c[front]  # an index array makes a copy, so `c` keeps its values
            self._state.apply(y)
            d_z = np.empty_like(z)
            d_a, d_i, *d_f, d_o = self._parts(d_z)
            d_o[:] = d_h[front] * y
            self._gate.descend(d_o, o)
            d_y = d_h[front] * o
            self._state.descend(d_y, y)
            d_state = d_c[front] + d_y + d_o * p_o
            d_a[:], d_i[:] = d_state * i, d_state * a
            self._candidate.descend(d_a, a)
            self._gate.descend(d_i, i)
            peepholes[0] += sum(np.einsum("ij,ij->j", d_i, one) for one in before)
            peepholes[-1] += np.einsum("ij,ij->j", d_o, c[front])
            for d in dimensions:
                d_f[d][:] = d_state * before[d]
                self._gate.descend(d_f[d], f[d])
                peepholes[1 + d] += np.einsum("ij,ij->j", d_f[d], before[d])
                # If an index occurs several times, `+=` adds only one of the values. Only the index for neighbours
                # outside the grid can occur several times, and the gradient of these neighbours is not used.
                d_c[order.before[d, front]] += d_state * f[d] + d_i * p_i + d_f[d] * p_f[d]
            for d in dimensions:
                d_h[order.before[d, front]] += d_z @ w.T
            self._z[front] = d_z
        self._add_gradients(peepholes)
        return [self._z if wanted[0] else None]

    def _find_grids(self, one: Argument, starts: Ids) -> Ids:
        lengths, dimensions = np.diff(starts), len(self._directions)
        grids = one.grids
        if grids is None:
            extents: Ids = np.rint(lengths ** (1 / dimensions)).astype(np.int64)
            grids = np.repeat(extents[:, None], dimensions, axis=1)
        if grids.shape[1] != dimensions or (np.prod(grids, axis=1) != lengths).any():
            shape = "a square" if one.grids is None else f"a grid of {grids.shape[1]} dimensions"
            raise DataError(f"{self} has {dimensions} directions, but a sequence of the batch is not {shape}")
        return grids

    def _parts(self, z: Array) -> list[Array]:
        """Return views of z: the candidate, and each gate."""
        return [z[:, first : first + self.size] for first in range(0, self._gates * self.size, self.size)]

    def _split_bias(self, dtype: np.dtype[np.floating]) -> tuple[Array, Array, Array, Array]:
        """Return the bias of the sums z, and the peepholes of i, f and o."""
        size, many = self.size, len(self._directions)
        ends = np.cumsum([self._gates * size, size, many * size, size]).tolist()
        bias = np.zeros(ends[-1], dtype) if self.bias is None else self.bias.value
        sums, p_i, p_f, p_o = (bias[first:end] for first, end in itertools.pairwise([0, *ends]))
        return sums, p_i, p_f.reshape(many, size), p_o

    def _add_gradients(self, peepholes: Array) -> None:
        if not self._weight.is_static:
            for before in self._order.before:
                inside = np.flatnonzero(before < len(self._z))
                self._weight.add_product(self._h[before[inside]], self._z[inside])
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(np.concatenate([sum_columns(self._z), peepholes.reshape(-1)]))
