"""Asynchronous training on one service: steps at once, gradients that are too old, checkpoints while others go on."""

import numpy as np
import pytest
from each import each

from pserver.aggregate.staleness import Staleness, StalenessLimits
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.server.handlers.checkpoint_barrier import CheckpointBarrier
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol
from pserver.wire.checkpoint_blobs import LEAVES
from pserver.wire.protocol import Fetch, MessageFlag, Op

ASYNC = Optimization("momentum", 0.1, algorithm="async_sgd")
LIMITS = StalenessLimits()


# ----- Which gradients are too old -----


@pytest.mark.parametrize(
    "trainers, order, kept",
    [
        (2, [0, 0, 0, 1, 1], [True, True, True, False, True]),  # distributed.md 3.15: A A A B B
        (4, [0, 1, 2, 3, 0, 1, 2, 3], [True] * 8),
        (1, [0, 0, 0], [True] * 3),  # v0.10 discarded every one of these
    ],
    ids=["A A A B B", "in turns", "one trainer alone"],
)
def test_a_gradient_is_discarded_when_too_many_came_since_its_trainers_last(trainers, order, kept):
    staleness = Staleness(trainers, LIMITS.threshold(trainers, 1.5))
    assert [staleness.is_kept(trainer) for trainer in order] == kept


@each("trainers, ratio, threshold", [(2, 1.5, 3), (4, 1.5, 6), (1, 1.5, 2), (4, 1.0, 6), (4, 0.5, 6), (4, 2.6, 10)])
def test_the_threshold_is_the_ratio_of_the_trainers_unless_it_is_too_small(trainers, ratio, threshold):
    assert LIMITS.threshold(trainers, ratio) == threshold


def test_the_flags_of_the_server_say_what_is_too_small_and_what_counts_then():
    limits = StalenessLimits(least=2.0, default=3.0)
    assert [limits.threshold(4, ratio) for ratio in (1.5, 2.0, 2.5)] == [12, 12, 10]


def test_statistics_count_ages_and_discards_and_begin_anew():
    staleness = Staleness(2, 3)
    for trainer in (0, 0, 0, 1, 1):
        staleness.is_kept(trainer)
    total, ages, by_trainer = staleness.describe()
    assert total == "async discard gradients stat: total updates: 5 discard updates: 1 discard ratio: 0.2"
    assert ages == "Async Gradient Update Steps distribution: 1:4(0.8) 4:1(0.2)"
    assert by_trainer == "Async Gradient Discard based on trainer_id: 0:0(0) 1:1(0.5)"
    staleness.reset()
    assert staleness.describe() == []
    assert staleness.is_kept(0)


# ----- Steps -----


def test_every_gradient_is_a_step_of_its_own_and_answered_at_once(wire):
    wire = wire(2)
    one, two = wire.ready(values=[1] * 7, optimization=ASYNC)
    one.push(0.5)
    np.testing.assert_allclose(one.values, 0.95, rtol=1e-6)
    assert two.last.op == Op.START_PASS
    two.push(0.3)
    np.testing.assert_allclose(two.values, 0.92, rtol=1e-6)
    assert wire.service.state.shard.samples == 8 and wire.service.state.shard.steps == 2


def test_an_answer_that_has_not_left_does_not_see_the_next_step(wire):
    """The payload that the service hands out is not copied by the wire."""
    wire = wire(2)
    one, two = wire.ready(values=[1] * 7, optimization=ASYNC)
    [(_, frames)] = one.ask(Op.PUSH, samples=1, payload=[np.ones(7, np.float32).tobytes()])
    before = bytes(frames[2])
    two.push(1)
    assert bytes(frames[2]) == before != two.values.tobytes()


def test_a_discarded_gradient_changes_nothing_and_brings_the_newest_values(wire):
    wire = wire(2)
    one, two = wire.ready(optimization=ASYNC)
    for _ in range(3):
        one.push(-1)
    two.push(-100)
    np.testing.assert_allclose(two.values, 0.3, rtol=1e-6)
    assert (wire.service.state.shard.steps, wire.service.state.shard.samples) == (3, 12)
    two.push(-1)
    np.testing.assert_allclose(two.values, 0.4, rtol=1e-6)


def test_the_schedule_stands_at_the_samples_before_the_request(wire):
    wire = wire(1)
    settings = Optimization("momentum", 1.0, "discexp", 0.5, 4.0, algorithm="async_sgd")
    [one] = wire.ready(optimization=settings)
    seen = []
    for _ in range(3):
        one.push(-1, samples=4)
        seen.append(float(one.values[0]))
    assert seen == [1.0, 1.5, 1.75]


