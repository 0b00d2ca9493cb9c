"""Long arrays go in pieces: each takes its step when all have sent it; the bits are those of one piece."""

import itertools

import numpy as np
import pytest

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol
from pserver.wire.protocol import Fetch, MessageFlag, Op

PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]
PIECES = 4  # of 7 elements in pieces of two


@pytest.fixture(autouse=True)
def pieces_of_two(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 8)


def send(trainer, op, array, order=range(PIECES), **more):
    """Send an array in pieces as one request."""
    data = memoryview(np.asarray(array).tobytes())
    trainer.sequence += 1
    for piece in order:
        note = more.pop("note", None) if piece == 0 else None
        trainer.ask(op, sequence=trainer.sequence, piece=piece, payload=[protocol.cut(data, piece)], note=note, **more)


def received(trainer, op):
    """Put the pieces of the last answer together; each came once."""
    found = {message.piece: message.payload[0] for message in trainer.inbox if message.op == op}
    return np.frombuffer(b"".join(found[piece] for piece in sorted(found)), np.float32)


def start(wire, trainers, optimization=None, values=range(7), parameters=PARAMETERS):
    wire = wire(trainers)
    made = [wire.trainer(number).join() for number in range(trainers)]
    setup = describe_setup(parameters, optimization or Optimization("momentum", 0.1))
    send(made[0], Op.INITIALISE, np.array(values, np.float32), note=setup)
    for one in made[1:]:
        one.ask(Op.FETCH)
    for one in made:
        one.ask(Op.START_PASS)
        assert one.last.op == (Op.START_PASS if one is made[-1] else one.last.op)
    return wire, made


def test_values_arrive_and_are_fetched_in_pieces(wire):
    wire, (_, two) = start(wire, 2)
    assert wire.service.state.shard.values.tolist() == list(range(7))
    assert received(two, Op.FETCH).tolist() == list(range(7))


def test_values_are_fetched_only_when_the_last_piece_is_here(wire):
    wire = wire(2)
    one, two = (wire.trainer(number).join() for number in range(2))
    two.ask(Op.FETCH)
    send(one, Op.INITIALISE, np.zeros(7, np.float32), order=[0, 1, 2], note=describe_setup(PARAMETERS, Optimization()))
    assert two.last.op == Op.HELLO and wire.service.state.shard is None
    one.ask(Op.INITIALISE, sequence=one.sequence, piece=3, payload=[bytes(4)])
    assert two.last.op == Op.FETCH and wire.service.state.shard is not None


def test_a_piece_takes_its_step_when_all_have_sent_it(wire):
    _, (one, two) = start(wire, 2, values=[1] * 7)
    gradient = np.full(7, 0.5, np.float32)
    send(one, Op.PUSH, gradient, samples=4)
    assert one.last.op == Op.START_PASS
    send(two, Op.PUSH, gradient, order=[2], samples=6)
    assert one.last.op == two.last.op == Op.PUSH and one.last.piece == 2
    assert np.frombuffer(one.last.payload[0], np.float32).tolist() == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize("method", ["momentum", "adam", "rmsprop"])
