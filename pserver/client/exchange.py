"""The fast path of requests with flat vectors: one compiled call sends to all services and receives their answers.

The call is used if all answers are known in advance, but for their elements. Anything else (an error, a note, a broken
connection, the end of the waiting time) ends the call, and the connections continue from the state that it returns.
They alone decide what follows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from paddle_base.kernels import exchange as kernel
from paddle_base.kernels.exchange import Line, Status
from pserver.client.server_channel import SenderId, ServerChannel, VectorTransfer
from pserver.optim.settings import Array
from pserver.wire import protocol
from pserver.wire.connection import BegunMessage, Frames, skip_bytes
from pserver.wire.protocol import HEADER_BYTES, Message, MessageFlag, Op


class Exchange:
    """The exchange with all services of a client.

    Args: channels: the channels of the services, in the order in which requests are sent.
    """

    def __init__(self, channels: Sequence[ServerChannel]) -> None:
        self._channels = channels
        self._lanes: dict[ServerChannel, Lane] = {}

    def run(self, transfer: VectorTransfer | None, timeout: float) -> Status | None:
        """Send what is left of the channels' request and receive answers, until all have arrived.

        Returns: why the exchange has ended; None: nothing was done, because this state needs the connections.
        Args: transfer: the vectors of the request. timeout: maximum seconds to wait; with 0, what is possible at once is
            sent and received.
        Raises: PaddleError: see `ServerChannel.receive`.
        """
        if transfer is None or not kernel.IS_COMPILED:
            return None
        lanes: list[Lane] = []
        lines: list[Line] = []
        for channel in self._channels:
            if not channel.pending and not channel.unsent:
                continue
            lane = self._lanes.get(channel)
            if lane is None:
                lane = self._lanes[channel] = Lane(channel)
            line = lane.prepare(transfer)
            if line is None:
                return None
            lanes.append(lane)
            lines.append(line)
        status = kernel.exchange(transfer.source, transfer.target, lines, timeout)
        # a message may raise an error, so all lanes are settled before
        received = [(lane.channel, lane.settle(transfer)) for lane in lanes]
        for channel, messages in received:
            for frames in messages:
                channel.receive(frames)
        return status


class HeadForm(NamedTuple):
    """What the heads of a request, or of its answers, have in common; a head is a header and a note.

    `is_local`: whether the elements are in shared memory; otherwise they are in the message, if it `has_elements`.
    """

    op: Op
    flags: int
    note: bytes
    argument: int
    has_elements: bool
    is_local: bool


class Heads:
    """The heads of all pieces in one direction.

    Args: sizes: the length in bytes of the elements of each piece.

    Attributes: marks: 1 for each piece that is to be sent or received, otherwise 0. data: the heads, one after the
        other.
    """

    def __init__(self, sender: SenderId, sizes: Sequence[int]) -> None:
        self.marks, self.data = bytearray(len(sizes)), bytearray()
        self._sender, self._sizes = sender, sizes
        self._form: HeadForm | None = None
        self._fields: list[tuple[int, int]] = []  # argument and length of the payload of each piece

    def write(self, form: HeadForm, pieces: Collection[int], sequence: int, samples: int, key: bytes) -> None:
        """Mark pieces, and write their heads.

        Args: sequence, samples: see `Message`. key: the key that signs the heads, or empty.
        """
        if form != self._form:
            self._begin(form)
        self.marks[:] = bytes(len(self.marks))
        step = HEADER_BYTES + len(form.note)
        for piece in pieces:
            protocol.write_counts(self.data, piece * step, sequence, *self._fields[piece], piece, samples)
            if key:
                protocol.sign_header(self.data, piece * step, form.note, key)
            self.marks[piece] = 1

    def _begin(self, form: HeadForm) -> None:
        self._form = form
        flags = form.flags | (MessageFlag.LOCAL if form.is_local else MessageFlag.NONE)
        header = protocol.pack_header(Message(form.op, *self._sender, 0, flags=flags), form.note)
        self.data = bytearray((header + form.note) * len(self.marks))
        self._fields = [
            (size, 0) if form.is_local else (form.argument, size if form.has_elements else 0) for size in self._sizes
        ]

    def head(self, piece: int) -> bytes:
        """Return the head of a piece."""
        step = len(self.data) // len(self.marks)
        return bytes(self.data[piece * step : (piece + 1) * step])


class Lane:
    """The arguments of the exchange for one channel, and what its result means for the channel."""

    def __init__(self, channel: ServerChannel) -> None:
        self.channel = channel
        self._areas, self._starts = channel.layout.list_areas()
        sizes = np.diff(np.append(0, np.cumsum(self._areas[:, 2]))[self._starts]).tolist()
        self._out, self._in = Heads(channel.sender, sizes), Heads(channel.sender, sizes)
        self._progress = np.zeros(kernel.PROGRESS, np.int64)

    def prepare(self, transfer: VectorTransfer) -> Line | None:
        """Return the line of the exchange for what is left of the channel's request; None: its state does not fit."""
        channel = self.channel
        request, connection, keys = channel.request, channel.connection.established, channel.connection.keys
        lent = connection.lend() if connection is not None else None
        if lent is None:
            return None
        sends, receives = transfer.source is not None, transfer.target is not None
        outbox = channel.find_outbox() if sends else None
        inbox = channel.find_inbox() if receives else None
        note = protocol.dump_note(request.op, request.flags, request.note) if request.note else b""
        form = HeadForm(request.op, request.flags, note, request.argument, sends, outbox is not None)
        self._out.write(form, channel.unsent, channel.sequence, request.samples, keys.sending)
        form = HeadForm(request.op, transfer.flags, b"", 0, receives, inbox is not None)
        self._in.write(form, channel.pending, channel.sequence, 0, keys.receiving)
        self._progress[kernel.SCRATCH_END] = lent.end
        return Line(
            lent.file,
            lent.unsent,
            self._out.marks,
            self._out.data,
            outbox,
            self._in.marks,
            self._in.data,
            inbox,
            self._areas,
            self._starts,
            lent.scratch,
            self._progress,
        )

    def settle(self, transfer: VectorTransfer) -> list[Frames]:
        """Bring the channel and its connection into the state after the exchange; return the messages to handle."""
        channel, connection = self.channel, self.channel.connection.established
        assert connection is not None
        rest_sent, piece_sent, end, piece, received, all_sent, all_received = self._progress.tolist()
        connection.traffic.sent += all_sent
        connection.traffic.received += all_received
        channel.take_placed(self._in.marks, transfer.flags)
        if not (any(self._out.marks) or connection.unsent or end or piece >= 0):
            return []
        more: list[memoryview] = []
        for number in [one for one, is_left in enumerate(self._out.marks) if is_left]:
            more += skip_bytes(self._list_message(transfer, number), piece_sent)
            piece_sent = 0
        begun = None
        if piece >= 0:
            assert transfer.target is not None
            begun = BegunMessage(self._in.head(piece), self._list_areas(transfer.target, piece), received)
            channel.placed.add(piece)
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
