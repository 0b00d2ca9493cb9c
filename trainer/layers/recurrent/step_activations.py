"""The activations inside a recurrent step; they change arrays in place, and their derivatives need only the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paddle_base.kernels.steps import activate, differentiate
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.activations import BRELU_CEILING, STANH_SCALE, STANH_SLOPE
from trainer.arrays.arguments import Array


@dataclass(frozen=True)
class StepActivation:
    """An activation y of z. apply(z) replaces z by y; descend(g, y) replaces g, the gradient of y, by that of z."""

    apply: Callable[[Array], None]
    descend: Callable[[Array, Array], None]


def _leave(z: Array) -> None:
    pass


def _leave_gradient(g: Array, y: Array) -> None:
    pass


def _sigmoid(z: Array) -> None:
    if activate("sigmoid", z):
        return
    z *= 0.5  # (1 + tanh(z / 2)) / 2 never overflows, and tanh is as fast as exp
    np.tanh(z, out=z)
    z *= 0.5
    z += 0.5


def _sigmoid_descend(g: Array, y: Array) -> None:
    if not differentiate("sigmoid", g, g, y):
        g *= y
        g *= 1 - y


def _tanh(z: Array) -> None:
    if not activate("tanh", z):
        np.tanh(z, out=z)


def _tanh_descend(g: Array, y: Array) -> None:
    if not differentiate("tanh", g, g, y):
        g *= 1 - y * y


def _relu(z: Array) -> None:
    np.maximum(z, 0, out=z)


def _relu_descend(g: Array, y: Array) -> None:
    g *= y > 0


def _brelu(z: Array) -> None:
    np.clip(z, 0, BRELU_CEILING, out=z)


def _brelu_descend(g: Array, y: Array) -> None:
    g *= (y > 0) & (y < BRELU_CEILING)


def _stanh(z: Array) -> None:
    z *= STANH_SLOPE
    np.tanh(z, out=z)
    z *= STANH_SCALE


def _stanh_descend(g: Array, y: Array) -> None:
    g *= STANH_SLOPE * (STANH_SCALE - y * y / STANH_SCALE)


def _softsign(z: Array) -> None:
    z /= 1 + np.abs(z)


def _softsign_descend(g: Array, y: Array) -> None:
    g *= np.square(1 - np.abs(y))


STEP_ACTIVATIONS: dict[str, StepActivation] = {
    "": StepActivation(_leave, _leave_gradient),
    "brelu": StepActivation(_brelu, _brelu_descend),
    "relu": StepActivation(_relu, _relu_descend),
    "sigmoid": StepActivation(_sigmoid, _sigmoid_descend),
    "softsign": StepActivation(_softsign, _softsign_descend),
    "stanh": StepActivation(_stanh, _stanh_descend),
    "tanh": StepActivation(_tanh, _tanh_descend),
}


def find_step_activation(name: str, layer: object, what: str) -> StepActivation:
    """Return the activation of a gate, a state or a candidate; "linear" and "" both mean no activation.

    Raises: ConfigError: a step cannot use the activation; the message names the layer, the field and the possible
        activations.
    """
    found = STEP_ACTIVATIONS.get("" if name == "linear" else name)
    if found is None:
        supported = ", ".join(repr(known) for known in STEP_ACTIVATIONS)
        raise ConfigError(f"{layer}: {what} '{name}' cannot be used inside a recurrent step; use one of {supported}")
    return found
