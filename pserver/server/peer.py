"""A connection of a port, the state of its peer, and the frames of the messages to it."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass

from paddle_base.runtime.errors import BugError
from pserver.wire import protocol
from pserver.wire.authentication import ServerHandshake
from pserver.wire.connection import Connection
from pserver.wire.protocol import Buffer, Message, MessageFlag, Op, ProtocolError


@dataclass(eq=False)
class Peer:
    """A connection and the state of its peer."""

    stream: socket.socket
    file: int
    address: str
    since: float  # time at which the connection's present stage began
    handshake: ServerHandshake
    connection: Connection | None = None  # set after the handshake
    has_asked: bool = False
    has_joined: bool = False
    is_leaving: bool = False  # this side reads nothing any more; the peer has some time to read the last message
    events: int = select.EPOLLIN

    @property
    def name(self) -> bytes:
        """The authenticated name of the connection."""
        return self.handshake.name

    @property
    def unsent(self) -> int:
        """The number of unsent parts of messages."""
        return self.connection.unsent if self.connection else 0


def encode_answer(message: Message, key: bytes) -> list[Buffer]:
    """Return the frames of an answer, or the frames of an error if the answer is over a limit of the protocol."""
    try:
        return protocol.encode(message, key)
    except ProtocolError as exc:
        text = f"the answer to {message.op.name} is over a limit: {exc}"
        note = {"message": text, "exit_code": BugError.exit_code}
        error = Message(
            Op.ERROR, message.session, message.trainer, message.sequence, flags=MessageFlag.ANSWER, note=note
        )
        return protocol.encode(error, key)
