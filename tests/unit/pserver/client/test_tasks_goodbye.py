"""The goodbye of a trainer whose job is over."""

from types import SimpleNamespace

from pserver.client.tasks.requests import Goodbye


def channel(name, *, pending=True, closed=None):
    return SimpleNamespace(name=name, pending={0} if pending else set(), connection=SimpleNamespace(closed=closed))


def test_a_goodbye_waits_for_no_server_that_is_gone():
    gone, there, answered = channel("a", closed=3.0), channel("b"), channel("c", pending=False)
    assert Goodbye([gone, there, answered]).interruption() is None
    there.pending.clear()
    assert str(Goodbye([gone, there, answered]).interruption()).startswith("the connection to a is closed")
