"""The foreseen pushes of a port: whatever a trainer sends, it is answered as if no push had been foreseen."""

import contextlib
import os
import random
import select
import socket
import sys

import numpy as np
import pytest
from pserver_wire import PARAMETERS, SGD
from waiting import until

from paddle_base import kernels
from paddle_base.kernels import server_rounds
from paddle_base.runtime.errors import BugError
from pserver.optim.settings import Optimization
from pserver.server import round_traffic
from pserver.server.admission import Identity
from pserver.server.listener import Listener, bind_port
from pserver.server.service import Service
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, ClientHandshake
from pserver.wire.connection import Connection
from pserver.wire.protocol import Fetch, Message, MessageFlag, Op
from pserver.wire.shared_memory import SharedMemory

SESSION = protocol.session_of("", "")
NOW = 100.0


class RawTrainer:
    """One trainer's side of two connections, of which it sends and receives every byte by itself."""

    def __init__(self, port, number, *, memory=None):
        self.port, self.number, self.memory = port, number, memory
        self.token, self.sequence = bytes([number + 1]) * 16, 0
        self.heard = []  # every message of the server, as bytes; b"" is the end of the connection
        self.data, self.keys = port.connect(self.token + DATA)
        note = {
            "job": "",
            "attempt": "",
            "num_trainers": port.trainers,
            "dtype": "float32",
            "service": 0,
            "services": 1,
        }
        note |= {"parameters": partition.digest(PARAMETERS), "shape": [2, 7], "settings": "s"}
        note |= {"memory": memory.offer} if memory else {}
        self.ask(Op.HELLO, note=note)
        self.hear()

    def encode(self, op, *, sequence=None, payload=b"", **more):
        self.sequence += sequence is None
        values = {"note": {}, "session": SESSION} | more
        number = self.sequence if sequence is None else sequence
        message = Message(op, trainer=self.number, sequence=number, payload=[payload] if payload else [], **values)
        return b"".join(bytes(frame) for frame in protocol.encode(message, self.keys.sending))

    def encode_push(self, gradient, **more):
        values = np.full(7, gradient, np.float32).tobytes()
        if self.memory is None:
            return self.encode(Op.PUSH, payload=values, samples=4, **more)
        self.memory.outbox[:28] = values
        return self.encode(Op.PUSH, argument=28, samples=4, **{"flags": MessageFlag.LOCAL} | more)

    def say(self, data):
        """Send bytes, and wait until the server has received them."""
        before = self.port.listener.traffic.received
        self.data.sendall(data)
        self.port.turn_until(lambda: self.port.listener.traffic.received >= before + len(data), "what was said")

    def ask(self, op, **more):
        self.data.sendall(self.encode(op, **more))

    def hear(self):
        """Wait for the next message of the server, or for the end of the connection."""
        came = bytearray()

        def whole():
            with contextlib.suppress(BlockingIOError):
                wanted = protocol.HEADER_BYTES
                if len(came) >= wanted:
                    wanted += sum(protocol.measure(bytes(came[:wanted])))
                if len(came) == wanted:
                    return True
                part = self.data.recv(wanted - len(came))
                came.extend(part)
                return not part
            return False

        self.port.turn_until(whole, f"an answer to trainer {self.number}")
        if came and self.memory:
            came.extend(self.memory.inbox[:28])
        self.heard.append(bytes(came))
        return bytes(came)


