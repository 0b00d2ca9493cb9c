"""Synchronous rounds in two phases, as one service takes them."""

import numpy as np
import pytest
from pserver_wire import Wire, key_of

from pserver.optim.settings import Optimization
from pserver.wire import protocol, views
from pserver.wire.authentication import HEARTBEAT
from pserver.wire.protocol import Fetch, Message, MessageFlag, Op
from pserver.wire.views import MembershipView


def beat(one, trainer, epoch, *members, note=None):
    """A heartbeat with a view; returns its answer."""
    note = views.write_view(MembershipView(epoch, members)) if note is None else note
    connection = trainer.token + HEARTBEAT
    frames = protocol.encode(Message(Op.PING, trainer.session, trainer.number, 0, note=note), key_of(connection))
    out = one.deliver(one.handle(connection, [bytes(frame) for frame in frames], key_of(connection)))
    [(_, pong)] = [each for each in out if each[0] == connection]
    assert pong.op == Op.PING
    return pong.note


def entered(elastic, count=2, epoch=1, **initial):
    one = elastic()
    trainers = one.ready(count, **initial)
    for trainer in trainers:
        trainer.enter(epoch, *range(count))
    return one, trainers


def test_a_round_takes_its_step_when_it_is_committed_and_once(elastic):
    one, (first, second) = entered(elastic)
    assert first.answer == ((0, 0), None, None)
    first.push_round((1, 1), 1.0)
    assert first.last.op == Op.ENTER  # it waits
    second.push_round((1, 1), 2.0)
    assert first.is_prepared and second.is_prepared and one.values.tolist() == [0] * 7
    first.commit((1, 1))
    expected = pytest.approx([-0.3] * 7)
    assert first.last.op == Op.COMMIT and first.values.tolist() == expected
    second.commit((1, 1))
    second.commit((1, 1), repeat=True)
    assert second.values.tolist() == expected and one.service.steps == 1
    assert first.enter(1, 0, 1).answer == ((1, 1), None, (1, 1))


def test_the_bits_are_those_of_a_static_job(elastic):
    settings = Optimization("adam", 0.1, learning_rate_schedule="poly", learning_rate_decay_a=0.1)
    _one, mine = entered(elastic, 3, optimization=settings)
    static = Wire(3)
    theirs = static.ready(optimization=settings)
    for count in range(1, 5):
        gradients = [np.arange(7) * 0.1 * count / (1 + number) for number in range(3)]
        for number in (2, 0, 1):
            mine[number].push_round((1, count), gradients[number], samples=number + 1)
            theirs[number].push(gradients[number], samples=number + 1)
        for trainer in mine:
            trainer.commit((1, count))
        assert [one.values.tolist() for one in mine] == [one.values.tolist() for one in theirs]


def test_a_new_view_drops_what_is_not_prepared_and_tells_those_that_wait(elastic):
    _one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    second.enter(2, 0, 1)
    assert second.answer == ((0, 0), None, None)
    assert first.epoch_told == 2 and first.last.note["exit_code"] == 75
    first.push_round((1, 1), 1.0, repeat=True)  # the answer was lost
    assert first.epoch_told == 2
    first.enter(1, 0, 1)
    assert first.epoch_told == 2
    first.enter(2, 0, 1).push_round((2, 1), 1.0)
    second.push_round((2, 1), 1.0)
    assert first.is_prepared
    second.commit((2, 1))
    assert second.values.tolist() == pytest.approx([-0.2] * 7)


def test_a_heartbeat_brings_the_view_while_its_trainer_waits(elastic):
    one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    assert beat(one, second, 1, 0, 1)["epoch"] == 1 and first.last.op == Op.ENTER
    assert beat(one, first, 2, 0)["epoch"] == 2
    told = [answer for answer in first.inbox if answer.op == Op.ERROR]
    assert [views.read_epoch(answer.note) for answer in told] == [2]
    assert beat(one, second, 1, 0, 1)["epoch"] == 2 and second.last.op == Op.PING  # an old view is no error
    first.enter(2, 0).push_round((2, 1), 1.0)
    assert first.is_prepared


@pytest.mark.parametrize("note", [{"epoch": 3}, {"epoch": "x", "members": []}, {"epoch": 3, "members": [1, 0]}])
def test_a_heartbeat_with_what_is_no_view_is_counted_and_answered(elastic, note):
    one, (first, _) = entered(elastic)
    assert beat(one, first, 0, note=note)["epoch"] == 1
    assert one.service.sessions.complaints.malformed == 1 and one.service.sessions.complaints.failed == 0


def test_a_view_with_other_members_under_one_epoch_is_refused(elastic):
    one, (first, second) = entered(elastic)
    first.enter(1, 0)
    assert first.last.op == Op.ERROR and first.last.note["exit_code"] == 70
    beat(one, second, 1, 1)
    assert one.service.sessions.complaints.malformed == 1


