"""Trainers of a task job on real servers that are killed, frozen and started again: what counts, and how often.

With rate 0.5 and gradients of ones every push takes 0.5 from every value, exactly. A server stores a snapshot ten times
a second, so `steps_stored` says what it has taken.
"""

import dataclasses
import multiprocessing
import threading

import numpy as np
import pytest
from tasks_job import ASYNC, SYNC, Background, ElasticJob, until

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.registry.servers import INIT_DONE, INIT_LOCK
from paddle_base.runtime.errors import LostPeerError
from pserver.client.checkpoint_requests import SendInitialValues
from pserver.client.tasks.services import JoinedServices
from pserver.optim.settings import Optimization, ParameterSpec
from trainer.arrays.arguments import Argument
from trainer.updaters.tasks.errors import TaskTakenError

DEADLINE = 60.0


@pytest.fixture
def job(fork_server, tmp_path):
    """Make a job of servers; all end with the test."""
    made = []

    def make(count=2, *flags):
        made.append(ElasticJob(fork_server, tmp_path, count, "--checkpoint_interval=0.1s", *flags))
        return made[-1]

    yield make
    for one in made:
        one.end()


def all_of(trainer):
    """The values of a trainer, each once."""
    return set(trainer.values.tolist())


def stored(job, steps):
    """Wait until the snapshots of all servers have these steps."""
    until(lambda: [job.steps_stored(index) for index in range(job.count)] == [steps] * job.count, f"{steps} steps")


# ----- Asynchronous


def test_trainers_come_and_go_and_every_push_counts_once(job):
    servers = job().start()
    one = servers.trainer(0, first=8.0).connect()
    one.give(1.0).give(1.0)
    two = servers.trainer(1, first=99.0).connect()
    assert all_of(two) == {7.0}
    two.give(1.0)
    one.updater.finish()
    two.give(1.0)
    assert all_of(two) == {6.0}


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("own_addresses", [(), ("127.0.0.1",)])
def test_a_push_that_only_one_server_has_taken_when_the_other_is_killed_counts_once(job, is_early, own_addresses):
    servers = job().start()
    servers.own_addresses = own_addresses
    one = servers.trainer(0, first=8.0).connect()
    one.give(1.0)
    stored(servers, 1)
    servers.freeze(1)
    if not is_early:
        one.updater.begin_step = lambda samples: None
    step = Background(one.give, 1.0)
    until(lambda: servers.steps_stored(0) == 2, "the push on the server that is there")
    servers.kill(1)
    servers.start(1)
    step.end()
    assert all_of(one) == {7.0}
    stored(servers, 2)
    assert all_of(one.give(1.0)) == {6.5}


def test_a_push_that_was_taken_and_whose_answer_was_lost_counts_once(job):
    """The server stores the push, and is killed before its trainer hears of it."""
    servers = job(1).start()
    one = servers.trainer(0, first=8.0).connect()
    dense = one.servers.services.dense

    def finish():
        dense.send()
        stored(servers, 1)
        servers.kill(0)
        servers.start(0)
        raise LostPeerError("the connection was lost")

    dense.finish = finish
    one.give(1.0)
    assert all_of(one) == {7.5}
    assert all_of(one.give(1.0)) == {7.0}


# ----- Synchronous


def together(trainers, gradients):
    """A round of these trainers."""
    for step in [Background(one.give, gradient) for one, gradient in zip(trainers, gradients, strict=True)]:
        step.end()


def test_rounds_of_all_members_and_a_newcomer_between_two(job):
    servers = job().start()
    servers.master.tell(1, 0, 1)
    one, two = (servers.trainer(number, SYNC, first=8.0).connect() for number in range(2))
    together([one, two], [1.0, 2.0])
    assert all_of(one) == all_of(two) == {6.5}
    three = servers.trainer(2, SYNC).connect()
    step = Background(one.give, 1.0)  # it waits for the second, and goes on in the next view
    servers.master.tell(2, 0, 1, 2)
    together([two, three], [1.0, 1.0])
    step.end()
    assert all_of(one) == all_of(two) == all_of(three) == {5.0}
    servers.master.tell(3, 2)
    assert all_of(three.give(1.0)) == {4.5}


def test_the_round_of_a_member_that_goes_is_taken_again_by_those_that_stay(job):
    """The gradient of the one that goes is here, but not of all: it counts not at all."""
    servers = job().start()
    servers.master.tell(1, 0, 1, 2)
    one, two, three = (servers.trainer(number, SYNC, first=8.0).connect() for number in range(3))
    steps = [Background(one.give, 1.0), Background(two.give, 64.0)]
    until(lambda: all(step.is_alive() for step in steps), "both pushes")
    servers.master.tell(2, 0, 2)
    with pytest.raises(TaskTakenError, match="trainer 1 is not among the trainers with a task"):
        steps[1].end()
    three.give(1.0)
    steps[0].end()
    assert all_of(one) == all_of(three) == {7.0}