class TestedPort:
    """A port without a process, with trainers that have joined and made one round."""

    __test__ = False

    def __init__(self, stack, trainers, *, secret="", optimization=SGD, shared=0):
        self.stack, self.trainers, self.secret = stack, trainers, secret
        self.poller = stack.enter_context(contextlib.closing(select.epoll()))
        identity = Identity("here", trainers, secret=secret)
        self.service = Service(identity)
        self.listener = Listener(bind_port("127.0.0.1", 0), self.service, self.poller, backlog=9)
        stack.callback(self.listener.close, 0)
        memories = [SharedMemory.make(28) if number < shared else None for number in range(trainers)]
        self.made = [RawTrainer(self, number, memory=memory) for number, memory in enumerate(memories)]
        first = self.made[0]
        first.ask(Op.INITIALISE, note=describe_setup(PARAMETERS, optimization), payload=bytes(28))
        first.hear()
        for one in self.made[1:]:
            one.ask(Op.FETCH)
            one.hear()
        for one in self.made:
            one.ask(Op.START_PASS)
        for one in self.made:
            one.hear()
        self.round()

    def connect(self, name):
        stream = self.stack.enter_context(socket.create_connection(self.listener._socket.getsockname()))
        stream.setblocking(False)
        caller = ClientHandshake(self.secret, name, os.urandom(32))
        stream.sendall(caller.greeting)

        def step():
            with contextlib.suppress(BlockingIOError):
                stream.sendall(caller.feed(stream.recv(caller.wanted)))
            return not caller.wanted

        self.turn_until(step, "the handshake")
        return stream, caller.keys

    def turn(self):
        assert self.listener.handle_ready(self.poller.poll(0), NOW) == []

    def turn_until(self, condition, what):
        def turn():
            self.turn()
            return condition()

        until(turn, what)

    def round(self, value=1):
        for one in self.made:
            one.say(one.encode_push(value + one.number))
        for one in self.made:
            one.hear()

    @property
    def foreseen(self):
        return sum(push.is_expected for push in self.listener._rounds._pushes.values())

    def state(self):
        """What the service has become, and what every trainer has heard."""
        sessions = self.service.sessions
        return {
            "values": self.service.state.shard.values.tobytes(),
            "samples": self.service.state.shard.samples,
            "rounds": self.service.state.counters.rounds,
            "malformed": sessions.complaints.malformed,
            "failed": sessions.complaints.failed,
            "failure": str(self.service.failure),
            "requests": [
                (one.request.sequence, one.request.doing, one.suspected) for one in sessions.trainers.values()
            ],
            "heard": [one.heard for one in self.made],
            "peers": len(self.listener._peers),
            "traffic": (self.listener.traffic.received, self.listener.traffic.sent),
        }


# ----- What trainers may do; `one` and `two` are trainers whose next pushes are foreseen -----


def rounds_in_any_order(port, one, two):
    draw = random.Random(1)
    for number in range(4):
        left = {trainer: trainer.encode_push(number + trainer.number) for trainer in port.made}
        while left:
            trainer = draw.choice(list(left))
            size = draw.randrange(1, 60)
            trainer.say(left[trainer][:size])
            left[trainer] = left[trainer][size:]
            left = {trainer: data for trainer, data in left.items() if data}
        for trainer in port.made:
            trainer.hear()


def pushes_with_other_flags(port, one, two):
    for flags in (MessageFlag.KEEP, MessageFlag.CHECKPOINT, MessageFlag.KEEP | MessageFlag.CHECKPOINT):
        one.say(one.encode(Op.PUSH, payload=bytes(28), flags=flags, samples=1 << 31))
        two.say(two.encode_push(2))
        one.hear(), two.hear()


def other_requests_before_the_push(port, one, two):
    one.say(one.encode(Op.PING, sequence=0))
    one.hear()
    one.say(one.encode(Op.FETCH, argument=Fetch.CURRENT))
    one.hear()
    ping = one.encode(Op.PING, sequence=0)
    one.say(ping[:10])
    one.say(ping[10:] + one.encode_push(1))
    one.hear()
    two.say(two.encode_push(1))
    one.hear(), two.hear()


def a_ping_behind_a_push(port, one, two):
    ping = one.encode(Op.PING, sequence=0)
    one.say(one.encode_push(1) + ping[:9])
    two.say(two.encode_push(1))
    one.hear(), two.hear()
    one.say(ping[9:] + one.encode_push(3))
    one.hear()
    two.say(two.encode_push(3))
    one.hear(), two.hear()


def two_pushes_at_once(port, one, two):
    one.say(one.encode_push(1) + one.encode_push(2))
    one.hear()
    two.say(two.encode_push(1))
    one.hear(), two.hear()


def a_push_again(port, one, two):
    one.say(one.encode_push(5, sequence=one.sequence))
    one.hear()
    port.round()


def a_push_of_another_length(port, one, two):
    for size in (24, 32, 0):
        one.say(one.encode(Op.PUSH, payload=bytes(size), sequence=one.sequence + 1))
        one.hear()
    one.say(one.encode_push(1))
    two.say(two.encode_push(1))
    one.hear(), two.hear()


def a_push_of_another_piece(port, one, two):
    one.say(one.encode(Op.PUSH, payload=bytes(28), piece=1, sequence=one.sequence + 1))
    one.hear()


def a_push_far_ahead(port, one, two):
    one.say(one.encode(Op.PUSH, payload=bytes(28), sequence=one.sequence + 2))
    one.say(one.encode_push(1))
    two.say(two.encode_push(1))
    one.hear(), two.hear()


def a_push_of_another_attempt(port, one, two):
    one.say(one.encode(Op.PUSH, payload=bytes(28), session=b"8 bytes!", sequence=one.sequence + 1))
    one.say(one.encode_push(1))
    two.say(two.encode_push(1))
    one.hear(), two.hear()


def a_header_that_promises_too_much(port, one, two):
    one.say(protocol.pack_push(SESSION, 0, one.sequence + 1, 8 << 20, is_local=False))
    one.hear()


