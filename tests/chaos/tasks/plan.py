"""Pure functions that make a list of trials from a seed; each trial says which program is harmed, how and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from chaos.plan import deal

ROLES = ("master", "standby", "etcd", "pserver", "trainer")
HARMS = ("kill", "freeze", "cut", "stop")
STORES = ("directory", "etcd")
MODES = ("async", "sync")
MASTERS, SERVERS, TRAINERS = 2, 2, 3
PASSES = 8
FILES = 36  # number of files of the training data; each file is a task
LASTING = {"short": 0.7, "long": 6.0}  # seconds of a freeze or cut; the leases of a trial are 3 s
SCALES = ((0.12, 1), (0.30, 5), (0.55, 0))  # (fraction of the job's tasks, number of trainers from there on)
LAST_SCALE, NOBODY_S = 2, 1.5  # number of trainers at the end, after so many seconds without trainers
START_S = 4.0  # seconds from the start of a job to its first task, about
JITTER_S = 0.15  # seconds of a task, about
# (count, seed) of `make chaos-tasks-short`: every harm hits every role, in a first or a second strike; and the
# all-reduce jobs among the trials have all roles and all harms
SHORT = (17, 7008)


@dataclass(frozen=True)
class Strike:
    """A harm to one program.

    number: the target, counted modulo the number of servers or trainers at that moment.  share: the harm comes `delay`
    seconds after this fraction of the job's tasks is read; below 0: before the first task.  lasts: the duration of a
    freeze or cut; `never`: the trainer stays frozen.  is_pod: a kill or stop also ends the pod, which is replaced.
    """

    role: str
    harm: str
    share: float
    delay: float
    number: int = 0
    lasts: str = "short"
    is_pod: bool = False

    def __str__(self) -> str:
        where = "at the start" if self.share < 0 else f"at {self.share:.0%}"
        lasts = f" ({self.lasts})" if self.harm in ("freeze", "cut") else " (pod)" if self.is_pod else ""
        return f"{self.harm}{lasts} of {self.role} {where} +{self.delay:.2f} s"


@dataclass(frozen=True)
class ElasticTrial:
    """One job and the harm to it. All random choices of a trial are in this object."""

    name: str
    store: str = "directory"
    mode: str = "async"
    data: str = "digits"
    is_scaled: bool = False
    strikes: tuple[Strike, ...] = ()

    def __str__(self) -> str:
        scaled = ", scaled" if self.is_scaled else ""
        done = "; ".join(map(str, self.strikes)) or "undisturbed"
        return f"{self.name}: {self.data}, {self.mode}, {self.store}{scaled}: {done}"


def make_elastic_trials(count: int, seed: int, *, has_texts: bool = False, can_cut: bool = True) -> list[ElasticTrial]:
    """Return `count` trials; the first 20, the next 20 and so on have all pairs of role and harm.

    Args: has_texts: whether the data set rt-polarity is present; one trial in ten then trains it.  can_cut: whether a
    network can be cut; if not, a program is frozen instead.
    """
    rng = random.Random(seed)
    pairs = deal(list(product(ROLES, HARMS)), rng)
    modes, stores, scaled = deal(MODES, rng), deal((*STORES, "directory"), rng), deal((False, True), rng)
    data = deal(("digits",) * 9 + ("texts",), rng)
    trials = []
    for number in range(count):
        first = _make_strike(*next(pairs), rng, can_cut)
        strikes = [first, *_more_strikes(first, rng, can_cut)]
        needs_etcd = any(strike.role == "etcd" for strike in strikes)
        store, kind = next(stores), next(data)
        trials.append(
            ElasticTrial(
                f"{seed}-{number:03d}",
                "etcd" if needs_etcd else store,
                next(modes),
                kind if has_texts else "digits",
                next(scaled),
                tuple(strikes),
            )
        )
    return trials


def _more_strikes(first: Strike, rng: random.Random, can_cut: bool) -> Iterator[Strike]:
    """Yield a second strike, at the same moment or at another moment, or no strike."""
    chance = rng.random()
    if chance < 0.7:
        other = _make_strike(rng.choice(ROLES), rng.choice(HARMS), rng, can_cut)
        share = first.share if chance < 0.4 else other.share
        yield Strike(other.role, other.harm, share, other.delay, other.number, other.lasts, other.is_pod)


def _make_strike(role: str, harm: str, rng: random.Random, can_cut: bool) -> Strike:
    if harm == "cut" and not can_cut:
        harm = "freeze"
    lasts = rng.choice(("short", "long", "never" if (role, harm) == ("trainer", "freeze") else "long"))
    share = rng.choice((-1.0, rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0, 1), _pass_end(rng), 0.995))
    delay = rng.uniform(0, START_S if share < 0 else JITTER_S)
    is_pod = role not in ("etcd",) and harm in ("kill", "stop") and rng.random() < 0.5
    return Strike(role, harm, share, delay, rng.randrange(8), lasts, is_pod)


def _pass_end(rng: random.Random) -> float:
    return rng.randint(1, PASSES - 1) / PASSES
