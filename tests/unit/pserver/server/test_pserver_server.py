"""The loop around the services: what it must do however much there is to read."""

import select
from types import SimpleNamespace

import pytest

from pserver.server import event_loop as module
from pserver.server.event_loop import Options, Server
from runtime.errors import LostPeerError


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
        owns=lambda file: file == 9,
        handle=lambda *_: read.append(1),
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
