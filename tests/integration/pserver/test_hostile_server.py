"""Servers that answer anything: a trainer and the probe end with an error of ours, or hold."""

import contextlib
import json
import os
import socket
import threading
from random import Random

import numpy as np
import pytest
from fuzz import frames, seeds
from waiting import until

from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.errors import PaddleError, PeerUnreachableError
from pserver.client import probe
from pserver.client.client import Client
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.wire import protocol
from pserver.wire.authentication import RECORD_BYTES, VERSION, ServerHandshake
from pserver.wire.protocol import Message, MessageFlag, Op

WEIGHT = [ParameterSpec("w", 7)]
WELCOME = {"job": "", "attempt": "", "num_trainers": 1, "shares_memory": False}
STATE = {
    "trainers": [frames.OWN],
    "counters": {"samples": 0, "settings": {"learning_rate": {"float": "0x1p0"}}},
    "arrays": [["values", "<f4", 28]],
}
PONG = {"received": 0, "pieces": 1, "answers": 0, "waits_for": "trainer 1"}
GOOD = {Op.HELLO: WELCOME, Op.CHECKPOINT: STATE, Op.PING: PONG, Op.FETCH: {"own": frames.OWN}}
VALUES = (Op.FETCH, Op.PUSH, Op.FINISH_PASS)  # what is answered with them


class FakeServer:
    """Answers each message of a client as it should be, but for one op, whose note or payload is another one."""

    def __init__(self, op=None, text=b"", payload=None, shake=None):
        self.op, self.text, self.payload, self.shake = op, text, payload, shake
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.threads = []
        self._start(self._accept)

    @property
    def address(self):
        return self.listener.getsockname()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(20)

    def _start(self, task, *arguments):
        thread = threading.Thread(target=task, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self.listener.accept()[0])

    def _serve(self, stream):
        with stream, contextlib.suppress(OSError, EOFError):
            stream.settimeout(20)
            if self.shake is not None:
                self.shake(stream)
                return
            side = ServerHandshake("", os.urandom(32))
            while side.wanted:
                stream.sendall(side.feed(read(stream, side.wanted)))
            while True:
                self._answer(stream)

    def _answer(self, stream):
        head = read(stream, protocol.HEADER_BYTES)
        note, payload = protocol.measure(head)
        message = protocol.decode([head, read(stream, note), read(stream, payload)])
        text = json.dumps(GOOD.get(message.op, {})).encode()
        values = bytes(28) if message.op in VALUES else b""
        if message.op == self.op:
            text, values = self.text, values if self.payload is None else self.payload
        answer = Message(message.op, message.session, message.trainer, message.sequence, flags=MessageFlag.ANSWER)
        stream.sendall(b"".join(frames.encode(answer._replace(payload=[values]), b"", text)))


def read(stream, size):
    come = b""
    while len(come) < size:
        part = stream.recv(size - len(come))
        if not part:
            raise EOFError
        come += part
    return come


def train(address, **more):
    """A whole job of one trainer; raises what the client raises."""
    one = Client([address], trainer_id=0, num_trainers=1, peer_timeout=15.0, connect_timeout=15.0, wait_timeout=15.0)
    values = np.zeros(7, np.float32)
    try:
        one.join(WEIGHT, Optimization())
        one.initialise(values)
        one.start_pass()
        one.push_pull(np.ones(7, np.float32), values, 1)
        one.gather_checkpoint({"place": 1})
        one.finish_pass(values)
        one.goodbye()
    finally:
        one.close()


def test_a_fake_server_that_answers_as_it_should_is_taken_for_one():
    with contextlib.closing(FakeServer()) as server:
        train(server.address)
        probe.probe([server.address], JobEnvironment(), 15.0)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("op", [Op.HELLO, Op.FETCH, Op.PUSH, Op.CHECKPOINT, Op.PING, Op.FINISH_PASS, Op.INITIALISE])
def test_no_note_of_a_server_is_more_than_an_error_to_a_trainer(op, seed):
    random = Random(f"{seed} {op}")
    cases = [text for raw in frames.RAW_VALUES for text in frames.texts_with(GOOD.get(op, {}), raw)]
    for text in random.sample(cases, min(60, len(cases))):
        with contextlib.closing(FakeServer(op, text)) as server, contextlib.suppress(PaddleError):
            train(server.address)


@pytest.mark.parametrize("size", [0, 1, 27, 29, 100_000])
@pytest.mark.parametrize("op", VALUES[1:])
def test_values_of_another_size_are_an_error(op, size):
    with (
        contextlib.closing(FakeServer(op, b"", bytes(size))) as server,
        pytest.raises(PaddleError, match="an invalid answer"),
    ):
        train(server.address)


SHAKES = {
    "silence": lambda stream: stream.recv(4096),
    "noise": lambda stream: stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100_000)),
    "a record of zeros": lambda stream: stream.sendall(bytes(64)),
    "its own greeting back": lambda stream: stream.sendall(read(stream, RECORD_BYTES) + bytes(100_000)),
    "a refusal of another kind": lambda stream: stream.sendall(b"PDLP\x06\0\0\x01\xff" + bytes(55)),
    "a byte and the end": lambda stream: stream.sendall(b"P"),
    "a challenge and noise": lambda stream: stream.sendall(b"PDLP\x06\0\x0c\x01" + bytes(120) + b"x" * 100_000),
}


@pytest.mark.parametrize("kind", SHAKES)
def test_what_is_no_server_is_named_by_trainer_and_probe_within_their_deadlines(kind):
    with contextlib.closing(FakeServer(shake=SHAKES[kind])) as server:
        one = Client([server.address], trainer_id=0, num_trainers=1, connect_timeout=1.5)
        with pytest.raises(PeerUnreachableError, match=rf"127\.0\.0\.1:{server.address[1]}"):
            one.join(WEIGHT, Optimization())
        one.close()
        with pytest.raises(PeerUnreachableError, match=r"not ready after 0\.5 s"):
            probe.probe([server.address], JobEnvironment(), 0.5)


def test_a_server_that_does_not_prove_the_secret_hears_no_message():
    heard = []

    def lie(stream):
        side = ServerHandshake("a guess", os.urandom(32))
        heard.append(read(stream, RECORD_BYTES))
        stream.sendall(side.feed(heard[-1]))
        heard.append(read(stream, RECORD_BYTES))
        stream.sendall(b"PDLP" + VERSION.to_bytes(2, "little") + b"\x10\x01" + os.urandom(32) + bytes(24))
        heard.append(stream.recv(4096))

    job = JobEnvironment(secret="hush")
    with contextlib.closing(FakeServer(shake=lie)) as server:
        with pytest.raises(PeerUnreachableError, match="does not prove this job's secret"):
            probe.probe([server.address], job, 0.5)
        until(lambda: len(heard) >= 3, "the end of the connection")
    assert heard[2] == b"" and b"hush" not in b"".join(heard)


@pytest.mark.parametrize("seed", seeds(1))
def test_no_note_of_a_server_is_more_than_an_error_to_the_probe(seed):
    random = Random(seed)
    cases = [text for raw in frames.RAW_VALUES for text in frames.texts_with(WELCOME, raw)]
    for text in random.sample(cases, 60):
        with contextlib.closing(FakeServer(Op.HELLO, text)) as server, contextlib.suppress(PeerUnreachableError):
            probe.probe([server.address], JobEnvironment(), 0.1)
