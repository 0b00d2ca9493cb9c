"""One service as its client sees it: the data connection, the request in hand, and the shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from pserver.client.connection import ServerConnection
from pserver.client.vector_layout import VectorLayout
from pserver.optim.settings import Array
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, Message, MessageFlag
from pserver.wire.shared_memory import SharedMemory


class ServerChannel:
    """The data connection to one service, and what of the flat vector lies there.

    Args: session: of the messages to it.

    Attributes: sequence: of the request in hand; a request of which nothing was sent has the number of the next one,
        because a service takes no number that does not follow the last one.
        memory: shared with the service, where both run on one host and the service has accepted.
        last: what the service last did, for messages.  waits_for: what it said that it waits for.
        breaks: breaks of the connection, as far as the client has noticed them.
        unsent: pieces of the request in hand.  pending: pieces of its answer that have not come.
        placed: pieces of the answer that are read to where they belong.
    """

    def __init__(self, connection: ServerConnection, layout: VectorLayout, session: bytes) -> None:
        self.connection = connection
        self.layout = layout
        self.session = session
        self.sequence = 0
        self.memory: SharedMemory | None = None
        self.last = "said nothing yet"
        self.waits_for = ""
        self.breaks = 0
        self.unsent: set[int] = set()
        self.pending: set[int] = set()
        self.placed: set[int] = set()
        self._has_sent = True

    @property
    def name(self) -> str:
        """The name of the service, for messages."""
        return f"pserver {self.connection.host}:{self.connection.port}"

    def begin(self, pieces: int, answers: int) -> None:
        """Begin a request.

        Args: pieces, answers: number of those to send, and of those that will come.
        """
        self.sequence += self._has_sent
        self._has_sent = False
        self.unsent, self.pending = set(range(pieces)), set(range(answers))
        self.placed.clear()

    def close(self) -> None:
        """Close the connection, and give back the shared memory."""
        self.connection.close()
        self.close_memory()

    def close_memory(self) -> None:
        """Give back the shared memory; payloads then travel over the connection."""
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def send(self, message: Message) -> None:
        """Send a piece of the request in hand; its payload is not copied."""
        self._has_sent = True
        self.unsent.discard(message.piece)
        self.connection.send(message)

    def gather(self, flat: Array, piece: int) -> Sequence[Buffer]:
        """Return a piece of this service's elements as bytes, in shared memory where there is any.

        Otherwise as `VectorLayout.gather`.
        """
        if self.memory is None:
            return self.layout.gather(flat, piece)
        target = protocol.cut(self.memory.outbox, piece)
        self.layout.copy(flat, piece, target)
        return (target,)

    def payload_of(self, answer: Message) -> memoryview:
        """Return the array that a message carries, empty if it carries none."""
        if answer.flags & MessageFlag.LOCAL and self.memory is not None:
            return protocol.cut(self.memory.inbox, answer.piece)
        return memoryview(answer.payload[0]) if answer.payload else memoryview(b"")
