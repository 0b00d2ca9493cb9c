"""Asynchronous gradients of trainers that come and go: each counts once, however often it is sent."""

import numpy as np
import pytest
from pserver_wire import PARAMETERS, SGD, Wire

from pserver.optim.settings import Optimization
from pserver.wire import protocol
from pserver.wire.protocol import Fetch, MessageFlag, Op

ASYNC = Optimization("momentum", 0.5, algorithm="async_sgd")


def test_a_push_counts_once_over_repeats_reconnects_and_restarts_of_the_request(elastic):
    one = elastic()
    [trainer] = one.ready(optimization=ASYNC)
    trainer.push_alone(1, 1.0)
    assert trainer.values.tolist() == [-0.5] * 7
    trainer.push_alone(1, 1.0, repeat=True)  # the same request again
    trainer.push_alone(1, 1.0)  # the same push in another request
    assert trainer.values.tolist() == [-0.5] * 7
    back = one.trainer(0, token=b"n" * 16).join()
    back.push_alone(1, 1.0)
    assert back.values.tolist() == [-0.5] * 7
    back.push_alone(2, 1.0)
    assert back.values.tolist() == [-1.0] * 7 and one.service.steps == 2


def test_a_push_of_which_half_came_is_sent_again_by_the_next_session(elastic, monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 16)
    one = elastic()
    first, other = (one.trainer(number).join() for number in (0, 1))
    whole = np.arange(7, dtype="f4").tobytes()

    def send(trainer, op, numbers, note):
        for number in numbers:
            trainer.ask(op, repeat=number != numbers[0], piece=number, note=note if not number or op == Op.PUSH else {},
                        payload=[whole[16 * number : 16 * number + 16]])  # fmt: skip

    from pserver.store.model_setup import describe_setup

    send(first, Op.INITIALISE, [0, 1], describe_setup(PARAMETERS, ASYNC))
    send(first, Op.PUSH, [1], {"push": 1, "pass": 0})
    back = one.trainer(0, token=b"n" * 16).join()
    send(back, Op.PUSH, [0, 1], {"push": 1, "pass": 0})
    assert back.last.op == Op.PUSH and back.last.piece == 1
    assert one.values.tolist() == [0.5 * number for number in range(5)] + [5 - 1.5, 6 - 1.5]
    # again, as a whole: each piece is answered, with the values as they are
    send(back, Op.PUSH, [1, 0], {"push": 1, "pass": 0})
    assert [answer.piece for answer in back.inbox[-2:]] == [0, 1] and one.service.steps == 1
    # one that is given up for another request leaves nothing, either
    send(back, Op.PUSH, [1], {"push": 2, "pass": 0})
    back.fetch(Fetch.CURRENT)
    send(back, Op.PUSH, [0, 1], {"push": 2, "pass": 0})
    assert back.last.op == Op.PUSH and one.service.steps == 2 and other.inbox


def test_a_later_push_may_be_the_first_that_a_restored_service_hears_of(elastic):
    one = elastic()
    [trainer] = one.ready(optimization=ASYNC)
    trainer.push_alone(41, 1.0)
    assert trainer.values.tolist() == [-0.5] * 7
    trainer.push_alone(40, 1.0)
    assert trainer.values.tolist() == [-0.5] * 7


def test_kept_values_are_not_sent(elastic):
    one = elastic()
    [trainer] = one.ready(optimization=ASYNC)
    trainer.push_alone(1, 1.0, flags=MessageFlag.KEEP)
    assert trainer.last.op == Op.PUSH and not trainer.last.payload
    trainer.push_alone(1, 1.0, flags=MessageFlag.KEEP)
    assert trainer.last.op == Op.PUSH and not trainer.last.payload


@pytest.mark.parametrize(
    "note", [{}, {"push": 0, "pass": 0}, {"push": 1}, {"push": 1, "pass": -1}, {"push": 1 << 63, "pass": 0}]
)
def test_a_push_without_its_numbers_is_refused(elastic, note):
    one = elastic()
    [trainer] = one.ready(optimization=ASYNC)
    trainer.push(1.0, note=note)
    assert trainer.last.op == Op.ERROR and one.service.steps == 0
    trainer.push_alone(1, 1.0)
    assert trainer.last.op == Op.PUSH


