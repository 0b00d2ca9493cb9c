"""One service from the client's view: a request, its messages to this service, and the service's answers.

A request goes to every service. The arrays of requests and answers are sent in pieces, each of which is a message. A
message has a note (a JSON object) and a payload (bytes of the array). A channel takes the notes and payloads of the
pieces from the request, and passes the pieces of the answers to the request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, LostPeerError, PaddleError, PeerUnreachableError
from pserver.client.connection import ServerConnection
from pserver.client.heartbeat import error_of
from pserver.optim.settings import Array
from pserver.store.partition import StridedRun, cut_runs
from pserver.wire import notes, protocol
from pserver.wire.connection import Frames, Pool
from pserver.wire.protocol import NOTHING, Buffer, Message, MessageFlag, Op
from pserver.wire.shared_memory import SharedMemory

# maximum number of arrays whose views are stored; a trainer uses few arrays, and uses the same arrays in every batch
MAX_ARRAYS = 8
MAX_PARTS = 48  # maximum number of separate memory areas of a piece that is sent or received without a copy
# minimum average number of elements of a memory area; copying shorter areas is faster than listing them
MIN_PART_ELEMENTS = 4096


class SenderId(NamedTuple):
    """The sender of a message: the bytes that identify its job and attempt, and the number of the trainer."""

    session: bytes
    trainer: int


class VectorTransfer(NamedTuple):
    """A request whose messages contain elements of flat arrays, and whose answers are known but for the elements.

    `source`: the array that is sent. `target`: the array that is received. None: the messages of this direction
    contain no elements. `flags`: the flags of each answer, without LOCAL. Answers have no notes.
    """

    source: Array | None
    target: Array | None
    flags: int = MessageFlag.ANSWER


class PieceAreas(NamedTuple):
    """The memory of all pieces of one direction of a channel.

    - `sizes`: the length of the payload of each piece, in bytes.
    - `areas`, `starts`: see `paddle_base.kernels.exchange.Line`.
    - `is_local`: whether the payloads are in the shared memory and not in the messages.
    - `shared`: the shared memory that the exchange copies the payloads to, or from; None: it copies nothing.
    - `note`: the note of each piece.
    """

    sizes: Sequence[int]
    areas: NDArray[np.int64]
    starts: NDArray[np.int64]
    is_local: bool = False
    shared: memoryview | None = None
    note: Mapping[str, Any] = NOTHING


class ServiceRequest:
    """A request without an array, whose answers have no array either.

    Args: doing: description of the request, for log messages. argument, samples, flags: the fields of the same names in
        the request's messages. note: the note of the first piece for each service.

    Attributes: notes: the note of each service's answer.  answer_flags: the combined flags of all answers.
        is_note_repeated: whether all pieces have the note; otherwise only the first piece has it.
    """

    is_note_repeated = False

    def __init__(
        self,
        op: Op,
        doing: str,
        argument: int = 0,
        *,
        samples: int = 0,
        flags: int = MessageFlag.NONE,
        note: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.op, self.doing, self.argument, self.samples, self.flags = op, doing, argument, samples, flags
        self.note = note
        self.notes: dict[ServerChannel, Mapping[str, Any]] = {}
        self.answer_flags = MessageFlag.NONE

    def interruption(self) -> PaddleError | None:
        """Return an error that ends the wait for the answers, or None."""
        return None

    def describe_transfer(self) -> VectorTransfer | None:
        """Return the vectors of this request if its answers are known but for their elements, otherwise None."""
        return None

    def list_areas(self, channel: ServerChannel) -> tuple[PieceAreas, PieceAreas] | None:
        """Return the memory of the pieces that the channel sends and receives in the arrays of the transfer.

        None: each piece is the part of the vectors that the layout of the channel says, in both directions.
        """
        return None

    def complete(self, channel: ServerChannel) -> None:
        """Use the answer of a service, of which all pieces have arrived."""

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note of a piece."""
        return self.note if self.is_note_repeated or not piece else NOTHING

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces for a service."""
        return 1

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return the payload of a piece."""
        return ()

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of a service's answer."""
        return 1

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview] | None:
        """Return the memory that a piece of the answer is received into, or None if `take` copies the piece."""
        return None

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Store a piece of the answer, unless it was received in place.

        Raises: PaddleError: the answer reports an error of the job.  Any other error: the answer is not valid.
        """
        if answer.note:
            self.notes[channel] = answer.note


class FetchVector(ServiceRequest):
    """A request whose answers contain the services' elements of a flat vector, which are received in place."""

    def __init__(
        self, op: Op, doing: str, values: Array, argument: int = 0, *, note: Mapping[str, Any] = NOTHING
    ) -> None:
        super().__init__(op, doing, argument, note=note)
        self._values = values

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's elements."""
        return channel.layout.pieces

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy the elements of a piece into the vector."""
        super().take(channel, answer, payload)
        channel.layout.scatter(payload, self._values, answer.piece)


class SendVector(ServiceRequest):
    """A request that sends every service its elements of a flat vector; each piece is answered."""

    def __init__(self, op: Op, doing: str, flat: Array, *, samples: int = 0, flags: int = MessageFlag.NONE) -> None:
        super().__init__(op, doing, samples=samples, flags=flags)
        self._flat = flat

    def describe_transfer(self) -> VectorTransfer | None:
        """Return the gradient if this request is a push; other services that receive vectors answer with notes."""
        return VectorTransfer(self._flat, None) if self.op == Op.PUSH else None

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's elements."""
        return channel.layout.pieces

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return the elements of a piece."""
        return channel.gather(self._flat, piece)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of answers, which equals the number of sent pieces."""
        return channel.layout.pieces


