"""Messages over plain TCP: the common part of both sides of a connection. No call blocks.

After its handshake, a connection carries messages: the header, the note and the payload of each, without gaps. Lengths
are checked against the connection's limits before memory is allocated, and payloads are received in place.

The module does not use zmq, because zmq passes every message between two threads in both processes and receives it into
new memory. Passing messages between threads would take most of the time of a small round. The allocation of new memory
would take a third of the time of a large round (bench/RESULTS-training.md).
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pserver.wire import protocol
from pserver.wire.protocol import Buffer, ProtocolError

SCRATCH_BYTES = 1 << 14  # bytes of the receive buffer for headers and short notes
_MOST_PARTS = 64  # maximum number of buffers in one system call
_SLOT_BYTES = 1 << 18  # sizes of pooled memory are rounded up to multiples of this number of bytes
_READS = 4  # maximum reads from one connection before other connections are served

Frames = list[Buffer]  # header, note, payload


class Traffic:
    """The number of bytes that several connections together have sent and received."""

    received = sent = 0


Place = Callable[[Sequence[Buffer], int], Sequence[memoryview]]


class BegunMessage(NamedTuple):
    """A message without a note, of whose payload the first `received` bytes have arrived in `parts`."""

    head: bytes
    parts: Sequence[memoryview]
    received: int


class Pool:
    """Memory for payloads that is reused after the last reference to it is gone.

    Allocating new memory takes more time than reading, because the system writes zeros to every new page. The pool
    keeps as much memory as was ever in use at one time.
    """

    def __init__(self) -> None:
        self._slots: dict[int, deque[bytearray]] = {}

    def take(self, size: int) -> memoryview:
        """Return memory of this size in bytes; it is reused after the last view of it is gone."""
        number = -(-size // _SLOT_BYTES)
        slots = self._slots.get(number)
        if slots is None:
            slots = self._slots[number] = deque()
        for _ in range(min(len(slots), 4)):  # arrays that have been in use for the longest time come first
            slot = slots[0]
            slots.rotate(-1)
            if sys.getrefcount(slot) == 3:  # the references of `slot`, the deque and getrefcount; there is no view
                return memoryview(slot)[:size]
        slots.append(bytearray(max(number, 1) * _SLOT_BYTES))
        return memoryview(slots[-1])[:size]


class HeaderForm(NamedTuple):
    """The form of a connection's headers: their length in bytes, and a function like `protocol.measure`."""

    length: int
    measure: Callable[[bytes], tuple[int, int] | None]


PSERVER_HEADER = HeaderForm(protocol.HEADER_BYTES, protocol.measure)


class ConnectionLimits(NamedTuple):
    """The maximum lengths of notes and payloads on a connection, in bytes, and the form of the headers."""

    note: int
    payload: int
    header: HeaderForm = PSERVER_HEADER


