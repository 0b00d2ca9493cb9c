"""Decide which gradients of late trainers are discarded in asynchronous training, by the age of their values (pure).

The age of a gradient is the number of gradients that came since its trainer's last one, with itself: that many steps
may have changed the values that it was computed from.

Source: ParameterServer2.cpp of v0.10 (asyncGradientCommitCheckAndStat).
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_KNOWN = 1 << 16  # trainers; beyond that those are forgotten that are gone
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
        self._marks = dict.fromkeys(range(trainers), 0)
        self.gradients, self.discarded = dict(self._marks), dict(self._marks)
        self.age = 0
        self.reset()

    def reset(self) -> None:
        """Forget all counts, as v0.10 did whenever it had shown them: the next gradients are young again."""
        self._steps = 0
        self._marks = dict.fromkeys(self._marks, 0)
        self._ages: dict[int, int] = {}
        self._kept, self._discarded = dict(self._marks), dict(self._marks)

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
        discarded = sum(self._discarded.values())
        return [
            f"async discard gradients stat: total updates: {self._steps} discard updates: {discarded} "
            f"discard ratio: {discarded / self._steps:g}",
            "Async Gradient Update Steps distribution: "
            + " ".join(f"{age}:{count}({count / self._steps:g})" for age, count in sorted(self._ages.items())),
            "Async Gradient Discard based on trainer_id: "
            + " ".join(_share(number, kept, self._discarded[number]) for number, kept in sorted(self._kept.items())),
        ]


class ElasticStaleness(Staleness):
    """The same for trainers that come and go: the threshold follows their number.

    A trainer that goes counts as one that is there until as many steps have passed as the threshold was. Before that
    its steps are still in the ages of the others' gradients, which would be discarded for them. One that comes back has
    the mark that it had, since its gradient is as old as it is.

    Args: limits, ratio: as of `StalenessLimits.threshold`.
    """

    def __init__(self, limits: StalenessLimits, ratio: float) -> None:
        self._limits, self._ratio = limits, ratio
        self._present: set[int] = set()
        self._gone: dict[int, int] = {}  # by trainer that went lately: the step until which it counts
        super().__init__(0, limits.threshold(0, ratio))

    def reset(self) -> None:
        """Forget all counts: the next gradients are young again."""
        super().reset()
        self._kept, self._discarded = dict.fromkeys(self._present, 0), dict.fromkeys(self._present, 0)
        self._gone.clear()
        self._follow()

    def admit(self, trainer: int) -> None:
        """Count a trainer as one of those that are there; a new one's gradient is as old as if it had pushed now."""
        self._present.add(trainer)
        self._gone.pop(trainer, None)
        self._marks.setdefault(trainer, self._steps)
        for counts in (self.gradients, self.discarded, self._kept, self._discarded):
            counts.setdefault(trainer, 0)
        self._follow()

    def dismiss(self, trainer: int) -> None:
        """Count a trainer no longer as one of those that are there. What it has pushed stays in the counts."""
        self._present.discard(trainer)
        self._gone[trainer] = self._steps + self.threshold
        if len(self._marks) > MAX_KNOWN:
            for counts in (self._marks, self.gradients, self.discarded):
                for one in counts.keys() - self._present:
                    del counts[one]

    def is_kept(self, trainer: int) -> bool:
        """Count a gradient and return whether it is young enough, as `Staleness.is_kept`."""
        if self._gone:
            self._gone = {one: last for one, last in self._gone.items() if last > self._steps}
            self._follow()
        return super().is_kept(trainer)

    def _follow(self) -> None:
        self.threshold = self._limits.threshold(len(self._present) + len(self._gone), self._ratio)


def make_staleness(trainers: int, limits: StalenessLimits, ratio: float) -> Staleness:
    """Return what counts the gradients.

    Args: trainers: their number; 0: they come and go, and the result is an `ElasticStaleness`.
        ratio: async_lagged_grad_discard_ratio of the config.
    """
    if not trainers:
        return ElasticStaleness(limits, ratio)
    return Staleness(trainers, limits.threshold(trainers, ratio))


def _share(trainer: int, kept: int, discarded: int) -> str:
    total = kept + discarded
    return f"{trainer}:{discarded}({discarded / total if total else 0:g})"
