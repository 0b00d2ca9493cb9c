"""The listener: what a peer may send and keep before it has joined, and for how long. Times are those of the test."""

import contextlib
import errno
import os
import select
import socket

import pytest
from waiting import until

from pserver.server.admission import Identity
from pserver.server.listener import MAX_UNSENT, Listener, bind_port
from pserver.server.service import Service
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, PROBE, ClientHandshake
from pserver.wire.connection import Connection
from pserver.wire.protocol import Message, Op

BEGIN = 100.0
SESSION = protocol.session_of("", "")


class Port:
    """A listener without a process, whose loop turns when the test wants it."""

    def __init__(self):
        self.poller = select.epoll()
        self.listener = Listener(bind_port("127.0.0.1", 0), Service(Identity("here", 1)), self.poller, backlog=9)
        self.address = self.listener._socket.getsockname()

    def turn_until(self, condition, what, now=BEGIN):
        def turn():
            for file, events in self.poller.poll(0):
                self.listener.handle(file, events, now)
            return condition()

        until(turn, what)

    def dropped(self):
        return self.listener.service.sessions.complaints.malformed

    def connect(self, stack):
        stream = stack.enter_context(socket.create_connection(self.address))
        before = len(self.listener._peers)
        self.turn_until(lambda: len(self.listener._peers) > before, "the connection")
        return stream

    def prove(self, stream, now=BEGIN, kind=DATA):
        """Shake hands; without a secret everybody can."""
        caller = ClientHandshake("", os.urandom(16) + kind, os.urandom(32))
        stream.setblocking(False)
        stream.sendall(caller.greeting)

        def step():
            with contextlib.suppress(BlockingIOError):
                stream.sendall(caller.feed(stream.recv(caller.wanted)))
            return not caller.wanted

        self.turn_until(step, "the handshake", now)


@pytest.fixture
def port():
    made = Port()
    yield made
    made.listener.close(0)
    made.poller.close()


@pytest.fixture
def stack():
    with contextlib.ExitStack() as made:
        yield made


def hello_of(note_bytes=0, payload=0):
    """A hello whose note has so many bytes."""
    note = {"job": "x" * (note_bytes - len('{"job":""}'))} if note_bytes else {}
    made = protocol.encode(Message(Op.HELLO, SESSION, 0, 1, note=note, payload=[bytes(payload)] if payload else []))
    return b"".join(bytes(frame) for frame in made)


def test_a_peer_has_ten_seconds_to_prove_and_ten_to_join(port, stack):
    port.connect(stack)
    port.prove(port.connect(stack), BEGIN + 5)
    port.listener.tidy(BEGIN + 10)
    assert len(port.listener._peers) == 2
    port.listener.tidy(BEGIN + 10.1)
    assert len(port.listener._unjoined) == len(port.listener._peers) == 1
    port.listener.tidy(BEGIN + 15)
    assert len(port.listener._peers) == 1
    port.listener.tidy(BEGIN + 15.1)
    assert port.listener._peers == {}


@pytest.mark.parametrize(("note", "payload"), [(8193, 0), (100, 1)])
def test_a_hello_over_the_limits_is_not_read(port, stack, capsys, note, payload):
    stream = port.connect(stack)
    port.prove(stream)
    stream.sendall(hello_of(note, payload))
    port.turn_until(lambda: port.listener._peers == {}, "its end")
    assert "limits of 8192 and 0 bytes" in capsys.readouterr().err and port.dropped() == 1


def test_a_hello_of_8_kib_is_read(port, stack, capsys):
    stream = port.connect(stack)
    port.prove(stream)
    stream.sendall(hello_of(8192))
    port.turn_until(lambda: "was called by" in capsys.readouterr().err, "the refusal")
    assert port.dropped() == 0


