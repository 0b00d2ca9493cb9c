"""The messages of a request to all services, by their connections or in one compiled call.

The compiled call sends to all services and receives their answers. It is used for requests with flat vectors, whose
answers are known in advance but for their elements. Anything else (an error, a note, a broken connection, the end of
the waiting time) ends the call, and the connections continue from the state that it returns. They alone decide what
follows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from paddle_base.kernels import exchange as kernel
from paddle_base.kernels.exchange import ExchangeStatus, Line
from pserver.client.connection import Poller
from pserver.client.server_channel import SenderId, ServerChannel, ServiceRequest, VectorTransfer
from pserver.optim.settings import Array
from pserver.wire import protocol
from pserver.wire.connection import BegunMessage, Connection, Frames, skip_bytes
from pserver.wire.protocol import Message, MessageFlag, Op


class RequestForm(NamedTuple):
    """What the messages of a request, and their answers, have in common in all channels.

    `sends`, `receives`: whether the messages, and the answers, contain elements.
    """

    op: Op
    flags: int
    note: bytes
    argument: int
    answer_flags: int
    sends: bool
    receives: bool


class Exchange:
    """The exchange with all services of a client.

    Args: channels: the channels of the services, in the order in which requests are sent.
    """

    def __init__(self, channels: Sequence[ServerChannel]) -> None:
        self._channels = channels
        self._lanes = [Lane(channel) for channel in channels]
        self._of_connection = {channel.connection: channel for channel in channels}
        self._poller = Poller([channel.connection for channel in channels])

    def advance(self, request: ServiceRequest, timeout: float) -> None:
        """Send what is left of the channels' request, then wait for answers, and receive them.

        Args: timeout: maximum seconds to wait; with 0, what is possible at once is sent and received.
        Raises: PaddleError: see `ServerChannel.receive`.
        """
        status = self._run(request, timeout)
        if status is None:
            self._send_pieces()
            self.receive(timeout)
        elif status == ExchangeStatus.UNSETTLED:
            self.receive(0)

    def receive(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for messages, and handle those that have arrived."""
        for connection, messages in self._poller.wait(timeout):
            channel = self._of_connection[connection]
            for frames in messages:
                channel.receive(frames)

    def _send_pieces(self) -> None:
        """Send the pieces that are left to all services in turn, and receive answers meanwhile."""
        waiting = [(channel, sorted(channel.unsent)) for channel in self._channels if channel.unsent]
        turn = 0
        while waiting:
            for channel, pieces in waiting:
                channel.send_piece(pieces[turn])
            turn += 1
            waiting = [one for one in waiting if turn < len(one[1])]
            if waiting:
                self.receive(0)

    def _run(self, request: ServiceRequest, timeout: float) -> int | None:
        """Send and receive in one call; return its status, or None if the state needs the connections."""
        transfer = request.describe_transfer() if kernel.IS_COMPILED else None
        if transfer is None:
            return None
        source, target, answer_flags = transfer
        note = protocol.dump_note(request.op, request.flags, request.note) if request.note else b""
        sends, receives = source is not None, target is not None
        form = RequestForm(request.op, request.flags, note, request.argument, answer_flags, sends, receives)
        lanes = [lane for lane in self._lanes if lane.channel.pending or lane.channel.unsent]
        lines = [line for lane in lanes if (line := lane.prepare(form, request.samples)) is not None]
        if not lanes or len(lines) < len(lanes):
            return None
        status = kernel.exchange(source, target, lines, timeout)
        if status == ExchangeStatus.COMPLETE and not any(lane.has_lent for lane in lanes):
            request.answer_flags |= answer_flags
            for lane in lanes:
                lane.channel.finish()
            return status
        # a message may raise an error, so all lanes are settled before
        received = [(lane.channel, lane.settle(transfer)) for lane in lanes]
        for channel, messages in received:
            for frames in messages:
                channel.receive(frames)
        return status


class Heads:
    """The heads of all pieces in one direction; a head is a header and a note.

    Args: sizes: the length in bytes of the elements of each piece.

    Attributes: marks: 1 for each piece that is to be sent or received, otherwise 0. data: the heads, one after the
        other.
    """

    def __init__(self, sender: SenderId, sizes: Sequence[int]) -> None:
        self.marks, self.data = bytearray(len(sizes)), bytearray()
        self._sender, self._sizes = sender, sizes
        self._note, self._step = b"", 0
        self._fields: list[tuple[int, int]] = []  # argument and length of the payload of each piece

    def begin(self, message: Message, note: bytes, *, has_elements: bool, is_local: bool) -> None:
        """Write all parts of the heads that do not change from request to request.

        Args: message: the fields that all heads have in common. has_elements: whether there is a payload.  is_local:
            whether it is in shared memory.
        """
        if is_local:
            message = message._replace(flags=message.flags | MessageFlag.LOCAL)
        header = protocol.pack_header(message, note)
        self._note, self._step = note, len(header) + len(note)
        self.data = bytearray((header + note) * len(self.marks))
        self._fields = [(size, 0) if is_local else (message.argument, size * has_elements) for size in self._sizes]

    def write(self, pieces: Collection[int], sequence: int, samples: int, key: bytes) -> None:
        """Mark pieces, and complete their heads.

        Args: sequence, samples: see `Message`. key: the key that signs the heads, or empty.
        """
        for piece in pieces:
            argument, length = self._fields[piece]
            protocol.write_counts(self.data, piece * self._step, sequence, argument, length, piece, samples)
            if key:
                protocol.sign_header(self.data, piece * self._step, self._note, key)
            self.marks[piece] = 1

    def head(self, piece: int) -> bytes:
        """Return the head of a piece."""
        return bytes(self.data[piece * self._step : (piece + 1) * self._step])


