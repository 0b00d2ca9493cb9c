"""What trainers send to servers and take from them: gradients, or what steps of their own changed.

The servers are one shard that takes what comes at once, as in asynchronous training.
"""

import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.parameters import ParameterTable
from trainer.flags import parse_flags
from trainer.updaters import parameter_servers
from trainer.updaters.delta import DeltaUpdater, share_decay
from trainer.updaters.optimizer_settings import Sending
from trainer.updaters.remote import RemoteUpdater

PLAIN = Optimization("momentum", 1.0, algorithm="async_sgd")


class Servers:
    """The values of the servers, and the numbers of the trainers that asked for a checkpoint."""

    def __init__(self):
        self.shard = None
        self.asked = []

    def client(self, number=0):
        return Client(self, number)


class Client:
    """One trainer's connection; `calls` are the names of what it asked for, and how much came back."""

    def __init__(self, servers, number):
        self.servers, self.number = servers, number
        self.calls, self.owns, self.gradients = [], [], []
        self.is_due = False

    def join(self, parameters, optimization):
        self.parameters, self.optimization = parameters, optimization

    def initialise(self, values, restored=None):
        if self.number == 0:
            self.servers.shard = DenseShard(
                self.parameters, partition.whole(self.parameters), self.optimization, per_parameter=True
            )
            self.servers.shard.values[:] = values
        values[:] = self.servers.shard.values

    def start_pass(self, batch=0):
        self.calls.append("start")

    def push(self, gradient, samples, *, checkpoint=False):
        self.calls.append("push")
        self.gradients.append(gradient.tolist())
        self.servers.shard.step(gradient.copy(), samples)
        if checkpoint:
            self.servers.asked.append(self.number)
        return checkpoint or self.is_due

    def push_pull(self, gradient, values, samples, *, checkpoint=False):
        is_due = self.push(gradient, samples, checkpoint=checkpoint)
        self.calls[-1] = "push_pull"
        self.fetch(values)
        return is_due

    def fetch(self, values):
        values[:] = self.servers.shard.values

    def fetch_values(self, values):
        self.calls.append("fetch")
        self.fetch(values)

    def fetch_averages(self, values):
        values[:] = self.servers.shard.averages()

    def finish_pass(self, values, own=None):
        self.calls.append("finish")
        self.fetch(values)

    def leave_blob(self, data):
        self.blob = bytes(data)

    def gather_checkpoint(self, own):
        self.calls.append("gather_checkpoint")
        self.owns.append(own)


@pytest.fixture
def servers():
    return Servers()


def make_table(values=(0.0,), **fields):
    table = ParameterTable([ParameterConfig(name="w", size=len(values), dims=[1, len(values)], **fields)])
    table["w"].value[:] = values
    return table


def give(updater, table, gradient, samples=1, **more):
    """One batch with this gradient in every element; returns what the step says."""
    table.clear_gradients()
    table["w"].gradient[:] = gradient
    return updater.step(samples, **more)


# ----- Gradients -----


def test_the_settings_of_a_parameter_are_checked_before_any_server_is_asked(servers):
    table = make_table(momentum=0.5, decay_rate_l1=0.1)
    with pytest.raises(ConfigError, match=r"parameter w has momentum 0\.5 and L1, which do not go together"):
        RemoteUpdater(table, PLAIN, servers.client())


def test_values_come_with_every_kth_gradient_only(servers):
    table, client = make_table(), servers.client()
    updater = RemoteUpdater(table, PLAIN, client, batches_per_get=3)
    updater.connect()
    updater.start_pass()
    seen = []
    for _ in range(6):
        give(updater, table, 1)
        seen.append(table["w"].value.tolist()[0])
    assert seen == [0, 0, -3, -3, -3, -6]
    assert client.calls == ["start", *["push", "push", "push_pull"] * 2]
    give(updater, table, 1)
    updater.finish_pass()
    assert table["w"].value.tolist() == [-7]


def test_a_checkpoint_waits_for_the_values(servers):
    """There the trainers have what the servers have, so that nothing of theirs need be kept."""
    table, client = make_table(), servers.client()
    updater = RemoteUpdater(table, PLAIN, client, batches_per_get=3)
    updater.connect()
    updater.start_pass()
    assert [give(updater, table, 1, checkpoint=number == 0) for number in range(4)] == [False, False, True, False]
    assert servers.asked == [0]
    client.is_due = True
    assert give(updater, table, 1) is True  # another trainer asked
    assert table["w"].value.tolist() == [-5] and client.calls[-1] == "fetch"


def test_every_trainer_prunes_what_trainer_zero_pruned(servers):
    def hooked(values):
        table = make_table(values)
        table["w"].config.update_hooks.add(type="pruning", sparsity_ratio=0.5)
        return table

    RemoteUpdater(hooked([1, -3, 2, 0.5]), PLAIN, servers.client()).connect()
    table, client = hooked([9, 9, 1, 1]), servers.client(1)
    updater = RemoteUpdater(table, PLAIN, client)
    updater.connect()
    assert table["w"].value.tolist() == [0, -3, 2, 0]
    give(updater, table, 1)
    assert client.gradients == [[0, 1, 1, 0]]


