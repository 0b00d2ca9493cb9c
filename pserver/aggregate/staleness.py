"""Decide which gradients of slow trainers are discarded in asynchronous training, by their age.

The age of a gradient is the number of gradients that have arrived from all trainers since the previous gradient of the
same trainer; the gradient itself is included. The age limits how many steps have changed the values since the trainer
received the values from which it computed the gradient. The module does no input or output.

Source: ParameterServer2.cpp of v0.10 (asyncGradientCommitCheckAndStat).
"""

from __future__ import annotations

from dataclasses import dataclass

# maximum number of trainers with stored counts; above it, the counts of trainers that have left are deleted
MAX_KNOWN = 1 << 16
# the lowest age at which a gradient is discarded; v0.10 used 1 for a single trainer, and discarded every gradient
LEAST_THRESHOLD = 2


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
        """Return the discard ratio of the config, or `default` if the ratio is not above `least`."""
        return ratio if ratio > self.least else self.default


class Staleness:
    """Count the gradients of all trainers, and decide which gradients are too old.

    Args: trainers: number of trainers. threshold: the smallest age at which a gradient is discarded.

    Attributes:

    - `gradients`: for each trainer, the number of gradients received since the start.
    - `discarded`: for each trainer, the number of gradients discarded since the start.
    - `age`: the sum of the ages of all gradients since the start.
    """

    def __init__(self, trainers: int, threshold: int) -> None:
        self.threshold = threshold
        self._marks = dict.fromkeys(range(trainers), 0)
        self.gradients, self.discarded = dict(self._marks), dict(self._marks)
        self.age = 0
        self.reset()

    def reset(self) -> None:
        """Reset the counts that `describe` logs, as v0.10 did after each log. Ages count from zero again."""
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
        """Return log lines with the discarded gradients, the frequency of each age and the counts of each trainer.
        Return [] if no gradient has arrived.
        """
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


class TaskStaleness(Staleness):
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
        self._gone: dict[int, int] = {}  # for each trainer that has left, the last step at which it counts as present
        super().__init__(0, limits.threshold(0, ratio))

    def reset(self) -> None:
        """Reset the counts that `describe` logs. Ages count from zero again."""
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
        """Count a gradient of a trainer and return whether it is kept; see `Staleness.is_kept`."""
        if self._gone:
            self._gone = {one: last for one, last in self._gone.items() if last > self._steps}
            self._follow()
        return super().is_kept(trainer)

    def _follow(self) -> None:
        self.threshold = self._limits.threshold(len(self._present) + len(self._gone), self._ratio)


def make_staleness(trainers: int, limits: StalenessLimits, ratio: float) -> Staleness:
    """Return a `Staleness`, or an `TaskStaleness` if trainers join and leave.

    Args: trainers: number of trainers, or 0 if trainers join and leave.
        ratio: async_lagged_grad_discard_ratio of the config.
    """
    if not trainers:
        return TaskStaleness(limits, ratio)
    return Staleness(trainers, limits.threshold(trainers, ratio))


def _share(trainer: int, kept: int, discarded: int) -> str:
    total = kept + discarded
    return f"{trainer}:{discarded}({discarded / total if total else 0:g})"