class Dead(BaseException):
    """The end of a trainer that is killed; nothing of ours catches it."""


def die_after(services, count):
    """Let a trainer die when it has committed the round on its first `count` services."""

    def commit(key, view, values, chosen=None):
        if count:
            JoinedServices.commit(services, key, view, values, range(count))
        services.close()
        raise Dead

    services.commit = commit


def cut_off(services):
    """Let a trainer lose its connections before it commits a round; return the event of that."""
    is_cut = threading.Event()

    def commit(*arguments):
        is_cut.set()
        raise LostPeerError("cut off")

    services.commit = commit
    return is_cut


@pytest.mark.parametrize("committed", [0, 1, 2])
@pytest.mark.parametrize("own_addresses", [(), ("127.0.0.1",)])
def test_a_trainer_killed_between_push_and_commit_leaves_a_round_that_counts_on_all(job, committed, own_addresses):
    """The other one was cut off by then: it settles the round when it enters the next view."""
    servers = job().start()
    servers.own_addresses = own_addresses
    servers.master.tell(1, 0, 1)
    one, two = (servers.trainer(number, SYNC, first=8.0).connect() for number in range(2))
    together([one, two], [1.0, 1.0])
    die_after(one.servers.services, committed)
    is_cut = cut_off(two.servers.services)
    step = Background(two.give, 2.0)
    with pytest.raises(Dead):
        one.give(1.0)
    assert is_cut.wait(DEADLINE)
    servers.master.tell(2, 1)
    step.end()
    assert all_of(two) == {5.5}
    assert all_of(two.give(1.0)) == {5.0}
    three = servers.trainer(2, SYNC).connect()
    assert all_of(three) == {5.0}


BITS = [
    ParameterConfig(name="w", size=5000, dims=[50, 100], momentum=0.5),
    ParameterConfig(name="b", size=3, dims=[1, 3], learning_rate=2.0),
    ParameterConfig(name="v", size=3000, dims=[30, 100], gradient_clipping_threshold=1.0, decay_rate=0.01),
]


