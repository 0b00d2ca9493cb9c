"""The division of the tables' rows among sparse services, and the arrays of rows that are transferred.

`pserver.aggregate.sync_sparse` describes the layout of an array of rows on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from paddle_base.kernels.tables import RowIds, put_rows, take_rows
from paddle_base.runtime.errors import BugError
from pserver.client.server_channel import ServerChannel, ServiceRequest
from pserver.optim.settings import Array, ParameterSpec
from pserver.store.partition import StridedRun
from pserver.store.sparse_partition import Dealt, SparseTable
from pserver.wire import protocol
from pserver.wire.protocol import NOTHING, Buffer, Message, Op

NO_MEMORY = memoryview(b"")


class SparseRows:
    """The rows of all tables of a job, divided among the services.

    Args: parameters: the tables.  services: number of services.
    """

    def __init__(self, parameters: Sequence[ParameterSpec], services: int) -> None:
        self._tables = [SparseTable.of(one, services) for one in parameters]
        self._services = services
        self._last_dealt: tuple[Sequence[RowIds], list[Dealt]] = ((), [])
        # memory for the arrays of each service, which is reused after the service has answered
        self._outboxes: dict[int, Array] = {}

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

    def name_rows(self, service: int, dealt: Sequence[Dealt]) -> memoryview:
        """Return the array of a service's row numbers, in reused memory."""
        counts = _count_rows(service, dealt)
        array = self._outbox(service, len(counts) + sum(counts))
        self._name(service, dealt, counts, array)
        return array

    def gather(
        self,
        service: int,
        pushed: PushedRows,
        wanted: Sequence[Dealt] | None = None,
        *,
        shared: memoryview = NO_MEMORY,
    ) -> memoryview:
        """Return an array with a service's row numbers and the gradients of these rows, in reused memory.

        Args: wanted: the rows of a request for rows that follows the gradients, if any. shared: memory that is shared
            with the service; if the memory is long enough, it contains the result.
        """
        counts = _count_rows(service, pushed.dealt)
        names = len(counts) + sum(counts)
        length = names + sum(count * table.width for count, table in zip(counts, self._tables, strict=True))
        more = [] if wanted is None else _count_rows(service, wanted)
        array = self._outbox(service, length + len(more) + sum(more), shared)
        self._name(service, pushed.dealt, counts, array)
        pushed.copy(service, np.frombuffer(array[4 * names : 4 * length], np.float32))
        if wanted is not None:
            self._name(service, wanted, more, array[4 * length :])
        return array

    def _name(self, service: int, dealt: Sequence[Dealt], counts: Sequence[int], array: memoryview) -> None:
        """Write the counts and the numbers of a service's rows to the beginning of an array."""
        numbers = np.frombuffer(array, np.uint32)
        numbers[: len(counts)] = counts
        start = len(counts)
        for one, count in zip(dealt, counts, strict=True):
            numbers[start : start + count] = one.local[one.starts[service] : one.starts[service + 1]]
            start += count

    def _outbox(self, service: int, length: int, shared: memoryview = NO_MEMORY) -> memoryview:
        """Return memory for `length` numbers of 4 bytes."""
        if 4 * length <= len(shared):
            return shared[: 4 * length]
        if service not in self._outboxes or len(self._outboxes[service]) < length:
            self._outboxes[service] = np.empty(length + length // 4, np.float32)
        return self._outboxes[service][:length].view("B").data


def _count_rows(service: int, dealt: Sequence[Dealt]) -> list[int]:
    """Return, for each table, how many of the given rows belong to a service."""
    return [one.starts[service + 1] - one.starts[service] for one in dealt]


class PushedRows:
    """The gradients of the rows of a batch.

    Args: rows, gradients, in_place: see `SparseClient.begin_push_rows`. dealt: these rows, divided among the services.
    """

    def __init__(
        self, rows: Sequence[RowIds], gradients: Sequence[Array], dealt: Sequence[Dealt], *, in_place: bool
    ) -> None:
        self.dealt = dealt
        self._rows, self._gradients, self._in_place = rows, gradients, in_place

    def copy(self, service: int, target: Array) -> None:
        """Copy the gradients of a service's rows, table by table. Shapes: target: (elements of these rows,)."""
        start = 0
        for some, gradient, one in zip(self._rows, self._gradients, self.dealt, strict=True):
            order = one.order[one.starts[service] : one.starts[service + 1]]
            size = len(order) * gradient.shape[1]
            part = target[start : start + size].reshape(-1, gradient.shape[1])
            take_rows(gradient, some.take(order) if self._in_place else order, part)
            start += size


class SendRows(ServiceRequest):
    """A request that sends an array of rows to each service.

    The note contains the length of the array if the array has several pieces.

    Args: bodies: the array of each service. fields: see `ServiceRequest`.
    """

    def __init__(self, op: Op, doing: str, bodies: Mapping[ServerChannel, memoryview], **fields: Any) -> None:
        super().__init__(op, doing, **fields)
        self._bodies = bodies
        self._pieces = {channel: protocol.count_pieces(len(body)) for channel, body in bodies.items()}

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return a note with the length of the whole array if the array has several pieces, else an empty note."""
        return {"bytes": len(self._bodies[channel])} if self._pieces[channel] > 1 else NOTHING

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return self._pieces[channel]

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return a piece of the service's array."""
        body = self._bodies[channel]
        return (body if self._pieces[channel] == 1 else protocol.cut(body, piece),)


@dataclass(frozen=True)
class WantedRows:
    """The rows of each table that a batch uses, and the arrays that receive their values; see `SparseClient.pull`."""

    rows: Sequence[RowIds]
    tables: Sequence[Array]
    _: KW_ONLY
    in_place: bool = True


class RowTargets:
    """The targets of a batch's rows.

    Attributes: dealt: the rows, divided among the services.
    """

    def __init__(self, wanted: WantedRows, dealt: Sequence[Dealt]) -> None:
        self.dealt = dealt
        self._rows, self._tables, self._in_place = wanted.rows, wanted.tables, wanted.in_place

    def count_bytes(self, service: int) -> int:
        """Return the length in bytes of a service's rows."""
        counts = _count_rows(service, self.dealt)
        widths = [int(table.shape[1]) for table in self._tables]
        return 4 * sum(count * width for count, width in zip(counts, widths, strict=True))

    def put(self, service: int, received: Array) -> None:
        """Copy the received rows of a service to their targets."""
        start = 0
        for some, one, table in zip(self._rows, self.dealt, self._tables, strict=True):
            order = one.order[one.starts[service] : one.starts[service + 1]]
            size = len(order) * table.shape[1]
            part = received[start : start + size].reshape(-1, table.shape[1])
            put_rows(table, some.take(order) if self._in_place else order, part)
            start += size


class PullRows(SendRows):
    """A request that is answered with rows, which are copied to their targets when all rows of a service have arrived.

    Args: bodies: for each service, the array that names its rows. targets: where the rows belong. fields: see
        `ServiceRequest`.
    """

    def __init__(
        self, op: Op, doing: str, bodies: Mapping[ServerChannel, memoryview], targets: RowTargets, **fields: Any
    ) -> None:
        super().__init__(op, doing, bodies, **fields)
        self._services = {channel: service for service, channel in enumerate(bodies)}
        self._lengths = {channel: targets.count_bytes(service) for channel, service in self._services.items()}
        self._targets = targets
        # memory for the answer of each service, if the answer has several pieces
        self._inboxes: dict[ServerChannel, Array] = {}

    def count_answers(self, channel: ServerChannel) -> int:
        """Return the number of pieces that contain the service's rows."""
        return protocol.count_pieces(self._lengths[channel])

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Store a piece of the rows; copy the rows to their targets after the last piece.

        Raises: BugError: the piece has the wrong length.
        """
        service, length = self._services[channel], self._lengths[channel]
        if payload.nbytes == length:
            self._targets.put(service, np.frombuffer(payload, np.float32))
            return
        inbox = self._inboxes.get(channel)
        if inbox is None:
            inbox = self._inboxes[channel] = np.empty(length // 4, np.float32)
        target = protocol.cut(inbox.view("B").data, answer.piece)
        if len(target) != payload.nbytes:
            raise BugError(f"{channel.name} answers with {payload.nbytes} bytes instead of {len(target)}")
        target[:] = payload
        if len(channel.pending) == 1:
            self._targets.put(service, inbox)