def test_a_gradient_of_several_pieces_is_applied_with_its_last_and_answered_in_as_many(wire, monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 16)
    wire = wire(1)
    trainer = wire.trainer(0).join()
    note = describe_setup([ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)], ASYNC)
    parts = [np.ones(4, np.float32).tobytes(), np.ones(3, np.float32).tobytes()]
    trainer.ask(Op.INITIALISE, note=note, payload=[parts[0]])
    trainer.ask(Op.INITIALISE, repeat=True, payload=[parts[1]], piece=1)
    trainer.ask(Op.START_PASS)
    trainer.ask(Op.PUSH, samples=1, payload=[parts[1]], piece=1)
    assert trainer.last.op == Op.START_PASS
    trainer.ask(Op.PUSH, repeat=True, samples=1, payload=[parts[0]])
    answers = trainer.inbox[-2:]
    assert [(answer.op, answer.piece) for answer in answers] == [(Op.PUSH, 0), (Op.PUSH, 1)]
    np.testing.assert_allclose(np.frombuffer(b"".join(one.payload[0] for one in answers), np.float32), 0.9, rtol=1e-6)


def test_a_repeated_gradient_counts_once(wire):
    wire = wire(1)
    [one] = wire.ready(optimization=ASYNC)
    one.push(1)
    before = one.values.tobytes()
    one.push(1, repeat=True)
    assert one.values.tobytes() == before and wire.service.state.shard.steps == 1


def test_values_are_kept_when_the_trainer_says_so(wire):
    wire = wire(1)
    [one] = wire.ready(optimization=ASYNC)
    one.push(1, flags=MessageFlag.KEEP)
    assert one.last.op == Op.PUSH and not one.last.payload
    one.ask(Op.FETCH, argument=Fetch.CURRENT)
    np.testing.assert_allclose(one.values, -0.1, rtol=1e-6)


def test_passes_begin_and_end_together_and_are_not_counted(wire, capsys):
    wire = wire(2)
    settings = Optimization("momentum", 1.0, "pass_manual", learning_rate_args="1:1.0,2:0.5", algorithm="async_sgd")
    one, two = wire.ready(optimization=settings)
    one.push(1)
    one.push(1)
    one.ask(Op.FINISH_PASS)
    assert one.last.op == Op.PUSH
    two.push(1)
    two.ask(Op.FINISH_PASS)
    assert one.last.op == two.last.op == Op.FINISH_PASS
    assert one.values.tobytes() == two.values.tobytes() == wire.service.state.shard.values.tobytes()
    assert wire.service.state.shard.passes == 0
    log = capsys.readouterr().err
    assert "discard lagged async gradient ratio: 1.5 asyncLaggedhreshold: 3" in log
    assert "] ======== Batch=2 pass END=======" in log  # trainer 0's batches
    assert "total updates: 3 discard updates: 1" in log


def test_statistics_come_every_so_many_batches_of_trainer_0(wire, capsys):
    wire = wire(2, log_period=2)
    one, two = wire.ready(optimization=ASYNC)
    for trainer in (one, two, two, one, one):
        trainer.push(1)
    log = capsys.readouterr().err
    assert log.count("======== Batch=2=======") == 1
    assert "total updates: 4 " in log and log.count("total updates") == 1
    assert "0: batch 2, 0.0 s; 1: batch 2, 0.0 s" in log


# ----- Checkpoints -----


def give_part(trainer, own):
    trainer.ask(Op.CHECKPOINT, note={"own": own})


def test_each_trainer_hears_once_of_a_checkpoint_and_trainer_0_gets_the_parts_of_all(wire):
    wire = wire(3)
    one, two, three = wire.ready(optimization=ASYNC)
    one.push(1, flags=MessageFlag.CHECKPOINT)
    assert one.last.flags & MessageFlag.CHECKPOINT
    two.push(1)
    assert two.last.flags & MessageFlag.CHECKPOINT
    give_part(two, "two")
    assert two.last.op == Op.PUSH  # trainer 0 may say that it leaves
    give_part(one, "one")
    assert two.last.op == Op.CHECKPOINT  # it goes on while trainer 0 waits for trainer 2
    two.push(1)
    assert not two.last.flags & MessageFlag.CHECKPOINT
    assert one.last.op == Op.PUSH
    three.push(1)
    assert three.last.flags & MessageFlag.CHECKPOINT
    give_part(three, "three")
    assert three.last.op == Op.CHECKPOINT
    assert one.last.op == Op.CHECKPOINT and one.last.note["trainers"] == ["one", "two", "three"]


