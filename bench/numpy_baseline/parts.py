"""Parts of networks: activations, windows over sequences, the maximum over time, and the softmax at the end."""

from __future__ import annotations

import numpy as np

from numpy_baseline.data import PackedLists
from numpy_baseline.parameters import Array, Buffers, Parameters


def add_bias_and_squash(z: Array, bias: Array) -> None:
    z += bias
    np.tanh(z, out=z)


def unsquash(gradient: Array, y: Array, scratch: Array) -> None:
    """Replaces the gradient of y = tanh(z) by the gradient of z; `scratch` is overwritten and may be y."""
    np.multiply(y, y, out=scratch)
    np.subtract(np.float32(1), scratch, out=scratch)
    gradient *= scratch


def copy_windows(x: Array, packing: PackedLists, first: int, length: int, out: Array) -> None:
    """Writes for each row the rows of the steps around its step, with zeros outside the sequence.

    Shapes: x: (rows, width); out: (rows, length, width).
    """
    for step in range(len(packing.live)):
        rows = out[packing.span(step)]
        for place in range(length):
            other = step + first + place
            if not 0 <= other < len(packing.live):
                rows[:, place] = 0
                continue
            both = min(packing.live[step], packing.live[other])
            rows[:both, place] = x[packing.span(other)][:both]
            rows[both:, place] = 0


def sum_windows(windows: Array, packing: PackedLists, first: int, out: Array) -> None:
    """Writes for each row the sum of its copies in all windows: the gradient of `copy_windows`."""
    out[:] = windows[:, -first]
    for place in range(windows.shape[1]):
        if place == -first:
            continue
        for step in range(len(packing.live)):
            other = step + first + place
            if 0 <= other < len(packing.live):
                both = min(packing.live[step], packing.live[other])
                out[packing.span(other)][:both] += windows[packing.span(step)][:both, place]


class MaxPool:
    """The maximum of each column over the steps of a sequence."""

    def __init__(self, width: int, buffers: Buffers, name: str) -> None:
        self._width, self._buffers, self._name = width, buffers, name

    def forward(self, x: Array, packing: PackedLists) -> Array:
        live = packing.live
        largest = self._buffers(self._name, live[0], self._width)
        is_largest = self._buffers(self._name + " found", packing.rows, self._width, np.bool_)
        largest[:] = x[packing.span(0)]
        for step in range(1, len(live)):
            np.maximum(largest[: live[step]], x[packing.span(step)], out=largest[: live[step]])
        for step, many in enumerate(live):
            np.equal(x[packing.span(step)], largest[:many], out=is_largest[packing.span(step)])
        rows, columns = np.divmod(np.flatnonzero(is_largest), self._width)
        places = self._buffers(self._name + " places", live[0], self._width, np.intp)
        places[packing.sequence[rows[::-1]], columns[::-1]] = rows[::-1]  # the first maximum is written last
        self._places = places
        return largest

    def backward(self, gradient: Array, out: Array) -> None:
        out[:] = 0
        out[self._places, np.arange(self._width)] = gradient


class Classes:
    """A fully connected layer, softmax and cross-entropy."""

    def __init__(self, parameters: Parameters) -> None:
        self._w, self._d_w = parameters.matrix("___fc_layer_0__.w0", 2)
        self._b, self._d_b = parameters.vector("___fc_layer_0__.wbias")

    def run(self, x: Array, labels: Array) -> tuple[float, Array]:
        """Returns the mean cost and the gradient of x, and writes the gradients of the parameters."""
        cost, d_z = self.costs(x @ self._w, labels)
        np.matmul(x.T, d_z, out=self._d_w)
        return cost, d_z @ self._w.T

    def costs(self, z: Array, labels: Array) -> tuple[float, Array]:
        """Returns the mean cost and the gradient of z, the weighted sums without the bias; z is overwritten."""
        z += self._b
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        everyone = np.arange(len(z))
        cost = -float(np.log(z[everyone, labels]).mean())
        z[everyone, labels] -= 1
        z.sum(axis=0, out=self._d_b)
        return cost, z
