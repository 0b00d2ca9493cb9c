"""The connections of a trainer to the dense services and to the sparse services of an elastic job.

A client can be used until a service is lost. The methods `begin_...` send a request, and `collect` waits for the
answers. A trainer can therefore wait for dense and sparse services at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle_base.kernels.tables import RowIds
from pserver.client.client import Client
from pserver.client.elastic.options import ElasticOptions
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
from pserver.client.membership import ClientOptions, JobMember
from pserver.client.request import FetchVector, ServiceRequest
from pserver.client.server_channel import ServerChannel
from pserver.client.sparse_client import SparseClient
from pserver.optim.settings import Array
from pserver.wire.protocol import Fetch, Op
from pserver.wire.views import EnterAnswer, MembershipView, RoundKey, write_commit, write_push


class ElasticMember(JobMember):
    """The common part of dense and sparse clients of an elastic job.

    Args: services: host and port of each service, grouped by server.  options: the fields of `ElasticOptions`.
    """

    def _read_options(self, options: Mapping[str, Any]) -> ClientOptions:
        return ElasticOptions(**options)

    def give(self, values: Array) -> None:
        """Send initial values; a service that already has values ignores them."""
        self._check_vector(values)
        self._send_initial_values(values, None)

    def enter(self, view: MembershipView) -> list[EnterAnswer]:
        """Enter a view on all services; return the state of the rounds of each service.

        Raises: EpochChangedError: a later view was entered on a service.
        """
        request = EnterRequest(view)
        self._request(request)
        return [request.answers[channel] for channel in self._channels]

    def tell_view(self) -> None:
        """Send a heartbeat with the current view to every service immediately; any thread may call this method."""
        heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.hurry()

    def leave(self, timeout: float) -> None:
        """Send GOODBYE to every service, except to services that are lost.

        Raises: LostPeerError: a service does not answer in time, or is lost.
        """
        self._request(Goodbye(self._channels), timeout)

    def collect(self) -> int:
        """Wait for the answers to the request that a `begin_...` method sent; return the flags of the answers."""
        return self._require_fan_out().collect()

    def _begin(self, request: ServiceRequest) -> None:
        """Send a request; `collect` waits for its answers."""
        fan_out = self._require_fan_out()
        fan_out.begin(request)
        fan_out.send_rest()

    def _choose(self, services: Collection[int]) -> list[ServerChannel]:
        return [self._channels[number] for number in services]


class ElasticClient(ElasticMember, Client):
    """The connections to the dense services. For errors and thread safety, see `Client`."""

    def begin_counted_push(self, gradient: Array, values: Array, samples: int, note: Mapping[str, Any]) -> None:
        """Begin to push a gradient that the server applies alone. The new values are received in `values`."""
        request = CountedPush(f"push gradient {note['push']}", gradient, values, samples, note)
        self._require_fan_out().begin(request)

    def begin_round_push(
        self, gradient: Array, samples: int, key: RoundKey, pass_number: int, is_current: Check
    ) -> None:
        """Begin to push a gradient for a round. The trainer receives the new values only after it has sent COMMIT."""
        note = write_push(key, pass_number)
        self._require_fan_out().begin(RoundPush(f"push for {key}", gradient, samples, note, is_current))

    def begin_commit(self, key: RoundKey, view: int, services: Collection[int], values: Array) -> None:
        """Commit a round on some services, and begin to receive their values in place.

        Args: view: the epoch that this trainer entered last. services: numbers of the services.
        """
        note = write_commit(key, view)
        self._begin(CommitValues(f"commit {key}", note, self._choose(services), values))

    def fetch_now(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Receive the current values, or their averages, in place.

        Args: pass_number: the current pass; all trainers have completed all earlier passes.
        """
        self._check_vector(values)
        kind = Fetch.AVERAGES if averaged else Fetch.CURRENT
        doing = "fetch the averages" if averaged else "fetch the values"
        self._request(FetchVector(Op.FETCH, doing, values, kind, note={"pass": pass_number}))


class ElasticSparseClient(ElasticMember, SparseClient):
    """The connections to the sparse services. For errors and thread safety, see `Client`."""

    def begin_counted_rows(
        self, rows: Sequence[RowIds], gradients: Sequence[Array], samples: int, note: Mapping[str, Any]
    ) -> None:
        """Begin to push gradients of rows for a separate step."""
        bodies = self._gather(rows, gradients, in_place=True)
        self._begin(CountedRows(f"push gradient {note['push']}", bodies, samples, note))

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
        bodies = self._gather(rows, gradients, in_place=True)
        note = write_push(key, pass_number)
        self._begin(RoundRows(f"push for {key}", bodies, samples, note, is_current))

    def begin_commit(self, key: RoundKey, view: int, services: Collection[int]) -> None:
        """Commit a round on some services."""
        self._begin(CommitRound(f"commit {key}", write_commit(key, view), self._choose(services)))

    def fetch_now(self, values: Array, pass_number: int, *, averaged: bool = False) -> None:
        """Receive all rows of all tables in place; see `ElasticClient.fetch_now`."""
        self._check_vector(values)
        kind = Fetch.AVERAGES if averaged else Fetch.CURRENT
        self._request(FetchVector(Op.FETCH, "fetch all rows", values, kind, note={"pass": pass_number}))