def noise(port, one, two):
    one.say(b"GE")
    one.hear()


def noise_behind_half_a_header(port, one, two):
    one.say(one.encode_push(1)[:9])
    one.say(b"x" * 60)
    one.hear()


def the_end_in_the_middle(port, one, two):
    one.say(one.encode_push(1)[:70])
    one.data.shutdown(socket.SHUT_WR)
    one.hear()


def the_end_behind_a_push(port, one, two):
    one.say(one.encode_push(1))
    one.data.shutdown(socket.SHUT_WR)
    one.hear()
    two.say(two.encode_push(1))
    two.hear()


def a_failure_between_two_parts_of_a_push(port, one, two):
    push = one.encode_push(1)
    one.say(push[:50])
    two.say(two.encode(Op.ABORT, note={"reason": "enough"}))
    one.hear()
    one.say(push[50:])
    one.hear()


def a_new_connection_in_the_middle_of_a_push(port, one, two):
    push = one.encode_push(1)
    one.say(push[:50])
    before = one.data
    one.data, one.keys = port.connect(one.token + DATA)
    assert before.fileno() != one.data.fileno()
    one.say(one.encode_push(1, sequence=one.sequence))
    two.say(two.encode_push(1))
    one.hear(), two.hear()
    port.round()


def the_end_of_the_pass(port, one, two):
    one.say(one.encode_push(1))
    two.say(two.encode(Op.FINISH_PASS))
    one.hear()
    one.say(one.encode_push(1))
    one.hear()
    one.say(one.encode(Op.FINISH_PASS))
    one.hear(), two.hear()
    one.say(one.encode_push(1))
    one.hear()


def a_request_on_the_other_connection(port, one, two):
    stream, keys = port.connect(one.token + HEARTBEAT)
    one.data, data = stream, one.data
    one.keys, of_data = keys, one.keys
    one.say(one.encode(Op.FETCH, argument=Fetch.CURRENT))
    one.data, one.keys = data, of_data
    one.hear()
    one.say(one.encode_push(1))
    two.say(two.encode_push(1))
    one.hear(), two.hear()


STORIES = [
    rounds_in_any_order, pushes_with_other_flags, other_requests_before_the_push, a_ping_behind_a_push,
    two_pushes_at_once, a_push_again, a_push_of_another_length, a_push_of_another_piece, a_push_far_ahead,
    a_push_of_another_attempt, a_header_that_promises_too_much, noise, noise_behind_half_a_header,
    the_end_in_the_middle, the_end_behind_a_push, a_failure_between_two_parts_of_a_push,
    a_new_connection_in_the_middle_of_a_push, the_end_of_the_pass, a_request_on_the_other_connection,
]  # fmt: skip


