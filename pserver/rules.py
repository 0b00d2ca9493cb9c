"""The update rules and learning-rate schedules, in float32 and in place (pure numpy).

A gradient is the sum over the samples of the batch, never a mean. Rounding follows the legacy: rates and decay
constants are float32, powers are formed in double and rounded once (spec of the legacy: FirstOrderOptimizer.cpp,
TrainingAlgorithmOp.cu, LearningRateScheduler.cpp of v0.10).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pserver.errors import ConfigError

Array = NDArray[np.float32]

METHODS = ("adam", "momentum")
SCHEDULES = ("caffe_poly", "constant", "discexp", "exp", "linear", "manual", "pass_manual", "poly")


@dataclass(frozen=True)
class Optimization:
    """The settings that all parameters share; field names are those of the OptimizationConfig message."""

    learning_method: str = "momentum"
    learning_rate: float = 1.0
    learning_rate_schedule: str = "constant"
    learning_rate_decay_a: float = 0.0
    learning_rate_decay_b: float = 0.0
    learning_rate_args: str = ""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8


@dataclass(frozen=True)
class ParameterSpec:
    """What a server must know of one parameter; field names are those of the ParameterConfig message."""

    name: str
    size: int
    learning_rate: float = 1.0
    momentum: float = 0.0
    decay_rate: float = 0.0
    gradient_clipping_threshold: float = 0.0
    is_static: bool = False


# ----- Checks -----


def check_supported(optimization: Optimization) -> None:
    """Return if the method and the schedule exist here.

    Raises: ConfigError: naming what is not supported and what is.
    """
    if optimization.learning_method not in METHODS:
        raise ConfigError(
            f"learning_method '{optimization.learning_method}' is not supported yet; supported: {', '.join(METHODS)}"
        )
    if optimization.learning_rate_schedule not in SCHEDULES:
        raise ConfigError(
            f"learning_rate_schedule '{optimization.learning_rate_schedule}' is not known; "
            f"known: {', '.join(SCHEDULES)}"
        )
    if optimization.learning_rate_schedule in ("manual", "pass_manual"):
        parse_manual_rates(optimization.learning_rate_args)
    if optimization.learning_rate_schedule in ("exp", "discexp") and optimization.learning_rate_decay_b == 0:
        raise ConfigError(
            f"learning_rate_schedule '{optimization.learning_rate_schedule}' divides by "
            "learning_rate_decay_b, which is 0; set it to a number of samples"
        )
    if optimization.learning_rate_schedule == "caffe_poly" and optimization.learning_rate_decay_a == 0:
        raise ConfigError(
            "learning_rate_schedule 'caffe_poly' divides by learning_rate_decay_a, which is 0; "
            "set it to a number of samples"
        )


def list_ignored(parameters: Sequence[ParameterSpec], optimization: Optimization) -> list[str]:
    """Return one sentence for each setting that the legacy, and so this program, silently does not use."""
    if optimization.learning_method != "adam":
        return []
    found = []
    constant = optimization.learning_rate_schedule == "constant" or (
        optimization.learning_rate_schedule == "poly"
        and 0 in (optimization.learning_rate_decay_a, optimization.learning_rate_decay_b)
    )
    if not constant:
        found.append(f"adam does not use learning_rate_schedule '{optimization.learning_rate_schedule}'")
    trained = [p for p in parameters if not p.is_static]
    if any(p.momentum for p in trained):
        found.append("adam does not use the momentum of parameters")
    if any(p.decay_rate for p in trained):
        found.append("adam does not use L2 regularization (decay_rate)")
    return found


# ----- Learning rates -----


def parse_manual_rates(text: str) -> list[tuple[float, float]]:
    """Return the pairs (last position, factor) of `learning_rate_args='n1:r1,n2:r2'`.

    Raises: ConfigError: if the text is not such a list with rising positions.
    """
    try:
        pairs = [(float(position), float(factor)) for position, factor in (part.split(":") for part in text.split(","))]
    except ValueError:
        raise ConfigError(f"learning_rate_args is '{text}'; a manual schedule needs 'n1:r1,n2:r2,...'") from None
    if any(left[0] > right[0] for left, right in itertools.pairwise(pairs)):
        raise ConfigError(f"learning_rate_args is '{text}'; its positions must not fall")
    return pairs


def _manual(pairs: Sequence[tuple[float, float]], position: int) -> float:
    return next((factor for last, factor in pairs if position <= last), pairs[-1][1])


def scheduled_rate(optimization: Optimization, samples: int, passes: int) -> float:
    """Return the rate of the next step before the parameter's own multiplier, a float32 value.

    Args: samples: samples processed so far including this batch (of all trainers).  passes: passes finished.
    """
    rate = float(np.float32(optimization.learning_rate))
    a32, b32 = np.float32(optimization.learning_rate_decay_a), np.float32(optimization.learning_rate_decay_b)
    a, b = float(a32), float(b32)
    match optimization.learning_rate_schedule:
        case "poly":
            rate *= math.pow(1.0 + float(a32 * np.float32(samples)), -b)
        case "caffe_poly":
            rate = rate * math.pow(1.0 - samples / a, b) if samples <= a else 0.0
        case "exp":
            rate *= math.pow(a, samples / b)
        case "discexp":
            rate *= math.pow(a, math.floor(samples / b))
        case "linear":
            rate = max(rate - float(a32 * np.float32(samples)), b)
        case "manual":
            rate *= _manual(parse_manual_rates(optimization.learning_rate_args), samples)
        case "pass_manual":
            rate *= _manual(parse_manual_rates(optimization.learning_rate_args), passes)
    return float(np.float32(rate))


def adam_rate(rate: float, optimization: Optimization, step: int) -> np.float32:
    """Return adam's step size with both bias corrections; `step` is 1 for the first batch.

    The powers are double and rounded before they are subtracted; the rest is float32: with everything in double
    the step differs by 1e-5 of itself.
    """
    one = np.float32(1)
    power1 = np.float32(math.pow(np.float32(optimization.adam_beta1), step))
    power2 = np.float32(math.pow(np.float32(optimization.adam_beta2), step))
    return np.float32(np.float32(rate) * np.sqrt(one - power2) / (one - power1))


# ----- Rules: every array has the same shape; `scratch` is overwritten -----


def momentum(
    w: Array, g: Array, m: Array, scratch: Array, *, rate: np.float32, mu: np.float32, decay: np.float32
) -> None:
    """Take one step of SGD with momentum in place: m = mu*m - rate*(g + decay*w); w = w + m.

    The rate is inside the velocity m, so a new rate does not scale old velocity. L2 uses w before the step.
    """
    if decay:
        np.multiply(w, decay, out=scratch)
        scratch += g
        scratch *= rate
    else:
        np.multiply(g, rate, out=scratch)
    m *= mu
    m -= scratch
    w += m


def sgd(w: Array, g: Array, scratch: Array, *, rate: np.float32, decay: np.float32) -> None:
    """Take one step of plain SGD in place: momentum with mu = 0, whose velocity need not be kept."""
    if decay:
        np.multiply(w, decay, out=scratch)
        scratch += g
        scratch *= rate
    else:
        np.multiply(g, rate, out=scratch)
    w -= scratch


def adam(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    beta1: np.float32,
    beta2: np.float32,
    epsilon: np.float32,
) -> None:
    """Take one step of Adam in place; `rate` comes from `adam_rate`, epsilon is added after the root."""
    one = np.float32(1)
    np.multiply(g, one - beta1, out=scratch)
    m *= beta1
    m += scratch
    np.multiply(g, g, out=scratch)
    scratch *= one - beta2
    v *= beta2
    v += scratch
    np.sqrt(v, out=scratch)
    scratch += epsilon
    np.multiply(m, rate, out=scratch2)
    scratch2 /= scratch
    w -= scratch2
