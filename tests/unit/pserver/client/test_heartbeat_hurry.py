"""A heartbeat that is told to hurry asks its servers at once, and one that has ended takes no notice."""

import socket
import time

from pserver.client.connection import ServerConnection
from pserver.client.heartbeat import Heartbeat, ServerLiveness

DEADLINE, PINGS = 60.0, 8


def test_servers_are_asked_when_the_note_of_a_ping_has_changed():
    described = []

    def describe():
        described.append(time.monotonic())
        return {}

    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = ServerConnection("127.0.0.1", server.getsockname()[1], bytes(17), "")
        heartbeat = Heartbeat([ServerLiveness(connection, bytes(8))], 0, 3600.0, describe)
        heartbeat._interval = 3600.0  # it asks once by itself
        heartbeat.start()
        end = time.monotonic() + DEADLINE
        for count in range(1, PINGS + 1):
            while len(described) < count:
                assert time.monotonic() < end, f"{len(described)} pings"
                time.sleep(0.001)
            heartbeat.hurry()
        heartbeat.stop()
        heartbeat.hurry()
