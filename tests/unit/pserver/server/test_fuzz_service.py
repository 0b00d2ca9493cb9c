"""A service in mid-round against who has no secret: what is forged, replayed or broken changes no bit."""

import itertools
import json
import os
from random import Random

import numpy as np
import pytest
from fuzz import frames, seeds
from fuzz.frames import encode
from tasks_wire import ElasticWire

from paddle_base.runtime.errors import ConfigError
from pserver.client.heartbeat import error_of
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire.authentication import DATA, HEARTBEAT, PROBE
from pserver.wire.protocol import Message, Op

COUNT = 500 if "FUZZ_SEED" not in os.environ else 5_000  # messages; make fuzz and make nightly have time for more
PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]
SGD = Optimization("momentum", 0.1)
THIEVES = ["an unauthenticated peer", "with a trainer's connection", "with a trainer's heartbeat"]


def first_of(numbers):
    """The first seed, and for `make nightly` the others; `make fuzz` takes another first one in each turn."""
    return [numbers[0], *(pytest.param(number, marks=pytest.mark.nightly) for number in numbers[1:])]


class Recorder:
    """Keeps the frames of all that honest trainers send, as one who can read the network does."""

    def __init__(self, wire):
        self.seen, self._handle = [], wire.handle
        wire.handle = self

    def __call__(self, connection, whole, key):
        self.seen.append((connection, [bytes(frame) for frame in whole]))
        return self._handle(connection, whole, key)


def train(wire, trainers, between):
    """Two passes of two rounds, with something between any two messages; returns all answers that mattered."""
    for pass_number in range(2):
        for one in trainers:
            if pass_number:
                between()
                one.ask(Op.START_PASS)
        for batch in range(2):
            for one in trainers:
                between()
                one.push(np.arange(7) * (1 + one.number) + 0.1 * batch)
        for one in trainers:
            between()
            one.ask(Op.FINISH_PASS)
    return [[bytes(part) for answer in one.inbox for part in answer.payload] for one in trainers]


def undisturbed(wire):
    one = wire(2)
    return train(one, one.ready(), lambda: None)


