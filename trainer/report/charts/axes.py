"""The axes of a chart. An axis has a range of values, and ticks with places and texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOG_FROM = 50.0  # minimum ratio of the highest value to the lowest value on a logarithmic axis


@dataclass(frozen=True)
class Axis:
    """An axis, which maps a range of values to places from 0 to 1. A tick is a pair (place, text)."""

    low: float
    high: float
    is_log: bool
    ticks: list[tuple[float, str]]

    def place(self, value: float) -> float:
        """Return the place of a value between the ends of the axis."""
        if self.is_log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low)


def value_axis(values: Sequence[float]) -> Axis:
    """Return an axis for costs or measures. A wide range has a logarithmic axis; a linear axis may begin at 0."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= LOG_FROM and high / low < math.inf:
        return _log_axis(low, high)
    if 0 <= low < 0.6 * high:
        low = 0.0
    return _linear_axis(low, high, wanted=4, is_wide=True)


def count_axis(values: Sequence[float]) -> Axis:
    """Return an axis for numbers of completed passes, with ticks at whole numbers."""
    low, high = math.floor(min(values)), math.ceil(max(values))
    high = max(high, low + 1)
    step = max(round(_nice_step((high - low) / 6)), 1)
    first = -(-low // step) * step
    ticks = range(first, high + 1, step)
    return Axis(low, high, False, [((tick - low) / (high - low), f"{tick:g}") for tick in ticks])


def time_axis(values: Sequence[float]) -> Axis:
    """Return an axis for the seconds since the job began. The texts of all ticks have the same unit of time."""
    high = max(*values, 1.0)
    steps = (*(scale * step for scale in (1, 60) for step in (1, 2, 5, 10, 15, 30)), 3600, 7200, 10800, 21600, 43200)
    step = next((one for one in steps if high / one <= 6), None)
    if step is None:
        step = max(round(_nice_step(high / 86400 / 6)), 1) * 86400
    unit, name = next(
        (one, text) for one, text in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if step % one == 0
    )
    ticks = [index * step for index in range(int(high // step) + 1)]
    return Axis(0.0, high, False, [(tick / high, f"{tick // unit:g} {name}" if tick else "0") for tick in ticks])


def _linear_axis(low: float, high: float, wanted: int, is_wide: bool) -> Axis:
    if not high - low > 1e-9 * max(abs(low), abs(high)):  # all values are equal
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    step = _nice_step((high - low) / wanted)
    if not 0 < step < math.inf:  # the numbers are close to the largest float
        return Axis(low, high, False, [(0.0, f"{low:g}"), (1.0, f"{high:g}")])
    if is_wide:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    ticks = [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, False, [((tick - low) / (high - low), _spell(tick, step)) for tick in ticks])


def _log_axis(low: float, high: float) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(last - first) // 5))
    bottom, top = 10.0 ** max(first, -300), 10.0 ** min(last, 300)
    bottom, top = max(bottom, low / 1.5), min(top, high * 1.5)
    axis: Callable[[float], float] = Axis(bottom, top, True, []).place
    ticks = [10.0**power for power in range(first, last + 1, every) if bottom <= 10.0**power <= top]
    if len(ticks) < 3:
        ticks = sorted(
            {*ticks, *(m * 10.0**p for p in range(first, last + 1) for m in (2, 5) if bottom <= m * 10.0**p <= top)}
        )
    return Axis(bottom, top, True, [(axis(tick), f"{tick:g}") for tick in ticks])


def _nice_step(rough: float) -> float:
    """Return the smallest number that is at least `rough`, and that is 1, 2 or 5 times a power of ten."""
    if not 0 < rough < math.inf:
        return rough
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


def _spell(tick: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(tick) < step / 2:
        return "0"
    return f"{tick:.{digits}f}" if abs(tick) < 1e5 and digits < 6 else f"{tick:.6g}"
