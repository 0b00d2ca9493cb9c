"""Weight decay (L1 and L2) that is separate from the step.

The decay is applied after every step, after every k batches, or when a batch uses a row.

Source: Regularizer.cpp and OptimizerWithRegularizer.cpp of v0.10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddle_base.runtime.errors import ConfigError
from pserver.optim.settings import Array, ParameterSpec, Steps


@dataclass(frozen=True)
class Decay:
    """How a parameter's values decay towards zero.

    `l1` and `l2` are rates for one step. `period` is the number of batches between two applications. `by_row` says
    whether a row decays only when a batch uses it; it then decays for all steps since its last step.
    """

    l1: float = 0.0
    l2: float = 0.0
    period: int = 1
    by_row: bool = False


def separate_decay(parameter: ParameterSpec, *, always: bool = False) -> Decay | None:
    """Return the decay that is applied separately from the step; None without decay, or if L2 is part of the step.

    Args: always: whether L2 is always separate from the step.
    Raises: ConfigError: the parameter also has momentum.
    """
    l1, l2, period = parameter.decay_rate_l1, parameter.decay_rate, parameter.num_batches_regularization
    if not (l1 or l2) or not (always or l1 or period > 1 or parameter.sparse_update):
        return None
    if parameter.momentum:
        if l1:
            kind, remedy = "L1", "l1_rate=0"
        elif period > 1:
            kind, remedy = "num_batches_regularization over 1", "num_batches_regularization=1"
        else:
            kind, remedy = "L2 with sparse_update", "l2_rate=0 or sparse_update=False"
        raise ConfigError(
            f"parameter {parameter.name} has momentum {parameter.momentum:g} and {kind}, which do not go together; "
            f"set momentum=0 or {remedy} for it"
        )
    return Decay(l1, l2, max(period, 1), parameter.sparse_update and period <= 1)


def pull(
    w: Array, rates: Array | None, scratch: Array, decay: Decay, *, rate: np.float32, batches: Steps | int
) -> None:
    """Decay values in place: L1 w = sign(w)*max(|w| - rate*l1*batches, 0), then L2 w = w/(1 + rate*l2*batches).

    Args: rates: the elements' own rates, which multiply `rate`, or None.  batches: number of batches to decay for, or
        for rows, a column with the number of each row.
    """
    batches64 = np.asarray(batches, np.float64)
    if decay.l1:
        threshold = np.float32(rate) * (decay.l1 * batches64).astype(np.float32)
        np.multiply(rates if rates is not None else np.float32(1), threshold, out=scratch)
        np.minimum(scratch, np.abs(w), out=scratch)
        np.copysign(scratch, w, out=scratch)
        w -= scratch
    if decay.l2:
        strength = np.float32(rate) * (decay.l2 * batches64).astype(np.float32)
        np.multiply(rates if rates is not None else np.float32(1), strength, out=scratch)
        scratch += np.float32(1)
        w /= scratch
