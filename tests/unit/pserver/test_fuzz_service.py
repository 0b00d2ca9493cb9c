"""A service in mid-round against who has no secret: what is forged, replayed or broken changes no bit."""

from random import Random

import numpy as np
import pytest
from fuzz import frames, seeds

from pserver import blocks, protocol
from pserver.arithmetic import describe_setup
from pserver.errors import ConfigError
from pserver.heartbeat import error_of
from pserver.membership import DATA, HEARTBEAT
from pserver.protocol import Message, Op
from pserver.rules import Optimization, ParameterSpec

COUNT = 5_000
PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]
SGD = Optimization("momentum", 0.1)
THIEVES = ["a stranger", "with a trainer's connection", "with a trainer's heartbeat"]


class Recorder:
    """Keeps the frames of all that honest trainers send, as one who can read the network does."""

    def __init__(self, wire):
        self.seen, self._send = [], wire.send
        wire.send = self

    def __call__(self, connection, whole):
        self.seen.append((connection, [bytes(frame) for frame in whole]))
        return self._send(connection, whole)


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


@pytest.mark.parametrize("thief", THIEVES)
@pytest.mark.parametrize("seed", seeds(2))
def test_who_has_no_secret_changes_nothing_whatever_it_sends(wire, seed, thief):
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
        for _ in range(COUNT // 10):
            bad = frames.frames(random, [whole for _, whole in recorder.seen])
            if random.random() < 0.3:
                made = frames.message(random, trainers[0].session)
                bad = protocol.encode(made, random.choice([b"", protocol.key_of("guess", "nonce", one.service.nonce)]))
            bad = [bytes(frame) for frame in bad]
            if any(bad[:2] == whole[:2] for _, whole in recorder.seen):
                continue  # a replay, below
            answers = one.service.handle(mine(), "10.6.6.6", bad, one.now)
            if thief != THIEVES[0]:
                # the trainer itself might get it: of its own hello again it makes nothing, any other would end it
                assert all(protocol.decode(answer).op == Op.HELLO for _, answer in answers)
            assert sum(len(bytes(frame)) for _, answer in answers for frame in answer) < 10_000
            one.now += 0.001

    assert train(one, trainers, between) == expected
    assert one.service.failure is None and one.service.malformed > COUNT // 2


@pytest.mark.parametrize("seed", seeds(3))
def test_what_was_recorded_and_is_sent_again_changes_nothing(wire, seed, capsys):
    expected = undisturbed(wire)
    random, one = Random(seed), wire(2)
    recorder = Recorder(one)
    trainers = one.ready()

    def between():
        for _ in range(200):
            connection, whole = random.choice(recorder.seen)
            if random.random() < 0.3:
                connection = random.randbytes(17)
            one.service.handle(connection, "10.6.6.6", whole, one.now)

    assert train(one, trainers, between) == expected
    assert one.service.failure is None
    assert len(capsys.readouterr().err.splitlines()) < 100  # mostly those of the joining and of the passes


def test_messages_of_another_session_with_the_same_secret_are_worth_nothing(wire):
    """A restarted server, or another of the job: same job, attempt, secret and tokens, but another nonce."""
    old = wire(2)
    recorder = Recorder(old)
    train(old, old.ready(), lambda: None)
    expected, one = undisturbed(wire), wire(2)
    trainers = one.ready()

    def between():
        for connection, whole in recorder.seen:
            if protocol.decode(whole).op != Op.HELLO:
                assert one.service.handle(connection, "10.6.6.6", whole, one.now) == []

    assert train(one, trainers, between) == expected and one.service.failure is None


def test_a_recorded_hello_is_refused_by_a_server_that_did_not_ask_for_it(wire):
    old, one = wire(2), wire(2)
    recorder = Recorder(old)
    old.ready()
    for connection, whole in recorder.seen:
        one.service.handle(connection, "10.6.6.6", whole, one.now)
    assert one.service.trainers == {}


def test_no_field_of_a_hello_can_be_changed(wire):
    one, seen = wire(2), wire(2)
    recorder = Recorder(seen)
    seen.service.nonce = one.service.nonce
    seen.trainer(1, memory={"pid": 1, "file": 3, "length": 4, "token": "t"}).join()
    [(connection, whole)] = recorder.seen
    note = protocol.decode(whole).note
    changes = [{key: value} for key in note for value in ("x", 7, None, [note[key]])] + [{"more": 1}]
    for change in changes:
        hello = Message(Op.HELLO, one.service.session, 1, 1, note=note | change)
        one.service.handle(connection, "10.6.6.6", protocol.encode(hello), one.now)
    for key in note:
        less = {each: value for each, value in note.items() if each != key}
        hello = Message(Op.HELLO, one.service.session, 1, 1, note=less)
        one.service.handle(connection, "10.6.6.6", protocol.encode(hello), one.now)
    for other in (0, -1, 2):
        hello = Message(Op.HELLO, one.service.session, other, 1, note=note)
        one.service.handle(connection, "10.6.6.6", protocol.encode(hello), one.now)
    one.service.handle(b"x" * 17, "10.6.6.6", whole, one.now)
    assert one.service.trainers == {}
    one.service.handle(connection, "10.0.0.9", whole, one.now)
    assert list(one.service.trainers) == [1]


def test_the_log_stays_short_whatever_strangers_say(wire, capsys):
    one, random = wire(1), Random(5)
    one.ready()
    capsys.readouterr()
    for count in range(5000):
        name = f"job {count}\nI1120 10:00:00.000000     1 forged.cpp:1] all is well \x1b[2J" + "x" * 5000
        note = {"job": name, "attempt": name, "role": random.choice(["join", "probe"]), "nonce": ["\n"]}
        hello = Message(Op.HELLO, one.service.session, count, count, note=note)
        one.service.handle(random.randbytes(17), "10.6.6.6", protocol.encode(hello), one.now)
        one.service.handle(random.randbytes(17), "10.6.6.6", [random.randbytes(64), b"\n" * 99], one.now)
        one.now += 0.01
    said = capsys.readouterr().err
    assert 1 <= len(said.splitlines()) <= 20 and len(said) < 10_000  # 50 s
    assert "\x1b" not in said and not any(line.startswith("I1120 10:00:00") for line in said.splitlines())


def test_strangers_that_never_stop_are_not_answered_for_ever(wire):
    one = wire(1)
    one.ready()
    answers = [one.service.handle(b"s" * 17, "10.6.6.6", [b"noise"], one.now + count / 5000) for count in range(10_000)]
    assert 100 <= sum(map(len, answers)) <= 300  # 2 s
    assert one.service.handle(b"s" * 17, "10.6.6.6", [b"noise"], one.now + 60)


# ----- Who has the secret, and is broken -----


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


@pytest.mark.parametrize("seed", seeds(3))
def test_a_setup_that_is_none_is_refused_by_name(wire, seed, monkeypatch):
    monkeypatch.setattr(blocks, "digest", lambda parameters: "same")  # as who makes it up would give it
    random, refused = Random(seed), 0
    for _ in range(200):
        one = wire(1).trainer(0).join()
        one.ask(Op.INITIALISE, note=mistake(random, describe_setup(PARAMETERS, SGD)), payload=[bytes(28)])
        refused += one.last.op == Op.ERROR
    assert refused > 100


@pytest.mark.parametrize(
    "size, hello, part",
    [
        (1 << 45, {}, "does not fit into its memory"),
        (1 << 70, {}, "does not"),
        (5, {"services": 1 << 40}, "at most 65536"),
        (5, {"service": 1}, "service 1 of 1"),
        (5, {"services": "many"}, "does not parse"),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_name(wire, size, hello, part):
    parameters = [ParameterSpec("w", size)]
    one = wire(1).trainer(0, parameters=blocks.digest(parameters), **hello).join()
    one.initialise(parameters=parameters, values=[0])
    assert one.last.op == Op.ERROR and part in one.last.note["message"]
    assert one.wire.service.failure is None


def test_an_error_that_a_server_tells_is_one_short_line():
    note = {"message": "all is well\nI1120 10:00:00.000000     1 forged.cpp:1] \x1b[2J" + "x" * 9000, "exit_code": 78}
    error = error_of(Message(Op.ERROR, b"s" * 8, 0, 1, note=note), "pserver a:1")
    assert isinstance(error, ConfigError) and len(str(error)) < 5000 and str(error).isprintable()
