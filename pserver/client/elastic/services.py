"""All services of an elastic job, dense and sparse, that one trainer has joined.

The trainer can use the services until a service is lost. Then it must join all services again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from paddle_base.kernels.tables import RowIds
from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from pserver.client.elastic.clients import ElasticClient, ElasticSparseClient
from pserver.client.elastic.options import ElasticOptions
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.wire.views import EnterAnswer, MembershipView, RoundKey

LEAVE_TIMEOUT = 3.0  # maximum seconds for the answers to GOODBYE

_Kind = TypeVar("_Kind", ElasticClient, ElasticSparseClient)


class ServiceAddress(NamedTuple):
    """The address of a service, and the attempt of its server."""

    host: str
    port: int
    attempt: str


@dataclass(frozen=True)
class ElasticModel:
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

    Args: dense, sparse: addresses of the services, grouped by server.  options: the fields of `ElasticOptions` that
        all clients share.
    Raises: PeerUnreachableError: a server does not answer, or belongs to another job or attempt.
        ConfigError: a server or another trainer has a different model.
    """

    def __init__(
        self,
        dense: Sequence[ServiceAddress],
        sparse: Sequence[ServiceAddress],
        model: ElasticModel,
        **options: Any,
    ) -> None:
        self._model = model
        self.dense = _make(ElasticClient, dense, options)
        self.sparse = _make(ElasticSparseClient, sparse, options) if model.tables else None
        try:
            self.dense.join(model.dense, model.optimization)
            if self.sparse is not None:
                self.sparse.join(model.tables, model.optimization)
        except BaseException:
            self.close()
            raise
        self._dense_count, self._count = len(dense), len(dense) + (len(sparse) if self.sparse is not None else 0)

    # ----- Values -----

    def give(self, values: Array, tables: Array) -> None:
        """Send initial values to all services; services that already have values ignore them."""
        self.dense.send_initial_values(values)
        if self.sparse is not None:
            self.sparse.send_initial_values(tables)

    def fetch(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Fetch all dense values in place; for the arguments, see `ElasticClient.fetch_now`."""
        self.dense.fetch_now(values, pass_number, averaged=averaged)

    def fetch_tables(self, tables: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Fetch all rows of all tables in place."""
        if self.sparse is not None:
            self.sparse.fetch_now(tables, pass_number, averaged=averaged)

    def pull(self, rows: Sequence[RowIds], tables: Sequence[Array]) -> None:
        """Fetch the values that rows have after the last step; see `SparseClient.pull`."""
        if self.sparse is not None:
            self.sparse.pull(rows, tables)

    # ----- Pushes -----

    def push_from(self, start: int) -> None:
        """Push the pieces whose elements have all been computed; see `Client.push_from`."""
        self.dense.push_from(start)

    def finish_push(self, begin_rows: Callable[[ElasticSparseClient], None]) -> None:
        """Push the rest of the dense gradient and the gradients of rows, and wait for all answers."""
        if self.sparse is not None:
            begin_rows(self.sparse)
        self.dense.finish()
        if self.sparse is not None:
            self.sparse.collect()

    # ----- Rounds -----

    def enter(self, view: MembershipView) -> list[EnterAnswer]:
        """Enter a view on all services; return the answers of the dense services, then of the sparse services."""
        answers = self.dense.enter(view)
        return answers if self.sparse is None else [*answers, *self.sparse.enter(view)]

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
        chosen = range(self._count) if services is None else services
        if self.sparse is not None:
            self.sparse.begin_commit(key, view, [one - self._dense_count for one in chosen if one >= self._dense_count])
        self.dense.begin_commit(key, view, [one for one in chosen if one < self._dense_count], values)
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
                client.leave(LEAVE_TIMEOUT)
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

    def _list(self) -> list[ElasticClient | ElasticSparseClient]:
        return [self.dense] if self.sparse is None else [self.dense, self.sparse]


def _make(kind: type[_Kind], services: Sequence[ServiceAddress], options: dict[str, Any]) -> _Kind:
    addresses = [(one.host, one.port) for one in services]
    return kind(addresses, ElasticOptions(attempts=[one.attempt for one in services], num_trainers=0, **options))
