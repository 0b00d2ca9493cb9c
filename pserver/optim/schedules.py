"""Learning-rate schedules: the rate of a step depends on the number of processed samples and passes.

Source: LearningRateScheduler.cpp of v0.10.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from pserver.optim.settings import Optimization

SCHEDULES = ("caffe_poly", "constant", "discexp", "exp", "linear", "manual", "pass_manual", "poly")


def check_schedule(optimization: Optimization) -> None:
    """Check that the schedule exists and that its arguments are valid.

    Raises: ConfigError: the message describes the problem and what to do.
    """
    name = optimization.learning_rate_schedule
    if name not in SCHEDULES:
        raise ConfigError(f"learning_rate_schedule '{name}' is not known; known: {', '.join(SCHEDULES)}")
    if name in ("manual", "pass_manual"):
        parse_manual_rates(optimization.learning_rate_args)
    if name in ("exp", "discexp") and optimization.learning_rate_decay_b == 0:
        raise ConfigError(
            f"learning_rate_schedule '{name}' divides by learning_rate_decay_b, which is 0; "
            "set it to a number of samples"
        )
    if name == "caffe_poly" and optimization.learning_rate_decay_a == 0:
        raise ConfigError(
            "learning_rate_schedule 'caffe_poly' divides by learning_rate_decay_a, which is 0; "
            "set it to a number of samples"
        )


def is_constant(optimization: Optimization) -> bool:
    """Return whether the schedule keeps the rate constant; `poly` without arguments is the default of settings()."""
    return optimization.learning_rate_schedule == "constant" or (
        optimization.learning_rate_schedule == "poly"
        and 0 in (optimization.learning_rate_decay_a, optimization.learning_rate_decay_b)
    )


def parse_manual_rates(text: str) -> list[tuple[float, float]]:
    """Return the pairs (last position, factor) of `learning_rate_args='n1:r1,n2:r2'`.

    Raises: ConfigError: the text is not a list of pairs with ascending positions.
    """
    try:
        pairs = [(float(position), float(factor)) for position, factor in (part.split(":") for part in text.split(","))]
    except ValueError:
        raise ConfigError(f"learning_rate_args is '{text}'; a manual schedule needs 'n1:r1,n2:r2,...'") from None
    if any(left[0] > right[0] for left, right in itertools.pairwise(pairs)):
        raise ConfigError(f"learning_rate_args is '{text}'; the positions n1, n2, ... must not decrease")
    return pairs


def scheduled_rate(optimization: Optimization, samples: int, passes: int) -> float:
    """Return the rate of the next step as float32, without the parameter's own multiplier.

    Args: samples: processed samples of all trainers, including this batch.  passes: completed passes.
    Raises: ConfigError: the result is not a number, or too large for float32.
    """
    # as the C++ source: the settings and their products with `samples` are float32, and pow() is double
    rate = float(np.float32(optimization.learning_rate))
    a32, b32 = np.float32(optimization.learning_rate_decay_a), np.float32(optimization.learning_rate_decay_b)
    a, b = float(a32), float(b32)
    match optimization.learning_rate_schedule:
        case "poly":
            rate *= _power(1.0 + float(a32 * np.float32(samples)), -b)
        case "caffe_poly":
            rate = rate * _power(1.0 - samples / a, b) if samples <= a else 0.0
        case "exp":
            rate *= _power(a, samples / b)
        case "discexp":
            rate *= _power(a, math.floor(samples / b))
        case "linear":
            rate = max(rate - float(a32 * np.float32(samples)), b)
        case "manual" | "pass_manual":
            pairs = parse_manual_rates(optimization.learning_rate_args)
            position = samples if optimization.learning_rate_schedule == "manual" else passes
            rate *= float(np.float32(pairs[_find_segment(pairs, position)][1]))
    if not abs(rate) <= np.finfo(np.float32).max:
        raise ConfigError(
            f"learning_rate_schedule '{optimization.learning_rate_schedule}' gives the rate {rate:g} after {samples} "
            f"samples, with learning_rate_decay_a = {a:g} and learning_rate_decay_b = {b:g}; change one of the two"
        )
    return float(np.float32(rate))


def _power(base: float, exponent: float) -> float:
    """Return the power with C's rules for infinity and NaN."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _find_segment(pairs: Sequence[tuple[float, float]], position: int) -> int:
    return next((number for number, (last, _) in enumerate(pairs) if position <= last), len(pairs) - 1)


class Schedule:
    """Compute the rate of each step. Log each change by a manual schedule, and the end of caffe_poly."""

    def __init__(self, optimization: Optimization) -> None:
        self._optimization = optimization
        self._constant: float | None = None  # the rate of every step, computed at the first step
        name = optimization.learning_rate_schedule
        self._is_manual = name in ("manual", "pass_manual")
        self._pairs = parse_manual_rates(optimization.learning_rate_args) if self._is_manual else []
        self._segment = 0
        self._warned_of_zero = False

    @property
    def reported(self) -> tuple[int, bool]:
        """The last logged segment of a manual schedule, and whether the end of caffe_poly was logged."""
        return self._segment, self._warned_of_zero

    @reported.setter
    def reported(self, reported: tuple[int, bool]) -> None:
        self._segment, self._warned_of_zero = reported

    def rate(self, samples: int, passes: int) -> float:
        """Return `scheduled_rate`; the arguments must not decrease from call to call."""
        if self._constant is not None:
            return self._constant
        rate = scheduled_rate(self._optimization, samples, passes)
        if is_constant(self._optimization):
            self._constant = rate
        if self._is_manual:
            self._report_segment(passes if self._optimization.learning_rate_schedule == "pass_manual" else samples)
        elif rate == 0 and self._optimization.learning_rate_schedule == "caffe_poly" and not self._warned_of_zero:
            self._warned_of_zero = True
            glog.warning(
                f"the learning rate is 0 from now on: caffe_poly ends at learning_rate_decay_a = "
                f"{self._optimization.learning_rate_decay_a:g} samples, {samples} are processed"
            )
        return rate

    def _report_segment(self, position: int) -> None:
        segment = _find_segment(self._pairs, position)
        while self._segment < segment:
            self._segment += 1
            factor = np.float32(self._pairs[self._segment][1])
            glog.info(f" learning_rate changes to {np.float32(self._optimization.learning_rate) * factor:g}")
