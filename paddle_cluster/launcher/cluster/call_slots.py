"""Time slots for calls to the API server. The slots limit the total rate of the calls of all launchers of a job.

Wall-clock time is divided into periods of `members / SLOTS_PER_SECOND` seconds, where `members` is the number of pods.
Each launcher has one slot in every period, at a position given by its completion index, and makes at most one call in a
slot. A launcher that does not call within LATE_S of its slot's start skips that slot. All calls of one second therefore
belong to slots that start within 1 + LATE_S seconds, which are at most 186 slots. If the clocks of the nodes differ by
up to 25 ms, the number of calls in one second is still below 200.

In a large job trainer 0's launcher alone lists all pods, and all other launchers wait for it. It has more slots (ALONE)
in place of its slot among 1000, which comes every 5.6 seconds.

A launcher without a completion index chooses a random position, and its periods are HEADROOM times as long.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CALLS_PER_SECOND = 200  # maximum for all launchers of a job together; the API server also serves other clients
SLOTS_PER_SECOND = 177
LATE_S = 0.05  # seconds after the start of a slot during which the slot's call may still be sent
# Factor that lengthens the periods of launchers with random positions. These launchers make 177 / 1.6 calls a second on
# average. The probability of more than 200 calls in one second is below 10^-12.
HEADROOM = 1.6
FEW = 16  # number of members that a launcher with an index below FEW assumes until the real number is known
MANY = 1000  # number of members that any other launcher assumes until the real number is known


@dataclass(frozen=True)
class CallSlots:
    """The slots of one launcher. place: position in the period, in [0, 1). period_s: seconds between two slots."""

    place: float
    period_s: float

    def next_after(self, moment: float) -> float:
        """Return the start of the first slot that starts later than `moment` (seconds since the epoch)."""
        number = math.floor(moment / self.period_s - self.place) + 1
        begin = (number + self.place) * self.period_s
        return begin if begin > moment else (number + 1 + self.place) * self.period_s


ALONE = CallSlots(0.0, 0.5)  # the slots of a launcher that lists the pods for all others


def make_slots(index: int | None, members: int | None, rng: random.Random) -> CallSlots:
    """Return the slots of a launcher.

    Args: index: the launcher's completion index, or None. members: number of pods of the job; None: not known yet.
    """
    if index is None:
        return CallSlots(rng.random(), HEADROOM * (members or MANY) / SLOTS_PER_SECOND)
    among = members or (FEW if index < FEW else MANY)
    among = max(among, index + 1)
    return CallSlots(index / among, among / SLOTS_PER_SECOND)


@dataclass
class Pacer:
    """Wait for the slots of one launcher. Only one thread may use an object of this class."""

    slots: CallSlots
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _used: float = field(default=-math.inf, init=False)

    def wait(self) -> None:
        """Wait for a slot in which this launcher has not made a call; the wait lasts at most a few periods."""
        now = self.clock()
        slot = self.slots.next_after(max(self._used, now - LATE_S))
        while not 0 <= now - slot <= LATE_S:
            if slot > now + 2 * self.slots.period_s:  # the clock was set back
                slot = self.slots.next_after(now)
            elif now > slot + LATE_S:
                slot = self.slots.next_after(now - LATE_S)
            if slot > now:
                self.sleep(slot - now)
            now = self.clock()
        self._used = slot
