"""Synchronous rounds of trainers that come, go, freeze and die, on services that crash, in any order of messages.

Trainers are threads of which one runs at a time; at each message the next one is drawn. The gradient of a batch is one
element of its own, so the values of a service say how often each batch has counted there. A service that crashes keeps
what it has committed, and loses the rest and its connections.
"""

import random
import threading

import numpy as np
import pytest

from paddle_base.runtime.errors import LostPeerError
from pserver.aggregate.sync_dense import SynchronousRounds
from pserver.aggregate.task_rounds import GradientPiece, TwoPhaseRounds
from pserver.client.tasks.pushes import AgreedPushes
from pserver.client.tasks.services import BatchGradient
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.wire.views import EpochChangedError, MembershipView

TRAINERS, BATCHES, SERVICES = 4, 4, 3
SIZE = TRAINERS * BATCHES
TURNS = 30_000  # of all trainers; more is a trial that does not end
DEADLINE = 60.0


class Killed(BaseException):
    """The end of a trainer's thread."""


class TakenError(Exception):
    """The trainer is in no view."""


class ModelService:
    """What a service does, as `pserver.server.tasks.round_requests` does it; `life` counts its starts."""

    def __init__(self):
        parameters = [ParameterSpec("w", SIZE)]
        shard = DenseShard(parameters, partition.whole(parameters), Optimization("momentum", 1.0), per_parameter=True)
        self.rounds = TwoPhaseRounds(SynchronousRounds(shard))
        self.answers, self.waiting, self.life = {}, set(), 0

    @property
    def values(self):
        return self.rounds.rounds.shard.values

    def crash(self):
        before = self.rounds
        self.rounds = TwoPhaseRounds(SynchronousRounds(before.rounds.shard), before.done, before.own)
        self.answers, self.waiting, self.life = {}, set(), self.life + 1

    def give_up(self, trainer):
        self.answers.pop(trainer, None)
        if trainer in self.waiting:
            self.waiting.discard(trainer)
            self.rounds.drop(trainer)

    def enter(self, trainer, view):
        self.give_up(trainer)
        if self.rounds.enter(view):
            self._refuse(view.epoch)
        return self.rounds.describe(trainer)

    def _refuse(self, epoch):
        for one in self.waiting:
            self.answers[one] = EpochChangedError("fenced", epoch)
        self.waiting.clear()

    def push(self, trainer, key, gradient):
        self.give_up(trainer)
        is_repeated = key == self.rounds.prepared
        if self.rounds.skip(trainer, key):
            self._refuse(key.epoch)
        piece = GradientPiece(0, gradient.copy().view("B").data, 1)
        is_prepared = self.rounds.add(trainer, key, piece, 0)
        if is_repeated:
            self.answers[trainer] = "prepared"
            return
        self.waiting.add(trainer)
        if is_prepared:
            for one in self.waiting:
                self.answers[one] = "prepared"
            self.waiting.clear()

    def commit(self, trainer, key, view):
        self.give_up(trainer)
        self.rounds.commit(key, view)
        return self.values.copy()


class Connections:
    """The services as one trainer has joined them; the part of `JoinedServices` that rounds use."""

    def __init__(self, world, trainer):
        self.world, self.trainer = world, trainer
        self.lives = [service.life for service in world.services]
        for service in world.services:
            service.give_up(trainer)

    def turn(self, number):
        self.world.turn(self.trainer)
        if self.world.services[number].life != self.lives[number]:
            raise LostPeerError(f"service {number} is lost")
        return self.world.services[number]

    def check(self):
        if self.lives != [service.life for service in self.world.services]:
            raise LostPeerError("a service is lost")

    def enter(self, view):
        return [self.turn(number).enter(self.trainer, view) for number in range(SERVICES)]

    def begin_round_push(self, gradient, samples, key, pass_number, is_current):
        self.push = gradient, key, is_current

    def begin_round_rows(self, batch, key, pass_number, is_current):
        pass  # no tables

    def finish_push(self):
        gradient, key, is_current = self.push
        for number in range(SERVICES):
            self.turn(number).push(self.trainer, key, gradient)
        missing = set(range(SERVICES))
        while missing:
            for number in sorted(missing):
                answer = self.turn(number).answers.get(self.trainer)
                if isinstance(answer, EpochChangedError):
                    raise answer
                missing -= {number} if answer else set()
            if missing and not is_current():
                raise EpochChangedError("the view has changed")

    def commit(self, key, view, values, services=None):
        for number in range(SERVICES) if services is None else services:
            values[:] = self.turn(number).commit(self.trainer, key, view)

    def fetch(self, values, pass_number):
        for number in range(SERVICES):
            values[:] = self.turn(number).values


