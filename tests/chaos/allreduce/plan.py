"""Which harm is done to what in an all-reduce job, and after which event, pure: a seed to a list of trials."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

ROLES = ("worker", "agent", "host", "driver")
HARMS = ("kill", "freeze", "cut", "stop")
MOMENTS = ("begin", "step", "end")  # of a first blow
LATER_MOMENTS = ("with", "step", "report", "generation")  # of a second one
EPOCHS, SAMPLES, BATCH = 3, 192, 12  # each number of workers up to 4 divides a batch
STEPS = EPOCHS * SAMPLES // BATCH
LEAST, BEGIN, MOST = 1, 3, 4  # workers
HOSTS = 3
LASTING = {"short": 1.0, "long": 7.0}  # seconds of a freeze or cut; every timeout of a trial is 2 to 5 s
# the committed share of the steps, and the hosts from there on; five are more than the job has room for
SCALES = ((0.15, 2), (0.4, 5), (0.7, 3))
Item = TypeVar("Item")


@dataclass(frozen=True)
class Blow:
    """What is done to one worker, agent, host or driver.

    moment: `begin`: the first worker runs; `step`: `share` of the steps are committed; `end`: all but the last one are;
    `with`: together with the first blow; `report`: after that, when the driver hears of the next worker that has failed
    or is ready; `generation`: after that, when the next generation begins.  number: of those that there are then,
    counted around.  lasts: of a freeze or cut; `never`: it stays frozen.  is_pod: a kill or stop takes the pod, too,
    and another one comes; of a worker: its guard is killed, too; a frozen driver is given up, and another one comes
    before it goes on.
    """

    role: str
    harm: str
    moment: str
    share: float = 0.0
    number: int = 0
    lasts: str = "short"
    is_pod: bool = False

    def __str__(self) -> str:
        where = f" {self.share:.0%}" if self.moment == "step" else ""
        lasts = f" ({self.lasts})" if self.harm in ("freeze", "cut") else ""
        lasts += " (pod)" if self.is_pod else ""
        return f"{self.harm}{lasts} of {self.role} {self.number} at {self.moment}{where}"


@dataclass(frozen=True)
class AllReduceTrial:
    """One job and what is done to it. Everything that is random about it is in here.

    slots: of each host that there will be, counted around.
    """

    name: str
    slots: tuple[int, ...] = (1,)
    is_scaled: bool = False
    blows: tuple[Blow, ...] = ()

    def __str__(self) -> str:
        scaled = ", scaled" if self.is_scaled else ""
        done = "; ".join(map(str, self.blows)) or "undisturbed"
        return f"{self.name}: all-reduce, slots {'+'.join(map(str, self.slots))}{scaled}: {done}"


def make_allreduce_trials(count: int, seed: int, *, can_cut: bool = True) -> list[AllReduceTrial]:
    """Return so many trials; any 16 in a row, from the first on, have all pairs of role and harm.

    Args: can_cut: a network can be cut; where not, a program is frozen instead.
    """
    rng = random.Random(f"all-reduce {seed}")
    pairs, scaled = _deck(list(product(ROLES, HARMS)), rng), _deck((False, True), rng)
    moments = _deck((*MOMENTS, "step", "step"), rng)
    trials = []
    for number in range(count):
        blows = [_make_blow(*next(pairs), next(moments), rng, can_cut)]
        if rng.random() < 0.6:
            blows.append(
                _make_blow(rng.choice(ROLES), rng.choice(HARMS), rng.choice(LATER_MOMENTS), rng, can_cut, blows[0])
            )
        slots = rng.choice(((1,), (2, 1, 1), (1, 2, 1)))
        trials.append(AllReduceTrial(f"{seed}-a{number:03d}", slots, next(scaled), tuple(blows)))
    return trials


def _make_blow(role: str, harm: str, moment: str, rng: random.Random, can_cut: bool, first: Blow | None = None) -> Blow:
    if harm == "cut" and not can_cut:
        harm = "freeze"
    can_stay = harm == "freeze" and role != "driver" and (first is None or first.lasts != "never")
    lasts = rng.choice(("short", "long", "never" if can_stay else "long"))
    if (role, lasts, moment) == ("worker", "never", "begin"):
        lasts = "long"  # a worker that has said nothing yet may load its data for as long as it likes
    share = rng.uniform(0.0, 0.95) if first is None or first.moment != "step" else rng.uniform(first.share, 0.95)
    is_pod = (harm in ("kill", "stop") or (role, harm) == ("driver", "freeze")) and rng.random() < 0.5
    return Blow(role, harm, moment, share, rng.randrange(12), lasts, is_pod)


def _deck(cards: Sequence[Item], rng: random.Random) -> Iterator[Item]:
    """Yield the cards in random order, then all of them again in another."""
    while True:
        yield from rng.sample(list(cards), len(cards))
