"""What the updater of a task job does in which order; its servers are one shard, and their connections fail."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError, LostPeerError
from pserver.optim.settings import Optimization
from pserver.wire.views import EpochChangedError, MembershipView
from trainer.arrays.parameters import ParameterTable
from trainer.updaters.tasks import updater as module
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.updater import TaskUpdater

ASYNC = Optimization("momentum", 1.0, algorithm="async_sgd")


class FakeViews:
    newest = MembershipView(1, (0,))

    def wait(self, epoch):
        return self.newest


class FakeElasticServers:
    """`joined` counts how often they were joined. `troubles` are raised by the next calls of these names."""

    def __init__(self):
        self.calls, self.troubles, self.joined, self.services = [], {}, 0, None
        self.views = FakeViews()
        self.averages = 9.0

    def connect(self, model, values, tables):
        self.model = model
        self.run(lambda services: self.note("connect"))

    def run(self, action):
        while True:
            if self.services is None:
                self.joined += 1
                self.services = object()
            try:
                return action(self)
            except LostPeerError as exc:
                self.lose(exc)

    def lose(self, error):
        self.services = None
        self.calls.append("lost")

    def drop(self):
        self.services = None
        self.calls.append("drop")

    def note(self, name):
        self.calls.append(name)
        if self.troubles.get(name):
            raise self.troubles[name].pop(0)

    def fetch(self, values, pass_number, *, averaged=False):
        self.note(f"fetch {'averages' if averaged else 'values'} {pass_number}")
        values[:] = self.averages if averaged else 5.0

    def push_from(self, start):
        self.note(f"push from {start}")


class FakePushes:
    """Takes the place of both modes."""

    def __init__(self, *_):
        self.pass_number = 0

    def open(self):
        self.servers.note("open")

    def prepare(self, services, values):
        self.servers.note("prepare")
        return False

    def begin(self, services, batch):
        self.servers.note("begin")

    def finish(self, services, batch, *, has_begun):
        self.servers.note(f"finish{' begun' if has_begun else ''} {batch.gradient.tolist()} {batch.samples}")


@pytest.fixture
def servers(monkeypatch):
    made = FakeElasticServers()
    monkeypatch.setattr(module, "CountedPushes", FakePushes)
    monkeypatch.setattr(FakePushes, "servers", made, raising=False)
    return made


def make_updater(servers, optimization=ASYNC, **fields):
    table = ParameterTable([ParameterConfig(name="w", size=2, dims=[1, 2], **fields)])
    updater = TaskUpdater(ModelConfig(), table, optimization, servers)
    # `run` gives its action the fake itself, which is what the updater must then take for the joined services
    servers.services = servers
    updater.connect()
    servers.calls.clear()
    return updater, table


def give(updater, table, gradient=1.0, samples=4):
    """One batch with this gradient in every element."""
    updater.prefetch({})
    push = updater.begin_step(samples)
    table.clear_gradients()
    table["w"].gradient[:] = gradient
    if push is not None:
        push(1)
        push(0)
    return updater.step(samples)


def test_a_batch_is_pushed_while_its_backward_pass_goes_on(servers):
    updater, table = make_updater(servers)
    assert give(updater, table) is False
    assert servers.calls == ["open", "prepare", "begin", "push from 1", "push from 0", "finish begun [1.0, 1.0] 4"]


def test_what_is_lost_inside_the_backward_pass_is_pushed_again_whole(servers):
    updater, table = make_updater(servers)
    servers.troubles["push from 1"] = [LostPeerError("gone")]
    give(updater, table)
    assert servers.calls == ["open", "prepare", "begin", "push from 1", "lost", "finish [1.0, 1.0] 4"]


def test_a_view_that_changes_inside_the_backward_pass_is_for_the_step_to_enter(servers):
    updater, table = make_updater(servers)
    servers.troubles["push from 0"] = [EpochChangedError("changed", 3)]
    give(updater, table)
    assert servers.calls[-2:] == ["push from 0", "finish [1.0, 1.0] 4"]


def test_a_push_that_cannot_begin_comes_with_the_step(servers):
    updater, table = make_updater(servers)
    servers.troubles["begin"] = [LostPeerError("gone"), EpochChangedError("changed", 3)]
    for _ in range(2):
        give(updater, table)
        assert servers.calls[-1] == "finish [1.0, 1.0] 4"
        assert "push from 1" not in servers.calls
        servers.services = servers


def test_what_is_lost_in_the_step_is_repeated_without_what_had_begun(servers):
    updater, table = make_updater(servers)
    servers.troubles["finish begun [1.0, 1.0] 4"] = [LostPeerError("gone")]
    give(updater, table)
    assert servers.calls[-3:] == ["finish begun [1.0, 1.0] 4", "lost", "finish [1.0, 1.0] 4"]


def test_a_trainer_whose_task_is_taken_closes_its_connections(servers):
    """What has not left yet of its gradient must not leave with the next one's bytes."""
    updater, table = make_updater(servers)
    servers.troubles["finish begun [1.0, 1.0] 4"] = [TaskTakenError("taken")]
    with pytest.raises(TaskTakenError):
        give(updater, table)
    assert servers.calls[-1] == "drop"


def test_a_batch_that_ends_in_its_backward_pass_leaves_nothing_behind(servers):
    """A number in it was not finite, and its task has failed."""
    updater, table = make_updater(servers)
    updater.prefetch({})
    table.clear_gradients()
    updater.begin_step(4)(1)
    servers.calls.clear()
    updater.prefetch({})
    assert servers.calls == ["drop", "open", "prepare"]


def test_pruned_gradients_are_masked_and_not_pushed_early(servers):
    fields = {"update_hooks": [{"type": "pruning", "sparsity_ratio": 0.5}]}
    updater, table = make_updater(servers, **fields)
    table["w"].value[:] = 1
    updater._pruning.start()
    give(updater, table)
    assert servers.calls == ["open", "prepare", "finish [1.0, 0.0] 4"]


def test_only_after_the_pass_the_servers_hear_that_it_is_over(servers):
    updater, table = make_updater(servers, Optimization("momentum", 1.0, algorithm="async_sgd", average_window=0.5))
    updater.set_pass(2)
    with updater.averaged():
        assert table.values.tolist() == [9.0, 9.0]
    updater.finish_pass()
    assert table.values.tolist() == [5.0, 5.0]
    with updater.averaged():
        assert table.values.tolist() == [9.0, 9.0]
    assert table.values.tolist() == [5.0, 5.0]
    assert servers.calls == ["fetch averages 2", "fetch values 3", "fetch averages 3"]


def test_without_averages_a_test_takes_the_values_that_are_here(servers):
    updater, table = make_updater(servers)
    before = table.values.copy()
    with updater.averaged():
        assert np.array_equal(table.values, before)
    assert servers.calls == []


def test_checkpoints_of_trainers_are_refused(servers):
    updater, _ = make_updater(servers)
    with pytest.raises(ConfigError, match="leave --resume_from out"):
        updater.connect(restored=object())
    with pytest.raises(ConfigError, match="--checkpoint_path"):
        updater.gather_checkpoint({})
