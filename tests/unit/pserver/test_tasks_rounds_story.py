"""Any order of what can happen to synchronous rounds of a task job: the services and the client's rules together.

Invariants (`World.check`, `World.settle`): a gradient counts at most once on every service; a round counts on all
services or on none; a gradient that its trainer takes for counted has counted; the trainers always get on.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tasks_world import World

from pserver.wire import protocol
from pserver.wire.protocol import Op

SOME = st.integers(0, 63)  # chooses one of what there is


class Story(RuleBasedStateMachine):
    """A job of up to four trainers, without crashes of servers."""

    most_trainers = 4

    def __init__(self):
        super().__init__()
        self.piece_bytes, protocol.PIECE_BYTES = protocol.PIECE_BYTES, 16
        self.world = World()

    @initialize(dense=st.integers(1, 2), sparse=st.integers(0, 1), trainers=st.integers(1, 3))
    def begin(self, dense, sparse, trainers):
        self.world = World(dense, sparse)
        for _ in range(trainers):
            self.world.begin_trainer()

    def teardown(self):
        try:
            self.world.settle()
        finally:
            self.world.close()
            protocol.PIECE_BYTES = self.piece_bytes

    def choose_trainer(self, some):
        return self.world.living[some % len(self.world.living)]

    def choose_server(self, some):
        return self.world.servers[some % len(self.world.servers)]

    def choose_link(self, some):
        loaded = self.world.loaded()
        return loaded[some % len(loaded)] if loaded else None

    # ----- Messages -----

    @rule(some=SOME, count=st.integers(1, 8))
    def carry(self, some, count):
        for _ in range(count):
            link = self.choose_link(some)
            if link:
                self.world.carry(link)

    @rule(some=SOME)
    def repeat(self, some):
        link = self.choose_link(some)
        if link:
            self.world.carry(link, keep=True)

    @rule(some=SOME)
    def cut(self, some):
        link = self.choose_link(some)
        if link:
            self.world.cut(link)

    @precondition(lambda self: self.world.living)
    @rule(some=SOME)
    def turn(self, some):
        self.choose_trainer(some).turn()

    @precondition(lambda self: self.world.living)
    @rule(some=SOME, other=SOME)
    def beat(self, some, other):
        self.world.beat(self.choose_trainer(some), self.choose_server(other))

    @rule(is_cut=st.booleans())
    def come_to_an_end_of_a_round(self, is_cut):
        """Some services have taken the last round, or all have its gradients."""
        self.world.flow(self.world.is_cut_in_two if is_cut else self.world.is_prepared, most=20)

    @rule(turns=st.integers(1, 12))
    def flow(self, turns):
        """All goes well for a while; nobody hears of a new view."""
        for _ in range(turns):
            for trainer in self.world.living:
                for link in trainer.links:
                    while link.up:
                        self.world.carry(link)
                trainer.turn()

    # ----- Trainers and views -----

    @precondition(lambda self: len(self.world.living) < self.most_trainers)
    @rule()
    def join(self):
        self.world.begin_trainer()

    @precondition(lambda self: self.world.living)
    @rule(some=SOME, is_noticed=st.booleans())
    def kill(self, some, is_noticed):
        trainer = self.choose_trainer(some)
        trainer.kill()
        if is_noticed:
            self.world.set_members({*self.world.view.members} - {trainer.number})

    @rule()
    def notice(self):
        """The master hears of all that are dead."""
        living = {trainer.number for trainer in self.world.living}
        self.world.set_members({*self.world.view.members} & living)

    @precondition(lambda self: self.world.living)
    @rule(some=SOME)
    def take_task_away(self, some):
        self.world.set_members({*self.world.view.members} - {self.choose_trainer(some).number})

    @precondition(lambda self: self.world.living)
    @rule(some=SOME)
    def give_task(self, some):
        self.world.set_members({*self.world.view.members, self.choose_trainer(some).number})

    @precondition(lambda self: self.world.living)
    @rule(some=SOME)
    def tell_view(self, some):
        self.choose_trainer(some).known = self.world.view

    @rule()
    def tell_view_to_all(self):
        for trainer in self.world.living:
            trainer.known = self.world.view

    @rule(some=SOME, other=SOME)
    def lose(self, some, other):
        """A service takes a trainer for lost, be it or not."""
        if self.world.trainers:
            self.world.forget(self.choose_server(some), other % len(self.world.trainers))

    @invariant()
    def nothing_counts_in_part_or_twice(self):
        self.world.check()


class CrashStory(Story):
    """The same with servers that end at any moment and go on from a snapshot."""

    @rule(some=SOME)
    def keep_snapshot(self, some):
        server = self.choose_server(some)
        server.kept = server.capture()

    @rule(some=SOME, is_current=st.booleans())
    def crash(self, some, is_current):
        server = self.choose_server(some)
        if is_current:
            server.kept = server.capture()
        server.crash()


OPTIONS = settings(stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class TestStory(Story.TestCase):
    settings = settings(OPTIONS, max_examples=25)


class TestCrashStory(CrashStory.TestCase):
    settings = settings(OPTIONS, max_examples=25)


@pytest.mark.nightly
class TestManyStories(Story.TestCase):
    settings = settings(OPTIONS, max_examples=400)


@pytest.mark.nightly
class TestManyCrashStories(CrashStory.TestCase):
    settings = settings(OPTIONS, max_examples=400)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 16)


def begin(trainers=2, dense=1, sparse=1):
    """A job whose trainers have done a batch, and know the view."""
    world = World(dense, sparse)
    made = [world.begin_trainer() for _ in range(trainers)]
    world.settle(1)
    return world, made


def test_a_trainer_that_dies_between_two_commits_leaves_no_round_in_part(small_pieces):
    world, trainers = begin()
    assert world.flow(world.is_cut_in_two)
    trainers[0].kill()
    world.set_members({1})
    world.settle()
    assert world.servers[0].log == world.servers[1].log[: len(world.servers[0].log)]
    world.close()


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]])
def test_a_round_that_all_have_prepared_counts_whoever_dies(small_pieces, dead):
    world, trainers = begin()
    assert world.flow(world.is_prepared)
    rounds = len(world.servers[0].log)
    for number in dead:
        trainers[number].kill()
    if len(dead) == 2:
        world.begin_trainer()
    world.settle()
    assert [len(some) for _, some in world.servers[0].log[rounds : rounds + 1]] == [2]
    world.close()


def test_a_trainer_that_was_away_for_some_rounds_knows_whether_its_gradient_counted(small_pieces):
    """It pushed; the others committed the round and went on without it; then it is a member again."""
    world, trainers = begin(3)
    assert world.flow(world.is_prepared)
    world.set_members({0, 1})
    for trainer in trainers[:2]:
        trainer.known = world.view
    third = (world.view.epoch, 3)
    assert world.flow(lambda: all(server.log[-1][0] >= third for server in world.servers), trainers[:2])
    own = trainers[2].batch
    assert own not in trainers[2].done
    world.set_members({0, 1, 2})
    world.settle()
    assert own in trainers[2].done
    assert sum((2, own) in some for _, some in world.servers[0].log) == 1
    world.close()


def test_a_commit_of_an_earlier_view_does_not_meet_what_a_later_one_decided(small_pieces):
    """Trainer 1 hears that all is prepared; a server is lost; trainer 0 finds the round in part and pushes again."""
    world, (first, second) = begin()
    lost, other = world.servers
    lost.kept = lost.capture()
    assert world.flow(world.is_prepared)
    second.turn()
    assert second.waits_for == "answers" and all(link.request[0].op == Op.COMMIT for link in second.links)
    [late] = [link for link in second.links if link.server is other]
    lost.crash()
    world.set_members({0})
    world.set_members({0, 1})
    first.known = world.view
    pushed = (world.view.epoch, 1)

    def has_pushed():
        return any(link.server is other and link.request[:1] and link.request[0].op == Op.PUSH for link in first.links)

    first.turn()
    assert world.flow(has_pushed, [first])
    before = len(other.log)
    while late.up:
        world.carry(late)
    assert len(other.log) == before
    world.settle()
    assert other.log[before][0] == pushed
    world.close()


@pytest.mark.parametrize("trainers", [1, 2])
def test_servers_that_are_lost_one_after_the_other_stop_nobody(small_pieces, trainers):
    """The second is lost, and with it the newest round that counts, when the first has prepared the next one."""
    world, _ = begin(trainers, dense=2, sparse=0)
    first, second = world.servers
    first.crash()
    assert world.flow(lambda: first.service._pushes.rounds.prepared is not None)
    second.crash()
    world.settle()
    world.close()


def test_a_trainer_that_waits_for_a_dense_service_notices_that_a_sparse_one_is_lost():
    """Trainer 1 alone goes on after the round that counted on the lost service; trainer 0 pushes that round again."""
    story = CrashStory()
    story.begin(dense=1, sparse=1, trainers=2)
    story.tell_view_to_all()
    story.flow(turns=8)
    story.crash(some=0, is_current=False)
    story.flow(turns=6)
    story.lose(some=0, other=0)
    story.crash(some=1, is_current=False)
    story.teardown()


def test_a_commit_from_before_the_loss_of_a_server_counts_no_gradient_twice(small_pieces):
    """The same, but trainer 1 has heard that all was prepared; its commit comes when trainer 0 pushes again."""
    world, (first, second) = begin(2, dense=2, sparse=0)
    first.known = second.known = world.view
    other, lost = world.servers
    other.crash()
    assert world.flow(world.is_prepared)
    second.turn()
    [late] = [link for link in second.links if link.server is other]
    assert late.request[0].op == Op.COMMIT and late.up
    lost.crash()
    for link in first.links:
        link.down.clear()
    first.turn()
    assert world.flow(
        lambda: any(link.server is other and link.up and link.request[0].op == Op.PUSH for link in first.links), [first]
    )
    while late.up:
        world.carry(late)
    assert [len(some) for _, some in other.log] == [2]
    world.settle()
    world.close()


def test_a_round_that_counts_late_for_one_trainer_makes_no_gradient_count_twice(small_pieces):
    """Trainer 1 completes the round of an earlier view; a server is lost, and trainer 0 finds the round in part."""
    world, (first, second) = begin(2, dense=2, sparse=0)
    other, lost = world.servers
    assert world.flow(world.is_prepared)
    for link in second.links:
        link.down.clear()
    world.set_members({0})
    world.set_members({0, 1})
    second.known = world.view
    [late] = [link for link in second.links if link.server is other]
    assert world.flow(lambda: late.up and late.request[0].op == Op.COMMIT, [second])
    lost.crash()
    first.known = world.view
    first.turn()
    assert world.flow(
        lambda: any(link.server is other and link.up and link.request[0].op == Op.PUSH for link in first.links), [first]
    )
    before = len(other.log)
    while late.up:
        world.carry(late)
    assert len(other.log) == before + 1
    world.settle()
    world.close()
