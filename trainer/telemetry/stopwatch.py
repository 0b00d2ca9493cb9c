"""Measure the durations of calls and blocks of code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Stopwatch:
    """Measure named blocks of code. For each name, `times` has a list of durations in milliseconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.times: dict[str, list[float]] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure the `with` block, and add its duration to those of `name`."""
        start = self._clock()
        yield
        self.times.setdefault(name, []).append((self._clock() - start) * 1e3)

    def mean(self, name: str, count: int) -> float:
        """Return the sum of the milliseconds of a name, divided by `count`; 0 for a name without durations."""
        return sum(self.times.get(name, ())) / count

    def table(self) -> list[str]:
        """Return the lines of a table with the durations of all names."""
        lines = ["======= StatSet: [GlobalStatInfo] status ======"]
        for name, times in self.times.items():
            numbers = {
                "total": sum(times),
                "avg": sum(times) / len(times),
                "max": max(times),
                "min": min(times),
                "count": len(times),
            }
            columns = " ".join(f"{key}={f'{number:g}':<10}" for key, number in numbers.items())
            lines.append(f"Stat={name:<30} {columns}")
        return [*lines, "-" * 50]


class Measured:
    """A proxy for an object. It measures the calls of some methods of the object.

    Args: names: method -> the name under which the stopwatch counts its calls.
    """

    def __init__(self, target: object, clock: Stopwatch, names: Mapping[str, str]) -> None:
        self._target = target
        for method, name in names.items():
            setattr(self, method, clock.measure(name)(getattr(target, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
