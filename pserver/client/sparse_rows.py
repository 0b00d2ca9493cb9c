"""The division of the tables' rows among sparse services, and the arrays of rows that are transferred.

`pserver.aggregate.sync_sparse` describes the layout of an array of rows on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from paddle_base.kernels.row_arrays import TableRows, measure_numbers, measure_rows, pack_rows, unpack_rows
from paddle_base.kernels.tables import RowIds
from paddle_base.runtime.errors import BugError
from pserver.client.server_channel import PieceAreas, ServerChannel, ServiceRequest, VectorTransfer
from pserver.optim.settings import Array, ParameterSpec
from pserver.store.partition import StridedRun
from pserver.store.sparse_partition import Dealt, SparseTable
from pserver.wire import protocol
from pserver.wire.protocol import NOTHING, Buffer, Message, MessageFlag, Op

NO_MEMORY = memoryview(b"")
CACHE_LINE = 64  # bytes; the arrays of two services share no line
_NO_AREAS = np.zeros((0, 3), np.int64)
_NO_ANSWER = PieceAreas([0], _NO_AREAS, np.zeros(2, np.int64))


class SparseRows:
    """The rows of all tables of a job, divided among the services.

    Args: parameters: the tables.  services: number of services.
    """

    def __init__(self, parameters: Sequence[ParameterSpec], services: int) -> None:
        self._tables = [SparseTable.of(one, services) for one in parameters]
        self._services = services
        self._last_dealt: tuple[Sequence[RowIds], list[Dealt]] = ((), [])
        # memory for the arrays of all services, which is reused after the services have answered
        self._outbox: Array = np.empty(0, np.uint8)

    def lay_out(self) -> list[list[StridedRun]]:
        """Return the elements of the tables that each service stores, one table after the other."""
        found = []
        for service in range(self._services):
            runs, start, local = [], 0, 0
            for table in self._tables:
                width, count = table.width, table.count(service)
                if count:
                    first = start + table.first(service) * width
                    runs.append(StridedRun(first, local, width, width * table.services, count))
                start, local = start + table.rows * width, local + count * width
            found.append(runs)
        return found

    def forget(self) -> None:
        """Delete the stored result of `deal`, because the arrays of its last call may contain other rows now."""
        self._last_dealt = ((), [])

    def deal(self, rows: Sequence[RowIds]) -> list[Dealt]:
        """Divide the rows of each table among the services. If the arrays are the same objects as in the last call,
        return the stored result of that call.

        Raises: BugError: the arrays do not name rows of these tables.
        """
        known, dealt = self._last_dealt
        if len(known) == len(rows) and all(one is other for one, other in zip(known, rows, strict=True)):
            return dealt  # a trainer pushes gradients of the rows that it has pulled
        if len(rows) != len(self._tables):
            raise BugError(f"rows of {len(rows)} tables are given, but there are {len(self._tables)} tables")
        for table, some in zip(self._tables, rows, strict=True):
            if some.dtype != np.uint32 or (len(some) and int(some[-1]) >= table.rows):
                raise BugError(
                    f"the row numbers of parameter {table.name} must be ascending uint32 numbers below {table.rows}"
                )
        dealt = [table.deal(some) for table, some in zip(self._tables, rows, strict=True)]
        self._last_dealt = (list(rows), dealt)
        return dealt

    def pack(
        self, channels: Sequence[ServerChannel], pushed: Sequence[TableRows], wanted: Sequence[TableRows] = ()
    ) -> PackedRows:
        """Return the arrays of all services, in reused memory.

        Args: channels: the channels of the services. pushed: the tables whose row numbers and rows come first; may be
            empty. wanted: the tables whose row numbers follow; may be empty.
        """
        lengths = []
        for service in range(self._services):
            length = measure_numbers(pushed, service) + measure_rows(pushed, service) if pushed else 0
            lengths.append(length + (measure_numbers(wanted, service) if wanted else 0))
        boxes = [channel.memory.outbox if channel.memory and pushed else NO_MEMORY for channel in channels]
        starts, end = [], 0
        for length, shared in zip(lengths, boxes, strict=True):
            starts.append(-1 if 0 < length <= len(shared) else end)
            end += 0 if starts[-1] < 0 else -(-length // CACHE_LINE) * CACHE_LINE
        if len(self._outbox) < end:
            self._outbox = np.empty(end + end // 4, np.uint8)
        data, arrays = self._outbox.data, {}
        for service, (channel, length, start) in enumerate(zip(channels, lengths, starts, strict=True)):
            array = boxes[service][:length] if start < 0 else data[start : start + length]
            pack_rows(array, service, pushed, wanted)
            arrays[channel] = PackedArray(array, start)
        return PackedRows(self._outbox, arrays)


class PackedArray(NamedTuple):
    """The array of one service. `start`: its place in the memory of all services; -1: it is in shared memory."""

    data: memoryview
    start: int


class PackedRows(NamedTuple):
    """The arrays of a request. `memory`: the memory of all arrays that are not in shared memory. Shape: (bytes,)."""

    memory: Array
    arrays: Mapping[ServerChannel, PackedArray]


def name_places(
    rows: Sequence[RowIds], matrices: Sequence[Array], dealt: Sequence[Dealt], *, in_place: bool
) -> list[TableRows]:
    """Return the divided rows of each table, and where they are.

    Args: rows, matrices, in_place: as `rows`, `tables` and `in_place` of `SparseClient.pull`.
    """
    return [
        TableRows(one.order, one.local, one.starts, matrix, matrix.shape[1], some if in_place else None)
        for some, matrix, one in zip(rows, matrices, dealt, strict=True)
    ]


def _list_pieces(length: int, start: int, note: Mapping[str, Any] = NOTHING) -> PieceAreas:
    """Return the pieces of an array. `start`: its place in the memory of all services; -1: it is in shared memory."""
    count = protocol.count_pieces(length)
    if count == 1:
        sizes, firsts = [length], [start]
    else:
        firsts = [start + piece * protocol.PIECE_BYTES for piece in range(count)]
        sizes = [*[protocol.PIECE_BYTES] * (count - 1), length - (count - 1) * protocol.PIECE_BYTES]
    if start < 0:
        return PieceAreas(sizes, _NO_AREAS, np.zeros(count + 1, np.int64), is_local=True, note=note)
    areas = np.array([(first, 0, size) for first, size in zip(firsts, sizes, strict=True)], np.int64)
    return PieceAreas(sizes, areas, np.arange(count + 1), note=note)


class SendRows(ServiceRequest):
    """A request that sends an array of rows to each service.

    The note contains the length of the array if the array has several pieces.

    Args: packed: the array of each service. fields: see `ServiceRequest`.
    """

    def __init__(self, op: Op, doing: str, packed: PackedRows, **fields: Any) -> None:
        super().__init__(op, doing, **fields)
        self._packed = packed
        self._pieces = {channel: protocol.count_pieces(len(one.data)) for channel, one in packed.arrays.items()}
        self._areas: dict[ServerChannel, tuple[PieceAreas, PieceAreas]] = {}

    def describe_transfer(self) -> VectorTransfer | None:
        """Return the memory of all arrays; the answers contain no elements."""
        return VectorTransfer(self._packed.memory, None)

    def list_areas(self, channel: ServerChannel) -> tuple[PieceAreas, PieceAreas]:
        """Return the pieces of the service's array, and those of its answer."""
        found = self._areas.get(channel)
        if found is None:
            data, start = self._packed.arrays[channel]
            sent = _list_pieces(len(data), start, self.note_for(channel, 0))
            found = self._areas[channel] = (sent, self._list_answers(channel))
        return found

    def _list_answers(self, channel: ServerChannel) -> PieceAreas:
        return _NO_ANSWER

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return a note with the length of the whole array if the array has several pieces, else an empty note."""
        return {"bytes": len(self._packed.arrays[channel].data)} if self._pieces[channel] > 1 else NOTHING

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return self._pieces[channel]

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return a piece of the service's array."""
        data = self._packed.arrays[channel].data
        return (data if self._pieces[channel] == 1 else protocol.cut(data, piece),)