class Lane:
    """The arguments of the exchange for one channel, and what its result means for the channel.

    Attributes: has_lent: whether the connection has lent bytes to send or received bytes, which it must take back.
    """

    def __init__(self, channel: ServerChannel) -> None:
        self.channel = channel
        self.has_lent = False
        self._known: tuple[RequestForm, Connection] | None = None
        self._progress = np.zeros(kernel.PROGRESS, np.int64)

    def _begin(self, form: RequestForm, connection: Connection) -> None:
        """Make all parts of the line that do not change from request to request."""
        channel = self.channel
        if self._known is None:
            self._areas, self._starts = channel.layout.list_areas()
            sizes = np.diff(np.append(0, np.cumsum(self._areas[:, 2]))[self._starts]).tolist()
            self._out, self._in = Heads(channel.sender, sizes), Heads(channel.sender, sizes)
        self._known = (form, connection)
        outbox = channel.find_outbox() if form.sends else None
        inbox = channel.find_inbox() if form.receives else None
        message = Message(form.op, *channel.sender, 0, form.argument, form.flags)
        self._out.begin(message, form.note, has_elements=form.sends, is_local=outbox is not None)
        message = Message(form.op, *channel.sender, 0, 0, form.answer_flags)
        self._in.begin(message, b"", has_elements=form.receives, is_local=inbox is not None)
        out, come = self._out, self._in
        self._line = Line(
            connection.stream.fileno(),
            (),
            out.marks,
            out.data,
            outbox,
            come.marks,
            come.data,
            inbox,
            self._areas,
            self._starts,
            connection.scratch,
            self._progress,
        )

    def prepare(self, form: RequestForm, samples: int) -> Line | None:
        """Return the line of the exchange for what is left of the channel's request; None: its state does not fit."""
        channel = self.channel
        connection = channel.connection.established
        state = connection.lend() if connection is not None else None
        if connection is None or state is None:
            return None
        if self._known != (form, connection):
            self._begin(form, connection)
        keys = channel.connection.keys
        self._out.write(channel.unsent, channel.sequence, samples, keys.sending)
        self._in.write(channel.pending, channel.sequence, 0, keys.receiving)
        unsent, self._progress[kernel.SCRATCH_END] = state
        self.has_lent = any(state)
        return self._line._replace(rest=unsent) if unsent else self._line

    def settle(self, transfer: VectorTransfer) -> list[Frames]:
        """Bring the channel and its connection into the state after the exchange; return the messages to handle."""
        channel, connection = self.channel, self.channel.connection.established
        assert connection is not None
        rest_sent, piece_sent, end, piece, received = self._progress.tolist()
        unsent = [number for number, is_left in enumerate(self._out.marks) if is_left]
        more: list[memoryview] = []
        for number in unsent:
            more += skip_bytes(self._list_message(transfer, number), piece_sent if number == unsent[0] else 0)
        begun = None
        if piece >= 0:
            assert transfer.target is not None
            begun = BegunMessage(self._in.head(piece), self._list_areas(transfer.target, piece), received)
            channel.placed.add(piece)
        channel.take_placed([number for number in channel.pending if not self._in.marks[number]], transfer.flags)
        self._out.marks[:] = self._in.marks[:] = bytes(len(self._in.marks))
        return channel.connection.accept(connection, connection.resume(rest_sent, more, end, begun))

    def _list_message(self, transfer: VectorTransfer, piece: int) -> list[memoryview]:
        """Return the parts of the message of a piece of the request."""
        head = memoryview(self._out.head(piece))
        if transfer.source is None:
            return [head]
        if (outbox := self.channel.find_outbox()) is not None:
            self.channel.layout.copy(transfer.source, piece, protocol.cut(outbox, piece))
            return [head]
        return [head, *self._list_areas(transfer.source, piece)]

    def _list_areas(self, array: Array, piece: int) -> list[memoryview]:
        data = array.view(np.uint8).data
        areas = self._areas[self._starts[piece] : self._starts[piece + 1]].tolist()
        return [data[flat : flat + length] for flat, _, length in areas]