@pytest.mark.parametrize(("window", "seen"), [(1.0, [-1.5]), (0.0, [-2])])
def test_averages_come_from_the_servers_where_the_config_asks_for_them(servers, window, seen):
    table = make_table()
    updater = RemoteUpdater(table, Optimization("momentum", 1.0, average_window=window), servers.client())
    updater.connect()
    for _ in range(2):
        give(updater, table, 1)
    with updater.averaged():
        assert table["w"].value.tolist() == seen
    assert table["w"].value.tolist() == [-2]
    assert updater.rates(table["w"]) is None


# ----- Steps of the trainers' own -----


def test_the_parameters_beside_tables_take_steps_of_their_own(servers):
    """It was refused: num_batches_per_send_parameter over 1 with sparse_update. Rows go in every batch, as in v0.10."""
    tables = ParameterConfig(name="t", size=4, dims=[2, 2], sparse_update=True, sparse_remote_update=True)
    configs = [ParameterConfig(name="w", size=1, dims=[1, 1]), tables]
    table = ParameterTable(configs, tables_first=True)
    table["t"].value[:] = 9
    dense = DenseParameters(table)
    updater = DeltaUpdater(dense, PLAIN, Sending(2, 1, 0.5), servers.client(), trainers=2, is_first=True)
    updater.connect()
    updater.start_pass()
    seen = []
    for _ in range(4):
        give(updater, table, 1)
        seen.append(table["w"].value.tolist())
    assert seen == [[-1], [-1], [-2], [-2]]
    assert table["t"].value.tolist() == [9] * 4 and table.values[4:].tolist() == [-2]


def make_delta_updaters(servers, values, sending, trainers, optimization=PLAIN, **fields):
    made = []
    for number, value in enumerate(values):
        table = make_table([value], **fields)
        updater = DeltaUpdater(
            table, optimization, sending, servers.client(number), trainers=trainers, is_first=number == 0
        )
        updater.connect()
        updater.start_pass()
        made.append((updater, table))
    return made


def test_the_centre_moves_by_the_mean_of_the_changes(servers):
    """distributed.md 3.15: N = 4, delta_add_rate 1, deltas 4, 0, 0, 0 -> centre +1."""
    made = make_delta_updaters(servers, [0.0] * 4, Sending(2, 1, 0.25), 4)
    for number, (updater, table) in enumerate(made):
        for _ in range(2):
            give(updater, table, -2 if number == 0 else 0)
    assert servers.shard.values.tolist() == [1]
    assert [table["w"].value.tolist()[0] for _, table in made] == [1] * 4


def test_elastic_averages_move_centre_and_trainer_towards_each_other(servers):
    """distributed.md 3.15: N = 4, rate 0.25, centre 0, local 8 -> delta 8, centre 2, local 6."""
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(2, 1, 0.25, is_elastic=True), 4)
    for _ in range(2):
        give(updater, table, -4)
    assert servers.shard.values.tolist() == [2] and table["w"].value.tolist() == [6]


def test_between_two_exchanges_a_trainer_goes_its_own_way_with_its_own_method(servers):
    settings = Optimization("momentum", 0.5, algorithm="async_sgd")
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(3, 1, 0.5), 2, settings, momentum=0.5)
    seen = []
    for _ in range(4):
        give(updater, table, 2, samples=5)
        seen.append(table["w"].value.tolist()[0])
    # own steps of velocity -1, -1.5, -1.75; the centre takes half of the sum; the velocity goes on
    assert seen == [-1, -2.5, -2.125, -2.125 - 1.875]
    assert servers.shard.samples == 15


def test_what_is_left_at_the_end_of_a_pass_is_sent(servers):
    """The original lost it."""
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(4, 1, 0.5), 2)
    give(updater, table, 1)
    updater.finish_pass()
    assert servers.shard.values.tolist() == table["w"].value.tolist() == [-0.5]
    updater.start_pass()
    updater.finish_pass()
    assert servers.shard.steps == 1


def test_after_a_pass_the_centre_is_tested_and_saved_and_the_own_values_come_back(servers):
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(1, 1, 0.25, is_elastic=True), 4)
    give(updater, table, -8)
    with updater.averaged():
        assert table["w"].value.tolist() == [2]
    assert table["w"].value.tolist() == [6]
    updater.finish_pass()
    with updater.averaged():
        assert table["w"].value.tolist() == [2]
    updater.start_pass()
    assert table["w"].value.tolist() == [6]


def test_averages_are_those_of_the_centre(servers):
    settings = Optimization("momentum", 1.0, average_window=1.0, algorithm="async_sgd")
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(2, 1, 0.5), 2, settings)
    for _ in range(4):
        give(updater, table, -1)
    assert table["w"].value.tolist() == [2]
    with updater.averaged():
        assert table["w"].value.tolist() == [1.5]
    assert table["w"].value.tolist() == [2]


