"""Makes trials of all-reduce jobs from a seed; each trial says which program is harmed, how, and after which event."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

from chaos.plan import deal

ROLES = ("worker", "agent", "host", "driver")
HARMS = ("kill", "freeze", "cut", "stop")
MOMENTS = ("begin", "step", "end")  # moments of a first blow
LATER_MOMENTS = ("with", "step", "report", "generation")  # moments of a second blow
EPOCHS, SAMPLES, BATCH = 3, 192, 12  # a batch can be divided by each number of workers up to 4
STEPS = EPOCHS * SAMPLES // BATCH
LEAST, BEGIN, MOST = 1, 3, 4  # numbers of workers: minimum, at the beginning, maximum
HOSTS = 3
LASTING = {"short": 1.0, "long": 7.0}  # seconds of a freeze or cut; the timeouts of a trial are 2 to 5 s
# (committed fraction of the steps, number of hosts from there on); five hosts are more than the job can use
SCALES = ((0.15, 2), (0.4, 5), (0.7, 3))


@dataclass(frozen=True)
class Blow:
    """A harm to one worker, agent, host or driver.

    moment: `begin`: the first worker runs. `step`: the fraction `share` of the steps is committed. `end`: all steps
    except the last are committed. A second blow may also come `with` the first one; or after the first one, at the next
    `report` of a worker to the driver, or when the next `generation` begins.
    number: the target, counted modulo the number of possible targets at that moment.
    lasts: the duration of a freeze or cut; `never`: the target stays frozen.
    is_pod: a kill or stop also ends the pod, which is replaced; the kill of a worker also kills its guard; a frozen
    driver gets a replacement before it continues.
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
    """One job and the harm to it. All random choices of a trial are in this object.

    is_torch: whether its workers train with PyTorch.
    slots: number of slots of each host; host n has the entry n modulo the length.
    """

    name: str
    slots: tuple[int, ...] = (1,)
    is_scaled: bool = False
    blows: tuple[Blow, ...] = ()
    is_torch: bool = False

    def __str__(self) -> str:
        scaled = ", scaled" if self.is_scaled else ""
        done = "; ".join(map(str, self.blows)) or "undisturbed"
        kind = "all-reduce of torch" if self.is_torch else "all-reduce"
        return f"{self.name}: {kind}, slots {'+'.join(map(str, self.slots))}{scaled}: {done}"


def make_allreduce_trials(
    count: int, seed: int, *, can_cut: bool = True, has_torch: bool = True
) -> list[AllReduceTrial]:
    """Return `count` trials; the first 16, the next 16 and so on have all pairs of role and harm.

    Args: can_cut: whether a network can be cut; if not, a program is frozen instead.  has_torch: whether workers can
        train with PyTorch, as those of one of three trials do; if not, they train with numpy instead.
    """
    rng = random.Random(f"all-reduce {seed}")
    pairs, scaled = deal(list(product(ROLES, HARMS)), rng), deal((False, True), rng)
    moments = deal((*MOMENTS, "step", "step"), rng)
    torches = deal((True, False, False), random.Random(f"torch {seed}"))  # the other choices stay as they were
    trials = []
    for number in range(count):
        blows = [_make_blow(*next(pairs), next(moments), rng, can_cut)]
        if rng.random() < 0.6:
            blows.append(
                _make_blow(rng.choice(ROLES), rng.choice(HARMS), rng.choice(LATER_MOMENTS), rng, can_cut, blows[0])
            )
        slots = rng.choice(((1,), (2, 1, 1), (1, 2, 1)))
        trials.append(
            AllReduceTrial(f"{seed}-a{number:03d}", slots, next(scaled), tuple(blows), next(torches) and has_torch)
        )
    return trials


def _make_blow(role: str, harm: str, moment: str, rng: random.Random, can_cut: bool, first: Blow | None = None) -> Blow:
    if harm == "cut" and not can_cut:
        harm = "freeze"
    can_stay = harm == "freeze" and role != "driver" and (first is None or first.lasts != "never")
    lasts = rng.choice(("short", "long", "never" if can_stay else "long"))
    if (role, lasts, moment) == ("worker", "never", "begin"):
        lasts = "long"  # before its first message a worker may load data for any time, so nobody would miss it
    share = rng.uniform(0.0, 0.95) if first is None or first.moment != "step" else rng.uniform(first.share, 0.95)
    is_pod = (harm in ("kill", "stop") or (role, harm) == ("driver", "freeze")) and rng.random() < 0.5
    return Blow(role, harm, moment, share, rng.randrange(12), lasts, is_pod)
