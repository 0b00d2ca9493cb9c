"""The division of the tables' rows among sparse services, and the arrays of rows that are transferred.

`pserver.aggregate.sync_sparse` describes the layout of an array of rows on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle_base.kernels.tables import RowIds, put_rows, take_rows
from paddle_base.runtime.errors import BugError
from pserver.client.server_channel import ServerChannel, ServiceRequest
from pserver.optim.settings import Array, ParameterSpec
from pserver.store.partition import StridedRun
from pserver.store.sparse_partition import Dealt, SparseTable
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, Fetch, Message, Op

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

    def count_bytes(self, service: int, dealt: Sequence[Dealt]) -> int:
        """Return the length in bytes of a service's rows."""
        floats = sum(
            (one.starts[service + 1] - one.starts[service]) * table.width
            for one, table in zip(dealt, self._tables, strict=True)
        )
        return 4 * floats

    def name_rows(self, service: int, dealt: Sequence[Dealt]) -> memoryview:
        """Return the array of a service's row numbers, in reused memory."""
        counts = _count_rows(service, dealt)
        array = self._outbox(service, len(counts) + sum(counts))
        self._name(service, dealt, counts, array)
        return array

    def gather(
        self,
        service: int,
        dealt: Sequence[Dealt],
        rows: Sequence[RowIds],
        gradients: Sequence[Array],
        *,
        in_place: bool,
        shared: memoryview = NO_MEMORY,
    ) -> memoryview:
        """Return an array with a service's row numbers and the gradients of these rows, in reused memory.

        Args: see `SparseClient.begin_push_rows`.  shared: memory that is shared with the service; if the memory is long
            enough, it contains the result.
        """
        counts = _count_rows(service, dealt)
        start = len(counts) + sum(counts)
        array = self._outbox(service, start + self.count_bytes(service, dealt) // 4, shared)
        self._name(service, dealt, counts, array)
        body = np.frombuffer(array, np.float32)
        for number, gradient in enumerate(gradients):
            one = dealt[number]
            order = one.order[one.starts[service] : one.starts[service + 1]]
            size = len(order) * gradient.shape[1]
            target = body[start : start + size].reshape(-1, gradient.shape[1])
            take_rows(gradient, rows[number].take(order) if in_place else order, target)
            start += size
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


class SendRows(ServiceRequest):
    """A request that sends an array of rows to each service.

    The note contains the length of the array if the array has several pieces.

    Args: bodies: the array of each service.
    """

    def __init__(
        self, op: Op, doing: str, bodies: Mapping[ServerChannel, memoryview], argument: int = 0, *, samples: int = 0
    ) -> None:
        super().__init__(op, doing, argument, samples=samples)
        self._bodies = bodies

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return a note with the length of the whole array if the array has several pieces, else an empty note."""
        length = len(self._bodies[channel])
        return {"bytes": length} if protocol.count_pieces(length) > 1 else {}

    def count_pieces(self, channel: ServerChannel) -> int:
        """Return the number of pieces of the service's array."""
        return protocol.count_pieces(len(self._bodies[channel]))

    def payload_for(self, channel: ServerChannel, piece: int) -> Sequence[Buffer]:
        """Return a piece of the service's array."""
        return (protocol.cut(self._bodies[channel], piece),)


class RowTargets:
    """The targets of a batch's rows: the rows of each table, and the arrays that receive them.

    Args: rows, tables, in_place: see `SparseClient.pull`. dealt: these rows, divided among the services.
    """

    def __init__(
        self, rows: Sequence[RowIds], dealt: Sequence[Dealt], tables: Sequence[Array], *, in_place: bool
    ) -> None:
        self._rows, self._dealt, self._tables, self._in_place = rows, dealt, tables, in_place

    def put(self, service: int, received: Array) -> None:
        """Copy the received rows of a service to their targets."""
        start = 0
        for some, one, table in zip(self._rows, self._dealt, self._tables, strict=True):
            order = one.order[one.starts[service] : one.starts[service + 1]]
            size = len(order) * table.shape[1]
            part = received[start : start + size].reshape(-1, table.shape[1])
            put_rows(table, some.take(order) if self._in_place else order, part)
            start += size


class PullRows(SendRows):
    """A request for rows; the rows are copied to their targets when all rows of a service have arrived.

    Args: bodies: for each service, the array of row numbers. lengths: for each service, the bytes of its rows.
    """

    def __init__(
        self,
        doing: str,
        bodies: Mapping[ServerChannel, memoryview],
        lengths: Mapping[ServerChannel, int],
        targets: RowTargets,
    ) -> None:
        super().__init__(Op.FETCH, doing, bodies, Fetch.ROWS)
        self._services = {channel: service for service, channel in enumerate(bodies)}
        self._lengths, self._targets = lengths, targets
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
