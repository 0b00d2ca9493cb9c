"""Shows answers of the API server, and failures of requests to it."""

from __future__ import annotations

import dataclasses
import email.utils
import re
import time
from collections.abc import Callable, Mapping

from paddle_base.runtime.kubernetes.text import one_line
from paddle_base.runtime.network.causes import find_cause

REQUEST_TIMEOUT_S = 10.0  # limit in seconds for a new connection, for its TLS handshake, and for a whole answer
ANSWER_LIMIT = 64 << 20  # maximum bytes of a page; a pod has 12 kB
RETRY_AFTER_LIMIT_S = 60.0  # maximum seconds that are accepted from a Retry-After header


@dataclasses.dataclass(frozen=True)
class ApiAnswer:
    """A complete answer of the API server; `body` does not contain the token."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def beginning(self) -> str:
        """The first words of the body, for an error message."""
        return one_line(self.body[:400].decode("utf-8", "replace"), 120)

    @property
    def moment(self) -> float | None:
        """The time of the answer by the server's clock, in seconds since the epoch; None if the answer has none."""
        return parse_date(self.headers.get("Date", ""))


def parse_date(text: str) -> float | None:
    """Return a date of HTTP in seconds since the epoch, or None if the text is none."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):  # the errors of the date parser
        return None


def describe_failure(problem: BaseException, redact: Callable[[str], str]) -> str:
    """Return the innermost cause of a failed request; it is more specific than the exceptions that contain it."""
    cause = find_cause(problem)
    return one_line(redact(f"{type(cause).__name__}: {cause}"))


def parse_retry_after(value: str | None) -> float:
    """Return the seconds of a Retry-After header (number or date), or 0 if it is absent or malformed.

    The result is at most RETRY_AFTER_LIMIT_S, because the API server may recover sooner.
    """
    try:
        if value and re.fullmatch(r"[0-9]+", value.strip()):
            asked = float(value)
        else:
            asked = (parse_date(value or "") or 0.0) - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, asked), RETRY_AFTER_LIMIT_S)