def test_the_bits_are_those_of_one_piece_in_whatever_order_the_pieces_come(wire, monkeypatch, method):
    random = np.random.default_rng(1)
    gradients = (random.standard_normal((3, 2, 7)) * 10.0 ** random.integers(-3, 3, (3, 2, 7))).astype(np.float32)
    optimization = Optimization(method, 0.1, average_window=0.5, learning_rate_schedule="poly", learning_rate_decay_a=1)
    results = set()
    for order in itertools.islice(itertools.permutations(range(PIECES)), 0, 24, 5):
        made, trainers = start(wire, 2, optimization)
        for batch in gradients:
            for trainer, gradient in zip(trainers, batch, strict=True):
                send(trainer, Op.PUSH, gradient, order=order if trainer.number else range(PIECES), samples=3)
        results.add(made.service.state.shard.values.tobytes() + made.service.state.shard.averages().tobytes())
        assert received(trainers[0], Op.PUSH).tobytes() == made.service.state.shard.values.tobytes()
    monkeypatch.setattr(protocol, "PIECE_BYTES", 1 << 20)
    made, trainers = start(wire, 2, optimization)
    for batch in gradients:
        for trainer, gradient in zip(trainers, batch, strict=True):
            trainer.push(gradient, samples=3)
    results.add(made.service.state.shard.values.tobytes() + made.service.state.shard.averages().tobytes())
    assert len(results) == 1 and made.service.state.shard.samples == 18


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_a_decay_after_every_other_batch_is_in_the_values_of_every_piece(wire, order):
    """Every piece is sent as soon as it took its step, so the decay cannot wait for the end of the round."""
    parameters = [ParameterSpec("w", 5, decay_rate=1.0, num_batches_regularization=2), ParameterSpec("b", 2)]
    made, (one,) = start(wire, 1, Optimization("momentum", 0.1), [1] * 7, parameters)
    w = b = 1.0
    for batch in range(4):
        send(one, Op.PUSH, np.full(7, 0.5, np.float32), order=order, samples=1)
        w, b = (w - 0.05) / (1.2 if batch % 2 else 1.0), b - 0.05
        np.testing.assert_allclose(received(one, Op.PUSH), [w] * 5 + [b] * 2, rtol=1e-6)
        assert received(one, Op.PUSH).tobytes() == made.service.state.shard.values.tobytes()


def test_a_finishing_trainer_completes_the_pieces_that_the_others_have_sent(wire):
    wire, (one, two) = start(wire, 2, values=[1] * 7)
    send(one, Op.PUSH, np.full(7, 0.5, np.float32), order=[3, 0], samples=4)
    two.ask(Op.FINISH_PASS)
    assert {message.piece for message in one.inbox if message.op == Op.PUSH} == {0, 3}
    for piece in (1, 2):
        one.ask(Op.PUSH, sequence=one.sequence, piece=piece, samples=4, payload=[np.full(2, 0.5, np.float32).tobytes()])
    np.testing.assert_allclose(received(one, Op.PUSH), 0.95, rtol=1e-6)
    assert wire.service.state.batch == 1 and wire.service.state.shard.samples == 4


def test_a_repeated_piece_counts_once_and_its_answer_goes_out_again(wire):
    _, (one,) = start(wire, 1, values=[0] * 7)
    gradient = np.ones(7, np.float32)
    send(one, Op.PUSH, gradient, order=[1, 1, 0, 0, 2, 3, 1], samples=1)
    answers = [message.piece for message in one.inbox if message.op == Op.PUSH]
    assert answers == [1, 1, 0, 0, 2, 3, 1]
    assert received(one, Op.PUSH).tolist() == pytest.approx([-0.1] * 7)


def test_a_piece_that_does_not_fit_is_refused_and_changes_nothing(wire):
    wire, (one,) = start(wire, 1)
    for piece, data in ((4, b""), (0, bytes(4)), (3, bytes(8))):
        one.ask(Op.PUSH, piece=piece, payload=[data])
        assert one.last.op == Op.ERROR and f"piece {piece} of 4" in one.last.note["message"]
        one.sequence -= 1
    assert wire.service.state.shard.values.tolist() == list(range(7)) and wire.service.state.shard.steps == 0


# ----- Checkpoints -----


def test_who_asks_for_a_checkpoint_is_heard_by_all_after_the_batch(wire):
    _, (one, two) = start(wire, 2)
    send(one, Op.PUSH, np.ones(7, np.float32), samples=1)
    send(two, Op.PUSH, np.ones(7, np.float32), samples=1, flags=MessageFlag.CHECKPOINT)
    for trainer in (one, two):
        flags = [message.flags & MessageFlag.CHECKPOINT for message in trainer.inbox if message.op == Op.PUSH]
        assert flags == [MessageFlag.NONE] * 3 + [MessageFlag.CHECKPOINT]
    for trainer in (one, two):
        send(trainer, Op.PUSH, np.ones(7, np.float32), samples=1)
    assert not any(trainer.last.flags & MessageFlag.CHECKPOINT for trainer in (one, two))