@dataclass(frozen=True)
class WantedRows:
    """The rows of each table that a batch uses, and the arrays that receive their values; see `SparseClient.pull`."""

    rows: Sequence[RowIds]
    tables: Sequence[Array]
    _: KW_ONLY
    in_place: bool = True


class RowInboxes:
    """Memory for the rows that the services answer, which is reused after the rows are used."""

    def __init__(self) -> None:
        self.memory: Array = np.empty(0, np.uint8)

    def reserve(self, length: int) -> None:
        """Make the memory at least `length` bytes long; its contents are lost if it grows."""
        if len(self.memory) < length:
            self.memory = np.empty(length + length // 4, np.uint8)


class PullRows(SendRows):
    """A request that is answered with rows, which are copied to their targets when all rows of a service have arrived.

    The rows of a service arrive in the memory that it shares with this trainer, or in that of all services.

    Args: packed: for each service, the array that names its rows. targets: where the rows belong. inboxes: the memory
        of all services. fields: see `ServiceRequest`.
    """

    def __init__(
        self,
        op: Op,
        doing: str,
        packed: PackedRows,
        targets: Sequence[TableRows],
        inboxes: RowInboxes,
        **fields: Any,
    ) -> None:
        super().__init__(op, doing, packed, **fields)
        self._targets = targets
        self._services = {channel: service for service, channel in enumerate(packed.arrays)}
        places, end = {}, 0
        for channel, service in self._services.items():
            length = measure_rows(targets, service)
            is_shared = channel.memory is not None and 0 < length <= len(channel.memory.inbox)
            places[channel] = (-1 if is_shared else end, length)
            end += 0 if is_shared else -(-length // CACHE_LINE) * CACHE_LINE
        inboxes.reserve(end)
        self._memory, self._places = inboxes.memory, places

    def describe_transfer(self) -> VectorTransfer:
        """Return the memory of all arrays, and of all answers."""
        return VectorTransfer(self._packed.memory, self._memory)

    def _list_answers(self, channel: ServerChannel) -> PieceAreas:
        start, length = self._places[channel]
        return _list_pieces(length, start)

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's rows."""
        return protocol.count_pieces(self._places[channel][1])

    def _find(self, channel: ServerChannel) -> memoryview:
        """Return the memory for the rows of a service."""
        start, length = self._places[channel]
        if start >= 0:
            return self._memory.data[start : start + length]
        return NO_MEMORY if channel.memory is None else channel.memory.inbox[:length]

    def place_for(self, channel: ServerChannel, piece: int) -> list[memoryview]:
        """Return the memory of a piece."""
        return [protocol.cut(self._find(channel), piece)]

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Store a piece of the rows, unless it is already in its place in the shared memory.

        Raises: BugError: the piece has the wrong length.
        """
        target = protocol.cut(self._find(channel), answer.piece)
        if len(target) != payload.nbytes:
            raise BugError(f"{channel.name} answers with {payload.nbytes} bytes instead of {len(target)}")
        if self._places[channel][0] >= 0 or not answer.flags & MessageFlag.LOCAL:
            target[:] = payload

    def complete(self, channel: ServerChannel) -> None:
        """Copy the rows of a service to their targets."""
        unpack_rows(self._find(channel), self._services[channel], self._targets)
