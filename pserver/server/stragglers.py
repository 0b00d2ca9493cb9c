"""Find the trainers that delay the rounds. Log lines and metrics report these trainers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class _Lateness:
    rounds: int = 0  # number of rounds in which the trainer was the last
    seconds: float = 0.0  # seconds that the other trainers waited for this trainer in all of these rounds
    longest: float = 0.0  # maximum seconds of these waits

    def add(self, wait: float) -> None:
        """Count a round in which the other trainers waited `wait` seconds for this trainer."""
        self.rounds, self.seconds, self.longest = self.rounds + 1, self.seconds + wait, max(self.longest, wait)


@dataclass(frozen=True)
class BarrierLog:
    """The settings of the log line about slow trainers at the end of a pass, from the flags log_barrier_*."""

    is_on: bool = True
    most_trainers: int = 5  # maximum number of trainers in the line
    is_always: bool = False  # whether the line is logged after every pass, even if every trainer was seldom the last

    def warning_rate(self, trainers: int) -> float:
        """Return the fraction of the rounds in which one trainer must be the last, so that the line is logged.

        Source: BarrierStat.cpp of v0.10: the fraction is 1 / n + (n / 8) / (n + 1) for n trainers.
        """
        return 0.0 if self.is_always else 1 / trainers + trainers / 8 / (trainers + 1)


@dataclass
class Stragglers:
    """The delays in the rounds of the present log period, and in the rounds of the present pass."""

    rounds: int = 0
    late: dict[int, _Lateness] = field(default_factory=dict)
    waited: dict[int, float] = field(default_factory=dict)  # for each trainer, the seconds of delay in all periods
    rounds_of_pass: int = 0
    late_in_pass: dict[int, _Lateness] = field(default_factory=dict)

    def begin_period(self) -> None:
        """Delete the delays of the previous log period."""
        self.rounds = 0
        self.late = {}

    def begin_pass(self) -> None:
        """Delete the delays of the previous pass."""
        self.rounds_of_pass = 0
        self.late_in_pass = {}

    def add(self, pushed: Mapping[int, float]) -> None:
        """Count a round; `pushed` contains the time, in seconds, at which each trainer's gradient had arrived."""
        self.rounds += 1
        self.rounds_of_pass += 1
        if len(pushed) > 1:
            last = max(pushed, key=pushed.__getitem__)
            before, latest = sorted(pushed.values())[-2:]
            wait = latest - before
            for late in (self.late, self.late_in_pass):
                if last not in late:
                    late[last] = _Lateness()
                late[last].add(wait)
            self.waited[last] = self.waited.get(last, 0.0) + wait

    def describe(self, names: Mapping[int, object], pushed: Mapping[int, float], now: float) -> str:
        """Describe the slowest trainer, the age of its last push, and how long the other trainers waited for it.

        Args: names: the trainers, by number. pushed: time of each trainer's last gradient, by number. now: the present
            time. Times are in seconds.
        """
        if not self.late:
            return f"{self.rounds} rounds, and no trainer kept the others waiting"
        number = max(self.late, key=lambda trainer: self.late[trainer].seconds)
        one = self.late[number]
        age = now - pushed[number]
        return (
            f"slowest is {names[number]}: last in {one.rounds} of {self.rounds} rounds, delayed the others by "
            f"{one.seconds:.3f} s in all, {one.longest:.3f} s at most; its last push was {age:.3f} s ago"
        )

    def describe_pass(self, log: BarrierLog, trainers: int) -> str:
        """Describe the trainers that were most often the last in a round, the most frequent trainer first.

        The result is "" if every trainer was the last in a smaller fraction of the rounds than
        `BarrierLog.warning_rate`. As in v0.10, the result is also "" if the job has at most two trainers.
        """
        order = sorted(self.late_in_pass.items(), key=lambda item: (-item[1].rounds, item[0]))
        if not log.is_on or trainers <= 2 or not order:
            return ""
        if order[0][1].rounds / self.rounds_of_pass < log.warning_rate(trainers):
            return ""
        named = [
            f"trainer {number} last in {one.rounds}, delayed the others by {one.seconds:.3f} s in all, "
            f"{one.longest:.3f} s at most"
            for number, one in order[: log.most_trainers]
        ]
        return f"{self.rounds_of_pass} rounds of {trainers} trainers: {'; '.join(named)}"