@pytest.mark.parametrize("count", [COUNT, pytest.param(5_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("seed", first_of(seeds(2)))
@pytest.mark.parametrize("thief", THIEVES)
def test_who_has_no_secret_changes_nothing_whatever_it_sends(wire, thief, seed, count):
    """On a connection of a trainer come what is put into its stream on the way: the handshake has kept all else out."""
    expected = undisturbed(wire)
    random, one = Random(seed), wire(2)
    recorder = Recorder(one)
    trainers = one.ready()
    mine = {
        THIEVES[0]: lambda: random.randbytes(17),
        THIEVES[1]: lambda: random.choice(trainers).token + DATA,
        THIEVES[2]: lambda: random.choice(trainers).token + HEARTBEAT,
    }[thief]

    def between():
        for _ in range(count // 10):
            bad = frames.frames(random, [whole for _, whole in recorder.seen])
            if random.random() < 0.3:
                bad = frames.encode(frames.message(random, trainers[0].session), random.choice([b"", b"guess"]))
            bad = [bytes(frame) for frame in bad]
            if any(bad[:2] == whole[:2] for _, whole in recorder.seen):
                continue  # a replay, below
            connection = mine()
            answers = one.service.handle(connection, "10.6.6.6", bad, one.now, b"key of " + connection)
            assert [message for _, message in answers if message is not None] == [] or thief == THIEVES[0]
            assert answers[-1] == (connection, None)
            one.now += 0.001

    assert train(one, trainers, between) == expected
    complaints = one.service.sessions.complaints
    assert one.service.failure is None and complaints.malformed > count // 2 and complaints.failed == 0


@pytest.mark.parametrize("seed", first_of(seeds(3)))
def test_what_was_recorded_and_is_sent_again_changes_nothing(wire, seed, capsys):
    """In the stream that it was recorded from, or in another one."""
    expected = undisturbed(wire)
    random, one = Random(seed), wire(2)
    recorder = Recorder(one)
    trainers = one.ready()

    def between():
        for _ in range(200):
            connection, whole = random.choice(recorder.seen)
            if random.random() < 0.3:
                connection = random.choice([random.randbytes(17), random.choice(trainers).token + HEARTBEAT])
            one.service.handle(connection, "10.6.6.6", whole, one.now, b"key of " + connection)

    assert train(one, trainers, between) == expected
    assert one.service.failure is None
    assert len(capsys.readouterr().err.splitlines()) < 100  # mostly those of the joining and of the passes


def test_messages_of_another_connection_with_the_same_secret_are_worth_nothing(wire):
    """A restarted server, another one of the job, or the same: same job, attempt, secret and name, but other nonces."""
    old = wire(2)
    recorder = Recorder(old)
    train(old, old.ready(), lambda: None)
    expected, one = undisturbed(wire), wire(2)
    trainers = one.ready()

    def between():
        for connection, whole in recorder.seen:
            assert one.service.handle(connection, "10.6.6.6", whole, one.now, b"another key") == [(connection, None)]

    assert train(one, trainers, between) == expected and one.service.failure is None


def test_the_log_stays_short_whatever_unauthenticated_peers_say(wire, capsys):
    one, random = wire(1), Random(5)
    one.ready()
    capsys.readouterr()
    for count in range(5000):
        name = f"job {count}\nI1120 10:00:00.000000     1 forged.cpp:1] all is well \x1b[2J" + "x" * 5000
        note = {"job": name, "attempt": name, "parameters": ["\n"]}
        hello = Message(Op.HELLO, one.service.sessions.session, count, count, note=note)
        one.service.handle(random.randbytes(16) + random.choice([DATA, PROBE]), "10.6.6.6", encode(hello), one.now)
        one.service.handle(random.randbytes(17), "10.6.6.6", [random.randbytes(64), b"\n" * 99], one.now)
        one.now += 0.01
    said = capsys.readouterr().err
    assert 1 <= len(said.splitlines()) <= 20 and len(said) < 10_000  # 50 s
    assert "\x1b" not in said and not any(line.startswith("I1120 10:00:00") for line in said.splitlines())


# ----- Who has the secret, and is broken -----


def test_the_log_stays_short_whatever_a_trainer_asks(wire, capsys):
    """Each refused request was a line; without a secret everybody may be a trainer."""
    one = wire(1).ready()[0]
    capsys.readouterr()
    for number in range(1000):
        one.ask(Op.SAVE, sequence=one.sequence + 1, note={"directory": number})
        assert one.last.op == Op.ERROR and f"its directory is {number}, not a text" in one.last.note["message"]
        one.wire.now += 0.01
    assert 1 <= len(capsys.readouterr().err.splitlines()) <= 5


def mistake(random, setup):
    """The setup of the parameters, changed in one of its parts."""
    made = dict(setup)
    kind = random.randrange(4)
    if kind == 0:
        return frames.note(random, made)
    if kind == 1:
        made["optimization"] = frames.note(random, dict(made["optimization"]))
    elif kind == 2:
        rows = [list(row) for row in made["parameters"]]
        row = random.choice(rows)
        row[random.randrange(len(row))] = frames.value(random)
        made["parameters"] = rows
    else:
        made |= {key: frames.value(random) for key in ("counters", "arrays", "trainers", "by_rows")}
    return made


@pytest.mark.parametrize("seed", first_of(seeds(3)))
def test_a_setup_that_is_none_is_refused_by_name(wire, seed, monkeypatch):
    monkeypatch.setattr(partition, "digest", lambda parameters: "same")  # as who makes it up would give it
    random, refused = Random(seed), 0
    for _ in range(200):
        one = wire(1).trainer(0).join()
        setup = Message(
            Op.INITIALISE, one.session, 0, 2, note=mistake(random, describe_setup(PARAMETERS, SGD)), payload=[bytes(28)]
        )
        one.wire.deliver(one.wire.handle(one.token + DATA, encode(setup)))
        refused += one.last.op == Op.ERROR
        assert one.wire.service.sessions.complaints.failed == 0
    assert refused > 100


@pytest.mark.parametrize(
    "size, hello, part",
    [
        (1 << 45, {}, "does not fit into its memory"),
        (1 << 62, {}, "cannot be parsed"),
        (5, {"services": 1 << 40}, "at most 65536"),
        (5, {"service": 1}, "service 1 of 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_name(wire, size, hello, part):
    parameters = [ParameterSpec("w", size)]
    one = wire(1).trainer(0, parameters=partition.digest(parameters), **hello).join()
    one.initialise(parameters=parameters, values=[0])
    assert one.last.op == Op.ERROR and part in one.last.note["message"]
    assert one.wire.service.failure is None


def note_of(op):
    """A note of an op as a trainer of PARAMETERS would say it."""
    note = frames.NOTES.get(op, {})
    if op == Op.HELLO:
        return note | {"parameters": partition.digest(PARAMETERS)}
    return note | describe_setup(PARAMETERS, SGD) if op == Op.INITIALISE else note


def nobody(wire):
    return wire(1).trainer(0)


def joined(wire):
    return wire(1).trainer(0).join()


def training(wire):
    return wire(1).ready()[0]


def training_alone(wire):
    """Asynchronously."""
    return wire(1).ready(optimization=Optimization("adam", 0.1, algorithm="async_sgd"))[0]


def training_rows(wire, **settings):
    """On a sparse service."""
    table = [ParameterSpec("w", 12, sparse_update=True, row_width=3)]
    one = wire(1).trainer(0, parameters=partition.digest(table)).join()
    setup = describe_setup(table, Optimization("momentum", 0.1, **settings)) | {"by_rows": True}
    one.ask(Op.INITIALISE, note=setup, payload=[bytes(48)])
    one.ask(Op.START_PASS)
    assert one.last.op == Op.START_PASS
    return one


def training_rows_alone(wire):
    """On a sparse service, asynchronously."""
    return training_rows(wire, algorithm="async_sgd")


def elastic(wire):
    """In a task job, before the first values."""
    return ElasticWire().trainer(0).join()


def elastic_alone(wire):
    """In a task job, asynchronously."""
    return ElasticWire().ready(optimization=Optimization("adam", 0.1, algorithm="async_sgd"))[0]


def task_rounds(wire):
    """In the middle of a synchronous round of a task job."""
    one = ElasticWire().ready(2)[0]
    one.enter(2, 0, 1).push_round((2, 1), 0.0)
    return one


def elastic_rows(wire):
    """The same on a sparse service."""
    one = ElasticWire().ready_rows(2)[0]
    one.enter(2, 0)
    return one


ELASTIC = [elastic, elastic_alone, task_rounds, elastic_rows]
ROWS = [np.array(rows, np.uint32).tobytes() for rows in ([0], [1, 2], [2, 0, 3], [1, 9], [2, 3, 3], [5, 1, 2, 3])]
ROWS += [ROWS[1] + bytes(12), ROWS[2] + bytes(24), ROWS[2] + b"\xff" * 24]
STATES = [nobody, joined, training, training_alone, training_rows, training_rows_alone, *ELASTIC]


BEGINNINGS = list(itertools.product([nobody, joined, training, elastic_alone, task_rounds], [DATA, HEARTBEAT, PROBE]))
LIKELY = [one for one in BEGINNINGS if one[1] == DATA]  # the other kinds of connections refuse most requests unread


def send_all(wire, op, cases):
    """Send requests of an op, each on a connection of a kind in a state; no text of a note may end the server."""
    states = {}
    for (begin, kind), text in cases:
        one = states.get(begin) or begin(wire)
        states[begin] = one
        known = one.wire.service.sessions.trainers.get(0)
        sequence = known.request.sequence + 1 if known else 1
        message = Message(op, one.session, 0, sequence, payload=[bytes(28)] if op == Op.PUSH else [])
        connection = one.token + kind
        one.wire.deliver(one.wire.handle(connection, encode(message, b"k", text), b"k"))
        complaints, place = one.wire.service.sessions.complaints, (begin.__name__, kind, text[:200])
        assert complaints.failed == 0, place
        is_gone = known and 0 not in one.wire.service.sessions.trainers
        if one.wire.service.failure or is_gone:  # by a valid ABORT, or a GOODBYE in a task job
            del states[begin]


@pytest.mark.parametrize("op", Op)
def test_no_field_of_any_request_ends_a_server_whatever_it_holds(wire, op):
    """A hello whose nonce was nested 981 deep ended a server with 70, and 15 of them a job with restarts.

    Every value is tried in every field, in one of five states, by one of three kinds of connections; `make nightly`
    tries each in all fifteen.
    """
    texts = [text for raw in frames.RAW_VALUES for text in frames.texts_with(note_of(op), raw)]
    begins = (BEGINNINGS + 3 * LIKELY) * (1 + len(texts) // len(BEGINNINGS))
    Random(seeds(1)[0]).shuffle(begins)
    send_all(wire, op, zip(begins, texts, strict=False))


@pytest.mark.nightly
@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda begin: f"{begin[0].__name__}-{begin[1]}")
def test_no_field_of_any_request_ends_a_server_in_any_state(wire, begin):
    for op in Op:
        texts = [text for raw in frames.RAW_VALUES for text in frames.texts_with(note_of(op), raw)]
        send_all(wire, op, ((begin, text) for text in texts))


@pytest.mark.parametrize("seed", first_of(seeds(3)))
def test_no_note_that_is_made_up_ends_a_server_in_any_state(wire, seed):
    """2,000 requests of any op, with notes, numbers and pieces of any kind, from one that has joined or has not."""
    random = Random(seed)
    one = training(wire)
    for count in range(2000):
        if random.random() < 0.02 or one.wire.service.failure:
            one = random.choice(STATES)(wire)
        op = random.choice(list(Op))
        if random.random() < 0.5:
            text = json.dumps(frames.note(random, dict(note_of(op)))).encode()
        else:
            text = random.choice(list(frames.texts_with(note_of(op), random.choice(frames.RAW_VALUES))))
        made = frames.message(random, one.session)
        known = one.wire.service.sessions.trainers.get(0)
        sequence = known.request.sequence + random.choice([0, 1, 1, 1, 1]) if known else made.sequence
        payload = [random.choice([bytes(random.choice([0, 3, 4, 8, 28, 28, 28, 40])), *ROWS])]
        trainer = random.choice([0, 0, 0, made.trainer])
        # the hello may have had the last number that there is
        message = made._replace(op=op, trainer=trainer, sequence=sequence % 2**64, payload=payload)
        kind = random.choice([DATA, DATA, DATA, HEARTBEAT, PROBE])
        one.wire.deliver(one.wire.handle(one.token + kind, encode(message, b"k", text), b"k"))
        assert one.wire.service.sessions.complaints.failed == 0, (count, message, text[:500])


def test_a_request_that_raises_ends_its_connection_and_is_logged_once_with_its_class(wire, capsys):
    one = wire(2)
    trainers = one.ready()
    one.service._handlers[Op.CHECKPOINT_BLOB] = lambda *_: [][0]
    capsys.readouterr()
    for count in range(20):
        trainers[1].ask(Op.CHECKPOINT_BLOB, note={"bytes": 0}, sequence=trainers[1].sequence + 1)
        answer = trainers[1].last
        assert answer.op == Op.ERROR and answer.note["exit_code"] == 70 and "IndexError" in answer.note["message"]
        assert one.closed == [trainers[1].token + DATA] * (count + 1)
    [line] = capsys.readouterr().err.splitlines()
    assert "could not handle a CHECKPOINT_BLOB (IndexError at test_fuzz_service.py:" in line and "10.0.0.9" in line
    assert one.service.sessions.complaints.failed == 20 and one.service.failure is None
    for trainer in trainers:
        trainer.push(1)
    assert trainers[1].last.op == Op.PUSH


def test_an_error_that_a_server_tells_is_one_short_line():
    note = {"message": "all is well\nI1120 10:00:00.000000     1 forged.cpp:1] \x1b[2J" + "x" * 9000, "exit_code": 78}
    error = error_of(Message(Op.ERROR, b"s" * 8, 0, 1, note=note), "pserver a:1")
    assert isinstance(error, ConfigError) and len(str(error)) < 5000 and str(error).isprintable()
