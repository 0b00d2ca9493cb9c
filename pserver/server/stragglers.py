"""Which trainer holds up the rounds: for one log line per period and for the metrics (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class _Lateness:
    rounds: int = 0  # number of rounds in which it was the last
    seconds: float = 0.0  # seconds that the others waited for it in those rounds
    longest: float = 0.0


@dataclass
class Stragglers:
    """The rounds of one log period."""

    rounds: int = 0
    late: dict[int, _Lateness] = field(default_factory=dict)
    waited: dict[int, float] = field(default_factory=dict)  # by trainer: seconds of all periods

    def begin_period(self) -> None:
        """Forget the rounds of the period before."""
        self.rounds = 0
        self.late = {}

    def add(self, pushed: Mapping[int, float]) -> None:
        """Count a round; `pushed` is when each of its trainers had sent its gradient, in seconds."""
        self.rounds += 1
        last = max(pushed, key=pushed.__getitem__)
        others = [moment for trainer, moment in pushed.items() if trainer != last]
        if others:
            wait = pushed[last] - max(others)
            one = self.late.setdefault(last, _Lateness())
            one.rounds, one.seconds, one.longest = one.rounds + 1, one.seconds + wait, max(one.longest, wait)
            self.waited[last] = self.waited.get(last, 0.0) + wait

    def describe(self, names: Mapping[int, object], pushed: Mapping[int, float], now: float) -> str:
        """Return the slowest trainer, how old its last push is, and how long the others waited for it.

        Args: names, pushed: the trainers, and when each sent its last gradient, by number.  now: in seconds.
        """
        if not self.late:
            return f"{self.rounds} rounds, and no trainer kept the others waiting"
        number = max(self.late, key=lambda trainer: self.late[trainer].seconds)
        one = self.late[number]
        age = now - pushed[number]
        return (
            f"slowest is {names[number]}: last in {one.rounds} of {self.rounds} rounds, waited for {one.seconds:.3f} s "
            f"in all, {one.longest:.3f} s at most; its last push was {age:.3f} s ago"
        )