def test_there_is_no_checkpoint_while_trainer_zero_waits_for_the_end_of_the_pass(wire):
    _, (one, two) = start(wire, 2)
    one.ask(Op.FINISH_PASS)
    send(two, Op.PUSH, np.ones(7, np.float32), samples=1, flags=MessageFlag.CHECKPOINT)
    assert two.last.op == Op.PUSH and not two.last.flags & MessageFlag.CHECKPOINT


def test_trainer_zero_gets_the_state_and_every_trainers_part(wire):
    wire, (one, two, three) = start(wire, 3, Optimization("adam", 0.1))
    three.ask(Op.FINISH_PASS, note={"own": {"at": "end"}})
    for trainer in (one, two):
        send(trainer, Op.PUSH, np.ones(7, np.float32), samples=1)
    one.ask(Op.CHECKPOINT, note={"own": {"at": 1}})
    assert one.last.op == Op.PUSH
    two.ask(Op.CHECKPOINT, note={"own": {"at": 2}})
    assert one.last.op == two.last.op == Op.CHECKPOINT and not two.last.note
    note = one.last.note
    assert note["trainers"] == [{"at": 1}, {"at": 2}, {"at": "end"}]
    shard = wire.service.state.shard
    for number, (name, dtype, size) in enumerate(note["arrays"]):
        one.inbox.clear()
        one.ask(Op.FETCH, argument=Fetch.STATE + number)
        expected = shard.values if name == "values" else shard.state[name.removeprefix("state.")]
        assert dtype == "<f4" and size == 28 and received(one, Op.FETCH).tobytes() == expected.tobytes()


def test_a_job_that_goes_on_from_a_checkpoint_ends_in_the_same_bits(wire):
    adam = Optimization("adam", 0.1, average_window=0.5)
    gradients = np.random.default_rng(3).standard_normal((6, 7)).astype(np.float32)
    wire_a, (one,) = start(wire, 1, adam)
    for gradient in gradients[:3]:
        send(one, Op.PUSH, gradient, samples=2)
    one.ask(Op.CHECKPOINT, note={"own": {"batches": 3}})
    note, arrays = one.last.note, {}
    for number, (name, _, _) in enumerate(note["arrays"]):
        one.inbox.clear()
        one.ask(Op.FETCH, argument=Fetch.STATE + number)
        arrays[name] = received(one, Op.FETCH).copy()
    for gradient in gradients[3:]:
        send(one, Op.PUSH, gradient, samples=2)

    wire_b = type(wire_a)(2)
    again, late = (wire_b.trainer(number).join() for number in range(2))
    state = {"counters": note["counters"], "arrays": sorted(arrays), "trainers": [{"batches": 3}, {"batches": 4}]}
    send(again, Op.INITIALISE, np.zeros(7, np.float32), note=describe_setup(PARAMETERS, adam) | state)
    late.ask(Op.FETCH)
    assert late.last.op == Op.HELLO
    for number, name in enumerate(sorted(arrays)):
        send(again, Op.RESTORE, arrays[name], argument=number)
    first = next(message for message in late.inbox if message.op == Op.FETCH)
    assert first.note == {"own": {"batches": 4}} and received(late, Op.FETCH).tobytes() == arrays["values"].tobytes()
    for trainer in (again, late):
        trainer.ask(Op.START_PASS, argument=3)
    assert wire_b.service.state.batch == 3
    late.ask(Op.FINISH_PASS)
    for gradient in gradients[3:]:
        send(again, Op.PUSH, gradient, samples=2)
    ours, theirs = wire_b.service.state.shard, wire_a.service.state.shard
    assert ours.values.tobytes() == theirs.values.tobytes() and ours.averages().tobytes() == theirs.averages().tobytes()
    assert (ours.samples, ours.steps) == (theirs.samples, theirs.steps) == (12, 6)


def test_the_layout_of_pieces_follows_the_blocks():
    runs = partition.find_runs([ParameterSpec("w", 100)], [(0, 10, 20), (0, 40, 50), (0, 70, 80)])
    assert partition.cut_runs(runs, 5, 22) == [
        partition.StridedRun(15, 0, 5, 30, 1),
        partition.StridedRun(40, 5, 10, 30, 1),
        partition.StridedRun(70, 15, 2, 30, 1),
    ]
