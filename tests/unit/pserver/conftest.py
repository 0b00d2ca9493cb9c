"""A service without sockets: trainers are objects that speak to it and remember what came back."""

import numpy as np
import pytest

from pserver import blocks, protocol
from pserver.arithmetic import describe_setup
from pserver.membership import DATA, HEARTBEAT, Identity
from pserver.protocol import Message, Op
from pserver.rules import Optimization, ParameterSpec
from pserver.service import Service

PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]
SGD = Optimization("momentum", 0.1)


class FakeTrainer:
    """One trainer's side of the wire; `inbox` holds the decoded messages that the service sent it."""

    def __init__(self, wire, number, token=None, **hello):
        self.wire, self.number = wire, number
        self.token = token or bytes([number + 1]) * 16
        self.sequence = 0
        self.key = b""
        self.session = protocol.session_of(wire.job, wire.attempt)
        self.inbox = []
        self.hello = {
            "job": wire.job,
            "attempt": wire.attempt,
            "secret": wire.secret,
            "role": "join",
            "num_trainers": wire.num_trainers,
            "dtype": "float32",
            "service": 0,
            "services": 1,
            "parameters": blocks.digest(PARAMETERS),
            "shape": [2, 7],
            "settings": "s",
        } | hello

    def ask(self, op, *, repeat=False, sequence=None, argument=0, note=None, payload=(), **more):
        if sequence is None and not repeat:
            self.sequence += 1
        message = Message(
            op,
            self.session,
            self.number,
            self.sequence if sequence is None else sequence,
            argument,
            note=note or {},
            payload=payload,
            **more,
        )
        return self.wire.send(self.token + DATA, protocol.encode(message, self.key))

    def join(self):
        hello = dict(self.hello)
        job, attempt, secret = (hello.pop(name) for name in ("job", "attempt", "secret"))
        server_nonce = self.wire.service.nonce if hello["role"] == "join" else ""
        note = protocol.describe_hello(
            job, attempt, secret, "nonce", self.number, self.token + DATA, server_nonce, **hello
        )
        self.ask(Op.HELLO, note=note)
        self.key = protocol.key_of(secret, "nonce", server_nonce)
        return self

    def initialise(self, values=(0,) * 7, optimization=SGD, parameters=PARAMETERS):
        self.ask(
            Op.INITIALISE,
            note=describe_setup(parameters, optimization),
            payload=[np.asarray(values, np.float32).tobytes()],
        )
        return self

    def push(self, gradient, samples=4, **more):
        value = np.full(7, gradient, np.float32) if np.isscalar(gradient) else np.asarray(gradient, np.float32)
        self.ask(Op.PUSH, samples=samples, payload=[value.tobytes()], **more)
        return self

    def ping(self):
        self.wire.send(
            self.token + HEARTBEAT, protocol.encode(Message(Op.PING, self.session, self.number, 0), self.key)
        )

    @property
    def last(self):
        return self.inbox[-1]

    @property
    def values(self):
        return np.frombuffer(self.last.payload[0], np.float32)


class Wire:
    """A service, its clock, and the trainers by their tokens."""

    def __init__(self, num_trainers=1, job="job", attempt="1", secret="hush", peer_timeout=15.0):
        self.num_trainers, self.job, self.attempt, self.secret = num_trainers, job, attempt, secret
        self.service = Service(Identity("10.0.0.1:7164", num_trainers, job, attempt, secret), peer_timeout, 600.0)
        self.now = 1000.0
        self.trainers = []
        self.strangers = []

    def trainer(self, number, **hello):
        made = FakeTrainer(self, number, **hello)
        self.trainers.append(made)
        return made

    def ready(self, **initial):
        """All trainers joined, initialised and in their first pass."""
        made = [self.trainer(number).join() for number in range(self.num_trainers)]
        made[0].initialise(**initial)
        for one in made[1:]:
            one.ask(Op.FETCH)
        for one in made:
            one.ask(Op.START_PASS)
        return made

    def send(self, connection, frames):
        return self.deliver(self.service.handle(connection, "10.0.0.9", [bytes(f) for f in frames], self.now))

    def check(self, later=0.0):
        self.now += later
        return self.deliver(self.service.check(self.now))

    def deliver(self, outgoing):
        for connection, frames in outgoing:
            message = protocol.decode([bytes(frame) for frame in frames])
            owner = [one for one in self.trainers if one.token == connection[:16]]
            for one in owner:
                one.inbox.append(message)
            if not owner:
                self.strangers.append(message)
        return outgoing


@pytest.fixture
def wire():
    return Wire
