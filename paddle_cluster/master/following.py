"""The connection of a trainer to the present leader; a new connection replaces it when another master leads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import SECRET, Caller
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.errors import NoAnswerError
from paddle_base.messages.server_core import REPLACED, TAKEN
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, PeerUnreachableError, VolumeError
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit
from paddle_cluster.master.store.interface import MasterStore
from paddle_cluster.master.tasks.records import TaskView

FIRST_LINE_S = 3.0  # seconds until the first log line about an unreachable master
ABSENCE_S = 5.0  # seconds between two reads of the list of jobs in the store while no master has an address
REST_S = 0.5  # maximum seconds between two checks whether a new connection works
NO_ADDRESS = "no master has published its address"
# number of refusals with each code after which a trainer raises an error. A wrong secret needs several refusals,
# because for a short time another program may answer at an outdated address.
FOR_GOOD = {"realm": 1, "config": 1, "protocol": 1, REPLACED: 1, TAKEN: 1, SECRET: 6}


class FollowedLeader:
    """The state of the leader as a trainer knows it, and the handlers of the connection.

    Thread safety: every method and attribute may be used from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._client: ControlClient | None = None
        self._is_joined = False
        self._lines = RateLimit(WAIT_LINE_S, time.monotonic() + FIRST_LINE_S)
        self.is_over = False
        self.absence, self._look_due = NO_ADDRESS, 0.0
        self.number: int | None = None
        self.num_passes = 0
        self.view = TaskView(0, ())
        self.on_view: Callable[[TaskView], None] = _ignore

    # ----- Called by the connection

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Record that the leader has accepted this trainer."""
        with self._changed:
            self._is_joined, self.number, self.num_passes = True, welcome["number"], welcome["passes"]
            self._changed.notify_all()
        self._take_view(welcome["view"])

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Handle a view, the only message that the master pushes."""
        self._take_view(body)

    def disconnected(self, reason: str) -> None:
        """Record that the connection is lost."""
        with self._changed:
            self._is_joined = False
            self._changed.notify_all()

    def _take_view(self, body: Mapping[str, Any]) -> None:
        view = TaskView(body["epoch"], tuple(body["members"]))
        with self._changed:
            if view.epoch <= self.view.epoch:  # the view is from an earlier leader or an earlier connection
                return
            self.view = view
        self.on_view(view)

    # ----- Called by the thread that finds the leader

    @property
    def is_joined(self) -> bool:
        """Whether the leader has accepted this trainer and is still connected."""
        return self._is_joined

    def replace(self, client: ControlClient | None) -> None:
        """Use another connection from now on. Unanswered requests of the previous connection are repeated."""
        with self._changed:
            before, self._client, self._is_joined = self._client, client, False
            self._changed.notify_all()
        if before is not None:
            before.close()

    def look_around(self, job: str, book: MasterStore) -> None:
        """Find out why no master has an address; the job may have another name, or no master was started."""
        if time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + ABSENCE_S
            with contextlib.suppress(PeerUnreachableError, VolumeError):
                self.absence = describe_absence(job, book.place, book.list_jobs())

    def rest(self) -> None:
        """Wait while the connection works; otherwise wait up to REST_S, and log the reason now and then."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_over or not self._is_joined)
            if not self.is_over:
                self._changed.wait_for(lambda: self.is_over or self._is_joined, REST_S)
        trouble = self.trouble
        if trouble and not self.is_over and self._lines.is_due(time.monotonic()):
            glog.warning(f"the master is not reached yet: {trouble}")

    # ----- Called by the trainer

    def end(self) -> None:
        """Stop following the leader."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self, timeout: float) -> Caller:
        """Wait for a connection, and return its caller.

        Raises: NoAnswerError: no connection is made in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self.is_over, timeout)
            if self._client is None:
                raise NoAnswerError(self.absence)
            return self._client.caller

    def wait_number(self, timeout: float) -> int | None:
        """Return the number that the master has assigned, or None if it has assigned no number in time."""
        with self._changed:
            self._changed.wait_for(lambda: self.number is not None, timeout)
            return self.number

    def pause(self, seconds: float) -> None:
        """Wait at most `seconds` until the state of the connection changes."""
        with self._changed:
            self._changed.wait(seconds)

    def check(self) -> None:
        """Check that the leader has not permanently refused this trainer.

        Raises: ConfigError: the leader has permanently refused this trainer.
        """
        client = self._client
        if client is None or self._is_joined:
            return
        core = client.caller.core
        if any(core.counts[code] >= most for code, most in FOR_GOOD.items()):
            raise ConfigError(f"{core.name}: {core.trouble}")

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty if a connection works."""
        client = self._client
        return self.absence if client is None else client.caller.trouble


def describe_absence(job: str, place: str, jobs: Sequence[str]) -> str:
    """Describe why a trainer finds no master of its job.

    Args: place: the flag that names the store, e.g. --store_dir=DIRECTORY.  jobs: names of all jobs that have, or had,
        a master in the store.
    """
    if job in jobs:
        return f"the master of job '{job}' has left {place}; start paddle master --job={job} there again"
    if not jobs:
        return f"no job has a master in {place}; start paddle master --job={job} there"
    named = ", ".join(f"'{glog.clean(one, 100)}'" for one in jobs)
    return (
        f"job '{job}' has no master in {place}, where the jobs are {named}: give the name of the job with --job_name, "
        f"or start paddle master --job={job} there"
    )


def _ignore(view: TaskView) -> None:
    """Do nothing with a view."""