@pytest.fixture(params=["compiled", "plain"])
def form(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(server_rounds, "compiled", None)
    elif kernels.compiled is None:
        pytest.skip("the compiled module is not built here")


def tell(story, foresees, **settings):
    with contextlib.ExitStack() as stack:
        port = TestedPort(stack, 2, **settings)
        assert port.foreseen == (2 if foresees else 0)
        story(port, *port.made)
        return port.state()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize(
    "form, secret",
    [("compiled", ""), ("plain", ""), ("compiled", "hush")],
    indirect=["form"],
    ids=["", "plain", "signed"],
)
def test_nobody_can_tell_whether_a_push_was_foreseen(form, monkeypatch, story, secret):
    foreseen = tell(story, True, secret=secret)
    monkeypatch.setattr(Service, "foresee_push", lambda *_: None)
    plain = tell(story, False, secret=secret)
    if secret:  # nonces, and so keys and tags, are new in each run
        for state in (foreseen, plain):
            state["heard"] = [[data[:56] + data[64:] for data in heard] for heard in state["heard"]]
    assert foreseen == plain


@pytest.mark.parametrize("error", [BugError, RuntimeError])
def test_a_step_that_fails_is_refused_to_the_trainer_that_completed_the_round(form, monkeypatch, error):
    """The others wait, as if the push had not been foreseen."""

    def fail(*_):
        raise error("no step")

    def story(port, one, two):
        port.service.state.shard.step_range = fail
        one.say(one.encode_push(1))
        two.say(two.encode_push(1))
        two.hear()

    foreseen = tell(story, True)
    monkeypatch.setattr(Service, "foresee_push", lambda *_: None)
    plain = tell(story, False)
    for state in (foreseen, plain):
        assert b"no step" in state["heard"][1][-1] and len(state["heard"][0]) == 4
    assert foreseen == plain


@pytest.mark.parametrize("shared", [1, 2])
def test_pushes_in_shared_memory_are_foreseen_too(form, monkeypatch, shared):
    foreseen = tell(rounds_in_any_order, True, shared=shared)
    monkeypatch.setattr(Service, "foresee_push", lambda *_: None)
    assert foreseen == tell(rounds_in_any_order, False, shared=shared)


def alternating_pushes(port, one, two):
    for number in range(3):
        for trainer in (one, two, two):
            trainer.say(trainer.encode_push(number))
            trainer.hear()


def test_asynchronous_pushes_are_foreseen_too(form, monkeypatch):
    async_sgd = Optimization("momentum", 0.1, algorithm="async_sgd")
    monkeypatch.setattr(TestedPort, "round", lambda port: alternating_pushes(port, *port.made))
    foreseen = tell(alternating_pushes, True, optimization=async_sgd)
    monkeypatch.setattr(Service, "foresee_push", lambda *_: None)
    assert foreseen == tell(alternating_pushes, False, optimization=async_sgd)


@pytest.mark.parametrize("place", [0, 7, 24, 52, 56, 63])
def test_a_foreseen_push_with_a_changed_header_is_not_taken(form, capsys, place):
    """With a secret, the tag covers the samples and the flags, too: no bit of the header may change on its way."""
    with contextlib.ExitStack() as stack:
        port = TestedPort(stack, 2, secret="hush")
        one, _ = port.made
        push = bytearray(one.encode_push(1))
        push[place] ^= 16 if place == 7 else 1  # KEEP
        before = port.state()["values"]
        one.say(bytes(push))
        while one.hear():
            pass
        assert port.service.sessions.complaints.malformed == 1 and port.state()["values"] == before
        assert len(port.service.state.rounds._samples) == 0


@pytest.mark.parametrize("secret", ["", "hush"])
def test_foreseen_pushes_never_pass_through_their_connections(form, monkeypatch, secret):
    """Three rounds of eight trainers: every push is received by one of the calls for all, and none by `Connection`."""
    with contextlib.ExitStack() as stack:
        port = TestedPort(stack, 8, secret=secret)
        monkeypatch.setattr(Connection, "receive", lambda self: pytest.fail("a push was not foreseen"))
        monkeypatch.setattr(Connection, "send", lambda *_: pytest.fail("answers were sent one by one"))
        monkeypatch.setattr(protocol, "is_signed", lambda *_: pytest.fail("a signature was checked by itself"))
        for number in range(3):
            for one in port.made:
                one.data.sendall(one.encode_push(number))
            for one in port.made:
                one.hear()
        assert port.foreseen == 8 and port.service.state.counters.rounds == 4


def test_without_memory_no_push_is_foreseen(monkeypatch):
    """No connection and no server ends because there is no memory for a push that has not even begun."""

    def refuse(size):
        raise MemoryError

    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(round_traffic, "bytearray", refuse, raising=False)
            port = TestedPort(stack, 2)
            port.round()
            assert port.foreseen == 0
        port.round()
        assert port.foreseen == 2 and port.service.state.counters.rounds == 3


@pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
def test_a_push_and_its_answer_cost_few_calls():
    """There were more than 150 calls of Python and of built-in functions for each trainer of a round, and then 87."""
    with contextlib.ExitStack() as stack:
        port = TestedPort(stack, 32)
        for one in port.made:
            one.data.sendall(one.encode_push(1))
        until(lambda: len(port.poller.poll(0)) == 32, "all pushes")
        ready, calls = port.poller.poll(0), []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None)
        try:
            port.listener.handle_ready(ready, NOW)
        finally:
            sys.setprofile(before)
        assert port.service.state.counters.rounds == 2 and len(calls) < 33 * 32, len(calls) / 32


def test_what_a_slow_trainer_does_not_read_yet_waits_for_it(form, monkeypatch):
    """Half of an answer is sent, and the rest when the trainer reads."""
    send, (unused, peer) = server_rounds.send_answers, socket.socketpair()

    def send_half(messages, *rest):
        send([one._replace(file=unused.fileno()) for one in messages], *rest)
        for one in messages:
            os.write(one.file, one.answer[:40])
        return 40 * len(messages), [(number, 40) for number in range(len(messages))]

    with contextlib.ExitStack() as stack, unused, peer:
        port = TestedPort(stack, 2, secret="hush")
        one, two = port.made
        monkeypatch.setattr(server_rounds, "send_answers", send_half)
        one.say(one.encode_push(1))
        two.say(two.encode_push(1))
        first, second = one.hear(), two.hear()
        assert len(first) == len(second) == 64 + 28 and first[64:] == port.state()["values"]
        for answer, trainer in ((first, one), (second, two)):
            assert protocol.is_signed([answer[:64], b""], trainer.keys.receiving)
        monkeypatch.undo()
        port.round()
