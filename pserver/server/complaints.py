"""Counts of what a service could not take, and log lines about it at a bounded rate (no clock)."""

from __future__ import annotations

import traceback

from pserver.server.admission import Identity
from runtime import glog
from runtime.errors import BugError, PaddleError

QUIET_PERIOD = 30.0  # seconds in which a kind of complaint is logged once
MAX_KINDS = 5  # kinds of complaints that are logged in one QUIET_PERIOD


class Complaints:
    """What a service complains of.

    Attributes: malformed: number of messages and handshakes that were dropped.
        failed: number of messages whose handling raised an unforeseen error.
    """

    def __init__(self, identity: Identity) -> None:
        self.malformed = self.failed = 0
        self._identity = identity
        self._logged: dict[str, float] = {}  # kinds that were logged lately, and when

    def warn(self, kind: str, text: str, now: float) -> None:
        """Log a complaint, unless its kind or too many kinds were logged lately: a bad peer repeats and varies."""
        logged = {one: when for one, when in self._logged.items() if now - when < QUIET_PERIOD}
        if kind not in logged and len(logged) < MAX_KINDS:
            logged[kind] = now
            glog.warning(text)
        self._logged = logged

    def count_malformed(self, address: str, reason: str, now: float) -> None:
        """Count a message or a handshake that is dropped, and say why."""
        self.malformed += 1
        text = f"{self._identity} dropped a message from {address}: {reason} ({self.malformed} dropped so far)"
        self.warn("dropped", text, now)

    def count_failure(self, address: str, what: str, error: Exception, now: float) -> PaddleError:
        """Count a message whose handling raised, log it once for each class and place, and return what to answer."""
        self.failed += 1
        places = traceback.extract_tb(error.__traceback__)
        place = f"{places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}" if places else "an unknown place"
        kind = f"{type(error).__name__} at {place}"
        told = BugError(f"{self._identity} could not handle a {what} ({kind}: {glog.clean(error, 200)})")
        self.warn(kind, f"{told} from {address}; its connection is closed ({self.failed} so far)", now)
        return told
