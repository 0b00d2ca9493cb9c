"""The identity and settings of a trainer of a task job, and the function that interrupts its waits for servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime.errors import PaddleError
from pserver.client.membership import ClientOptions
from pserver.wire.protocol import NOTHING
from pserver.wire.views import MembershipView, write_view


def _know_nothing() -> None:
    return None


@dataclass(frozen=True)
class TaskOptions(ClientOptions):
    """The settings of a client of a task job; its `trainer_id` is the number that the master assigned.

    - `attempts`: the attempt of each service; a restarted server has a new attempt.
    - `uid`: the UID of the pod in which this process runs.
    - `incarnation`: a number that differs with each start of the process in this pod.
    - `view`: a function that returns the current view for heartbeats, or None if the job has no rounds.
    - `refuse`: a function that is called during a wait for the services; it returns an error that ends the wait, or
      None.
    """

    attempts: Sequence[str] = ()
    uid: str = ""
    incarnation: int = 0
    view: Callable[[], MembershipView | None] = _know_nothing
    refuse: Callable[[], PaddleError | None] = _know_nothing

    def attempt_of(self, service: int) -> str:
        """Return the attempt of a service's server."""
        return self.attempts[service]

    def introduce(self) -> dict[str, Any]:
        """Return the fields of a hello by which a server recognizes this process."""
        return {"num_trainers": 0, "elastic": True, "uid": self.uid, "incarnation": self.incarnation}

    def describe_view(self) -> Mapping[str, Any]:
        """Return the current view as the note of a ping."""
        view = self.view()
        return NOTHING if view is None or view.epoch == 0 else write_view(view)

    def first_service(self, services: int) -> int:
        """Return the number of the service to which requests are sent first."""
        return self.trainer_id % services

    def refuse_to_join(self) -> PaddleError | None:
        """Return an error that ends the wait for answers to the hello, or None."""
        return self.refuse()
