"""What is sent again after a connection broke, without sockets."""

from types import SimpleNamespace

from pserver.client.fan_out import FanOut
from pserver.client.request import ServiceRequest
from pserver.wire.protocol import Op


def test_a_hello_that_was_lost_with_its_connection_is_sent_once_more(monkeypatch):
    """A server does not answer the PING of a trainer that has not joined, so nothing else would find the loss."""
    connection = SimpleNamespace(breaks=0, waiting=0)
    channel = SimpleNamespace(breaks=0, connection=connection, pending={0})
    fan_out, sent = object.__new__(FanOut), []
    fan_out._request, fan_out._channels = ServiceRequest(Op.HELLO, "join"), [channel]
    monkeypatch.setattr(FanOut, "send", lambda _, channel, piece: sent.append(piece))
    fan_out._ask_progress([channel])
    assert sent == []
    connection.breaks = 1
    for _ in range(3):
        fan_out._ask_progress([channel])
    assert sent == [0]
