"""The trainer's side of sparse services: rows are pulled before a batch and their gradients pushed after it.

    client = RowClient(services, trainer_id=1, num_trainers=2)
    client.join(parameters, optimization)                    # tables: parameters with sparse_update
    client.initialise(values)
    for each pass:
        client.start_pass()
        client.pull(rows, tables)                            # once per batch
        client.begin_push_rows(rows, gradients, samples)
        client.finish_push_rows()
        client.begin_end_of_pass()
        client.finish_end_of_pass()
    client.fetch(values)                                     # all rows, to test or to save
    client.goodbye()

What travels for a batch are the numbers of its rows, and these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.tables import RowIds, put_rows, take_rows
from pserver import protocol
from pserver.blocks import Run
from pserver.channel import Channel
from pserver.client import Client
from pserver.errors import BugError
from pserver.exchange import Ask
from pserver.protocol import Fetch, Message, Op
from pserver.rules import Array, Optimization, ParameterSpec
from pserver.snapshot import Captured
from pserver.table import Dealt, Table


class RowClient(Client):
    """A trainer's connection to all sparse services of a job; it has no memory in common with any.

    Args, Raises: as `Client`.
    """

    def join(self, parameters: Sequence[ParameterSpec], optimization: Optimization) -> None:
        """Connect to every service and be admitted as this trainer.

        Raises: as `Client.join`.
        """
        self._own_addresses = frozenset()
        self._tables = [Table.of(one, len(self._services)) for one in parameters]
        self._last_dealt: tuple[Sequence[RowIds], list[Dealt]] = ((), [])
        self._outboxes: dict[int, Array] = {}  # for each service, what it is sent; free again when it has answered
        super().join(parameters, optimization)

    def initialise(self, values: Array, restored: Captured | None = None) -> Any:
        """Trainer 0 gives its rows to the servers; the others wait for that, and get none.

        Args, Returns, Raises: as `Client.initialise`.
        """
        if self._trainer == 0:
            return super().initialise(values, restored)
        found: dict[str, Any] = {}

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            found.update(answer.note)

        self._request(Ask(Op.FETCH, "wait for the initial values", Fetch.INITIAL, take=take))
        return found.get("own")

    def pull(self, rows: Sequence[RowIds], tables: Sequence[Array], *, in_place: bool = True) -> None:
        """Get rows as they are after the last step.

        Args: rows: of each table, rising.  tables: where row r goes to tables[k][r], or, not `in_place`, rows[k][i] to
            tables[k][i].
        """
        self._last_dealt = ((), [])  # the same array may name other rows now
        dealt = self._deal(rows)
        bodies = [self._describe(service, dealt) for service in range(len(self._channels))]
        lengths = [4 * self._count_floats(service, dealt) for service in range(len(self._channels))]
        inboxes: dict[int, Array] = {}  # of answers of several pieces

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            service = self._channels.index(channel)
            if payload.nbytes == lengths[service]:
                self._place(service, np.frombuffer(payload, np.float32), rows, dealt, tables, in_place=in_place)
                return
            inbox = inboxes.get(service)
            if inbox is None:
                inbox = inboxes[service] = np.empty(lengths[service] // 4, np.float32)
            target = protocol.cut(inbox.view("B").data, answer.piece)
            if len(target) != payload.nbytes:
                raise BugError(f"{channel.name} answers with {payload.nbytes} bytes instead of {len(target)}")
            target[:] = payload
            if len(channel.pending) == 1:
                self._place(service, inbox, rows, dealt, tables, in_place=in_place)

        def count(channel: Channel) -> int:
            return protocol.count_pieces(lengths[self._channels.index(channel)])

        self._request(
            self._ask_with(
                Op.FETCH, f"pull the rows of batch {self._batch + 1} of pass {self._passes}", bodies, Fetch.ROWS
            )._replace(answers=count, take=take)
        )

    def begin_push_rows(
        self,
        rows: Sequence[RowIds],
        gradients: Sequence[Array],
        samples: int,
        *,
        in_place: bool = True,
    ) -> None:
        """Send the gradients of the rows of a batch; `finish_push_rows` waits for the step of all trainers.

        Args: rows, gradients, in_place: as rows and tables of `pull`.  samples: as of `Client.push_pull`.
        """
        dealt = self._deal(rows)
        self._batch += 1
        bodies = [
            self._describe(service, dealt, rows, gradients, in_place=in_place) for service in range(len(self._channels))
        ]
        ask = self._ask_with(Op.PUSH, f"push batch {self._batch} of pass {self._passes}", bodies)
        exchange = self._require_exchange()
        exchange.begin(ask._replace(samples=samples))
        exchange.send_rest()

    def finish_push_rows(self) -> None:
        """Wait until the step is done."""
        self._require_exchange().collect()

    def fetch(self, values: Array) -> None:
        """Get all rows of all tables in place, averaged where the settings say so.

        Shapes: values: all tables, one after the other.
        """
        self._check(values)
        kind = Fetch.AVERAGES if self._optimization.average_window > 0 else Fetch.CURRENT
        self._fetch(kind, "fetch all rows", values)

    def save(self, directory: str) -> None:
        """Let every service write its rows, averaged where the settings say so, into its file in a directory.

        Raises: VolumeError: if one cannot.
        """
        self._request(Ask(Op.SAVE, f"save tables to {directory}", note=lambda *_: {"directory": directory}))

    def load(self, directory: str) -> None:
        """Let every service read its rows, before the first pass.

        Raises: MissingInputError, DataError: if one has no such file.
        """
        self._request(Ask(Op.LOAD, f"load tables from {directory}", note=lambda *_: {"directory": directory}))

    def begin_end_of_pass(self) -> None:
        """Say that this trainer has no more batches; the others' steps go on without it."""
        exchange = self._require_exchange()
        exchange.begin(Ask(Op.FINISH_PASS, f"finish pass {self._passes}"))
        exchange.send_rest()

    def finish_end_of_pass(self) -> None:
        """Wait for the trainers that still have batches; no row is sent."""
        self._require_exchange().collect()
        self._passes += 1

    # ----- Where rows lie -----

    def count_services(self) -> int:
        """Return the number of services."""
        return len(self._services)

    def lay_out(self) -> list[list[Run]]:
        """Return for each service what of the tables, one after the other, lies there."""
        found = []
        for service in range(len(self._services)):
            runs, start, local = [], 0, 0
            for table in self._tables:
                width, count = table.width, table.count(service)
                if count:
                    runs.append(Run(start + table.first(service) * width, local, width, width * table.services, count))
                start, local = start + table.rows * width, local + count * width
            found.append(runs)
        return found

    def _fetch_restored(self, values: Array) -> None:
        """Get nothing: rows come when they are used; to send all now would bring them up to date in two goes."""

    def describe_setup(self) -> dict[str, Any]:
        """Return the note of INITIALISE."""
        return super().describe_setup() | {"by_rows": True}

    def _deal(self, rows: Sequence[RowIds]) -> list[Dealt]:
        known, dealt = self._last_dealt
        if len(known) == len(rows) and all(one is other for one, other in zip(known, rows, strict=True)):
            return dealt  # those of the pull are pushed
        if len(rows) != len(self._tables):
            raise BugError(f"rows of {len(rows)} tables are given, there are {len(self._tables)}")
        for table, some in zip(self._tables, rows, strict=True):
            if some.dtype != np.uint32 or (len(some) and int(some[-1]) >= table.rows):
                raise BugError(f"rows of parameter {table.name} are uint32, rising, and below {table.rows}")
        dealt = [table.deal(some) for table, some in zip(self._tables, rows, strict=True)]
        self._last_dealt = (list(rows), dealt)
        return dealt

    def _count_floats(self, service: int, dealt: Sequence[Dealt]) -> int:
        return sum(
            (one.starts[service + 1] - one.starts[service]) * table.width
            for one, table in zip(dealt, self._tables, strict=True)
        )

    # ----- Arrays of rows, as pserver.row_rounds reads them -----

    def _describe(
        self,
        service: int,
        dealt: Sequence[Dealt],
        rows: Sequence[RowIds] = (),
        gradients: Sequence[Array] = (),
        *,
        in_place: bool = False,
    ) -> memoryview:
        """Return which rows, and with gradients their rows of these, in memory that is used again next time."""
        counts = [one.starts[service + 1] - one.starts[service] for one in dealt]
        floats = self._count_floats(service, dealt) if gradients else 0
        body = self._outbox(service, len(counts) + sum(counts) + floats)
        numbers = body.view(np.uint32)
        numbers[: len(counts)] = counts
        start = len(counts)
        for one, count in zip(dealt, counts, strict=True):
            part = slice(one.starts[service], one.starts[service + 1])
            numbers[start : start + count] = one.local[part]
            start += count
        for number, gradient in enumerate(gradients):
            one, size = dealt[number], counts[number] * gradient.shape[1]
            order = one.order[one.starts[service] : one.starts[service + 1]]
            target = body[start : start + size].reshape(-1, gradient.shape[1])
            take_rows(gradient, rows[number].take(order) if in_place else order, target)
            start += size
        return body.view("B").data

    def _outbox(self, service: int, length: int) -> Array:
        if service not in self._outboxes or len(self._outboxes[service]) < length:
            self._outboxes[service] = np.empty(length + length // 4, np.float32)
        return self._outboxes[service][:length]

    def _place(
        self,
        service: int,
        received: Array,
        rows: Sequence[RowIds],
        dealt: Sequence[Dealt],
        tables: Sequence[Array],
        *,
        in_place: bool,
    ) -> None:
        start = 0
        for some, one, table in zip(rows, dealt, tables, strict=True):
            order = one.order[one.starts[service] : one.starts[service + 1]]
            size = len(order) * table.shape[1]
            part = received[start : start + size].reshape(-1, table.shape[1])
            put_rows(table, some.take(order) if in_place else order, part)
            start += size

    def _ask_with(self, op: Op, doing: str, bodies: Sequence[memoryview], kind: int = -1) -> Ask:
        """Return a request that sends each service its own array, with its length where it goes in pieces."""

        def note(channel: Channel, piece: int) -> Mapping[str, Any]:
            length = len(bodies[self._channels.index(channel)])
            return {"bytes": length} if protocol.count_pieces(length) > 1 else {}

        def count(channel: Channel) -> int:
            return protocol.count_pieces(len(bodies[self._channels.index(channel)]))

        def send(channel: Channel, piece: int) -> memoryview:
            return protocol.cut(bodies[self._channels.index(channel)], piece)

        return Ask(op, doing, max(kind, 0), note=note, pieces=count, send=send)
