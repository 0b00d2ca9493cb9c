"""Count invalid messages, and log them at a bounded rate. The module reads no clock. No I/O."""

from __future__ import annotations

import traceback

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, PaddleError
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from pserver.server.admission import Identity

MAX_KINDS = 5  # maximum number of kinds of problems that are logged in one PROBLEM_LINE_S


class Complaints:
    """The invalid messages of a service.

    Attributes: malformed: number of dropped messages and handshakes.
        failed: number of messages whose handling raised an unexpected error.
    """

    def __init__(self, identity: Identity) -> None:
        self.malformed = self.failed = 0
        self._identity = identity
        self._lines = RateLimit(PROBLEM_LINE_S, most=MAX_KINDS)

    def warn(self, kind: str, text: str, now: float) -> None:
        """Log a problem, unless its kind or MAX_KINDS other kinds were logged in the last PROBLEM_LINE_S.

        A faulty peer may cause the same problem very often.
        """
        if self._lines.is_due(now, kind):
            glog.warning(text)

    def count_malformed(self, address: str, reason: str, now: float) -> None:
        """Count a dropped message or handshake, and log the reason."""
        self.malformed += 1
        text = f"{self._identity} dropped a message from {address}: {reason} ({self.malformed} dropped so far)"
        self.warn("dropped", text, now)

    def count_failure(self, address: str, what: str, error: Exception, now: float) -> PaddleError:
        """Count a message whose handling raised an error, and return the answer.

        The error is logged once for each class and place in the code.
        """
        self.failed += 1
        places = traceback.extract_tb(error.__traceback__)
        place = f"{places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}" if places else "an unknown place"
        kind = f"{type(error).__name__} at {place}"
        told = BugError(f"{self._identity} could not handle a {what} ({kind}: {glog.clean(error, 200)})")
        self.warn(kind, f"{told} from {address}; its connection is closed (failures so far: {self.failed})", now)
        return told