def test_a_prepared_round_is_committed_after_a_later_view(elastic):
    one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    second.push_round((1, 1), 1.0)
    # trainer 1 dies; trainer 0 enters the next view, in which all services have the round
    first.commit((1, 1), view=2)
    assert first.epoch_told == 1
    first.enter(2, 0)
    assert first.answer == ((0, 0), (1, 1), None)
    first.commit((1, 1), view=1)
    assert first.epoch_told == 2 and one.service.steps == 0
    first.commit((1, 1), view=2)
    assert first.values.tolist() == pytest.approx([-0.2] * 7)
    assert first.enter(2, 0).answer == ((1, 1), None, (1, 1))


def test_the_first_push_of_the_next_view_drops_what_is_prepared(elastic):
    _one, (first, second) = entered(elastic)
    for trainer in (first, second):
        trainer.push_round((1, 1), 1.0)
    first.enter(2, 0).push_round((2, 1), 5.0)
    assert first.is_prepared
    second.enter(2, 0)
    assert second.answer == ((0, 0), (2, 1), None)
    second.commit((1, 1), view=2)
    assert second.epoch_told == 2
    first.commit((2, 1))
    assert first.values.tolist() == pytest.approx([-0.5] * 5 + [-0.3] * 2)  # b is clipped


def test_pushes_that_do_not_fit_are_refused(elastic):
    one, (first, second) = entered(elastic)
    for key in ((2, 1), (1, 0)):
        first.push_round(key, 1.0)
        assert first.last.op == Op.ERROR
    first.push_round((1, 1), 1.0)
    second.push_round((1, 1), 1.0)
    assert first.is_prepared
    first.push_round((1, 2), 1.0)  # it has not committed
    assert first.epoch_told == 1
    first.commit((1, 1))
    first.push_round((1, 1), 1.0)  # it does not know that its push has counted
    assert first.epoch_told == 1
    assert first.enter(1, 0, 1).answer.own == (1, 1)
    stranger = one.trainer(7).join()
    stranger.enter(1, 0, 1).push_round((1, 2), 1.0)
    assert stranger.last.note["exit_code"] == 70 and "not one of the members" in stranger.last.note["message"]
    first.commit((1, 9))
    assert first.epoch_told == 1


def test_a_member_that_has_seen_the_open_round_count_elsewhere_takes_the_others_on(elastic):
    """They would wait here for ever for a gradient that has counted before this service was started again."""
    one, (first, second) = entered(elastic)
    stranger = one.trainer(7).join()
    first.push_round((1, 1), 1.0)
    stranger.push_round((1, 2), 1.0)
    assert first.last.op == Op.ENTER  # it has heard nothing since
    second.push_round((1, 2), 1.0)
    assert first.epoch_told == 1
    assert first.enter(1, 0, 1).answer.prepared is None
    first.push_round((1, 1), 1.0)
    assert first.epoch_told == 1
    first.push_round((1, 2), 1.0)
    assert first.is_prepared and second.is_prepared


def test_a_round_number_may_begin_anywhere_and_only_grows(elastic):
    """A service that went on from a snapshot is behind the others."""
    one, (first,) = entered(elastic, 1)
    first.push_round((1, 7), 1.0).commit((1, 7))
    assert first.last.op == Op.COMMIT
    first.push_round((1, 6), 1.0)
    assert first.epoch_told == 1
    first.push_round((1, 8), 1.0)
    assert first.is_prepared and one.service.steps == 1


def test_a_prepared_round_stays_when_its_trainers_are_lost(elastic):
    one, (first, second) = entered(elastic)
    for trainer in (first, second):
        trainer.push_round((1, 1), 1.0)
    one.check(100)
    assert one.service.sessions.trainers == {}
    third = one.trainer(2).join().enter(2, 2)
    assert third.answer == ((0, 0), (1, 1), None)
    assert third.commit((1, 1), view=2).values.tolist() == pytest.approx([-0.2] * 7)


def test_a_trainer_that_joins_again_pushes_again(elastic):
    one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    back = one.trainer(0, token=b"n" * 16).join().enter(1, 0, 1)
    second.push_round((1, 1), 1.0)
    assert not second.is_prepared  # what the old session sent is gone
    back.push_round((1, 1), 1.0)
    assert back.is_prepared and second.is_prepared
    again = one.trainer(0, token=b"o" * 16).join().enter(1, 0, 1)
    assert again.answer.prepared == (1, 1)
    again.push_round((1, 1), 1.0)  # without the commit, as one would whose other services were lost
    assert again.is_prepared
    again.commit((1, 1))
    assert again.values.tolist() == pytest.approx([-0.2] * 7) and one.service.steps == 1


def test_a_push_that_is_given_up_is_dropped(elastic):
    _one, (first, second) = entered(elastic)
    first.push_round((1, 1), 100.0)
    first.enter(1, 0, 1)
    second.push_round((1, 1), 1.0)
    assert second.last.op == Op.ENTER
    first.push_round((1, 1), 1.0)
    assert first.is_prepared and second.is_prepared
    assert first.commit((1, 1)).values.tolist() == pytest.approx([-0.2] * 7)


