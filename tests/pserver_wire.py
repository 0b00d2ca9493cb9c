"""A service without sockets: trainers are objects that send messages to it and keep the answers."""

import time

import numpy as np

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.server.admission import Identity
from pserver.server.service import Service
from pserver.server.service_state import ServiceOptions
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT
from pserver.wire.protocol import Message, Op

PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]
SGD = Optimization("momentum", 0.1)


def key_of(connection):
    """Return the key that a connection would have after a handshake."""
    return b"key of " + connection


class FakeTrainer:
    """One trainer's side of the wire; `inbox` holds the decoded messages that the service sent it."""

    def __init__(self, wire, number, token=None, **hello):
        self.wire, self.number = wire, number
        self.token = token or bytes([number + 1]) * 16
        self.sequence = 0
        self.kind = DATA
        self.session = protocol.session_of(wire.job, wire.attempt)
        self.inbox = []
        self.hello = {
            "job": wire.job,
            "attempt": wire.attempt,
            "num_trainers": wire.num_trainers,
            "dtype": "float32",
            "service": 0,
            "services": 1,
            "parameters": partition.digest(PARAMETERS),
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
        return self.wire.send(self.token + self.kind, message)

    def join(self):
        self.ask(Op.HELLO, note=self.hello)
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
        self.wire.send(self.token + HEARTBEAT, Message(Op.PING, self.session, self.number, 0))

    @property
    def last(self):
        return self.inbox[-1]

    @property
    def values(self):
        return np.frombuffer(self.last.payload[0], np.float32)


class Wire:
    """A service, its clock, and its trainers (token -> trainer)."""

    kind = Service

    def __init__(self, num_trainers=1, job="job", attempt="1", secret="hush", clock=time.perf_counter, **options):
        self.num_trainers, self.job, self.attempt, self.secret = num_trainers, job, attempt, secret
        identity = Identity("10.0.0.1:7164", num_trainers, job, attempt, secret, self.kind.is_task_job)
        self.service = self.kind(identity, ServiceOptions(**{"peer_timeout": 15.0} | options), clock)
        self.now = 1000.0
        self.trainers = []
        self.unauthenticated = []
        self.closed = []  # names of connections that the service wants closed, in order

    def trainer(self, number, **hello):
        made = FakeTrainer(self, number, **hello)
        self.trainers.append(made)
        return made

    def ready(self, **initial):
        """Return the wire after all trainers have joined, initialised, and begun their first pass."""
        made = [self.trainer(number).join() for number in range(self.num_trainers)]
        made[0].initialise(**initial)
        for one in made[1:]:
            one.ask(Op.FETCH)
        for one in made:
            one.ask(Op.START_PASS)
        return made

    def send(self, connection, message):
        """Pass a message to the service, as from an authenticated connection."""
        key = key_of(connection)
        frames = [bytes(frame) for frame in protocol.encode(message, key)]
        return self.deliver(self.handle(connection, frames, key))

    def handle(self, connection, frames, key=b""):
        """Pass frames to the service; return its answers."""
        return self.service.handle(connection, "10.0.0.9", frames, self.now, key)

    def check(self, later=0.0):
        self.now += later
        return self.deliver(self.service.check(self.now))

    def deliver(self, outgoing):
        for connection, message in outgoing:
            if message is None:
                self.closed.append(connection)
                continue
            message = protocol.decode([bytes(frame) for frame in protocol.encode(message)])
            owner = [one for one in self.trainers if one.token == connection[:16]]
            for one in owner:
                one.inbox.append(message)
            if not owner:
                self.unauthenticated.append(message)
        return outgoing