@pytest.mark.parametrize("ends_pass", [False, True])
def test_a_leaving_trainer_is_answered_when_trainer_0_has_written_and_the_others_never(wire, ends_pass):
    wire = wire(3)
    one, two, three = wire.ready(optimization=ASYNC)
    two.push(1, flags=MessageFlag.CHECKPOINT)
    give_part(two, {LEAVES: True})
    one.push(1)
    give_part(one, {})
    three.push(1)
    give_part(three, {})
    assert one.last.op == Op.CHECKPOINT  # all parts are here: it fetches the state and writes
    assert two.last.op == three.last.op == Op.PUSH
    answers = len(one.inbox)
    if ends_pass:
        one.ask(Op.FINISH_PASS, note={"own": {}})
    else:
        one.push(1)
    assert two.last.op == Op.CHECKPOINT
    assert three.last.op == Op.PUSH and len(one.inbox) == answers


def test_a_part_is_answered_at_the_end_of_trainer_0s_pass_without_a_checkpoint(wire):
    """Trainer 0 had pushed its last batch before the request came; the others would wait for each other."""
    wire = wire(2)
    one, two = wire.ready(optimization=ASYNC)
    one.push(1)
    two.push(1, flags=MessageFlag.CHECKPOINT)
    give_part(two, {LEAVES: True})
    assert two.last.op == Op.PUSH
    one.ask(Op.FINISH_PASS, note={"own": {}})
    assert two.last.op == Op.CHECKPOINT


def test_what_trainer_0_fetches_of_the_state_does_not_change_while_others_go_on(wire):
    wire = wire(2)
    one, two = wire.ready(values=[1] * 7, optimization=ASYNC)
    one.push(1, flags=MessageFlag.CHECKPOINT)
    give_part(one, "one")
    two.push(1)
    give_part(two, "two")
    names = [name for name, _, _ in one.last.note["arrays"]]
    two.push(1)
    one.ask(Op.FETCH, argument=Fetch.STATE + names.index("values"))
    np.testing.assert_allclose(one.values, 0.8, rtol=1e-6)
    np.testing.assert_allclose(wire.service.state.shard.values, 0.7, rtol=1e-6)


def test_a_trainer_that_ends_the_pass_completes_the_checkpoint(wire):
    wire = wire(2)
    one, two = wire.ready(optimization=ASYNC)
    one.push(1, flags=MessageFlag.CHECKPOINT)
    give_part(one, "one")
    two.ask(Op.FINISH_PASS, note={"own": "the end"})
    assert one.last.op == Op.CHECKPOINT and one.last.note["trainers"] == ["one", "the end"]


def test_trainer_0_that_captured_is_heard_of_by_a_service_that_was_not_asked(wire):
    """Another service told it: the push that asked has not come here yet."""
    wire = wire(2)
    one, two = wire.ready(optimization=ASYNC)
    one.push(1)
    give_part(one, "one")
    two.push(1)
    assert two.last.flags & MessageFlag.CHECKPOINT


def test_there_is_no_checkpoint_once_trainer_0_has_ended_its_pass(wire):
    wire = wire(2)
    one, two = wire.ready(optimization=ASYNC)
    one.push(1, flags=MessageFlag.CHECKPOINT)
    one.ask(Op.FINISH_PASS)
    two.push(1)
    assert not two.last.flags & MessageFlag.CHECKPOINT
    two.push(1, flags=MessageFlag.CHECKPOINT)
    assert not two.last.flags & MessageFlag.CHECKPOINT
    two.ask(Op.FINISH_PASS)
    give_part(two, "two")
    assert one.last.op == Op.FINISH_PASS
    give_part(one, "one")
    assert one.last.note["trainers"] == ["one", "two"]


def test_who_asks_again_after_giving_its_part_is_heard_when_the_first_checkpoint_is_made():
    barrier = CheckpointBarrier()
    barrier.ask(1, [0, 1])
    assert barrier.tell(1)
    barrier.give(1, [0, 1])
    barrier.ask(1, [0, 1])
    assert not barrier.tell(1) and barrier.tell(0)
    barrier.give(0, [0, 1])
    assert barrier.finish([0, 1]) and barrier.due == {0, 1}