class PushVector(SendVector):
    """A gradient for every service; the answers contain the new values, which are received in place.

    Args: samples: number of samples of this trainer's batch.
    """

    def __init__(self, doing: str, gradient: Array, values: Array, samples: int) -> None:
        super().__init__(Op.PUSH, doing, gradient, samples=samples)
        self._values = values

    def describe_transfer(self) -> VectorTransfer:
        """Return the gradient and the values."""
        return VectorTransfer(self._flat, self._values)

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview] | None:
        """Return the memory of the values of a piece."""
        return channel.layout.parts_of(self._values, piece)

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy the values of a piece into the vector."""
        channel.layout.scatter(payload, self._values, answer.piece)


class SendArrays(ServiceRequest):
    """A request that sends each service a separate array; each piece is answered."""

    def __init__(self, op: Op, doing: str, arrays: Mapping[ServerChannel, memoryview], argument: int = 0) -> None:
        super().__init__(op, doing, argument)
        self._arrays = arrays

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return protocol.count_pieces(len(self._arrays[channel]))

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return a piece of the service's array."""
        return (protocol.cut(self._arrays[channel], piece),)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of answers, which equals the number of sent pieces."""
        return self.count_pieces(channel)


class FetchArrays(ServiceRequest):
    """A FETCH request that each service answers with a separate array, which is copied into the given memory."""

    def __init__(self, doing: str, argument: int, arrays: Mapping[ServerChannel, memoryview]) -> None:
        super().__init__(Op.FETCH, doing, argument)
        self._arrays = arrays

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return protocol.count_pieces(len(self._arrays[channel]))

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy a piece into the array of the service."""
        protocol.cut(self._arrays[channel], answer.piece)[:] = payload