def test_pieces_come_in_any_order_and_are_all_answered(elastic, monkeypatch):
    one, (first, second) = entered(elastic)
    monkeypatch.setattr(protocol, "PIECE_BYTES", 16)
    rounds = one.service._pushes.rounds
    rounds.rounds.pieces = 2
    rounds.rounds._sent.append({})
    whole = np.arange(7, dtype="f4").tobytes()
    note = views.write_push(views.RoundKey(1, 1), 0)

    def send(trainer, piece, **more):
        payload = [whole[16 * piece : 16 * piece + 16]]
        trainer.ask(Op.PUSH, piece=piece, payload=payload, note=note, samples=1, **more)

    send(first, 1)
    send(second, 0)
    send(second, 1, repeat=True)
    assert second.last.op == Op.ENTER
    second.ping()
    assert (second.last.note["pieces"], second.last.note["answers"]) == (2, 0)
    assert "trainer 0 at 10.0.0.9, which last pushed round 1 of epoch 1" in second.last.note["waits_for"]
    send(first, 0, repeat=True)
    for trainer in (first, second):
        prepared = [one for one in trainer.inbox if one.op == Op.PUSH]
        assert [one.piece for one in prepared] == [0, 1] and all(one.flags & MessageFlag.PREPARED for one in prepared)
    send(second, 1, repeat=True)
    assert second.is_prepared and second.last.piece == 1
    first.commit((1, 1))
    assert [(answer.op, answer.piece) for answer in first.inbox[-2:]] == [(Op.COMMIT, 0), (Op.COMMIT, 1)]
    assert b"".join(bytes(answer.payload[0]) for answer in first.inbox[-2:]) == one.values.tobytes()


def test_a_trainer_that_keeps_its_values_is_sent_none(elastic):
    _one, (first,) = entered(elastic, 1)
    first.push_round((1, 1), 1.0).commit((1, 1), flags=MessageFlag.KEEP)
    assert first.last.op == Op.COMMIT and not first.last.payload


def test_a_pass_ends_before_the_first_round_of_the_next(elastic):
    one, (first,) = entered(elastic, 1)
    shard = one.service.state.rounds.shard
    first.push_round((1, 1), 1.0).commit((1, 1))
    assert shard.passes == 0
    first.push_round((1, 2), 1.0, 3)
    assert shard.passes == 0
    first.commit((1, 2))
    assert shard.passes == 3 and shard.steps == 2
    first.push_round((1, 3), 1.0, 2).commit((1, 3))
    assert shard.passes == 3


def test_rows_are_stepped_when_they_are_committed(elastic):
    one = elastic()
    first, second = one.ready_rows(2)
    for trainer in (first, second):
        trainer.enter(1, 0, 1)
        trainer.push_rows([0, 1 + trainer.number], 1.0, epoch=1, round=1, **{"pass": 0})
    assert first.is_prepared and second.is_prepared and not one.values.any()
    second.enter(2, 1)
    assert second.answer.prepared == (1, 1)
    second.commit((1, 1), view=2)
    assert second.last.op == Op.COMMIT and not second.last.payload
    assert one.values.tolist() == pytest.approx([-0.2] * 3 + [-0.1] * 6 + [0] * 3)
    second.push_rows([3], 1.0, epoch=2, round=1, **{"pass": 0})
    second.enter(3, 1)
    second.push_rows([2], 1.0, epoch=3, round=1, **{"pass": 0})
    second.commit((3, 1))
    assert one.values.tolist() == pytest.approx([-0.2] * 3 + [-0.1] * 3 + [-0.2] * 3 + [0] * 3)


def test_a_long_round_is_reported_with_those_that_are_not_here(elastic, capsys):
    one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    second.ask(Op.GOODBYE)
    first.ping()
    assert first.last.note["waits_for"] == "trainer 1, which is not connected"
    capsys.readouterr()
    for _ in range(9):
        first.ping()
        one.check(7)
    assert "round 1 waits for trainer 1, which is not connected" in capsys.readouterr().err


def test_lines_of_the_log_and_metrics_of_rounds(elastic, capsys):
    one = elastic(log_period=2)
    first, second = one.ready(2)
    for trainer in (first, second):
        trainer.enter(1, 0, 1)
    capsys.readouterr()
    for count in (1, 2):
        first.push_round((1, count), 1.0)
        one.now += 1.5
        second.push_round((1, count), 1.0)
        if count == 2:
            second.ask(Op.GOODBYE)
        first.commit((1, count))
        second.commit((1, count))
    said = capsys.readouterr().err
    assert (
        "======== Batch=2=======" in said
        and "slowest is trainer 1: last in 2 of 2 rounds, delayed the others by 3.000 s" in said
    )
    counters = one.service.state.counters
    assert counters.rounds == 2 and counters.round_seconds == pytest.approx(3) and counters.step_seconds > 0


def test_values_are_fetched_between_rounds(elastic):
    _one, (first, second) = entered(elastic)
    first.push_round((1, 1), 1.0)
    second.fetch(Fetch.CURRENT)
    assert second.values.tolist() == [0] * 7
    second.push_round((1, 1), 1.0)
    assert second.is_prepared
