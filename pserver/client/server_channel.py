"""One service from the client's view: the data connection, the current request, and the shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from pserver.client.connection import ServerConnection
from pserver.client.vector_layout import VectorLayout
from pserver.optim.settings import Array
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, Message, MessageFlag
from pserver.wire.shared_memory import SharedMemory


class ServerChannel:
    """The data connection to one service, and the service's elements of the flat vector.

    Args: session: bytes that identify the job and attempt in messages to the service.

    Attributes:

    - `sequence`: number of the current request. A service accepts only consecutive numbers. The number of a request
      that was begun but not sent is therefore used again.
    - `memory`: the memory shared with the service; None if the service is on another host or has refused the memory.
    - `last`: description of the service's last action, for messages.
    - `waits_for`: what the service waits for, as the service reported.
    - `breaks`: number of breaks of the connection that the client has handled.
    - `unsent`: pieces of the current request that have not been sent.
    - `pending`: pieces of the answer that have not arrived.
    - `placed`: pieces of the answer that were received in place.
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

        Args: pieces: number of pieces to send. answers: number of pieces to receive.
        """
        self.sequence += self._has_sent
        self._has_sent = False
        self.unsent, self.pending = set(range(pieces)), set(range(answers))
        self.placed.clear()

    def close(self) -> None:
        """Close the connection, and release the shared memory."""
        self.connection.close()
        self.close_memory()

    def close_memory(self) -> None:
        """Release the shared memory; payloads are then sent over the connection."""
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def send(self, message: Message) -> None:
        """Send a piece of the current request; its payload is not copied."""
        self._has_sent = True
        self.unsent.discard(message.piece)
        self.connection.send(message)

    def gather(self, flat: Array, piece: int) -> Sequence[Buffer]:
        """Return a piece of this service's elements as bytes.

        The bytes are in the shared memory if all elements fit into it; otherwise see `VectorLayout.gather`.
        """
        if self.memory is None or len(self.memory.outbox) < 4 * self.layout.size:
            return self.layout.gather(flat, piece)
        target = protocol.cut(self.memory.outbox, piece)
        self.layout.copy(flat, piece, target)
        return (target,)

    def measure_local(self, payload: Sequence[Buffer]) -> int:
        """Return the length in bytes of a payload in shared memory; 0 if the payload is elsewhere or empty."""
        if self.memory is None or len(payload) != 1 or not self.memory.holds(payload[0]):
            return 0
        return len(payload[0])

    def payload_of(self, answer: Message) -> memoryview:
        """Return the array of a message, which is empty if the message has none."""
        if answer.flags & MessageFlag.LOCAL and self.memory is not None:
            return protocol.cut_local(self.memory.inbox, answer)
        return memoryview(answer.payload[0]) if answer.payload else memoryview(b"")
