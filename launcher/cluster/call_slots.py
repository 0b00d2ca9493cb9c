"""When a launcher may call the API server, so that all launchers of a job together keep to a rate.

Wall-clock time is cut into periods of `members / SLOTS_PER_SECOND` seconds. Each launcher has one slot in every period,
at the place that its completion index gives it, and makes at most one call in a slot. A launcher whose node was too
busy to call within LATE_S of its slot's begin leaves that slot out. So a second sees the slots of at most 1 + LATE_S
seconds: 189 calls, and fewer than 200 as long as the clocks of the nodes agree to 25 ms.

Without a completion index a launcher takes a place at random, and the periods are HEADROOM times as long.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CALLS_PER_SECOND = 200  # bound on the calls of all launchers of a job; an API server shares its seats among all clients
SLOTS_PER_SECOND = 180
LATE_S = 0.05  # seconds after a slot's begin in which its call may still leave
HEADROOM = 1.6  # of random places: 180 / 1.6 calls a second on average, above 200 in less than one second of 10^12
FEW = 16  # members that a launcher of a low index assumes until it knows their number
MANY = 1000  # members that a launcher of a higher index assumes then


@dataclass(frozen=True)
class CallSlots:
    """The slots of one launcher. place: of the period, in [0, 1). period_s: seconds from one slot to the next."""

    place: float
    period_s: float

    def next_after(self, moment: float) -> float:
        """Return the begin of the first slot that begins later than `moment` (seconds since the epoch)."""
        number = math.floor(moment / self.period_s - self.place) + 1
        begin = (number + self.place) * self.period_s
        return begin if begin > moment else (number + 1 + self.place) * self.period_s


def make_slots(index: int | None, members: int | None, rng: random.Random) -> CallSlots:
    """Return the slots of a launcher.

    Args: index: its completion index, None: it has none. members: pods of the job, None: not known yet.
    """
    if index is None:
        return CallSlots(rng.random(), HEADROOM * (members or MANY) / SLOTS_PER_SECOND)
    among = members or (FEW if index < FEW else MANY)
    among = max(among, index + 1)
    return CallSlots(index / among, among / SLOTS_PER_SECOND)


@dataclass
class Pacer:
    """Lets a launcher wait for its slots. Not thread-safe: one thread of a launcher makes its calls."""

    slots: CallSlots
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _used: float = field(default=-math.inf, init=False)

    def wait(self) -> None:
        """Return in a slot of this launcher in which it has made no call yet, after at most some periods."""
        now = self.clock()
        slot = self.slots.next_after(max(self._used, now - LATE_S))
        while not 0 <= now - slot <= LATE_S:
            if slot > now + 2 * self.slots.period_s:  # the clock was put back
                slot = self.slots.next_after(now)
            elif now > slot + LATE_S:
                slot = self.slots.next_after(now - LATE_S)
            if slot > now:
                self.sleep(slot - now)
            now = self.clock()
        self._used = slot
