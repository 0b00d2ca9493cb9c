"""A small protocol for tests of control messages: a server that adds numbers, and members that record messages.

As a program (`python -m control_programs SECRET LIMIT_OF_FILES`) it serves until its stdin ends. For each line of stdin
it prints its counters.
"""

import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_base.messages.client_core import ClientCore, ClientPace
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.errors import RequestRefusedError
from paddle_base.messages.gate import GateLimits
from paddle_base.messages.keys import derive_keys
from paddle_base.messages.server import ControlServer
from paddle_base.messages.server_core import Dispatcher, MemberAsked, ServerCore
from paddle_base.runtime.schema import Call, Fields, Integer, Protocol, Text

ADDING = Protocol(
    name="adding",
    version=1,
    hello=Fields(name=Text(20)),
    welcome=Fields(total=Integer()),
    requests={"add": Call(Fields(number=Integer()), Fields(total=Integer())), "wait": Call(Fields(), Fields())},
    pushes={"tell": Fields(text=Text(1 << 20))},
)
REALM = "job-1"
SERVER = MemberId("server", 1)


class AddingServer:
    """Adds the numbers of requests; 13 is refused, 66 raises an error, 99 has a bad answer, `wait` has no answer."""

    def __init__(self) -> None:
        self.total = 0
        self.heard: list[str] = []
        self.waiting: list[MemberAsked] = []
        self.refused = ""

    def joined(self, member: MemberId, hello: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.refused:
            raise RequestRefusedError("unwanted", self.refused)
        self.heard.append(f"{member} joined")
        return {"total": self.total}

    def asked(self, asked: MemberAsked) -> Mapping[str, Any] | None:
        if asked.kind == "wait":
            self.waiting.append(asked)
            return None
        number = asked.body["number"]
        if number == 13:
            raise RequestRefusedError("unlucky", "13 is not added")
        if number == 66:
            raise ZeroDivisionError("a fault")
        if number == 99:
            return {"sum": 1}
        self.total += number
        return {"total": self.total}

    def lost(self, member: MemberId, reason: str) -> None:
        self.heard.append(f"{member} lost: {reason}")


class AddingMember:
    """Records what it receives."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        self.heard.append(f"welcome of {server}: {welcome['total']}")

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        if body["text"] == "fail":
            raise ZeroDivisionError("a fault")
        self.heard.append(f"{kind}: {body['text']}")

    def disconnected(self, reason: str) -> None:
        self.heard.append(f"disconnected: {reason}")


def server_core(**options: Any) -> ServerCore:
    return ServerCore(ADDING, REALM, SERVER, **options)


def client_core(uid: str = "a", incarnation: int = 1, realm: str = REALM, **options: Any) -> ClientCore:
    pace = ClientPace(**options)
    return ClientCore(ADDING, realm, MemberId(uid, incarnation), "the server", lambda: {"name": uid}, pace)


def main(secret: str, files: int) -> None:
    """Serve on a port of this machine."""
    if files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    adding = AddingServer()
    with ControlServer(
        "127.0.0.1",
        0,
        Dispatcher(server_core(), adding, lambda line: print(line, file=sys.stderr, flush=True)),
        derive_keys(secret),
        lambda address: address != "127.0.0.9",
        GateLimits(handshake=1.0),
    ) as server:
        print(json.dumps({"port": server.port}), flush=True)
        for _ in sys.stdin:
            facts = {"counts": server.counts, "total": adding.total, "heard": adding.heard}
            print(json.dumps({**facts, "files": len(list(Path("/proc/self/fd").iterdir()))}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
