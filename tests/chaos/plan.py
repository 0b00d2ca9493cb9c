"""Pure functions that make a list of trials from a seed; each trial says which program is harmed, how and when."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

ROLES = ("trainer-0", "trainer-1", "pserver-0", "pserver-1", "launcher", "pod")
MOMENTS = ("start", "first-batch", "mid-pass", "pass-end", "saving", "last-batch")
HARMS = ("kill", "stop", "term", "cut", "power")
MODES = ("sync", "async", "average")
PODS = 3
PASSES = 3
BATCHES = 120  # batches of every trainer in every pass
NETWORK_HARMS = ("cut", "power")

HARM_DECK = ("kill",) * 14 + ("stop", "stop", "term", "term", "cut", "cut")
MODE_DECK = ("sync",) * 8 + ("async", "average")
START_JITTER = 0.6  # seconds from a program's start to its first batch, about
SAVE_JITTER = 0.012  # seconds of a save, about
# (count, seed) of `make chaos-short`, whose trials have all roles, moments, harms and modes, and kill every program
SHORT = (12, 32271)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Trial:
    """One job and the harm to it. All random choices of a trial are in this object.

    pod: the pod whose program is harmed. number: number of the pass, from 0. batch: number of the batch in this pass,
    from 1. saved: the directory that is being written, a `pass` or the n-th `state`. jitter: seconds between the sign
    of the moment and the harm. lasts: the time when a stop or cut ends. `short`: before a peer must notice it.
    `noticed`: when the peers have noticed it. `long`: after the peer timeout, for programs that no peer watches (a
    launcher, or programs before they connect). `never`: not at all, so the launcher must end the hung program.
    """

    name: str
    mode: str = "sync"
    role: str = ""
    moment: str = ""
    harm: str = ""
    pod: int = 0
    number: int = 0
    batch: int = 1
    saved: str = "pass"
    nth_state: int = 1
    jitter: float = 0.0
    lasts: str = "noticed"

    @property
    def is_disturbed(self) -> bool:
        """Whether the job is harmed."""
        return bool(self.harm)

    @property
    def ends_pod(self) -> bool:
        """Whether the harm must end exactly one pod."""
        return self.role in ("launcher", "pod") and self.harm in ("kill", "term", "power")

    @property
    def is_unnoticed(self) -> bool:
        """Whether the job must continue without a new attempt."""
        is_brief = self.harm in ("stop", "cut") and self.lasts == "short"
        return is_brief or (self.role == "launcher" and self.harm == "stop")

    def __str__(self) -> str:
        where = {"mid-pass": f" {self.number}:{self.batch}", "pass-end": f" {self.number}"}.get(self.moment, "")
        if self.moment == "saving":
            where = f" of {self.saved} {self.number if self.saved == 'pass' else self.nth_state}"
        lasts = f" ({self.lasts})" if self.harm in ("stop", "cut") else ""
        return f"{self.name}: {self.mode}, {self.role} of pod {self.pod}, {self.moment}{where}, {self.harm}{lasts}"


def make_trials(
    count: int, seed: int, *, modes: Collection[str] = MODES, harms: Collection[str] = HARMS, has_state: bool = True
) -> list[Trial]:
    """Return `count` trials; each group of six has all roles and all moments, and each group of 36 has all pairs.

    Args: modes, harms: those that may be used.  has_state: whether the job writes state directories during a pass.
    """
    rng = random.Random(seed)
    pairs = _pairs(rng)
    kinds = deal([harm for harm in HARM_DECK if harm in harms], rng)
    ways = deal([mode for mode in MODE_DECK if mode in modes], rng)
    return [_make(f"{seed}-{number:03d}", *next(pairs), next(kinds), next(ways), rng, harms, has_state)
            for number in range(count)]  # fmt: skip


def _make(
    name: str, role: str, moment: str, harm: str, mode: str, rng: random.Random, harms: Collection[str], has_state: bool
) -> Trial:
    if role == "pod" and harm == "cut" and "power" in harms and rng.random() < 0.5:
        harm = "power"
    number = role.partition("-")[2]
    jitter = {"start": START_JITTER, "saving": SAVE_JITTER}.get(moment, 0.004)
    passing = rng.randrange(PASSES)
    lasts = rng.choice(("short", "noticed", "never" if harm == "stop" and number else "noticed"))
    if lasts != "short" and (moment == "start" or (role == "launcher" and harm == "stop")):
        lasts = "long"
    return Trial(
        name=name,
        mode=mode,
        role=role,
        moment=moment,
        harm=harm,
        pod=int(number) if number else rng.randrange(PODS),
        number=passing,
        batch=rng.randint(BATCHES // 6, BATCHES * 5 // 6),
        saved=rng.choice(("pass", "state")) if has_state else "pass",
        nth_state=rng.randint(1, 8),
        jitter=rng.uniform(0.0, jitter),
        lasts=lasts,
    )


def _pairs(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield (role, moment) without end, from the rows of a Latin square in random order."""
    while True:
        roles, moments = rng.sample(ROLES, len(ROLES)), rng.sample(MOMENTS, len(MOMENTS))
        for shift in rng.sample(range(len(moments)), len(moments)):
            for place, role in enumerate(roles):
                yield role, moments[(place + shift) % len(moments)]


def deal(cards: Sequence[Item], rng: random.Random) -> Iterator[Item]:
    """Yield all cards in random order, then all of them again in another order, without end."""
    while True:
        yield from rng.sample(list(cards), len(cards))
