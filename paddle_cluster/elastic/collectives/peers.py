"""Another rank of the group: its connection, and the messages that have arrived from it."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence

from paddle_base.runtime.network.own_sockets import keep_from_children
from paddle_cluster.elastic.collectives import frames
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from pserver.wire.authentication import MessageKeys
from pserver.wire.connection import Connection, ConnectionLimits, HeaderForm, Pool
from pserver.wire.protocol import Buffer, ProtocolError

LIMITS = ConnectionLimits(
    frames.MAX_NOTE_BYTES, frames.MAX_PAYLOAD_BYTES, HeaderForm(frames.HEADER_BYTES, frames.measure)
)
MAX_AHEAD = 1 << 14  # maximum number of untaken messages of a rank, which are few where the arrays are small
# bytes of untaken messages above which this rank stops reading from another one; the arrays of a batch are fewer
MAX_AHEAD_BYTES = 64 << 20
_NEVER = (-1, 0)
# a host counts as lost after this number of seconds without an answer; the socket options below break the
# connection within 5 s of the last answer
LOST_AFTER_S = 4
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, LOST_AFTER_S - 1))


def tune(stream: socket.socket) -> None:
    """Set the options of a group's connection: no delay, and a time limit for an unreachable host."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * LOST_AFTER_S)
    for option, value in _KEEPALIVE:
        stream.setsockopt(socket.IPPROTO_TCP, option, value)
    stream.setblocking(False)


class PeerRank:
    """The state of another rank, with its connection, received messages, and memory for the next payloads.

    Attributes:
    - expected: maps (sequence, piece) to the places in memory for this payload, one after another. An entry is removed
      when the payload begins to arrive there.
    - gone: why the rank is lost; empty: the rank is connected.
    - abort: why the rank has ended the group; empty: the rank has not ended the group.
    - left: whether the rank has sent GOODBYE.
    - heard: time of the last receipt in seconds of `time.monotonic`.
    - ahead: bytes of the messages that have arrived and that nobody has taken yet.
    - is_paused: whether this rank does not read from the connection, because too many bytes are ahead.
    """

    def __init__(self, stream: socket.socket, keys: MessageKeys, pool: Pool) -> None:
        keep_from_children(stream)  # other ranks must notice the death of this process though it has children
        self.connection = Connection(stream, self._place, LIMITS)
        self.keys = keys
        self.arrived: deque[Frame] = deque()
        self.expected: dict[tuple[int, int], Sequence[memoryview]] = {}
        self.gone = self.abort = ""
        self.left = False
        self.heard = 0.0
        self.ahead, self.is_paused = 0, False
        # by kind, sequence and piece of the last message; both grow from one message of a kind to the next one
        self._last = [_NEVER] * (max(FrameKind) + 1)
        self._pool = pool

    def _place(self, parts: Sequence[Buffer], length: int) -> Sequence[memoryview]:
        if self.expected:
            key = frames.peek(parts[0])
            places = self.expected.get(key)
            if places is not None and sum(place.nbytes for place in places) == length:
                del self.expected[key]
                return places
        return [self._pool.take(length)]

    def read(self) -> None:
        """Read the received bytes.

        Raises: ProtocolError: the bytes are no message of a group.
        """
        try:
            messages = self.connection.receive()
        except (OSError, EOFError) as exc:
            self.gone = self.gone or f"the connection ended ({exc})"
            return
        self.heard = time.monotonic()
        for one in messages:
            frame = frames.decode(one, self.keys.receiving)
            self._check_order(frame)
            if frame.kind == FrameKind.ALIVE:
                continue
            if frame.kind == FrameKind.GOODBYE:
                self.left = True
            elif frame.kind == FrameKind.ABORT:
                self.abort = frame.note.decode(errors="replace")[:2000]
            self.arrived.append(frame)
            self.ahead += frame.payload.nbytes + len(frame.note)
        if self.connection.fault:
            raise ProtocolError(self.connection.fault)
        if len(self.arrived) > MAX_AHEAD:
            raise ProtocolError(f"more than {MAX_AHEAD} messages that this rank does not expect yet")

    @property
    def is_over(self) -> bool:
        """Whether the rank will send no message any more that could answer this rank."""
        is_last = not self.arrived or self.arrived[0].kind == FrameKind.GOODBYE
        return bool(self.left or self.gone) and is_last

    def take(self) -> Frame:
        """Remove and return the first message that has arrived."""
        frame = self.arrived.popleft()
        self.ahead -= frame.payload.nbytes + len(frame.note)
        return frame

    def _check_order(self, frame: Frame) -> None:
        """Check that a message is none that came already, or that came later; its signature would be right."""
        place = frame.sequence, frame.piece
        if place <= self._last[frame.kind]:
            raise ProtocolError(
                f"{frame.kind.name} for exchange {frame.sequence}, piece {frame.piece}, a second time or too late"
            )
        self._last[frame.kind] = place
