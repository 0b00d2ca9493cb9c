"""The connections of a trainer to the dense services and to the sparse services of an elastic job.

A client can be used until a service is lost. The methods `begin_...` send a request, and `collect` waits for the
answers. A trainer can therefore wait for dense and sparse services at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle_base.kernels.tables import RowIds
from pserver.client.client import BaseClient, Client
from pserver.client.elastic.requests import (
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
from pserver.client.server_channel import ServerChannel
from pserver.client.sparse_client import SparseClient
from pserver.optim.settings import Array
from pserver.wire.protocol import Fetch
from pserver.wire.views import EnterAnswer, MembershipView, RoundKey, write_commit, write_push


class ElasticClientBase(BaseClient):
    """The common part of dense and sparse clients of an elastic job.

    Args: services: host and port of each service, grouped by server.  options: an `ElasticOptions`.
    """

    def enter(self, view: MembershipView) -> list[EnterAnswer]:
        """Enter a view on all services; return the state of the rounds of each service.

        Raises: EpochChangedError: a later view was entered on a service.
        """
        request = EnterRequest(view)
        self.request(request)
        return [request.answers[channel] for channel in self.channels]

    def leave(self, timeout: float) -> None:
        """Send GOODBYE to every service, except to services that are lost.

        Raises: LostPeerError: a service does not answer in time, or is lost.
        """
        self.request(Goodbye(self.channels), timeout)

    def _choose(self, services: Collection[int]) -> list[ServerChannel]:
        return [self.channels[number] for number in services]


class ElasticClient(ElasticClientBase, Client):
    """The connections to the dense services. For errors and thread safety, see `Client`."""

    def begin_counted_push(self, gradient: Array, values: Array, samples: int, note: Mapping[str, Any]) -> None:
        """Begin to push a gradient that the server applies alone. The new values are received in `values`."""
        self.begin(CountedPush(f"push gradient {note['push']}", gradient, values, samples, note))

    def begin_round_push(
        self, gradient: Array, samples: int, key: RoundKey, pass_number: int, is_current: Check
    ) -> None:
        """Begin to push a gradient for a round. The trainer receives the new values only after it has sent COMMIT."""
        note = write_push(key, pass_number)
        self.begin(RoundPush(f"push for {key}", gradient, samples, note, is_current))

    def begin_commit(self, key: RoundKey, view: int, services: Collection[int], values: Array) -> None:
        """Commit a round on some services, and begin to receive their values in place.

        Args: view: the epoch that this trainer entered last. services: numbers of the services.
        """
        note = write_commit(key, view)
        self.begin_all(CommitValues(f"commit {key}", note, self._choose(services), values))

    def fetch_now(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Receive the current values, or their averages, in place.

        Args: pass_number: the current pass; all trainers have completed all earlier passes.
        """
        doing = "fetch the averages" if averaged else "fetch the values"
        self.fetch_vector(doing, Fetch.AVERAGES if averaged else Fetch.CURRENT, values, {"pass": pass_number})


class ElasticSparseClient(ElasticClientBase, SparseClient):
    """The connections to the sparse services. For errors and thread safety, see `Client`."""

    def begin_counted_rows(
        self, rows: Sequence[RowIds], gradients: Sequence[Array], samples: int, note: Mapping[str, Any]
    ) -> None:
        """Begin to push gradients of rows for a separate step."""
        bodies = self.gather(rows, gradients)
        self.begin_all(CountedRows(f"push gradient {note['push']}", bodies, samples, note))

    def begin_round_rows(
        self,
        rows: Sequence[RowIds],
        gradients: Sequence[Array],
        samples: int,
        key: RoundKey,
        pass_number: int,
        is_current: Check,
    ) -> None:
        """Begin to push gradients of rows for a round."""
        bodies = self.gather(rows, gradients)
        note = write_push(key, pass_number)
        self.begin_all(RoundRows(f"push for {key}", bodies, samples, note, is_current))

    def begin_commit(self, key: RoundKey, view: int, services: Collection[int]) -> None:
        """Commit a round on some services."""
        self.begin_all(CommitRound(f"commit {key}", write_commit(key, view), self._choose(services)))

    def fetch_now(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Receive all rows of all tables in place; see `ElasticClient.fetch_now`."""
        kind = Fetch.AVERAGES if averaged else Fetch.CURRENT
        self.fetch_vector("fetch all rows", kind, values, {"pass": pass_number})
