"""The members of synchronous rounds, which the messages of the master name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit
from pserver.wire.views import MembershipView
from trainer.updaters.tasks.errors import TaskTakenError

# maximum seconds between a task and the view that contains this trainer; either message may come first
GRACE_S = 5.0
LOOK_S = 0.5  # seconds between two checks of the clock


class KnownView(Protocol):
    """A view, which names the trainers of a synchronous round. The client of the master provides it."""

    @property
    def epoch(self) -> int:
        """The epoch of the view, which grows from view to view; 0: no view has arrived."""

    @property
    def members(self) -> tuple[int, ...]:
        """The ids of the trainers with a task, in ascending order."""


class ViewSource(Protocol):
    """The source of views: a `MasterClient`."""

    @property
    def number(self) -> int:
        """The number of this trainer."""

    @property
    def view(self) -> KnownView:
        """The newest view."""

    def on_view(self, callback: Callable[[Any], None]) -> None:
        """Register a callback that is called with each newer view."""


class MasterViews:
    """Gives the newest view, and waits for newer views.

    Args: patience: maximum seconds without a master. clock: returns seconds. look: a function that is called several
        times a second during the wait; it may raise an error. tell: a function that is called after a newer view has
        arrived, by the thread that has received the view.
    """

    def __init__(
        self,
        source: ViewSource,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[], None] = lambda: None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._patience, self._look, self._clock = source, patience, look, clock
        self._tell = tell
        self._changed = threading.Condition()
        source.on_view(self._wake)

    @property
    def newest(self) -> MembershipView:
        """The newest view; this property does not wait."""
        view = self._source.view
        return MembershipView(view.epoch, view.members)

    def wait(self, epoch: int) -> MembershipView:
        """Wait for a view of at least this epoch that contains this trainer, and return it.

        Raises: TaskTakenError: this trainer is in no view.  PeerUnreachableError: the master sends no such epoch.
        """
        number, began = self._source.number, self._clock()
        lines = RateLimit(WAIT_LINE_S, began + WAIT_LINE_S)
        with self._changed:
            while True:
                view, now = self.newest, self._clock()
                is_member, is_new = number in view.members, view.epoch >= max(epoch, 1)
                if is_member and is_new:
                    return view
                if is_new and now - began >= GRACE_S:
                    raise TaskTakenError(
                        f"trainer {number} is not among the trainers with a task (in epoch {view.epoch}, these are "
                        f"{_describe(view)}): its task was given to another trainer"
                    )
                if now - began >= self._patience:
                    raise PeerUnreachableError(
                        f"the master has not sent epoch {epoch} within {self._patience:.0f} s, and its newest epoch is "
                        f"{view.epoch}; start the master with the store with which the job began"
                    )
                if lines.is_due(now):
                    glog.info(
                        f"this trainer has waited {now - began:.0f} s for epoch {epoch} from the master, whose newest "
                        f"epoch is {view.epoch}"
                    )
                self._look()
                self._changed.wait(LOOK_S)

    def _wake(self, view: Any) -> None:
        with self._changed:
            self._changed.notify_all()
        self._tell()


def _describe(view: MembershipView) -> str:
    return ", ".join(map(str, view.members[:10])) + ("" if len(view.members) <= 10 else " and others") or "none"