def test_a_checkpoint_waits_for_the_exchange(servers):
    [(updater, table)] = make_delta_updaters(servers, [0.0], Sending(3, 1, 0.5), 2)
    assert [give(updater, table, 1, checkpoint=number == 0) for number in range(4)] == [False, False, True, False]
    assert servers.asked == [0]


def test_a_checkpoint_that_falls_into_the_last_exchange_gets_the_end_of_the_pass(servers):
    first, second = make_delta_updaters(servers, [0.0, 0.0], Sending(3, 1, 0.5), 2)
    for updater, table in (first, second):
        updater._client.is_due = True
        give(updater, table, 1)
        updater.finish_pass({"place": "end"})
    assert [own["place"] for own in second[0]._client.owns] == ["end"]
    assert first[0]._client.owns == []  # nobody could write it


def test_a_trainer_prunes_its_own_steps(servers):
    table = make_table([4, 3, 1, 2])
    table["w"].config.update_hooks.add(type="pruning", sparsity_ratio=0.5)
    updater = DeltaUpdater(table, PLAIN, Sending(2, 1, 0.5), servers.client(), trainers=2, is_first=True)
    updater.connect()
    updater.start_pass()
    for _ in range(2):
        give(updater, table, 1)
    assert table["w"].value.tolist() == [3, 2, 0, 0]


# ----- Decay -----


def test_a_decay_of_the_exchanges_is_the_servers(servers):
    """num_batches_regularization is num_batches_per_send_parameter: w / (1 + rate * decay * k * N * delta_add_rate)."""
    fields = {"decay_rate": 0.01, "num_batches_regularization": 4}
    optimization = Optimization("momentum", 0.5)
    [(updater, table)] = make_delta_updaters(servers, [1.0], Sending(4, 1, 0.5), 2, optimization, **fields)
    for _ in range(4):
        give(updater, table, -1)
    moved = 1 + 0.5 * (4 * 0.5)
    assert table["w"].value[0] == pytest.approx(moved / (1 + 0.5 * 0.01 * 4), rel=1e-6)


@pytest.mark.parametrize(
    ("sending", "is_asynchronous", "own", "served"),
    [
        (Sending(4, 1, 0.5), False, 0.0, 0.04),
        (Sending(4, 1, 0.5), True, 0.0, 0.02),
        (Sending(3, 1, 0.5), False, 0.01, 0.0),
        (Sending(4, 1, 0.5, is_elastic=True), False, 0.01, 0.0),
    ],
    ids=["synchronous", "asynchronous", "another period", "elastic"],
)
def test_who_decays_depends_on_the_period_and_the_method(sending, is_asynchronous, own, served):
    spec = ParameterSpec("w", 2, decay_rate=0.01, num_batches_regularization=4, gradient_clipping_threshold=1.0)
    [local], [server] = share_decay([spec], sending, trainers=2, is_asynchronous=is_asynchronous)
    assert local.decay_rate == own and server.decay_rate == pytest.approx(served)
    assert (server.gradient_clipping_threshold, server.momentum, server.num_batches_regularization) == (0, 0, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decay_rate": 0.03}, "its decay on the servers is 0.12 in each exchange; it must be at most 0.1"),
        ({"decay_rate_l1": 0.03}, "its decay on the servers is 0.12"),
        ({"decay_rate": 0.01, "momentum": 0.9}, "momentum 0.9 and num_batches_regularization over 1"),
    ],
)
def test_a_decay_that_does_not_go_on_servers_is_refused(fields, message):
    spec = ParameterSpec("w", 2, num_batches_regularization=4, **fields)
    with pytest.raises(ConfigError, match=message):
        share_decay([spec], Sending(4, 1, 0.5), trainers=2, is_asynchronous=False)


# ----- the number of trainers -----


@pytest.mark.parametrize(
    ("flags", "number", "expected"),
    [
        (["--trainer_id=2"], 3, 3),
        (["--num_gradient_servers=2"], 3, 2),  # the flag counts, and the server refuses another number
        (["--start_pserver"], 3, 1),
        ([], 0, 1),  # a server with a store refuses this trainer when it joins
    ],
)
def test_a_trainer_without_the_flag_takes_the_number_of_trainers_from_the_server(monkeypatch, flags, number, expected):
    monkeypatch.setattr(parameter_servers, "count_trainers", lambda service, **options: number)
    values = parse_flags(["--local=0", *flags])
    parameter_servers.ParameterServers(values).find_trainers()
    assert values.num_gradient_servers == expected


def test_a_trainer_for_whom_the_server_has_no_place_is_told_both_flags(monkeypatch):
    monkeypatch.setattr(parameter_servers, "count_trainers", lambda service, **options: 2)
    servers = parameter_servers.ParameterServers(parse_flags(["--local=0", "--trainer_id=2"]))
    with pytest.raises(ConfigError, match=r"--trainer_id is 2, but .* --num_gradient_servers=2, for trainers 0 to 1"):
        servers.find_trainers()
