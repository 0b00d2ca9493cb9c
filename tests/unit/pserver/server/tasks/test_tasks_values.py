"""The first values come from any trainer and count once; they leave when a snapshot has them."""

import numpy as np
import pytest
from pserver_wire import PARAMETERS, SGD
from tasks_wire import TABLE

from paddle_base.runtime.errors import DamagedError, LostPeerError, VolumeError
from pserver.optim.settings import Optimization
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol
from pserver.wire.protocol import Fetch, Op


def test_any_trainer_gives_the_values_and_a_second_one_is_acknowledged_and_ignored(elastic):
    one = elastic()
    first, second = (one.trainer(number).join() for number in (4, 9))
    second.fetch()
    assert second.last.op == Op.HELLO  # it waits
    first.initialise(values=np.arange(7))
    assert first.last.op == Op.INITIALISE and second.values.tolist() == list(range(7))
    second.initialise(values=np.ones(7))
    assert second.last.op == Op.INITIALISE and one.values.tolist() == list(range(7))


@pytest.mark.parametrize("kind", [Fetch.INITIAL, Fetch.CURRENT, Fetch.AVERAGES])
def test_a_fetch_without_values_waits(elastic, kind):
    one = elastic()
    first, second = (one.trainer(number).join() for number in (0, 1))
    second.fetch(kind)
    first.initialise(values=np.arange(7))
    assert second.values.tolist() == list(range(7))


def begin_values(one, trainer, monkeypatch):
    """Send the first of two pieces of the values."""
    monkeypatch.setattr(protocol, "PIECE_BYTES", 16)
    trainer.ask(Op.INITIALISE, note=describe_setup(PARAMETERS, SGD), payload=[np.arange(4, dtype="f4").tobytes()])
    assert trainer.last.op == Op.INITIALISE


def send_rest(trainer):
    trainer.ask(Op.INITIALISE, repeat=True, payload=[np.arange(4, 7, dtype="f4").tobytes()], piece=1)


def test_a_trainer_that_dies_with_half_of_the_values_leaves_nothing(elastic, monkeypatch):
    one = elastic()
    first, second = (one.trainer(number).join() for number in (0, 1))
    begin_values(one, first, monkeypatch)
    one.service.sessions.suspect(first.token + b"d", one.now)
    one.check(3)
    send_rest(second)
    assert second.last.op == Op.ERROR and one.service.state.rounds is None
    begin_values(one, second, monkeypatch)
    send_rest(second)
    assert second.last.op == Op.INITIALISE and one.values.tolist() == list(range(7))


def test_a_trainer_that_lost_the_lock_meanwhile_does_not_mix_its_values_in(elastic, monkeypatch):
    one = elastic()
    first, second = (one.trainer(number).join() for number in (0, 1))
    begin_values(one, first, monkeypatch)
    begin_values(one, second, monkeypatch)
    send_rest(first)
    assert first.last.op == Op.ERROR and first.last.note["exit_code"] == LostPeerError.exit_code
    send_rest(second)
    assert one.values.tolist() == list(range(7))


class Snapshot:
    """A snapshot that is being written."""

    is_done, error = False, None


def test_nothing_leaves_before_the_first_snapshot_is_stored(elastic):
    one = elastic()
    snapshot, asked = Snapshot(), []
    one.service.on_values = lambda service: asked.append(service.take_snapshot(copies=False)) or snapshot
    first, second, third = (one.trainer(number).join() for number in range(3))
    second.fetch()
    first.initialise(values=np.arange(7))
    third.initialise(values=np.ones(7))
    assert [capture.arrays["values"].tolist() for capture in asked] == [list(range(7))]
    for trainer in (first, second, third):
        assert trainer.last.op == Op.HELLO
    third.push_alone(1, 1.0)
    assert third.last.op == Op.ERROR and "no values yet" in third.last.note["message"]
    first.ping()
    assert "snapshot" in first.last.note["waits_for"] and one.check() == []
    snapshot.is_done = True
    one.check()
    assert first.last.op == Op.INITIALISE and second.values.tolist() == list(range(7))
    assert third.fetch().values.tolist() == list(range(7)) and len(asked) == 1


def test_a_first_snapshot_that_cannot_be_written_ends_the_service(elastic):
    one = elastic()
    snapshot = Snapshot()
    one.service.on_values = lambda service: snapshot
    first = one.trainer(0).join().initialise()
    snapshot.is_done, snapshot.error = True, VolumeError("no space")
    one.check()
    assert one.service.failure is snapshot.error and first.last.note["exit_code"] == LostPeerError.exit_code
    again = elastic()
    again.service.on_values = lambda service: snapshot  # which has failed already
    first = again.trainer(0).join().initialise()
    assert again.service.failure is snapshot.error and first.last.op == Op.ERROR


def test_a_snapshot_that_is_written_at_once_is_not_waited_for(elastic):
    one = elastic()
    asked = []
    one.service.on_values = asked.append
    assert one.trainer(0).join().initialise().last.op == Op.INITIALISE and asked == [one.service]


def test_a_setup_that_restores_is_refused(elastic):
    one = elastic()
    trainer = one.trainer(0).join()
    trainer.ask(Op.INITIALISE, note=describe_setup(PARAMETERS, SGD) | {"counters": {}}, payload=[bytes(28)])
    assert "must not contain counters" in trainer.last.note["message"]


def test_fetched_values_are_as_they_were_when_others_go_on(elastic):
    one = elastic()
    first, second = one.ready(2, optimization=Optimization("momentum", 0.1, algorithm="async_sgd"))
    [(_, answer)] = one.service._values.fetch(
        one.service.sessions.trainers[1], protocol.Message(Op.FETCH, b"", 1, second.sequence + 1, Fetch.CURRENT), 0.0
    )
    first.push_alone(1, 1.0)
    assert np.frombuffer(answer.payload[0], "f4").tolist() == [0] * 7 and one.values[0] != 0