class World:
    """The services, the master's view, and which trainer runs."""

    def __init__(self, seed, crashes, kills, freezes):
        self.random = random.Random(seed)
        self.services = [ModelService() for _ in range(SERVICES)]
        self.view = MembershipView(1, ())
        self.turns, self.events = 0, {"crash": crashes, "kill": kills, "freeze": freezes}
        self.running, self.baton = None, threading.Condition()
        self.ready, self.killed = set(), set()
        self.finished, self.open, self.errors = [], [], []
        self.crashed = set()

    # ----- Master

    def change(self, *, add=(), drop=()):
        members = tuple(sorted((set(self.view.members) | set(add)) - set(drop)))
        if members != self.view.members:
            self.view = MembershipView(self.view.epoch + 1, members)

    # ----- Turns

    def turn(self, trainer):
        """Let another trainer run, until it is this one's turn again."""
        with self.baton:
            self.turns += 1
            assert self.turns < TURNS, "the trial does not end"
            self._disturb()
            self._choose()
            assert self.baton.wait_for(lambda: self.running == trainer or self.errors, DEADLINE)
            if trainer in self.killed or self.errors:
                raise Killed

    def _choose(self):
        self.running = self.random.choice(sorted(self.ready)) if self.ready else None
        self.baton.notify_all()

    def _disturb(self):
        kind = self.random.choice(["crash", "kill", "freeze"])
        if not self.events[kind] or self.random.random() > 0.02:
            return
        self.events[kind] -= 1
        if kind == "crash":
            self.crashed.add(self.random.choice(range(SERVICES - 1)))
            for number in self.crashed:
                self.services[number].crash()
            return
        if not self.view.members or (kind == "kill" and len(self.ready) <= 1):
            return
        victim = self.random.choice(self.view.members)
        if kind == "kill":
            self.killed.add(victim)
        self.change(drop=[victim])  # the master believes that it is gone; a frozen one goes on later

    # ----- Trainers

    def train(self, trainer):
        """All batches of a trainer: one whose task is taken goes on with the next one."""
        try:
            with self.baton:
                self.baton.wait_for(lambda: self.running == trainer, DEADLINE)
            values = np.zeros(SIZE, np.float32)
            pushes = AgreedPushes(TrainerViews(self, trainer))
            services = None
            for batch in range(BATCHES):
                self.change(add=[trainer])
                gradient = np.zeros(SIZE, np.float32)
                gradient[trainer * BATCHES + batch] = 1.0
                one = BatchGradient(gradient, values, 1)
                self.open.append((trainer, batch))
                pushes.open()
                services = self._run(trainer, services, one, pushes)
                if services is not None:
                    self.open.remove((trainer, batch))
                    self.finished.append((trainer, batch))
        except Killed:
            pass
        except BaseException as exc:
            self.errors.append(exc)
        finally:
            with self.baton:
                self.change(drop=[trainer])
                self.ready.discard(trainer)
                self._choose()

    def _run(self, trainer, services, batch, pushes):
        is_prepared = False
        while True:
            try:
                services = services or Connections(self, trainer)
                if not is_prepared:
                    pushes.prepare(services, batch.values)
                    is_prepared = True
                pushes.finish(services, batch, has_begun=False)
                return services
            except LostPeerError:
                services = None
            except TakenError:
                return None


class TrainerViews:
    """The master's view, for one trainer."""

    def __init__(self, world, trainer):
        self.world, self.trainer = world, trainer

    @property
    def newest(self):
        return self.world.view

    def wait(self, epoch):
        assert self.newest.epoch >= epoch
        if self.trainer not in self.newest.members:
            raise TakenError
        return self.newest


def settle(world):
    """A newcomer, as there is one in a job whose trainers are all gone, ends a round that was cut in two."""
    world.events = dict.fromkeys(world.events, 0)
    world.ready = {TRAINERS}
    world.change(add=[TRAINERS])
    AgreedPushes(TrainerViews(world, TRAINERS)).prepare(Connections(world, TRAINERS), np.zeros(SIZE, np.float32))


EVENTS = [(0, 0, 0), (0, 2, 3), (3, 0, 0), (3, 2, 3)]  # crashes, kills, freezes


@pytest.mark.parametrize("events", EVENTS)
def test_every_batch_counts_on_all_services_or_on_none(events):
    for seed in range(15):
        check_order(seed, *events)


@pytest.mark.nightly
@pytest.mark.parametrize("events", EVENTS)
def test_every_batch_counts_on_all_services_or_on_none_in_many_orders(events):
    for seed in range(15, 400):
        check_order(seed, *events)


def check_order(seed, crashes, kills, freezes):
    place = f"seed {seed}"
    world = World(seed, crashes, kills, freezes)
    threads = [threading.Thread(target=world.train, args=(one,), daemon=True) for one in range(TRAINERS)]
    world.ready |= set(range(TRAINERS))
    for thread in threads:
        thread.start()
    with world.baton:
        world._choose()
    for thread in threads:
        thread.join(DEADLINE)
    if world.errors:
        world.errors[0].add_note(place)
        raise world.errors[0]
    assert not any(thread.is_alive() for thread in threads), place
    settle(world)
    counts = [-service.values.reshape(TRAINERS, BATCHES) for service in world.services]
    assert all(count.max() <= 1 for count in counts), place
    whole = [count for number, count in enumerate(counts) if number not in world.crashed]
    for one in world.finished:
        assert {count[one] for count in whole} == {1}, f"{place}, {one}: turns {world.turns}"
    for one in world.open:
        assert {count[one] for count in whole} in ({0}, {1}), f"{place}: {one} is open"