def test_the_threshold_of_staleness_follows_the_trainers_that_are_there(elastic):
    one = elastic()
    trainers = one.ready(4, optimization=ASYNC)
    staleness = one.service.state.rounds.staleness
    assert staleness.threshold == 6
    trainers[3].ask(Op.GOODBYE)
    trainers[2].ask(Op.GOODBYE)
    late = one.trainer(9).join()
    assert staleness.threshold == 7  # those that went count until their steps are in no age any more
    # a newcomer's first gradient is young, however long the others have trained
    for push in range(1, 20):
        trainers[0].push_alone(push, 0.0)
    assert staleness.threshold == 4
    newest = one.trainer(10).join()
    newest.push_alone(1, 0.0)
    assert staleness.discarded[10] == 0
    late.push_alone(1, 0.0)  # it joined before the twenty others
    assert staleness.discarded[9] == 1 and trainers[1].last.op == Op.FETCH


def test_one_that_goes_does_not_make_the_gradients_of_the_others_old(elastic):
    one = elastic()
    trainers = one.ready(4, optimization=ASYNC)
    for push in range(1, 4):
        for trainer in trainers:
            trainer.push_alone(push, 0.0)
    for trainer in trainers[1:]:
        trainer.ask(Op.GOODBYE)
    for push in range(4, 20):
        trainers[0].push_alone(push, 0.0)
    staleness = one.service.state.rounds.staleness
    assert not any(staleness.discarded.values()) and staleness.threshold == 2


def test_one_that_comes_back_has_the_age_that_it_had(elastic):
    one = elastic()
    first, second = one.ready(2, optimization=ASYNC)
    for push in range(1, 6):
        first.push_alone(push, 0.0)
    one.trainer(1, token=b"n" * 16).join().push_alone(1, 100.0)
    assert one.service.state.rounds.staleness.discarded == {0: 0, 1: 1} and second.last.op == Op.FETCH


def test_discarded_gradients_count_as_applied(elastic):
    one = elastic()
    first, second = one.ready(2, optimization=ASYNC)
    for push in range(1, 5):
        first.push_alone(push, 0.0)
    second.push_alone(1, 100.0)
    assert second.values.tolist() == [0] * 7
    second.push_alone(1, 100.0)
    assert second.values.tolist() == [0] * 7 and one.service.state.rounds.staleness.gradients[1] == 1


def test_the_values_are_those_of_a_static_job(elastic):
    """The same gradients in the same order."""
    settings = Optimization("adam", 0.1, algorithm="async_sgd")
    one, static = elastic(), Wire(2)
    mine, theirs = one.ready(2, optimization=settings), static.ready(optimization=settings)
    for count in range(1, 9):
        number = count * count % 3 % 2
        gradient = np.arange(7) * 0.1 * count
        mine[number].push_alone(count, gradient)
        theirs[number].push(gradient)
        assert mine[number].values.tolist() == theirs[number].values.tolist()
        if count == 5:
            mine[0] = one.trainer(0, token=b"z" * 16).join()


def test_rows_count_once(elastic):
    one = elastic()
    [trainer] = one.ready_rows(algorithm="async_sgd")
    for _ in range(3):
        trainer.push_rows([0, 2], 1.0, push=1, **{"pass": 0})
        assert trainer.last.op == Op.PUSH and trainer.values.size == 0
    assert one.values.tolist() == pytest.approx([-0.1] * 3 + [0] * 3 + [-0.1] * 3 + [0] * 3)
    back = one.trainer(0, token=b"n" * 16, parameters=trainer.hello["parameters"], shape=[1, 12]).join()
    back.push_rows([0, 2], 1.0, push=1, **{"pass": 0})
    back.push_rows([1], 1.0, push=2, **{"pass": 1})
    assert one.service.steps == 2 and one.service.state.rounds.shard.passes == 1


def test_lines_of_the_log_name_those_that_are_there(elastic, capsys):
    one = elastic(log_period=3)
    first, second = one.ready(2, optimization=ASYNC)
    first.push_alone(1, 0.0)
    second.push_alone(1, 0.0)
    second.ask(Op.GOODBYE)
    capsys.readouterr()
    one.now += 2
    first.push_alone(2, 0.0)
    said = capsys.readouterr().err
    assert "======== Batch=3=======" in said and "total updates: 3 discard updates: 0" in said
    assert "Async Gradient Discard based on trainer_id: 0:0(0) 1:0(0)" in said
    assert "batch of each trainer and the age of its last gradient: 0: batch 2, 0.0 s" in said


def test_a_view_means_nothing(elastic):
    one = elastic()
    [trainer] = one.ready(optimization=ASYNC)
    trainer.enter(1, 0)
    assert trainer.last.op == Op.ERROR and "no synchronous rounds" in trainer.last.note["message"]
    assert SGD.algorithm != ASYNC.algorithm
