"""A network inside one process with a manual clock, for tests of programs that use control messages.

network = FakeNetwork()
server = network.serve("10.0.0.1", dispatcher)
client = network.join("10.0.0.1", client_core, handlers)
network.run()               # until no message is in transit
network.advance(3.0)        # advance the clock
network.cut(client)         # break the connection until network.mend(client)

The dispatcher and the caller are those of the real server and client; only the sockets are replaced.
Events occur only in `run` and `advance`, in a reproducible order. No I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from paddle_base.messages.client_core import Caller, ClientCore, ClientHandlers, ClientSend, OpenConnection
from paddle_base.messages.server_core import Dispatcher, ServerCore

STEP_S = 0.25  # maximum seconds between two checks for silent members, as in the real server


class FakeServer:
    """A server without sockets."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.is_open = True

    def close(self) -> None:
        """Stop this server, as if its process had ended."""
        self.is_open = False


class FakeClient:
    """A member without sockets."""

    def __init__(self, network: FakeNetwork, address: str, caller: Caller) -> None:
        self._network = network
        self.caller = caller
        self.address = address
        self.route = b""  # route of the member's connection; empty: the member is not connected
        self.is_cut = False
        self.is_frozen = False

    def ask(self, kind: str, body: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """Send a request to the server, and advance the clock until the answer arrives."""
        answer = self.caller.submit(kind, body, timeout)
        self._network.run()
        if not answer.done():
            self._network.advance(timeout)
        return answer.result(0)

    def close(self) -> None:
        """Leave."""
        self.caller.leave()
        self._network.run()


class FakeNetwork:
    """The network, and the clock of all its programs."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.notes: list[str] = []  # log lines of servers and clients
        self._servers: dict[str, FakeServer] = {}
        self._clients: list[FakeClient] = []
        self._routes = itertools.count(1)

    def serve(self, address: str, dispatcher: Dispatcher) -> FakeServer:
        """Return a server at an address; an existing server at this address is closed."""
        if address in self._servers:
            self._servers[address].close()
            for client in self._clients:
                if client.address == address:
                    client.route = b""
                    client.caller.step(ClientCore.failed, "the server has closed the connection", self.now)
        self._servers[address] = FakeServer(dispatcher)
        return self._servers[address]

    def join(self, address: str, core: ClientCore, handlers: ClientHandlers) -> FakeClient:
        """Return a member that connects to an address."""
        caller = Caller(core, handlers, self.notes.append, lambda: self.now)
        self._clients.append(FakeClient(self, address, caller))
        return self._clients[-1]

    def cut(self, client: FakeClient) -> None:
        """Break a member's connection until `mend`; the member and the server notice this at once."""
        client.is_cut = True
        self._break(client, "the connection is gone")

    def mend(self, client: FakeClient) -> None:
        """Allow a member to connect again and to send."""
        client.is_cut = client.is_frozen = False

    def freeze(self, client: FakeClient) -> None:
        """Freeze a member: it neither receives nor sends, and its connection stays open."""
        client.is_frozen = True

    def run(self) -> None:
        """Deliver messages until no message is in transit."""
        while any([self._run_client(client) for client in self._clients if not client.is_frozen]) or any(
            [self._run_server(server) for server in self._servers.values() if server.is_open]
        ):
            pass

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        end = self.now + seconds
        self.run()
        while self.now < end:
            self.now = min(end, self.now + STEP_S)
            for server in self._servers.values():
                if server.is_open:
                    server.dispatcher.call(ServerCore.tick, self.now)
            self.run()

    # -----

    def _run_client(self, client: FakeClient) -> bool:
        """Execute a member's due actions and its commands; return whether there were commands."""
        client.caller.step(ClientCore.tick, self.now)
        commands = client.caller.take_commands()
        for command in commands:
            if isinstance(command, OpenConnection):
                self._connect(client)
            elif isinstance(command, ClientSend):
                server = self._servers.get(client.address)
                if client.route and server is not None and server.is_open:
                    server.dispatcher.receive(client.route, command.data, self.now)
            else:
                self._break(client, "")
        return bool(commands)

    def _connect(self, client: FakeClient) -> None:
        server = self._servers.get(client.address)
        if client.is_cut or server is None or not server.is_open:
            client.caller.step(ClientCore.failed, "no connection to the server can be made", self.now)
            return
        client.route = b"%d" % next(self._routes)
        client.caller.step(ClientCore.opened, self.now)

    def _run_server(self, server: FakeServer) -> bool:
        """Deliver a server's messages; return whether there were messages."""
        sends = list(iter(server.dispatcher.next_send, None))
        for send in sends:
            client = next((one for one in self._clients if one.route == send.route), None)
            if client is None:
                server.dispatcher.call(ServerCore.broken, send.route, "the connection is gone")
            elif not client.is_frozen:
                client.caller.step(ClientCore.receive, send.data, self.now)
        return bool(sends)

    def _break(self, client: FakeClient, reason: str) -> None:
        route, client.route = client.route, b""
        server = self._servers.get(client.address)
        if route and reason:
            client.caller.step(ClientCore.failed, reason, self.now)
            if server is not None:
                server.dispatcher.call(ServerCore.broken, route, reason)
