"""Decide which gradients of late trainers are discarded in asynchronous training, by the age of their values (pure).

The age of a gradient is the number of gradients that came since its trainer's last one, with itself: that many steps
may have changed the values that it was computed from.

Source: ParameterServer2.cpp of v0.10 (asyncGradientCommitCheckAndStat).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_THRESHOLD = 2  # v0.10 took 1 for a single trainer, by which it discarded every gradient


@dataclass(frozen=True)
class StalenessLimits:
    """The flags --async_lagged_ratio_min and --async_lagged_ratio_default, both times the number of trainers.

    A discard ratio of the config that is not above `least` becomes `default`.
    """

    least: float = 1.0
    default: float = 1.5

    def threshold(self, trainers: int, ratio: float) -> int:
        """Return the age from which on a gradient is discarded."""
        return max(int(trainers * self.choose(ratio)), LEAST_THRESHOLD)

    def choose(self, ratio: float) -> float:
        """Return the ratio that counts."""
        return ratio if ratio > self.least else self.default


class Staleness:
    """Counts the gradients of all trainers and says which are too old.

    Attributes: gradients, discarded: their number by trainer, since the start.  age: the sum of all ages.

    Args: trainers: their number.  threshold: the age from which on a gradient is discarded.
    """

    def __init__(self, trainers: int, threshold: int) -> None:
        self.threshold = threshold
        self._marks = [0] * trainers
        self.gradients, self.discarded = [0] * trainers, [0] * trainers
        self.age = 0
        self.reset()

    def reset(self) -> None:
        """Forget all counts, as v0.10 did whenever it had shown them: the next gradients are young again."""
        self._steps = 0
        self._marks = [0] * len(self._marks)
        self._ages: dict[int, int] = {}
        self._kept = [0] * len(self._marks)
        self._discarded = [0] * len(self._marks)

    def is_kept(self, trainer: int) -> bool:
        """Count a gradient of a trainer and return whether it is young enough. Discarded ones age the others, too."""
        self._steps += 1
        age = self._steps - self._marks[trainer]
        self._marks[trainer] = self._steps
        self._ages[age] = self._ages.get(age, 0) + 1
        is_kept = age < self.threshold
        self.age += age
        self.gradients[trainer] += 1
        self.discarded[trainer] += not is_kept
        (self._kept if is_kept else self._discarded)[trainer] += 1
        return is_kept

    def describe(self) -> list[str]:
        """Return lines: what was discarded, how often each age was seen, and by trainer; none if nothing came."""
        if not self._steps:
            return []
        discarded = sum(self._discarded)
        return [
            f"async discard gradients stat: total updates: {self._steps} discard updates: {discarded} "
            f"discard ratio: {discarded / self._steps:g}",
            "Async Gradient Update Steps distribution: "
            + " ".join(f"{age}:{count}({count / self._steps:g})" for age, count in sorted(self._ages.items())),
            "Async Gradient Discard based on trainer_id: "
            + " ".join(_share(number, *counts) for number, counts in enumerate(self._counts())),
        ]

    def _counts(self) -> Sequence[tuple[int, int]]:
        return list(zip(self._kept, self._discarded, strict=True))


def _share(trainer: int, kept: int, discarded: int) -> str:
    total = kept + discarded
    return f"{trainer}:{discarded}({discarded / total if total else 0:g})"
