"""Decide which gradients of slow trainers are discarded in asynchronous training, by their age.

The age of a gradient is the number of gradients that have arrived from all trainers since the previous gradient of the
same trainer; the gradient itself is included. The age limits how many steps have changed the values since the trainer
received the values from which it computed the gradient. The module does no input or output.

Source: ParameterServer2.cpp of v0.10 (asyncGradientCommitCheckAndStat).
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_KNOWN = 1 << 16  # maximum number of trainers with stored counts; above it, trainers that have left are deleted
LEAST_THRESHOLD = 2  # v0.10 used 1 for a single trainer, and therefore discarded every gradient


@dataclass(frozen=True)
class StalenessLimits:
    """The flags --async_lagged_ratio_min and --async_lagged_ratio_default, both as a multiple of the number of
    trainers.

    A discard ratio of the config that is not above `least` is replaced by `default`.
    """

    least: float = 1.0
    default: float = 1.5

    def threshold(self, trainers: int, ratio: float) -> int:
        """Return the smallest age at which a gradient is discarded."""
        return max(int(trainers * self.choose(ratio)), LEAST_THRESHOLD)

    def choose(self, ratio: float) -> float:
        """Return the effective ratio."""
        return ratio if ratio > self.least else self.default


class Staleness:
    """Count the gradients of all trainers, and decide which gradients are too old.

    Attributes: gradients, discarded: numbers of received and of discarded gradients by trainer, since the start. age:
    the sum of all ages.

    Args: trainers: number of trainers. threshold: the smallest age at which a gradient is discarded.
    """

    def __init__(self, trainers: int, threshold: int) -> None:
        self.threshold = threshold
        self._marks = dict.fromkeys(range(trainers), 0)
        self.gradients, self.discarded = dict(self._marks), dict(self._marks)
        self.age = 0
        self.reset()

    def reset(self) -> None:
        """Reset all counts, as v0.10 did after each log of the counts. Ages count from zero again."""
        self._steps = 0
        self._marks = dict.fromkeys(self._marks, 0)
        self._ages: dict[int, int] = {}
        self._kept, self._discarded = dict(self._marks), dict(self._marks)

    def is_kept(self, trainer: int) -> bool:
        """Count a gradient of a trainer and return whether it is kept.

        A discarded gradient also counts in the ages of other gradients.
        """
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
        """Return log lines: discarded gradients, frequency of each age, and counts by trainer; [] without gradients."""
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
    """`Staleness` for trainers that join and leave: the threshold depends on the number of present trainers.

    A trainer that has left still counts as present for as many steps as the threshold. The ages of other trainers'
    gradients still include the earlier steps of such a trainer, and a lower threshold would discard these gradients. A
    trainer that returns computes its next gradient from the values that it had when it left. The age of a returned
    trainer's next gradient therefore counts from the last gradient before the trainer left.

    Args: limits, ratio: see `StalenessLimits.threshold`.
    """

    def __init__(self, limits: StalenessLimits, ratio: float) -> None:
        self._limits, self._ratio = limits, ratio
        self._present: set[int] = set()
        self._gone: dict[int, int] = {}  # for each trainer that has left: the step until which it counts
        super().__init__(0, limits.threshold(0, ratio))

    def reset(self) -> None:
        """Reset all counts: ages count from zero again."""
        super().reset()
        self._kept, self._discarded = dict.fromkeys(self._present, 0), dict.fromkeys(self._present, 0)
        self._gone.clear()
        self._follow()

    def admit(self, trainer: int) -> None:
        """Count a trainer as present; the age of a new trainer's first gradient counts from this call."""
        self._present.add(trainer)
        self._gone.pop(trainer, None)
        self._marks.setdefault(trainer, self._steps)
        for counts in (self.gradients, self.discarded, self._kept, self._discarded):
            counts.setdefault(trainer, 0)
        self._follow()

    def dismiss(self, trainer: int) -> None:
        """Stop counting a trainer as present, but keep the counts of its gradients."""
        self._present.discard(trainer)
        self._gone[trainer] = self._steps + self.threshold
        if len(self._marks) > MAX_KNOWN:
            for counts in (self._marks, self.gradients, self.discarded):
                for one in counts.keys() - self._present:
                    del counts[one]

    def is_kept(self, trainer: int) -> bool:
        """Count a gradient and return whether it is kept, see `Staleness.is_kept`."""
        if self._gone:
            self._gone = {one: last for one, last in self._gone.items() if last > self._steps}
            self._follow()
        return super().is_kept(trainer)

    def _follow(self) -> None:
        self.threshold = self._limits.threshold(len(self._present) + len(self._gone), self._ratio)


def make_staleness(trainers: int, limits: StalenessLimits, ratio: float) -> Staleness:
    """Return the counter of gradients.

    Args: trainers: number of trainers; 0: trainers join and leave, and the result is an `ElasticStaleness`.
        ratio: async_lagged_grad_discard_ratio of the config.
    """
    if not trainers:
        return ElasticStaleness(limits, ratio)
    return Staleness(trainers, limits.threshold(trainers, ratio))


def _share(trainer: int, kept: int, discarded: int) -> str:
    total = kept + discarded
    return f"{trainer}:{discarded}({discarded / total if total else 0:g})"
