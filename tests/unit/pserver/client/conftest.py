"""Channels to services without sockets."""

import pytest

from pserver.client.server_channel import SenderId, ServerChannel, VectorLayout
from pserver.optim.settings import ParameterSpec
from pserver.store import partition
from pserver.wire.connection import Pool


class BusyStream:
    """A stream that is in the middle of a message, so that no compiled exchange may use it."""

    def lend(self):
        return None


class RecordingConnection:
    """A connection that records what is sent; its service never sends anything by itself."""

    host, port, waiting, breaks, awaited, silence = "somewhere", 1, 0, 0, None, "does not answer"
    established = BusyStream()

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def close(self):
        pass


@pytest.fixture
def make_channel():
    """A function that returns a channel to the only service of a vector."""

    def make(size):
        parameters = [ParameterSpec("w", size)]
        layout = VectorLayout(partition.find_runs(parameters, partition.layout(parameters, 1)[0]))
        return ServerChannel(RecordingConnection(), layout, SenderId(bytes(8), 0), Pool())

    return make