@pytest.mark.parametrize(
    "optimization",
    [
        dataclasses.replace(SYNC, average_window=0.5, max_average_window=4),
        Optimization("adam", 0.1, learning_rate_schedule="pass_manual", learning_rate_args="0:1.0,1:0.5"),
        Optimization("adagrad", 0.1),
    ],
    ids=lambda one: one.learning_method,
)
def test_with_fixed_membership_the_bits_are_those_of_the_static_job(job, pserver, client, optimization):
    random = np.random.default_rng(5)
    gradients = (random.standard_normal((2, 6, 8003)) * 10.0 ** random.integers(-3, 3, (2, 6, 1))).astype(np.float32)
    servers = job().start()
    servers.master.tell(1, 0, 1)
    trainers = [servers.trainer(number, optimization, BITS, first=0.25).connect() for number in range(2)]
    for number in range(6):
        for one in trainers:
            one.updater.set_pass(number // 3)
        together(trainers, gradients[:, number])
    trainers[0].updater.finish_pass()
    with trainers[0].updater.averaged():
        averages = trainers[0].values.copy()

    static = [pserver(trainers=2) for _ in range(2)]
    services = [service for one in static for service in one.services]
    specs: list[ParameterSpec] = [parameter.spec() for parameter in trainers[0].table]

    def train(number):
        one, values = client(services, number, 2), np.full(8003, 0.25, np.float32)
        one.join(specs, optimization)
        one.initialise(values)
        for first in (0, 3):
            one.start_pass()
            for batch in range(first, first + 3):
                one.push_pull(gradients[number, batch].copy(), values, 1)
            one.finish_pass(values)
        averages = values.copy()
        if optimization.average_window:
            one.fetch_averages(averages)
        return values, averages

    found = [step.end() for step in [Background(train, number) for number in range(2)]]
    assert found[0][0].tobytes() == trainers[0].values.tobytes()
    assert found[0][1].tobytes() == averages.tobytes()
    assert bool(optimization.average_window) == (averages.tobytes() != trainers[0].values.tobytes())


# ----- Tables

TABLES = [
    ParameterConfig(name="w", size=6, dims=[2, 3]),
    ParameterConfig(name="emb", size=200, dims=[100, 2], sparse_update=True, sparse_remote_update=True),
]
WORDS = [3, 4, 98, 99]  # some rows of each server


def words():
    """A model that uses rows of a table, and a batch of it."""
    config = ModelConfig(type="nn")
    config.layers.add(name="word", type="data", size=100)
    mixed = config.layers.add(name="e", type="mixed", size=2)
    given = mixed.inputs.add(input_layer_name="word", input_parameter_name="emb")
    given.proj_conf.type, given.proj_conf.input_size, given.proj_conf.output_size = "table", 100, 2
    return config, {"word": Argument(ids=np.array(WORDS))}


def give_words(trainer, slots):
    """A batch whose gradients are ones, of the dense parameter and of the rows that it uses."""
    trainer.updater.prefetch(slots)
    trainer.table.clear_gradients()
    trainer.table["w"].gradient[:] = 1.0
    trainer.table["emb"].add_rows(np.array(WORDS), np.ones((len(WORDS), 2), np.float32))
    trainer.updater.step(1)


def tables_of(trainer):
    """The values of the dense parameter, of the rows that batches use, and of the other rows."""
    trainer.updater.finish_pass()
    with trainer.updater.averaged():
        table = trainer.table["emb"].value.reshape(-1, 2)
        others = np.delete(table, WORDS, axis=0)
        return [set(part.ravel().tolist()) for part in (trainer.table["w"].value, table[WORDS], others)]


def test_tables_of_asynchronous_trainers_count_each_push_once_when_a_server_is_killed(job):
    servers, (model, slots) = job(2, "--ports_num_for_sparse=1").start(), words()
    one = servers.trainer(0, ASYNC, TABLES, first=8.0, model=model).connect()
    two = servers.trainer(1, ASYNC, TABLES, model=model).connect()
    give_words(one, slots)
    stored(servers, 2)  # of the dense and of the sparse service
    servers.freeze(1)
    step = Background(give_words, two, slots)
    servers.kill(1)
    servers.start(1)
    step.end()
    give_words(one, slots)
    assert tables_of(two) == tables_of(one) == [{6.5}, {6.5}, {8.0}]


def test_tables_and_dense_parameters_of_a_synchronous_round_count_together(job):
    servers, (model, slots) = job(2, "--ports_num_for_sparse=1").start(), words()
    servers.master.tell(1, 0, 1)
    one, two = (servers.trainer(number, SYNC, TABLES, first=8.0, model=model).connect() for number in range(2))
    for step in [Background(give_words, each, slots) for each in (one, two)]:
        step.end()
    assert tables_of(two) == [{7.0}, {7.0}, {8.0}]
    die_after(one.servers.services, 1)  # it commits on the first dense service, and on none of the sparse ones
    is_cut = cut_off(two.servers.services)
    step = Background(give_words, two, slots)
    with pytest.raises(Dead):
        give_words(one, slots)
    assert is_cut.wait(DEADLINE)
    servers.master.tell(2, 1)
    step.end()
    assert tables_of(two) == [{6.0}, {6.0}, {8.0}]


# ----- First values


class OnlyToTheFirst(SendInitialValues):
    """The first values, of which all but the first service get nothing."""

    def count_pieces(self, channel):
        return super().count_pieces(channel) if self.is_first(channel) else 0

    def count_answers(self, channel):
        return super().count_answers(channel) if self.is_first(channel) else 0

    def is_first(self, channel):
        return channel.connection.port == self.first


def give_to_the_first_server(folder, first):
    """A trainer in a process of its own that does not come to give the second server anything."""

    def give(services, values, tables):
        request = OnlyToTheFirst(services.dense._model.note, values, {})
        request.first = services.dense.member.services[0][1]
        services.dense.request(request)
        threading.Event().wait()

    JoinedServices.give = give
    ElasticJob(None, folder, 2).trainer(0, ASYNC, first=first).connect()


def test_when_the_trainer_that_gives_the_first_values_is_killed_the_next_one_does(job, tmp_path):
    """One server has its values, the other the next one's; then all trainers have the same values."""
    servers = job().start()
    holder = multiprocessing.get_context("spawn").Process(target=give_to_the_first_server, args=(tmp_path, 5.0))
    holder.start()
    until(lambda: servers.steps_stored(0) == 0, "the first values on the server that is there")
    assert INIT_LOCK in servers.registry.read("init/")
    holder.kill()
    holder.join(DEADLINE)
    one = servers.trainer(1, first=7.0).connect()
    two = servers.trainer(2, first=9.0).connect()
    assert INIT_DONE in servers.registry.read("init/")
    assert all_of(one) == {5.0, 7.0}
    assert one.values.tobytes() == two.values.tobytes()
