"""What `SGD.train` does with a folder of checkpoints, and with servers, before any program runs."""

import random

import numpy as np
import pytest
from each import each

import paddle.v2 as paddle
from paddle_base.runtime.errors import (
    ConfigError,
    DamagedError,
    DataError,
    MissingInputError,
    PeerUnreachableError,
    UsageError,
)
from trainer.v2 import process

layer, data_type = paddle.layer, paddle.data_type


class Line:
    """A line through samples with 3 numbers."""

    def __init__(self, size=3, **more):
        x = layer.data(name="x", type=data_type.dense_vector(size))
        y = layer.data(name="y", type=data_type.dense_vector(1))
        self.cost = layer.square_error_cost(input=layer.fc(input=x, size=1), label=y)
        self.parameters = paddle.parameters.create(self.cost)
        self.optimizer = paddle.optimizer.Momentum(momentum=0.9, learning_rate=1e-2)
        self.trainer = paddle.trainer.SGD(self.cost, self.parameters, self.optimizer, **more)
        self.events, self.size = [], size

    def train(self, folder, count=16, passes=2, stop=None, **more):
        def handler(event):
            self.events.append(event)
            if isinstance(event, paddle.event.EndIteration) and (event.pass_id, event.batch_id) == stop:
                raise KeyboardInterrupt

        rows = np.random.default_rng(1).random((count, self.size), np.float32)
        reader = paddle.batch(lambda: [(row, [row.sum()]) for row in rows], 4)
        self.trainer.train(reader, passes, handler, checkpoint_dir=folder, **more)
        return self

    def batches(self):
        return [(one.pass_id, one.batch_id) for one in self.events if isinstance(one, paddle.event.EndIteration)]

    def values(self):
        return [self.parameters.get(name).tobytes() for name in self.parameters.names()]


@pytest.fixture(autouse=True)
def each_second_batch(monkeypatch):
    monkeypatch.setattr(process, "_found", [])
    monkeypatch.setattr(process, "_said", [])
    paddle.init(checkpoint_period_by_batches=2)


def test_a_training_goes_on_after_the_batches_of_the_newest_checkpoint(tmp_path, monkeypatch):
    whole = Line().train(None)
    monkeypatch.setattr(process, "_found", [])  # the random numbers begin again
    paddle.init(checkpoint_period_by_batches=2)
    first = Line()
    with pytest.raises(KeyboardInterrupt):
        first.train(tmp_path, stop=(1, 2))
    again = Line().train(tmp_path)
    assert again.batches() == [(1, 2), (1, 3)]
    assert again.values() == whole.values()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pass-00001", "pass-00001-002"]


def test_a_finished_training_trains_nothing_and_has_its_values(tmp_path):
    first = Line().train(tmp_path)
    again = Line().train(tmp_path)
    assert again.events == []
    assert again.values() == first.values()


def test_a_training_without_resume_begins_anew(tmp_path):
    Line().train(tmp_path)
    assert len(Line().train(tmp_path, resume=False).batches()) == 8


def test_a_pass_that_goes_on_shows_the_metrics_of_all_its_batches(tmp_path):
    """The sums of the batches before the checkpoint are in it."""
    x, y = layer.data(name="x", type=data_type.dense_vector(1)), layer.data(name="y", type=data_type.integer_value(2))
    cost = layer.classification_cost(input=layer.fc(input=x, size=2, act=paddle.activation.Softmax()), label=y)
    ends = []

    def train(folder, stop):
        def handler(event):
            if isinstance(event, paddle.event.EndIteration) and event.batch_id == stop:
                raise KeyboardInterrupt
            ends.extend([event.metrics] if isinstance(event, paddle.event.EndPass) else [])

        trainer = paddle.trainer.SGD(
            cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=1e-9)
        )
        samples = [([float(number)], int(number < 8)) for number in range(16)]
        trainer.train(paddle.batch(lambda: samples, 4), event_handler=handler, checkpoint_dir=folder)

    train(None, None)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, 2)
    train(tmp_path, None)
    assert ends[0] == ends[1] and ends[0]


def test_the_random_numbers_of_a_reader_are_those_of_the_whole_run(tmp_path):
    def train(folder, stop=None):
        random.seed(5)
        seen = []

        def reader():
            for _ in range(4):
                seen.append(random.random())
                yield [([seen[-1]] * 3, [1.0])]

        def handler(event):
            if isinstance(event, paddle.event.EndIteration) and (event.pass_id, event.batch_id) == stop:
                raise KeyboardInterrupt

        Line().trainer.train(reader, 2, handler, checkpoint_dir=folder)
        return seen

    whole = train(None)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stop=(1, 2))
    assert train(tmp_path) == whole[4:]  # two batches are read again, and dropped


def test_a_reader_with_fewer_batches_than_are_trained_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        Line().train(tmp_path, stop=(1, 2))
    with pytest.raises(
        DataError, match=r"the reader has yielded 1 batches, but 2 of pass 1 are trained: .*resume=False"
    ):
        Line().train(tmp_path, count=4)


def test_the_checkpoint_of_another_network_is_refused(tmp_path):
    Line().train(tmp_path)
    with pytest.raises(ConfigError, match="pass-00001"):
        Line(size=4).train(tmp_path)


def test_a_damaged_checkpoint_is_named(tmp_path):
    Line().train(tmp_path)
    (tmp_path / "pass-00001/trainers.json").write_text("[]")
    with pytest.raises((DamagedError, MissingInputError), match="pass-00001"):
        Line().train(tmp_path)


@each(
    ("flags", "arguments", "kind", "complaint"),
    [
        ({"trainer_id": 2, "num_gradient_servers": 2}, {}, UsageError, "trainer_id is 2"),
        ({"pservers": "a b"}, {}, UsageError, "pservers"),
        ({}, {"pserver_spec": " "}, UsageError, "etcd_endpoints is ' '"),
        ({}, {"pserver_spec": "127.0.0.1:0", "use_etcd": False}, UsageError, "pservers"),
    ],
)
def test_wrong_names_of_servers_are_refused(monkeypatch, flags, arguments, kind, complaint):
    monkeypatch.setattr(process, "_found", [])
    monkeypatch.setattr(process, "_said", [])
    paddle.init(**flags)
    with pytest.raises(kind, match=complaint):
        Line(is_local=False, **arguments).train(None)


def test_servers_that_are_not_there_are_named(monkeypatch):
    monkeypatch.setattr("trainer.updaters.parameter_servers.CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(PeerUnreachableError, match=r"127\.0\.0\.1:1"):
        Line(is_local=False, pserver_spec="127.0.0.1:1", use_etcd=False).train(None)


def test_one_trainer_of_a_process_has_the_servers(monkeypatch):
    from trainer.v2.jobs import servers

    monkeypatch.setattr(servers, "_open", [object()])
    paddle_flags = {"pserver_spec": "127.0.0.1:1", "use_etcd": False}
    monkeypatch.setattr("trainer.updaters.parameter_servers.ParameterServers.find_trainers", lambda self: None)
    with pytest.raises(ConfigError, match="only one SGD"):
        Line(is_local=False, **paddle_flags).train(None)


def test_servers_without_is_local_are_warned_of(capfd):
    Line(pserver_spec="127.0.0.1:1").train(None)
    assert "has no effect without is_local=False" in capfd.readouterr().err
