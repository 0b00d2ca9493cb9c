"""The activations of the config language: y from z, and the gradient of z from that of y. Pure.

Each takes whole matrices of any floating-point type. `z` is what the layer summed up, `y` the activation's result.

Source: spec/config.md 8; gserver/activations/ActivationFunction.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pserver.errors import ConfigError
from trainer.arguments import Array

BRELU_CEILING = 24.0
STANH_SCALE, STANH_SLOPE = 1.7159, 2.0 / 3.0


@dataclass(frozen=True)
class Activation:
    """forward(z) gives y; backward(g, y, z) gives the gradient of z, where g is that of y."""

    forward: Callable[[Array], Array]
    backward: Callable[[Array, Array, Array], Array]


def _softmax(z: Array) -> Array:
    y: Array = np.exp(z - z.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    return y


def _softmax_backward(g: Array, y: Array, z: Array) -> Array:
    gradient: Array = (g - (g * y).sum(axis=1, keepdims=True)) * y
    return gradient


def _sigmoid(z: Array) -> Array:
    e = np.exp(-np.abs(z))  # never overflows
    y: Array = np.where(z >= 0, 1, e) / (1 + e)
    return y


def _clip(z: Array) -> Array:
    y: Array = np.clip(z, 0, BRELU_CEILING)
    return y


def _softrelu(z: Array) -> Array:
    y: Array = np.logaddexp(z, np.zeros((), z.dtype))
    return y


def _stanh(z: Array) -> Array:
    y: Array = STANH_SCALE * np.tanh(STANH_SLOPE * z)
    return y


ACTIVATIONS: dict[str, Activation] = {
    "": Activation(lambda z: z, lambda g, y, z: g),
    "abs": Activation(np.abs, lambda g, y, z: g * np.sign(z)),
    "brelu": Activation(_clip, lambda g, y, z: g * ((z > 0) & (z < BRELU_CEILING))),
    "exponential": Activation(np.exp, lambda g, y, z: g * y),
    "log": Activation(np.log, lambda g, y, z: g / z),
    "reciprocal": Activation(np.reciprocal, lambda g, y, z: -g * y * y),
    "relu": Activation(lambda z: np.maximum(z, 0), lambda g, y, z: g * (z > 0)),
    "sigmoid": Activation(_sigmoid, lambda g, y, z: g * y * (1 - y)),
    "softmax": Activation(_softmax, _softmax_backward),
    "softrelu": Activation(_softrelu, lambda g, y, z: g * -np.expm1(-y)),
    "softsign": Activation(lambda z: z / (1 + np.abs(z)), lambda g, y, z: g / np.square(1 + np.abs(z))),
    "sqrt": Activation(np.sqrt, lambda g, y, z: g * 0.5 / y),
    "square": Activation(np.square, lambda g, y, z: g * 2 * z),
    "stanh": Activation(_stanh, lambda g, y, z: g * STANH_SLOPE * (STANH_SCALE - y * y / STANH_SCALE)),
    "tanh": Activation(np.tanh, lambda g, y, z: g * (1 - y * y)),
}


def find_activation(name: str, layer: str) -> Activation:
    """Return the activation of a layer by its `active_type`; "linear" is an old spelling of "".

    Raises: ConfigError: naming the activation that is not supported yet, and those that are.
    """
    found = ACTIVATIONS.get("" if name == "linear" else name)
    if found is None:
        supported = ", ".join(repr(known) for known in ACTIVATIONS)
        raise ConfigError(f"layer {layer}: activation '{name}' is not supported yet; supported are {supported}")
    return found