class Connection:
    """One open connection.

    Args: stream: a non-blocking socket. place: a function that takes the previous frames and the length of a payload,
        and returns one or several buffers for the payload. limits: the limits of received messages, which may be
        changed later; a message over a limit ends the reading. traffic: the counter of bytes, which several
        connections may share.
    Attributes: scratch: the receive buffer for headers and short notes.
    Raises (send, flush, receive): OSError, EOFError: the connection is broken, or closed by the other side.
    """

    def __init__(
        self,
        stream: socket.socket,
        place: Place,
        limits: ConnectionLimits,
        *,
        traffic: Traffic | None = None,
    ) -> None:
        self.stream = stream
        self.traffic = traffic or Traffic()
        self.limits = limits
        # the reason why reading has ended, as text, because an exception would keep the connection alive through its
        # stack frames
        self.fault = ""
        self._place = place
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._begin = self._end = 0  # begin and end of the part of the scratch buffer that is not parsed yet
        self._frames: Frames = []  # the received frames of the current message
        self._lengths = (0, 0)
        self._missing: deque[memoryview] = deque()  # memory for the next received bytes
        self._unsent: deque[memoryview] = deque()

    def close(self) -> None:
        """Close the connection; unsent messages are lost."""
        self.stream.close()

    # ----- Out -----

    @property
    def unsent(self) -> int:
        """The number of unsent parts of messages."""
        return len(self._unsent)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message without blocking, and keep the unsent rest for `flush`; payloads are not copied."""
        parts = [memoryview(b"".join(frames[:2])), *(memoryview(frame).cast("B") for frame in frames[2:])]
        if not self._unsent and len(parts) <= _MOST_PARTS:
            parts = self._send_some(parts)
        self._unsent.extend(parts)

    def flush(self) -> None:
        """Send waiting parts as far as possible without blocking."""
        while self._unsent:
            parts = [self._unsent.popleft() for _ in range(min(len(self._unsent), _MOST_PARTS))]
            left = self._send_some(parts)
            self._unsent.extendleft(reversed(left))
            if left:
                return

    def _send_some(self, parts: list[memoryview]) -> list[memoryview]:
        """Send as many bytes as the socket accepts; return the unsent parts of messages."""
        try:
            sent = self.stream.sendmsg(parts)
        except BlockingIOError:
            return parts
        self.traffic.sent += sent
        return skip_bytes(parts, sent)

    def send_rest(self, parts: Sequence[Buffer], sent: int) -> None:
        """Keep the rest of a message for `flush`; the first `sent` bytes were sent past this object.

        Nothing else may wait to be sent.
        """
        self._unsent.extend(skip_bytes([memoryview(part).cast("B") for part in parts], sent))

    # ----- Out and in, by a compiled exchange -----

    def lend(self) -> tuple[tuple[memoryview, ...], int] | None:
        """Return the parts that must be sent first, and the number of received bytes in `scratch`, so that a compiled
        exchange may use the stream; None if it may not, because a message is partly received.

        If the exchange leaves anything of this, or is not complete, `resume` must follow.
        """
        if self._frames or self.fault:
            return None
        return tuple(self._unsent), self._end

    def resume(
        self, sent: int, more: Sequence[memoryview], end: int, begun: BegunMessage | None = None
    ) -> list[Frames]:
        """Continue after a compiled exchange; return the complete messages that it has received and not parsed.

        Args: sent: sent bytes of the lent `unsent`. more: parts of messages that the exchange has not sent. end: number
            of received bytes in `scratch`. begun: the message that is partly received.
        """
        self._unsent = deque([*skip_bytes(list(self._unsent), sent), *more])
        self._end = end
        if begun is not None:
            self._frames = [begun.head, b"", *begun.parts]
            self._lengths = (0, sum(map(len, begun.parts)))
            self._missing.extend(skip_bytes(begun.parts, begun.received))
        messages: list[Frames] = []
        self._parse(messages)
        return messages

    # ----- In -----

    @property
    def is_between_messages(self) -> bool:
        """Whether every received byte belongs to a complete message."""
        return not (self._end or self._frames or self.fault)

    @property
    def is_idle(self) -> bool:
        """Whether no message is partly received, or waits to be sent."""
        return not (self._unsent or self._end or self._frames or self.fault)

    def restore(self, parts: Sequence[memoryview]) -> list[Frames]:
        """Take bytes that were received past this object after the last message, as if they had just been received.
        Return the messages that they complete.
        """
        messages: list[Frames] = []
        for part in parts:
            left = part
            while left and not self.fault:
                target = self._missing[0] if self._missing else self.scratch[self._end :]
                size = min(len(target), len(left))
                target[:size] = left[:size]
                self._advance(size, messages)
                left = left[size:]
        return messages

    def receive(self) -> list[Frames]:
        """Read available bytes, up to a limit, and return the complete messages."""
        messages: list[Frames] = []
        for _ in range(_READS):
            try:
                if not self._read(messages):
                    break
            except BlockingIOError:
                break
            except (OSError, EOFError):
                if messages:
                    break  # the next call reads the rest
                raise
        return messages

    def _read(self, messages: list[Frames]) -> bool:
        """Read once; return whether more bytes may be available."""
        if self.fault:
            return False
        parts = [*(self._missing[number] for number in range(min(len(self._missing), _MOST_PARTS)))]
        if len(parts) == len(self._missing):
            parts.append(self.scratch[self._end :])
        wanted = sum(map(len, parts))
        size = self.stream.recvmsg_into(parts)[0] if len(parts) > 1 else self.stream.recv_into(parts[0])
        if not size:
            raise EOFError("closed by the other side")
        self.traffic.received += size
        self._advance(size, messages)
        return size == wanted

    def _advance(self, left: int, messages: list[Frames]) -> None:
        """Count received bytes, and append the messages that they complete."""
        while self._missing and left:
            part = self._missing[0]
            if left < len(part):
                self._missing[0] = part[left:]
                return
            left -= len(part)
            self._missing.popleft()
        if not self._missing:
            self._end += left
            self._parse(messages)

    def _parse(self, messages: list[Frames]) -> None:
        """Divide the bytes of the scratch buffer into messages."""
        while True:
            is_whole = len(self._frames) > 2 or (len(self._frames) == 2 and not self._lengths[1])
            if is_whole and not self._missing:
                messages.append(self._frames)
                self._frames = []
            elif not self._cut_frame():
                break
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin:
            rest = bytes(self.scratch[self._begin : self._end])
            self._begin, self._end = 0, len(rest)
            self.scratch[: self._end] = rest

    def _cut_frame(self) -> bool:
        """Parse the next frame of the message, or a part of it; return False if more bytes are needed."""
        if self._missing or self.fault:
            return False
        if len(self._frames) == 0:
            return self._cut_header()
        return self._cut_note(self._lengths[0]) if len(self._frames) == 1 else self._cut_payload(self._lengths[1])

    def _cut_header(self) -> bool:
        length, measure = self.limits.header
        head = bytes(self.scratch[self._begin : min(self._begin + length, self._end)])
        if not head:
            return False
        try:
            lengths = measure(head)
            if lengths is None:
                return False
            note, payload = lengths
            if note > self.limits.note or payload > self.limits.payload:
                raise ProtocolError(
                    f"a note of {note} and a payload of {payload} bytes are not within this connection's limits of "
                    f"{self.limits.note} and {self.limits.payload} bytes"
                )
        except ProtocolError as exc:
            self.fault = str(exc)
            return False
        self._frames.append(head)
        self._lengths = (note, payload)
        self._begin += length
        return True

    def _cut_note(self, length: int) -> bool:
        have = self._end - self._begin
        if have >= length:
            self._frames.append(bytes(self.scratch[self._begin : self._begin + length]))
            self._begin += length
            return True
        if length <= SCRATCH_BYTES:
            return False
        note = memoryview(bytearray(length))
        self._frames.append(note)
        self._fill([note])
        return True

    def _cut_payload(self, length: int) -> bool:
        parts = self._place(self._frames, length)
        self._frames += parts
        self._fill(parts)
        return True

    def _fill(self, parts: Sequence[memoryview]) -> None:
        """Copy the buffered bytes into memory; the remaining bytes will be received into the same memory."""
        for part in parts:
            have = min(self._end - self._begin, len(part))
            if have:
                part[:have] = self.scratch[self._begin : self._begin + have]
                self._begin += have
            if have < len(part):
                self._missing.append(part[have:] if have else part)


def skip_bytes(parts: Sequence[memoryview], count: int) -> list[memoryview]:
    """Return what follows the first `count` bytes of some memory areas."""
    for number, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[number + 1 :]]
        count -= len(part)
    return []


def linger(connections: Sequence[Connection], seconds: float) -> None:
    """Close connections when all messages are sent and received, or after `seconds` at the latest.

    If a socket were closed with unread input, the system would discard output that the peer has not read. The input is
    therefore read first.
    """
    deadline = time.monotonic() + seconds
    poller = select.poll()
    of_file: dict[int, Connection] = {}
    for one in connections:
        with contextlib.suppress(OSError):
            of_file[one.stream.fileno()] = one
            poller.register(one.stream, select.POLLIN | select.POLLOUT)
    dump = bytearray(SCRATCH_BYTES)
    while of_file and (left := deadline - time.monotonic()) > 0:
        for file, _ in poller.poll(max(1, int(1000 * left))):
            one = of_file[file]
            try:
                one.flush()
                if not one.unsent:
                    # the peer reads the end and closes; this side then reads the end, too
                    one.stream.shutdown(socket.SHUT_WR)
                    poller.modify(file, select.POLLIN)  # POLLOUT would wake this loop without end
                while one.stream.recv_into(dump):
                    pass
            except BlockingIOError:
                continue
            except OSError:
                pass
            poller.unregister(file)
            del of_file[file]
    for one in connections:
        one.close()