class VectorLayout:
    """The elements of one service, in the order of transfer.

    Attributes: size: number of elements. pieces: number of messages for these elements.
    """

    def __init__(self, runs: Sequence[StridedRun]) -> None:
        self.size = sum(run.length * run.count for run in runs)
        self.pieces = protocol.count_pieces(4 * self.size)
        self._runs = runs
        self._buffer: Array | None = None
        self._lowest: list[int] = []
        # views of recently used arrays; the key is id() of the array
        self._views: dict[int, tuple[Array, list[list[tuple[Array, StridedRun]]]]] = {}
        # the memory areas of each piece of recently used arrays; the key is id() of the array
        self._parts: dict[int, tuple[Array, list[list[memoryview] | None]]] = {}

    def parts_of(self, flat: Array, piece: int) -> list[memoryview] | None:
        """Return the vector's memory areas that form a piece of this service's elements; None if there are too many
        areas.

        Shapes: each item of the list contains bytes, and the concatenation of the items is the piece.
        """
        known = self._parts.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._parts) >= MAX_ARRAYS:
                self._parts.clear()
            known = self._parts[id(flat)] = (flat, [_rows_of(views) for views in self._pieces_of(flat)])
        return known[1][piece]

    def list_areas(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the memory areas of all pieces: places in the flat vector and in the service's vector, and lengths.

        Shapes: areas: (areas, 3), in bytes; starts: (pieces + 1,). Piece p has the areas [starts[p], starts[p + 1]).
        """
        found, starts = [], [0]
        length = protocol.piece_elements()
        for start in range(0, max(self.size, 1), length):
            for run in cut_runs(self._runs, start, min(start + length, self.size)):
                steps = np.arange(run.count)
                flat, local = run.flat + steps * run.stride, start + run.local + steps * run.length
                found.append(np.stack([flat, local, np.full(run.count, run.length)], axis=1))
            starts.append(sum(map(len, found)))
        areas = np.concatenate(found) if found else np.zeros((0, 3))
        return 4 * areas.astype(np.int64), np.array(starts, np.int64)

    def gather(self, flat: Array, piece: int) -> list[memoryview]:
        """Return a piece of this service's elements as bytes: the vector's own memory, or a copy.

        Elements in too many memory areas are copied into a buffer. The same piece must not be gathered again before the
        service has answered.
        """
        parts = self.parts_of(flat, piece)
        if parts is not None:
            return parts
        if self._buffer is None:
            self._buffer = np.empty(self.size, np.float32)
        part = protocol.cut(self._buffer.view("B").data, piece)
        self.copy(flat, piece, part)
        return [part]

    def copy(self, flat: Array, piece: int, target: memoryview) -> None:
        """Copy a piece of this service's elements into other memory."""
        array = np.frombuffer(target, np.float32)
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(array[run.local : run.local + run.length * run.count].reshape(view.shape), view)

    def scatter(self, payload: memoryview, flat: Array, piece: int) -> None:
        """Copy a payload to a piece of this service's elements in the flat vector.

        Raises: ValueError: the payload has the wrong length.
        """
        length = protocol.piece_elements()
        expected = 4 * min(length, self.size - piece * length)
        if payload.nbytes != expected:
            raise ValueError(f"piece {piece} has {payload.nbytes} bytes instead of {expected}")
        part = np.frombuffer(payload, np.float32)
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(view, part[run.local : run.local + run.length * run.count].reshape(view.shape))

    def lowest(self, piece: int) -> int:
        """Return the lowest position that an element of a piece has in the flat vector."""
        if not self._lowest:
            length = protocol.piece_elements()
            cuts = [cut_runs(self._runs, start, start + length) for start in range(0, max(self.size, 1), length)]
            self._lowest = [min((run.flat for run in cut), default=0) for cut in cuts]
        return self._lowest[piece]

    def _pieces_of(self, flat: Array) -> list[list[tuple[Array, StridedRun]]]:
        """Return the strided views of each piece; the views of recently used arrays are stored."""
        known = self._views.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._views) >= MAX_ARRAYS:
                self._views.clear()
            length = protocol.piece_elements()
            pieces = [
                [(_view(flat, run), run) for run in cut_runs(self._runs, start, min(start + length, self.size))]
                for start in range(0, max(self.size, 1), length)
            ]
            known = self._views[id(flat)] = (flat, pieces)
        return known[1]


def _rows_of(views: Sequence[tuple[Array, StridedRun]]) -> list[memoryview] | None:
    count = sum(run.count for _, run in views)
    elements = sum(run.count * run.length for _, run in views)
    if count > MAX_PARTS or (count > 1 and elements < count * MIN_PART_ELEMENTS):
        return None
    return [row.view(np.uint8).data for view, _ in views for row in view]


def _view(flat: Array, run: StridedRun) -> Array:
    return np.lib.stride_tricks.as_strided(flat[run.flat :], (run.count, run.length), (run.stride * 4, 4))


