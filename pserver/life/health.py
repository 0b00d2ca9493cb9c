"""The health pages of a server of a task job, which exist before the server has an index."""

from __future__ import annotations

import time
from collections.abc import Iterator

from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.health.liveness import LIVENESS, Liveness
from paddle_base.runtime.health.metrics import Metric, Sample, describe_build
from pserver.life.lease import LeaseKeeper
from pserver.life.snapshots import Snapshots
from pserver.server.event_loop import Server
from pserver.server.server_metrics import ServerMetrics

INDEX = Metric("paddle_pserver_index", "index of the server in a task job; -1 while it waits for an index")
CLAIMED = Metric(
    "paddle_pserver_claimed", "1 while the server of a task job has a valid claim of its index, and may answer"
)
SNAPSHOTS = Metric("paddle_pserver_snapshots_total", "snapshots that the server of a task job has stored")
FAILED_SNAPSHOTS = Metric("paddle_pserver_failed_snapshots_total", "snapshots that the server could not store")
SNAPSHOT_AGE = Metric("paddle_pserver_snapshot_age_seconds", "seconds since the last snapshot was stored or recovered")


class TaskHealth:
    """The content of the health pages.

    `waits_for` says what the server waits for before it serves; it is empty while the server serves. The other
    attributes are set when the index, the server, the keeper of its claim and the snapshots exist.
    """

    def __init__(self, job: JobEnvironment, name: str, liveness: Liveness = LIVENESS) -> None:
        self.waits_for = "it has not asked the registry yet"
        self.index = -1
        self.server: Server | None = None
        self.keeper: LeaseKeeper | None = None
        self.snapshots: Snapshots | None = None
        self._job, self._name, self._liveness = job, name, liveness

    def why_stuck(self) -> str:
        """Return why the server is stuck; "" if its loop has run recently, or if the server waits for an index."""
        server = self.server
        return ServerMetrics(server, self._job.stuck_timeout, self._liveness).why_stuck() if server else ""

    def why_not_ready(self) -> str:
        """Return why trainers cannot join; "" if they can.

        A server without values must be ready, because the trainer that sends the values waits for all servers.
        """
        if self.waits_for:
            return self.waits_for
        keeper = self.keeper
        return "" if keeper and keeper.is_valid else "the claim of its index is not renewed"

    def read(self) -> Iterator[Sample]:
        """Yield the current values of the metrics."""
        server, keeper, snapshots = self.server, self.keeper, self.snapshots
        yield Sample(INDEX, self.index)
        yield Sample(CLAIMED, keeper is not None and keeper.is_valid)
        if snapshots is not None:
            yield Sample(SNAPSHOTS, snapshots.stored)
            yield Sample(FAILED_SNAPSHOTS, snapshots.failed)
            yield Sample(SNAPSHOT_AGE, time.monotonic() - snapshots.stored_at)
        if server is None:
            yield describe_build("pserver", self._name, "")
        else:
            yield from ServerMetrics(server, self._job.stuck_timeout, self._liveness).read()