def test_who_has_not_joined_asks_once(port, stack, monkeypatch):
    taken = []
    monkeypatch.setattr(Service, "handle", lambda *said: taken.append(said) or [])
    stream = port.connect(stack)
    port.prove(stream)
    stream.sendall(hello_of(100) * 3)
    port.turn_until(lambda: port.listener._peers == {}, "its end")
    assert len(taken) == 1


@pytest.mark.parametrize(("kind", "limits"), [(DATA, (16 << 20, 4 << 20)), (HEARTBEAT, (64 << 10, 0))])
def test_a_trainer_has_the_limits_of_its_connection(port, stack, monkeypatch, kind, limits):
    monkeypatch.setattr(port.listener.service.sessions, "knows", lambda name: name[-1:] == kind)
    for one in (kind, PROBE):
        port.prove(port.connect(stack), kind=one)
    assert [peer.connection.limits[:2] for peer in port.listener._peers.values()] == [limits, (8 << 10, 0)]
    assert [peer.has_joined for peer in port.listener._peers.values()] == [True, False]


@pytest.mark.parametrize(("unsent", "reads"), [(MAX_UNSENT - 1, True), (MAX_UNSENT, False)])
def test_a_peer_that_reads_no_answers_is_not_read(port, stack, monkeypatch, unsent, reads):
    port.prove(port.connect(stack))
    [peer] = port.listener._peers.values()
    monkeypatch.setattr(Connection, "unsent", unsent)
    port.listener._watch(peer)
    assert bool(peer.events & select.EPOLLIN) is reads and peer.events & select.EPOLLOUT


def test_a_connection_that_would_leave_too_few_descriptors_takes_the_place_of_one_that_has_not_joined(
    port, stack, monkeypatch
):
    """The server noticed only when none was left, and then its snapshot could not be written."""
    first, second = port.connect(stack), port.connect(stack)
    monkeypatch.setattr("pserver.server.listener.FREE_FILES.take", lambda wanted: False)
    third = stack.enter_context(socket.create_connection(port.address))
    port.turn_until(lambda: is_closed(first), "the end of the oldest connection")
    assert not is_closed(second) and not is_closed(third) and len(port.listener._peers) == 2
    port.listener._unauthenticated.clear()  # as if both had joined
    fourth = stack.enter_context(socket.create_connection(port.address))
    port.turn_until(lambda: is_closed(fourth), "the end of the new connection")
    assert not is_closed(second) and not is_closed(third)


def test_a_server_without_a_free_descriptor_rests_until_it_looks_again(port, stack, monkeypatch):
    """Its loop turned without a rest, because the connection that it could not accept was still there."""

    def refuse(self):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    waiting = stack.enter_context(socket.create_connection(port.address))
    with monkeypatch.context() as full:
        full.setattr(socket.socket, "accept", refuse)
        assert port.poller.poll(20)
        port.listener.handle(port.listener.file, select.EPOLLIN, BEGIN)
        assert not port.poller.poll(0)
    port.listener.tidy(BEGIN)
    port.turn_until(lambda: port.listener._peers, "the connection")
    assert not is_closed(waiting)


def test_a_connection_that_takes_the_last_descriptor_is_not_closed_for_another(port, stack, monkeypatch):
    """accept() fails without a free descriptor even if nobody waits, and the server closed what it had accepted."""
    accept, accepted = socket.socket.accept, []

    def accept_one(self):
        if accepted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        accepted.append(self)
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept_one)
    stream = port.connect(stack)
    assert not is_closed(stream) and len(port.listener._peers) == 1


def test_a_kernel_that_watches_no_more_descriptors_ends_one_connection(port, stack):
    """The error ended the server."""

    class Full:
        def register(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def unregister(self, _):
            raise FileNotFoundError

    poller, port.listener._poller = port.listener._poller, Full()
    stream = stack.enter_context(socket.create_connection(port.address))
    port.turn_until(lambda: is_closed(stream), "its end")
    port.listener._poller = poller
    port.connect(stack)


def is_closed(stream):
    stream.setblocking(False)
    try:
        return stream.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