class ServerChannel:
    """The data connection to one service, the service's elements of the flat vector, and the current request.

    Args: pool: memory for payloads that have no other place.

    Attributes:

    - `sequence`: number of the current request. A service accepts only consecutive numbers. The number of a request
      that was begun but not sent is therefore used again.
    - `memory`: the memory shared with the service; None if the service is on another host or has refused the memory.
    - `waits_for`: what the service waits for, as the service reported.
    - `breaks`: number of breaks of the connection that the client has handled.
    - `unsent`: pieces of the current request that have not been sent.
    - `pending`: pieces of the answer that have not arrived.
    - `placed`: pieces of the answer that were received in place.
    """

    def __init__(self, connection: ServerConnection, layout: VectorLayout, sender: SenderId, pool: Pool) -> None:
        self.connection = connection
        self.layout = layout
        self.sender = sender
        self.request = ServiceRequest(Op.PING, "nothing")
        self.sequence = 0
        self.memory: SharedMemory | None = None
        self._answered: ServiceRequest | None = None
        self.waits_for = ""
        self.breaks = 0
        self.unsent: set[int] = set()
        self.pending: set[int] = set()
        self.placed: set[int] = set()
        connection.place = partial(self._place, pool)

    @property
    def name(self) -> str:
        """The name of the service, for messages."""
        return self.connection.peer

    @property
    def last(self) -> str:
        """The service's last action, for messages."""
        return "said nothing yet" if self._answered is None else f"answered '{self._answered.doing}'"

    def close(self) -> None:
        """Close the connection, and release the shared memory."""
        self.connection.close()
        self.close_memory()

    def close_memory(self) -> None:
        """Release the shared memory; payloads are then sent over the connection."""
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    # ----- Sending -----

    def begin(self, request: ServiceRequest) -> None:
        """Begin a request; `send_piece` sends its pieces."""
        self.sequence += len(self.unsent) < self.request.count_pieces(self)
        self.request = request
        self.unsent, self.pending = set(range(request.count_pieces(self))), set(range(request.count_answers(self)))
        self.placed.clear()

    def send_piece(self, piece: int) -> None:
        """Send one piece of the current request; its payload is not copied."""
        request = self.request
        payload, flags, argument = request.payload_for(self, piece), request.flags, request.argument
        if request.op == Op.PUSH and (length := self._measure_local(payload)):
            payload, flags, argument = (), flags | MessageFlag.LOCAL, length
        note = request.note_for(self, piece)
        try:
            self.send(
                Message(request.op, *self.sender, self.sequence, argument, flags, note, payload, piece, request.samples)
            )
        except protocol.ProtocolError as exc:
            raise BugError(f"trainer {self.sender.trainer} cannot {request.doing}: {exc}") from exc

    def send(self, message: Message) -> None:
        """Send a piece of the current request."""
        self.unsent.discard(message.piece)
        self.connection.send(message)

    def ask(self) -> None:
        """Send a PING on the data connection, after the request. The answer reports what the server has received, and
        what it waits for.
        """
        if not self.connection.waiting:  # without a connection, a PING would only wait behind other messages
            self.connection.send(Message(Op.PING, *self.sender, self.sequence))

    def abort(self, reason: str) -> None:
        """Send the reason why this trainer gives up."""
        self.connection.send(Message(Op.ABORT, *self.sender, self.sequence + 1, note={"reason": reason}))

    def gather(self, flat: Array, piece: int) -> Sequence[Buffer]:
        """Return a piece of this service's elements as bytes.

        The bytes are in the shared memory if all elements fit into it; otherwise see `VectorLayout.gather`.
        """
        if (outbox := self.find_outbox()) is None:
            return self.layout.gather(flat, piece)
        target = protocol.cut(outbox, piece)
        self.layout.copy(flat, piece, target)
        return (target,)

    def find_outbox(self) -> memoryview | None:
        """Return the shared memory for elements to the service, or None if they are sent over the connection."""
        if self.memory is None or not 0 < 4 * self.layout.size <= len(self.memory.outbox):
            return None
        return self.memory.outbox

    def find_inbox(self) -> memoryview | None:
        """Return the shared memory for elements from the service, or None if they come over the connection."""
        if self.memory is None or not 0 < 4 * self.layout.size <= len(self.memory.inbox):
            return None
        return self.memory.inbox

    def _measure_local(self, payload: Sequence[Buffer]) -> int:
        """Return the length in bytes of a payload in shared memory; 0 if the payload is elsewhere or empty."""
        if self.memory is None or len(payload) != 1 or not self.memory.holds(payload[0]):
            return 0
        return len(payload[0])

    # ----- Receiving -----

    def _place(self, pool: Pool, frames: Sequence[Buffer], size: int) -> Sequence[memoryview]:
        """Return the memory for the payload of an answer.

        A signed answer is received directly into the final place of its payload, if this place is known. Any other
        answer is received into a buffer of the pool.
        """
        op, flags, sequence, piece = protocol.peek(frames[0])
        request = self.request
        if (op, flags & MessageFlag.ANSWER, sequence) == (request.op, MessageFlag.ANSWER, self.sequence):
            parts = request.place_for(self, piece) if piece in self.pending else None
            key = self.connection.keys.receiving
            if parts is not None and sum(map(len, parts)) == size and protocol.is_signed(frames, key):
                self.placed.add(piece)
                return parts
        return [pool.take(size)]

    def receive(self, frames: Frames) -> None:
        """Handle a message of the service.

        Raises: PaddleError: the message reports this error, or is not a valid answer.
        """
        try:
            answer = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            raise PeerUnreachableError(
                f"{self.name} sends an answer that is not a message of this protocol: {exc}"
            ) from exc
        if answer.op == Op.ERROR and (answer.flags & MessageFlag.FATAL or answer.sequence in (0, self.sequence)):
            raise error_of(answer, self.name)
        if answer.sequence != self.sequence:
            return  # a late answer to an earlier, repeated request
        try:
            self._take(answer)
        except PaddleError:
            raise
        except Exception as exc:  # an authenticated but faulty message must not end this trainer with an unknown error
            raise LostPeerError(
                f"{self.name} sends an invalid answer to '{self.request.doing}' "
                f"({type(exc).__name__}: {glog.clean(exc, 200)})"
            ) from exc

    def _take(self, answer: Message) -> None:
        request = self.request
        if answer.op == Op.PING:
            self._repeat_if_lost(answer)
        elif answer.op == request.op and answer.piece in self.pending:
            if answer.piece not in self.placed:
                request.take(self, answer, self._payload_of(answer))
            request.answer_flags |= answer.flags
            self.pending.discard(answer.piece)
            if not self.pending:
                self._end_request()

    def _end_request(self) -> None:
        """Use the answer to the request, which is complete."""
        self._answered = self.request
        self.request.complete(self)

    def finish(self) -> None:
        """Take all answers, which were received in place; the request is sent."""
        self.unsent.clear()
        self.pending.clear()
        self._end_request()

    def take_placed(self, pieces: Collection[int], flags: int) -> None:
        """Take answers that were received in place; the connection sends the whole request.

        Args: pieces: the pieces of these answers. flags: the flags of each of them.
        """
        self.unsent.clear()
        if pieces:
            self.request.answer_flags |= flags
            self.pending.difference_update(pieces)
            if not self.pending:
                self._end_request()

    def _payload_of(self, answer: Message) -> memoryview:
        """Return the array of a message, which is empty if the message has none."""
        if answer.flags & MessageFlag.LOCAL and self.memory is not None:
            return protocol.cut_local(self.memory.inbox, answer)
        return memoryview(answer.payload[0]) if answer.payload else memoryview(b"")

    def _repeat_if_lost(self, pong: Message) -> None:
        """Send pieces again that the server never received, or whose answer was lost when a connection broke.

        The PING was sent after the request on the same connection, so its answer arrives after the answers to the
        request. The PING's answer contains the numbers of received pieces and of sent answers. If this trainer has sent
        more pieces or has received fewer answers, some were lost. The server counts a repeated piece once.
        """
        note, request = pong.note, self.request
        self.waits_for = glog.clean(note.get("waits_for", ""))
        if not self.pending:
            return
        pieces, answers = request.count_pieces(self), request.count_answers(self)
        arrived = note.get("received") == self.sequence and note.get("pieces") == pieces - len(self.unsent)
        if arrived and notes.get(note, "answers", notes.INTEGER) <= answers - len(self.pending):
            return
        glog.warning(
            f"the connection to {self.name} broke, and '{request.doing}' or its answer was lost; "
            "the request is sent again"
        )
        for piece in range(pieces) if pieces != answers else sorted(self.pending - self.unsent):
            self.send_piece(piece)
