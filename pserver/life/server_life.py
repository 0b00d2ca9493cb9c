"""The part of the server's loop that is special to task jobs.

A server answers only while its claim is valid. It takes snapshots between messages, and ends after the job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from paddle_base.runtime import glog
from pserver.life.lease import LeaseKeeper
from pserver.life.snapshots import Snapshots
from pserver.server.service import Service

GOODBYE_S = 10.0  # maximum seconds that a server waits for trainers to leave after the end of the job


class TaskLife:
    """See `ServerLife`.

    Args: interval: seconds between two snapshots.
    """

    def __init__(self, keeper: LeaseKeeper, interval: float) -> None:
        self._keeper, self._interval = keeper, interval
        self._services: Sequence[Service] = ()
        self._snapshots: Snapshots | None = None
        self._is_suspended = False
        self._over_at = 0.0  # time at which this server detected the end of the job

    def begin(self, services: Sequence[Service], snapshots: Snapshots) -> None:
        """Set the server's services and snapshots; called before the server's loop runs."""
        self._services, self._snapshots = services, snapshots

    def begin_turn(self) -> bool:
        """See `ServerLife`. A server answers nothing while its claim may have expired."""
        if self._keeper.error is not None:
            raise self._keeper.error
        is_valid = self._keeper.is_valid
        if is_valid == self._is_suspended:
            self._is_suspended = not is_valid
            if is_valid:
                glog.info(f"the claim of {self._keeper.claim.key} is renewed: this server answers again")
            else:
                glog.warning(
                    f"the claim of {self._keeper.claim.key} was not renewed in time: this server was frozen, or the "
                    "registry cannot be reached; this server answers nothing until the claim is renewed"
                )
        return is_valid

    def end_turn(self) -> bool:
        """See `ServerLife`."""
        return self._snapshots is not None and self._snapshots.turn(self._interval)

    @property
    def is_over(self) -> bool:
        """Whether the job is over, and its trainers have left or have had enough time to leave."""
        if self._keeper.end is None:
            return False
        now = time.monotonic()
        self._over_at = self._over_at or now
        has_trainers = any(service.sessions.list_present() for service in self._services)
        return not has_trainers or now - self._over_at >= GOODBYE_S
