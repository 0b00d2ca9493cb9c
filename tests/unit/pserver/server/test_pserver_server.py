"""The loop around the services: what it must do however much there is to read."""

import select
import socket
from types import SimpleNamespace

import pytest

from paddle_base.runtime.errors import LeaseLostError, LostPeerError, PortInUseError
from pserver.server import event_loop as module
from pserver.server.event_loop import Options, Server


class Flooded:
    """A poller that never comes to an end."""

    def poll(self, timeout):
        return [(9, select.EPOLLIN)]


def test_a_flood_does_not_hide_that_a_trainer_is_gone(monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.0)
    lost, told, read = LostPeerError("trainer 1 is lost"), [], []

    def check(now):
        service.failure = lost
        return []

    sessions = SimpleNamespace(fail=lambda error: [error], is_used=True, is_done=False)
    service = SimpleNamespace(check=check, sessions=sessions, failure=None)
    port = SimpleNamespace(
        service=service,
        handle_ready=lambda ready, now: read.append(ready) or [],
        send=told.extend,
        tidy=lambda now: None,
        close=lambda seconds: None,
    )
    server = Server([], Options())
    server.services, server.listeners = [service], [port]
    server._poller.close()
    server._poller = Flooded()
    with pytest.raises(LostPeerError, match="trainer 1 is lost"):
        server.run()
    assert told == [lost] and len(read) > module.BUSY_LOOKS


class ScriptedLife:
    """A life whose turns are what the test says: True and False, or an error."""

    def __init__(self, *turns):
        self.turns, self.ends = list(turns), 0

    def begin_turn(self):
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn

    def end_turn(self):
        self.ends += 1
        return self.ends == 1

    @property
    def is_over(self):
        return not self.turns


def make_flooded(life):
    """A server whose one connection always has something to read; what was read, closed and looked at is noted."""
    done = []
    sessions = SimpleNamespace(fail=lambda error: [error], is_used=True, is_done=True)
    service = SimpleNamespace(check=lambda now: done.append("check") or [], sessions=sessions, failure=None)
    port = SimpleNamespace(
        service=service,
        handle_ready=lambda ready, now: done.append("read") or [],
        send=done.extend,
        tidy=lambda now: None,
        close=lambda seconds: done.append(seconds),
    )
    server = Server([], Options(), life)
    server.services, server.listeners = [service], [port]
    server._poller.close()
    server._poller = SimpleNamespace(poll=lambda timeout: [(9, select.EPOLLIN)] if timeout else [])
    return server, done


def test_a_server_that_may_not_answer_reads_nothing(monkeypatch):
    monkeypatch.setattr(module, "SUSPENDED_S", 0.0)
    server, done = make_flooded(ScriptedLife(True, False, False, True))
    server.run()
    assert done[:3] == ["read", "check", "read"] and len(done) == 4  # and closed, when the life is over


def test_a_server_that_has_lost_its_lease_sends_nothing_more():
    server, done = make_flooded(ScriptedLife(True, LeaseLostError("another one has it")))
    with pytest.raises(LeaseLostError):
        server.run()
    assert done == ["read", "check", 0.0]


def test_any_port_that_is_free_is_found_at_once_and_is_nobody_elses():
    server = Server([("127.0.0.1", 0)] * 20, Options())
    other = Server([("127.0.0.1", 0)] * 20, Options())
    try:
        ports = {port for _, port in [*server.endpoints, *other.endpoints]}
        assert len(ports) == 40 and 0 not in ports
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.endpoints[0], 5)  # it does not listen yet
        server.bind()
        socket.create_connection(server.endpoints[0], 5).close()
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{server.endpoints[0][1]}: another process"):
            Server(server.endpoints[:1], Options()).bind()
    finally:
        server.close()
        other.close()
