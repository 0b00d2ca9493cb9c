"""Connections that a server must not count as a trainer's, and memory that it must give back."""

import contextlib
import gc
import os
import select
import socket
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fuzz import peers
from fuzz.frames import encode

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.server.admission import Identity
from pserver.server.listener import MAX_UNAUTHENTICATED, MAX_UNJOINED, Listener, bind_port
from pserver.server.peer import Peer
from pserver.server.service import Service
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, PROBE
from pserver.wire.connection import Connection
from pserver.wire.protocol import Message, Op

WEIGHT = [ParameterSpec("w", 7)]
SESSION = protocol.session_of("", "")


def hello_with(text, key=b""):
    """A hello whose note is any text."""
    return b"".join(encode(Message(Op.HELLO, SESSION, 0, 1), key, text))


def files_of(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_only_the_two_names_of_a_trainer_are_a_trainers(pserver, client, tools):
    """1,500 connections whose names began with a trainer's token were open at once; here is no secret to prove."""
    server = pserver()
    with contextlib.closing(peers.Tap(server.services[0])) as tap, contextlib.ExitStack() as stack:
        one = client([tap.address])
        one.join(WEIGHT, Optimization())
        tools.until(lambda: len(tap.sent) == 2, "the heartbeat")
        tools.until(lambda: all(len(sent) > 128 for sent in tap.sent), "its proof")
        token = tap.names()[0][:-1]
        before = files_of(server)
        for number in range(1500):
            stream = stack.enter_context(socket.create_connection(server.services[0], peers.DEADLINE))
            stream.sendall(peers.hail(token + [b"d", b"h", b"p", b"x"][number % 4]))
        for number in range(600):
            name = token + PROBE if number % 2 else bytes([number % 256]) * 16 + DATA
            stack.enter_context(peers.enter(server.services[0], name))
        assert files_of(server) - before <= MAX_UNAUTHENTICATED + MAX_UNJOINED
        assert not any(stream.closed is not None for stream in [channel.connection for channel in one.channels])
        values = np.zeros(7, np.float32)
        one.initialise(values)
        one.start_pass()
        one.push_pull(np.ones(7, np.float32), values, 1)
        assert values.tolist() == [-1] * 7
        one.finish_pass(values)
        one.goodbye()
    assert server.wait() == 0


@pytest.mark.parametrize("kind", [DATA, HEARTBEAT])
def test_who_has_not_the_secret_cannot_take_a_connection_over_by_its_name(pserver, client, tools, kind):
    server = pserver(environ={"PADDLE_SECRET": "hush"})
    with contextlib.closing(peers.Tap(server.services[0])) as tap:
        one = client([tap.address], secret="hush")
        one.join(WEIGHT, Optimization())
        tools.until(lambda: len(tap.sent) == 2 and all(len(sent) > 128 for sent in tap.sent), "the heartbeat")
        token = tap.names()[0][:-1]
        for whole in (*map(bytes, tap.sent), peers.hail(token + kind), peers.hail(token + kind, "")):
            peers.say(server.services[0], whole)
        with peers.enter(server.services[0], token + kind, "guess") as (stream, _):
            assert peers.listen(stream) == b""
        assert [channel.connection.breaks for channel in one.channels] == [0]


@pytest.fixture
def port(tools):
    """A port without a process, and what turns its loop."""
    with contextlib.closing(select.epoll()) as poller:
        service = Service(Identity("here", 1))
        made = Listener(bind_port("127.0.0.1", tools.find_ports(1)), service, poller, backlog=2000)

        def turn():
            made.handle_ready(poller.poll(0.01), 100.0)

        made.turn = turn
        yield made
        made.close(0)


def address_of(port):
    return port._socket.getsockname()


BAD = {
    "noise": b"GET / HTTP/1.1\r\n\r\n" + bytes(4000),
    "another version": b"PDLP\x03\0" + bytes(4000),
    "half a greeting": peers.hail(b"")[:40],
    "another secret": peers.hail(b"t" * 16 + DATA),
}


def meet(port, text):
    """Connect, send, and let the port do what it does until it has closed its side."""
    with socket.create_connection(address_of(port), peers.DEADLINE) as stream:
        stream.sendall(text)
        for _ in range(3):
            port.turn()
    for _ in range(3):
        port.turn()


def enter_badly(port, random):
    """Prove what there is to prove, and send a message that breaks the connection."""
    text = random.choice(
        [
            b"noise",
            b"PDLP\x06\0\x01\0" + b"\xff" * 56,
            b"".join(encode(Message(Op.HELLO, SESSION, 0, 1), b"", b"[" * 2000)),
        ]
    )
    caller = peers.ClientHandshake("", random.randbytes(16) + DATA, os.urandom(32))
    with socket.create_connection(address_of(port), peers.DEADLINE) as stream:
        stream.sendall(caller.greeting)
        while caller.wanted:
            port.turn()
            stream.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                answer = caller.feed(stream.recv(caller.wanted))
                stream.setblocking(True)
                stream.sendall(answer + (b"" if caller.wanted else text))
        for _ in range(3):
            port.turn()
    for _ in range(3):
        port.turn()


@pytest.mark.parametrize("kind", [*BAD, "a bad message"])
def test_what_a_bad_connection_took_is_free_without_the_collector(port, kind):
    """Each kept its exception, that its frames, and these the connection: 140 MB of them waited for the collector."""
    random = Random(5)

    def strike():
        if kind in BAD:
            meet(port, BAD[kind])
        else:
            enter_badly(port, random)

    for _ in range(5):
        strike()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            strike()
        left = tracemalloc.get_traced_memory()[0] - before
        # the type itself: isinstance asks lazy modules for their class, and some of them warn
        alive = [one for one in gc.get_objects() if issubclass(type(one), (Peer, Connection))]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert alive == [] and port._peers == {} and left < 100_000, left
    assert (
        port.service.sessions.complaints.malformed >= (0 if kind == "half a greeting" else 100)
        and port.service.sessions.complaints.failed == 0
    )


def test_whatever_a_connection_raises_ends_that_connection_and_is_logged_once(port, monkeypatch, capsys):
    monkeypatch.setattr(Connection, "receive", lambda self: 1 // 0)
    for count in range(1, 4):
        enter_badly(port, Random(count))
        assert port.service.sessions.complaints.failed == count and port._peers == {}
    [line] = capsys.readouterr().err.splitlines()
    assert "could not handle a message (ZeroDivisionError at test_hostile_connections.py:" in line


def test_a_connection_that_has_proven_nothing_takes_little_memory(port):
    """Not even the 16 KiB that messages are read into."""
    with contextlib.ExitStack() as stack:
        tracemalloc.start()
        try:
            for _ in range(MAX_UNAUTHENTICATED):
                stream = stack.enter_context(socket.create_connection(address_of(port), peers.DEADLINE))
                stream.sendall(peers.hail(b"")[:64] + b"P")
            for _ in range(20):
                port.turn()
            only = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/pserver/*.py")])
            taken = sum(one.size for one in only.statistics("filename") if "tests" not in one.traceback[0].filename)
        finally:
            tracemalloc.stop()
        assert len(port._peers) == MAX_UNAUTHENTICATED and taken < 3000 * MAX_UNAUTHENTICATED


def test_a_flood_leaves_a_server_as_large_as_before(pserver, client):
    """Its memory, as the system counts it: after one wave of connections of each kind, more waves take nothing."""
    server = pserver(trainers=2)
    one = client(server.services, 0, 2)
    one.join(WEIGHT, Optimization())
    one.initialise(np.zeros(7, np.float32))  # for which it has loaded all that it needs
    long = hello_with(b'{"a":"' + b"x" * 8000)[:-1]

    def rss():
        return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096

    def wave():
        for text in BAD.values():
            for _ in range(200):
                peers.say(server.services[0], text, hears=False)
        with contextlib.ExitStack() as stack:
            for _ in range(MAX_UNJOINED):
                name = os.urandom(16) + DATA
                stream, _ = stack.enter_context(peers.enter(server.services[0], name))
                with contextlib.suppress(OSError):
                    stream.sendall(long)

    before = rss()
    wave()
    first = rss()
    assert first - before < 8 << 20
    for _ in range(4):
        wave()
    assert rss() - first < 1 << 20


def test_without_a_secret_a_message_in_a_trainers_name_ends_the_run(pserver, client, tools):
    """docs/security.md says so: the name of a connection can be read, and anybody can prove it."""
    server = pserver()
    with contextlib.closing(peers.Tap(server.services[0])) as tap:
        client([tap.address]).join(WEIGHT, Optimization())
        tools.until(lambda: len(tap.sent) == 2 and all(len(sent) > 128 for sent in tap.sent), "the heartbeat")
        token = tap.names()[0][:-1]
        with peers.enter(server.services[0], token + DATA) as (stream, key):
            stream.sendall(peers.message(Message(Op.ABORT, SESSION, 0, 9, note={"reason": "a thief"}), key))
            assert server.wait() == 75


def test_an_unauthenticated_peer_is_told_neither_job_nor_attempt(pserver):
    server = pserver(environ={"PADDLE_SECRET": "hush", "PADDLE_JOB_NAME": "cats", "PADDLE_ATTEMPT": "7.x"})
    said = b""
    for text in (*BAD.values(), *peers.OTHER_PROTOCOLS, peers.hail(b"t" * 17, "")):
        heard = peers.say(server.services[0], text)
        assert len(heard) <= 128
        said += heard
    assert said and not any(word in said for word in (b"cats", b"7.x", str(server.port).encode(), b"127.0"))