def test_a_fetch_of_the_values_after_a_pass_ends_it(elastic):
    """As FINISH_PASS does in a static job: decay that is due comes first."""
    one = elastic()
    [trainer] = one.ready()
    shard = one.service.state.rounds.shard
    trainer.fetch(Fetch.CURRENT, note={"pass": 2})
    assert trainer.last.op == Op.FETCH and shard.passes == 2
    trainer.fetch(Fetch.CURRENT, note={"pass": 1})
    assert shard.passes == 2
    trainer.fetch(Fetch.CURRENT, note={"pass": -1})
    assert trainer.last.op == Op.ERROR and shard.passes == 2


def test_rows_are_looked_up_when_there_are_values(elastic):
    one = elastic()
    [trainer] = one.ready_rows()
    trainer.ask(Op.FETCH, argument=Fetch.ROWS, payload=[np.array([2, 0, 3], "u4").tobytes()])
    assert trainer.values.shape == (6,)
    trainer.fetch(Fetch.INITIAL)
    assert trainer.last.op == Op.FETCH and not trainer.last.payload
    trainer.fetch(Fetch.CURRENT)
    assert trainer.values.shape == (12,)
    empty = elastic()
    early = empty.trainer(0).join()
    early.ask(Op.FETCH, argument=Fetch.ROWS, payload=[np.array([0], "u4").tobytes()])
    assert early.last.op == Op.ERROR and "no values yet" in early.last.note["message"]


# ----- Snapshots -----


def again(elastic, one):
    """Another service that goes on from the state of one."""
    other = elastic()
    other.service.restore(one.service.take_snapshot())
    return other


@pytest.mark.parametrize("method", ["momentum", "adam", "adagrad"])
@pytest.mark.parametrize("algorithm", ["sgd", "async_sgd"])
def test_a_service_goes_on_from_a_snapshot_bit_for_bit(elastic, method, algorithm):
    one = elastic()
    assert one.service.take_snapshot() is None
    [trainer] = one.ready(optimization=Optimization(method, 0.1, algorithm=algorithm), values=np.arange(7))
    trainer.enter(3, 0)

    def step(wire, trainer, count):
        if algorithm == "sgd":
            trainer.push_round((3, count), 0.1 * count).commit((3, count))
        else:
            trainer.push_alone(count, 0.1 * count)
        return wire.values.tolist()

    for count in range(1, 4):
        step(one, trainer, count)
    other = again(elastic, one)
    assert other.values.tolist() == one.values.tolist() and other.service.steps == 3
    same = other.trainer(0).join()
    same.enter(3, 0)
    if algorithm == "sgd":
        assert same.answer.done == (3, 3) and same.answer.own == (3, 3)
    for count in range(4, 7):
        assert step(other, same, count) == step(one, trainer, count)
    assert other.service.take_snapshot().note == one.service.take_snapshot().note


def test_a_restored_service_knows_its_trainers_and_its_model(elastic):
    one = elastic()
    one.ready(2, optimization=Optimization("momentum", 0.1, algorithm="async_sgd"))
    one.trainers[1].push_alone(5, 1.0)
    other = again(elastic, one)
    assert other.trainer(1, token=b"x" * 16, uid="another").join().last.op == Op.ERROR
    assert "than the first values" in other.trainer(3, parameters="other").join().last.note["message"]
    back = other.trainer(1).join()
    before = other.values.tolist()
    back.push_alone(5, 1.0)
    assert back.values.tolist() == before == other.values.tolist()
    back.initialise(values=np.ones(7))
    assert back.last.op == Op.INITIALISE and other.values.tolist() == before
    assert not other.service.sessions.is_done


def test_rows_go_on_from_a_snapshot(elastic):
    one = elastic()
    [trainer] = one.ready_rows()
    trainer.enter(1, 0)
    trainer.push_rows([1, 2], 1.0, epoch=1, round=1, **{"pass": 0})
    trainer.commit((1, 1))
    other = again(elastic, one)
    assert other.values.tolist() == one.values.tolist() and other.values[3] != 0
    assert {spec.name for spec in TABLE} == {"w"}


@pytest.mark.parametrize(
    "field, value",
    [
        ("model", None),
        ("trainers", [[1]]),
        ("done", [1, -1]),
        ("own", [["x", 1, 1]]),
        ("setup", {}),
        ("counters", {}),
    ],
)
def test_a_snapshot_that_is_none_is_damage(elastic, field, value):
    one = elastic()
    one.ready()
    found = one.service.take_snapshot()
    found.note[field] = value
    with pytest.raises(DamagedError):
        elastic().service.restore(found)


def test_a_snapshot_with_other_arrays_is_damage(elastic):
    one = elastic()
    one.ready()
    for change in ({}, {"values": np.zeros(8, "f4")}, {"values": np.zeros(7, "f8")}):
        found = one.service.take_snapshot()
        found.arrays.clear()
        found.arrays.update(change)
        with pytest.raises(DamagedError):
            elastic().service.restore(found)


def test_a_capture_stays_as_it_is_when_the_service_goes_on(elastic):
    one = elastic()
    [trainer] = one.ready(optimization=Optimization("momentum", 0.1, algorithm="async_sgd"))
    kept, shared = one.service.take_snapshot(), one.service.take_snapshot(copies=False)
    trainer.push_alone(1, 1.0)
    assert not kept.arrays["values"].any() and shared.arrays["values"].all()
    assert kept.note["trainers"] == [[0, "pod-0", 0, 0]]
