"""All services of a task job, dense and sparse, that one trainer has joined.

The trainer can use the services until a service is lost. Then it must join all services again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paddle_base.kernels.tables import RowIds
from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from pserver.client.client import Client
from pserver.client.sparse_client import SparseClient
from pserver.client.tasks.options import TaskOptions
from pserver.client.tasks.requests import (
    Check,
    CommitRound,
    CommitValues,
    CountedPush,
    CountedRows,
    EnterRequest,
    Goodbye,
    RoundPush,
    RoundRows,
)
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.wire.protocol import Fetch
from pserver.wire.views import EnterAnswer, MembershipView, RoundKey, write_commit, write_push

LEAVE_TIMEOUT = 3.0  # maximum seconds for the answers to GOODBYE


class ServiceAddress(NamedTuple):
    """The address of a service, and the attempt of its server."""

    host: str
    port: int
    attempt: str


@dataclass(frozen=True)
class TaskModel:
    """The dense parameters and the tables of a job, and its optimization settings."""

    dense: Sequence[ParameterSpec]
    tables: Sequence[ParameterSpec]
    optimization: Optimization

    def digest(self) -> str:
        """Return a text that differs between two different models."""
        return "-".join(f"{partition.digest(one)}.{partition.count_elements(one)}" for one in (self.dense, self.tables))


@dataclass(frozen=True)
class BatchGradient:
    """The gradient of a batch, and the memory for the new values.

    Shapes: gradient, values: the elements of all dense parameters. rows: the row numbers of each table, ascending.
        row_gradients: one array for each table; the gradient of row r of table k is row_gradients[k][r].
    """

    gradient: Array
    values: Array
    samples: int
    rows: Sequence[RowIds] = ()
    row_gradients: Sequence[Array] = ()


class JoinedServices:
    """All services of a job, after this trainer has joined them.

    Args: dense, sparse: addresses of the services, grouped by server.  options: the fields of `TaskOptions` that
        all clients share.
    Raises: PeerUnreachableError: a server does not answer, or belongs to another job or attempt.
        ConfigError: a server or another trainer has a different model.
    """

    def __init__(
        self,
        dense: Sequence[ServiceAddress],
        sparse: Sequence[ServiceAddress],
        model: TaskModel,
        **options: Any,
    ) -> None:
        self._model = model
        self.dense = Client(*_describe(dense, options))
        self.sparse = SparseClient(*_describe(sparse, options)) if model.tables else None
        try:
            self.dense.join(model.dense, model.optimization)
            if self.sparse is not None:
                self.sparse.join(model.tables, model.optimization)
        except BaseException:
            self.close()
            raise

    # ----- Values -----

    def give(self, values: Array, tables: Array) -> None:
        """Send initial values to all services; services that already have values ignore them."""
        self.dense.send_initial_values(values)
        if self.sparse is not None:
            self.sparse.send_initial_values(tables)

    def fetch(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Fetch all dense values, or their averages, in place.

        Args: pass_number: the current pass; all trainers have completed all earlier passes.
        """
        kind, doing = (Fetch.AVERAGES, "fetch the averages") if averaged else (Fetch.CURRENT, "fetch the values")
        self.dense.fetch_vector(doing, kind, values, {"pass": pass_number})

    def fetch_tables(self, tables: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Fetch all rows of all tables in place."""
        if self.sparse is not None:
            kind = Fetch.AVERAGES if averaged else Fetch.CURRENT
            self.sparse.fetch_vector("fetch all rows", kind, tables, {"pass": pass_number})

    def pull(self, rows: Sequence[RowIds], tables: Sequence[Array]) -> None:
        """Fetch the values that rows have after the last step; see `SparseClient.pull`."""
        if self.sparse is not None:
            self.sparse.pull(rows, tables)

    # ----- Pushes -----

    def begin_counted_push(self, gradient: Array, values: Array, samples: int, note: Mapping[str, Any]) -> None:
        """Begin to push a gradient that each service applies alone. The new values are received in `values`."""
        self.dense.begin(CountedPush(f"push gradient {note['push']}", gradient, values, samples, note))

    def begin_counted_rows(self, batch: BatchGradient, note: Mapping[str, Any]) -> None:
        """Begin to push gradients of rows for a separate step."""
        if self.sparse is not None:
            packed = self.sparse.pack(batch.rows, batch.row_gradients)
            self.sparse.begin_all(CountedRows(f"push gradient {note['push']}", packed, batch.samples, note))

    def begin_round_push(
        self, gradient: Array, samples: int, key: RoundKey, pass_number: int, is_current: Check
    ) -> None:
        """Begin to push a gradient for a round. The trainer receives the new values only after it has sent COMMIT."""
        note = write_push(key, pass_number)
        self.dense.begin(RoundPush(f"push for {key}", gradient, samples, note, is_current))

    def begin_round_rows(self, batch: BatchGradient, key: RoundKey, pass_number: int, is_current: Check) -> None:
        """Begin to push gradients of rows for a round."""
        if self.sparse is not None:
            packed, note = self.sparse.pack(batch.rows, batch.row_gradients), write_push(key, pass_number)
            self.sparse.begin_all(RoundRows(f"push for {key}", packed, batch.samples, note, is_current))

    def push_from(self, start: int) -> None:
        """Push the pieces whose elements have all been computed; see `Client.push_from`."""
        self.dense.push_from(start)

    def finish_push(self) -> None:
        """Push the rest of the dense gradient, and wait for all answers, also to the rows that were pushed before."""
        self.dense.finish()
        if self.sparse is not None:
            self.sparse.collect()

    # ----- Rounds -----

    def enter(self, view: MembershipView) -> list[EnterAnswer]:
        """Enter a view on all services; return the answers of the dense services, then of the sparse services.

        Raises: EpochChangedError: a later view was entered on a service.
        """
        found: list[EnterAnswer] = []
        for client in self._list():
            request = EnterRequest(view)
            client.request(request)
            found += [request.answers[channel] for channel in client.channels]
        return found

    def tell_view(self) -> None:
        """Send the newest view to all services immediately; any thread may call this method.

        A service then ends the rounds of earlier views, for which a trainer may be waiting.
        """
        for client in self._list():
            client.member.hurry()

    def commit(self, key: RoundKey, view: int, values: Array, services: Collection[int] | None = None) -> None:
        """Commit a round on some services, and receive their values in place.

        Args: view: the epoch that this trainer entered last. services: numbers of the services, in the order of
            the answers to `enter`; None: all services.
        """
        channels = [channel for client in self._list() for channel in client.channels]
        chosen = channels if services is None else [channels[number] for number in services]
        doing, note = f"commit {key}", write_commit(key, view)
        if self.sparse is not None:
            self.sparse.begin_all(CommitRound(doing, note, chosen))
        self.dense.begin_all(CommitValues(doing, note, chosen, values))
        self.dense.collect()
        if self.sparse is not None:
            self.sparse.collect()

    # ----- Leaving -----

    def check(self) -> None:
        """Check that the heartbeats have found no lost server.

        Raises: LostPeerError: a server is lost; the message names the server.
        """
        self.dense.check()
        if self.sparse is not None:
            self.sparse.check()

    def leave(self) -> None:
        """Send GOODBYE to all servers, and close. A server that does not receive GOODBYE removes this trainer later."""
        for client in self._list():
            try:
                client.request(Goodbye(client.channels), LEAVE_TIMEOUT)
            except PaddleError as exc:
                glog.info(f"a parameter server has not received the goodbye: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Send all servers the reason why this trainer leaves, and close without waiting for answers."""
        for client in self._list():
            client.abort(reason)

    def close(self) -> None:
        """Close all connections without a message; repeated calls are allowed."""
        for client in self._list():
            client.close()

    def _list(self) -> list[Client | SparseClient]:
        return [self.dense] if self.sparse is None else [self.dense, self.sparse]


def _describe(
    services: Sequence[ServiceAddress], options: Mapping[str, Any]
) -> tuple[list[tuple[str, int]], TaskOptions]:
    """Return the addresses and the options of a client."""
    attempts = [one.attempt for one in services]
    return [(one.host, one.port) for one in services], TaskOptions(attempts=attempts, num_trainers=0, **options)
