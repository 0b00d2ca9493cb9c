"""The messages of a request to all services, by their connections or in one compiled call.

The compiled call sends to all services and receives their answers. It is used for requests with flat vectors, whose
answers are known in advance but for their elements. Anything else (an error, a note, a broken connection, the end of
the waiting time) ends the call, and the connections continue from the state that it returns. They alone decide what
follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from paddle_base.kernels import exchange as kernel
from paddle_base.kernels.exchange import ExchangeStatus, Line
from pserver.client.connection import Poller
from pserver.client.server_channel import PieceAreas, SenderId, ServerChannel, ServiceRequest, VectorTransfer
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
    note: Mapping[str, Any]
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
        sends, receives = source is not None, target is not None
        form = RequestForm(request.op, request.flags, request.note, request.argument, answer_flags, sends, receives)
        lanes = [lane for lane in self._lanes if lane.channel.pending or lane.channel.unsent]
        lines = [line for lane in lanes if (line := lane.prepare(form, request)) is not None]
        if not lanes or len(lines) < len(lanes):
            return None
        status = kernel.exchange(source, target, lines, timeout)
        if status == ExchangeStatus.COMPLETE and not any(lane.has_lent for lane in lanes):
            request.answer_flags |= answer_flags
            for lane in lanes:
                lane.channel.finish()
            return status
        # a message may raise an error, so all lanes are settled before
        received = [(lane.channel, lane.settle(transfer)) for lane in lanes if not lane.goes_on(answer_flags)]
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

    def begin(self, message: Message, *, has_elements: bool, is_local: bool) -> None:
        """Write all parts of the heads that do not change from request to request.

        Args: message: the fields that all heads have in common. has_elements: whether there is a payload.  is_local:
            whether it is in shared memory.
        """
        if is_local:
            message = message._replace(flags=message.flags | MessageFlag.LOCAL)
        note = protocol.dump_note(message.op, message.flags, message.note)
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
        self._known: tuple[RequestForm, Connection, tuple[PieceAreas, PieceAreas] | None] | None = None
        self._whole: PieceAreas | None = None
        self._progress = np.zeros(kernel.PROGRESS, np.int64)

    def _begin(self, form: RequestForm, connection: Connection, ways: tuple[PieceAreas, PieceAreas]) -> None:
        """Make all parts of the line that do not change from request to request.

        Args: ways: the memory of the pieces that are sent, and of those that are received.
        """
        sender, (out, come) = self.channel.sender, ways
        self._out, self._in = Heads(sender, out.sizes), Heads(sender, come.sizes)
        message = Message(form.op, *sender, 0, form.argument, form.flags, out.note or form.note)
        self._out.begin(message, has_elements=form.sends, is_local=out.is_local)
        message = Message(form.op, *sender, 0, 0, form.answer_flags)
        self._in.begin(message, has_elements=form.receives, is_local=come.is_local)
        self._ways = ways
        self._line = Line(
            connection.stream.fileno(),
            (),
            self._out.marks,
            self._out.data,
            out.shared,
            out.areas,
            out.starts,
            self._in.marks,
            self._in.data,
            come.shared,
            come.areas,
            come.starts,
            connection.scratch,
            self._progress,
        )

    def _divide_vectors(self, form: RequestForm) -> tuple[PieceAreas, PieceAreas]:
        """Return the memory of the channel's elements of the vectors."""
        channel = self.channel
        if self._whole is None:
            areas, starts = channel.layout.list_areas()
            sizes = np.diff(np.append(0, np.cumsum(areas[:, 2]))[starts]).tolist()
            self._whole = PieceAreas(sizes, areas, starts)
        outbox = channel.find_outbox() if form.sends else None
        inbox = channel.find_inbox() if form.receives else None
        whole = self._whole
        return (
            whole._replace(shared=outbox, is_local=outbox is not None),
            whole._replace(shared=inbox, is_local=inbox is not None),
        )

    def prepare(self, form: RequestForm, request: ServiceRequest) -> Line | None:
        """Return the line of the exchange for what is left of the channel's request; None: its state does not fit."""
        channel = self.channel
        connection = channel.connection.established
        state = connection.lend() if connection is not None else None
        if connection is None or state is None:
            return None
        known = (form, connection, request.list_areas(channel))
        if self._known is None or known[:2] != self._known[:2] or known[2] is not self._known[2]:
            self._begin(form, connection, known[2] or self._divide_vectors(form))
            self._known = known
        keys = channel.connection.keys
        self._out.write(channel.unsent, channel.sequence, request.samples, keys.sending)
        self._in.write(channel.pending, channel.sequence, 0, keys.receiving)
        unsent, self._progress[kernel.SCRATCH_END] = state
        self.has_lent = any(state)
        return self._line._replace(rest=unsent) if unsent else self._line

    def goes_on(self, flags: int) -> bool:
        """After an exchange that has ended between two messages of this lane, take the answers that have arrived; the
        next exchange continues without the connection. Otherwise return False: `settle` must follow.

        Args: flags: the flags of each answer.
        """
        _, _, end, piece, _ = self._progress.tolist()
        if self.has_lent or end or piece >= 0 or 1 in self._out.marks:
            return False
        channel, left = self.channel, self._in.marks
        channel.take_placed([number for number in channel.pending if not left[number]], flags)
        left[:] = bytes(len(left))
        return True

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
            parts = _list_areas(transfer.target, self._ways[1], piece)
            begun = BegunMessage(self._in.head(piece), parts, received)
            channel.placed.add(piece)
        channel.take_placed([number for number in channel.pending if not self._in.marks[number]], transfer.flags)
        for heads in (self._out, self._in):
            heads.marks[:] = bytes(len(heads.marks))
        return channel.connection.accept(connection, connection.resume(rest_sent, more, end, begun))

    def _list_message(self, transfer: VectorTransfer, piece: int) -> list[memoryview]:
        """Return the parts of the message of a piece of the request."""
        head, out = memoryview(self._out.head(piece)), self._ways[0]
        if transfer.source is None:
            return [head]
        if out.shared is not None:
            self.channel.layout.copy(transfer.source, piece, protocol.cut(out.shared, piece))
        return [head] if out.is_local else [head, *_list_areas(transfer.source, out, piece)]


def _list_areas(array: Array, pieces: PieceAreas, piece: int) -> list[memoryview]:
    """Return the memory areas of a piece."""
    data = array.view(np.uint8).data
    areas = pieces.areas[pieces.starts[piece] : pieces.starts[piece + 1]].tolist()
    return [data[flat : flat + length] for flat, _, length in areas]
