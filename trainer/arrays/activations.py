"""The activation functions of the config language, and their derivatives.

`z` is the weighted sum of a layer, and `y` is the result of the activation. Each activation computes y from z, and the
gradient of z from the gradient of y. The matrices may have any floating-point type.

Source: spec/config.md 8; gserver/activations/ActivationFunction.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paddle_base.kernels.steps import (
    activate,
    differentiate,
    differentiate_picked_softmax,
    differentiate_sequence_softmax,
    differentiate_softmax,
    sequence_softmax,
    softmax,
)
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Array, Ids, PickedGradient

BRELU_CEILING = 24.0
STANH_SCALE, STANH_SLOPE = 1.7159, 2.0 / 3.0
SIGMOID_FLOOR, SIGMOID_CEILING = -40.0, 13.0  # limits of z; within these limits, y and 1 - y are above 0
SOFTMAX_FLOOR = -64.0  # lower limit of z minus the maximum of its row, so that no probability becomes 0
SOFTRELU_LIMIT = 40.0  # limit of abs(z)


class Activation(Protocol):
    """An activation. forward(z) returns y, and backward(g, y, z) returns the gradient of z from the gradient g of y.

    `starts` has the first row of each sequence, and then the number of rows. It is None if the rows belong to no
    sequences.

    Attributes: backward_picked: a faster `backward` for a g with at most one non-zero number in each row; None if the
        activation has no such function.
    """

    @property
    def backward_picked(self) -> Callable[[PickedGradient, Array], Array] | None:
        """The faster function, or None."""

    def forward(self, z: Array, starts: Ids | None = None) -> Array:
        """Return y; the returned array may be the array z."""

    def backward(self, g: Array, y: Array, z: Array, starts: Ids | None = None) -> Array:
        """Return the gradient of z; the returned array may be the array g."""


@dataclass(frozen=True)
class RowActivation:
    """An activation that processes every row independently."""

    of_row: Callable[[Array], Array]
    gradient: Callable[[Array, Array, Array], Array]
    backward_picked: Callable[[PickedGradient, Array], Array] | None = None

    def forward(self, z: Array, starts: Ids | None = None) -> Array:
        """Return y."""
        return self.of_row(z)

    def backward(self, g: Array, y: Array, z: Array, starts: Ids | None = None) -> Array:
        """Return the gradient of z."""
        return self.gradient(g, y, z)


class SequenceSoftmax:
    """Softmax over the frames of each sequence; a frame is one number. Shapes: z: (frames, 1)."""

    backward_picked = None

    def forward(self, z: Array, starts: Ids | None = None) -> Array:
        """Return y, whose sum is 1 in every non-empty sequence."""
        y: Array = z.copy()
        if sequence_softmax(y, _require_starts(z, starts), SOFTMAX_FLOOR):
            return y
        firsts, lengths = _find_filled(z, starts)
        if len(z):
            y = _exponential_below(z, np.repeat(np.maximum.reduceat(z, firsts, axis=0), lengths, axis=0))
        y *= 1 / self._sums(y, firsts, lengths)
        return y

    def backward(self, g: Array, y: Array, z: Array, starts: Ids | None = None) -> Array:
        """Return the gradient of z."""
        gradient: Array = np.empty_like(y)
        if differentiate_sequence_softmax(gradient, g, y, _require_starts(z, starts)):
            return gradient
        firsts, lengths = _find_filled(z, starts)
        gradient = (g - self._sums(g * y, firsts, lengths)) * y
        return gradient

    @staticmethod
    def _sums(x: Array, firsts: Ids, lengths: Ids) -> Array:
        return np.repeat(np.add.reduceat(x, firsts, axis=0), lengths, axis=0) if len(x) else x


def _require_starts(z: Array, starts: Ids | None) -> Ids:
    if starts is None or z.shape[1] != 1:
        raise ConfigError("the sequence_softmax activation needs a layer of size 1 whose rows are sequences")
    return starts


def _find_filled(z: Array, starts: Ids | None) -> tuple[Ids, Ids]:
    """Return the first row and the length of every non-empty sequence."""
    starts = _require_starts(z, starts)
    lengths = np.diff(starts)
    return starts[:-1][lengths > 0], lengths[lengths > 0]


def _exponential_below(z: Array, largest: Array) -> Array:
    """Return e^(z - largest), but at least e^SOFTMAX_FLOOR."""
    y: Array = z - largest
    return _exponential(np.maximum(y, SOFTMAX_FLOOR, out=y))


def _exponential(z: Array) -> Array:
    """Return e^z, correctly rounded. The float32 result of numpy has an error of up to two units in the last place."""
    y: Array = np.exp(z, dtype=np.float64).astype(z.dtype)
    return y


def _softmax(z: Array) -> Array:
    return _softmax_in_place(z.copy())


def _softmax_in_place(z: Array) -> Array:
    if not softmax(z, SOFTMAX_FLOOR):
        y = _exponential_below(z, z.max(axis=1, keepdims=True))
        np.multiply(y, 1 / y.sum(axis=1, keepdims=True), out=z)
    return z


def _softmax_backward(g: Array, y: Array, z: Array) -> Array:
    gradient: Array = np.empty_like(y)
    if differentiate_softmax(gradient, g, y):
        return gradient
    gradient = (g - (g * y).sum(axis=1, keepdims=True)) * y
    return gradient


def _softmax_backward_picked(g: PickedGradient, y: Array) -> Array:
    gradient: Array = np.empty_like(y)
    if differentiate_picked_softmax(gradient, g.values, g.columns, y):
        return gradient
    rows = np.arange(len(y))
    picked = y[rows, g.columns]
    sums = g.values * picked
    np.multiply(y, -sums[:, None], out=gradient)
    gradient[rows, g.columns] = (g.values - sums) * picked
    return gradient


def _sigmoid(z: Array) -> Array:
    y: Array = np.clip(z, SIGMOID_FLOOR, SIGMOID_CEILING)
    if not activate("sigmoid", y):
        y = 1 / (1 + np.exp(-y))
    return y


def _sigmoid_backward(g: Array, y: Array, z: Array) -> Array:
    out = np.empty_like(y)
    return out if differentiate("sigmoid", out, g, y) else g * y * (1 - y)


def _tanh(z: Array) -> Array:
    return _tanh_in_place(z.copy())


def _tanh_in_place(z: Array) -> Array:
    if not activate("tanh", z):
        np.tanh(z, out=z)
    return z


def _tanh_backward(g: Array, y: Array, z: Array) -> Array:
    out = np.empty_like(y)
    return out if differentiate("tanh", out, g, y) else g * (1 - y * y)


def _relu_backward(g: Array, y: Array, z: Array) -> Array:
    out = np.empty_like(y)
    return out if differentiate("relu", out, g, y) else g * (y > 0)


def _clip(z: Array) -> Array:
    y: Array = np.clip(z, 0, BRELU_CEILING)
    return y


def _softrelu(z: Array) -> Array:
    y: Array = np.logaddexp(np.clip(z, -SOFTRELU_LIMIT, SOFTRELU_LIMIT), np.zeros((), z.dtype))
    return y


def _stanh(z: Array) -> Array:
    y: Array = STANH_SCALE * np.tanh(STANH_SLOPE * z)
    return y


ACTIVATIONS: dict[str, Activation] = {
    "": RowActivation(lambda z: z, lambda g, y, z: g),
    "abs": RowActivation(np.abs, lambda g, y, z: g * np.sign(z)),
    "brelu": RowActivation(_clip, lambda g, y, z: g * ((z > 0) & (z < BRELU_CEILING))),
    "exponential": RowActivation(_exponential, lambda g, y, z: g * y),
    "log": RowActivation(np.log, lambda g, y, z: g / z),
    "reciprocal": RowActivation(np.reciprocal, lambda g, y, z: -g * y * y),
    "relu": RowActivation(lambda z: np.maximum(z, 0), _relu_backward),
    "sigmoid": RowActivation(_sigmoid, _sigmoid_backward),
    "sequence_softmax": SequenceSoftmax(),
    "softmax": RowActivation(_softmax, _softmax_backward, _softmax_backward_picked),
    "softrelu": RowActivation(_softrelu, lambda g, y, z: g * -np.expm1(-y)),
    "softsign": RowActivation(lambda z: z / (1 + np.abs(z)), lambda g, y, z: g / np.square(1 + np.abs(z))),
    "sqrt": RowActivation(np.sqrt, lambda g, y, z: g * 0.5 / y),
    "square": RowActivation(np.square, lambda g, y, z: g * 2 * z),
    "stanh": RowActivation(_stanh, lambda g, y, z: g * STANH_SLOPE * (STANH_SCALE - y * y / STANH_SCALE)),
    "tanh": RowActivation(_tanh, _tanh_backward),
}

# these activations compute the gradient from y alone
OVERWRITING: dict[str, Activation] = {
    "relu": RowActivation(lambda z: np.maximum(z, 0, out=z), _relu_backward),
    "softmax": RowActivation(_softmax_in_place, _softmax_backward, _softmax_backward_picked),
    "tanh": RowActivation(_tanh_in_place, _tanh_backward),
}


def find_activation(name: str, layer: str, *, overwrites: bool = False) -> Activation:
    """Return the activation of a layer by its `active_type`; "linear" is an old name of "".

    Args: overwrites: whether y may overwrite the array of z. For large arrays overwriting is faster, because the
        processor's cache can hold only one of the two arrays.
    Raises: ConfigError: the activation is not supported; the text lists the supported activations.
    """
    if overwrites and name in OVERWRITING:
        return OVERWRITING[name]
    found = ACTIVATIONS.get("" if name == "linear" else name)
    if found is None:
        supported = ", ".join(repr(known) for known in ACTIVATIONS)
        raise ConfigError(f"layer {layer}: activation '{name}' is not supported yet; supported are {supported}")
    return found
