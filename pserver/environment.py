"""What the launcher tells both programs by environment, so that the command lines stay the tutorial's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pserver.errors import ConfigError


@dataclass(frozen=True)
class JobEnvironment:
    """Which job and attempt a program belongs to; all empty: it stands alone."""

    job: str = ""
    attempt: str = ""
    secret: str = ""
    peer_timeout: float = 15.0

    def __repr__(self) -> str:
        return f"JobEnvironment(job={self.job!r}, attempt={self.attempt!r}, peer_timeout={self.peer_timeout!r})"


def read_environment(environ: Mapping[str, str]) -> JobEnvironment:
    """Return the job of this program: PADDLE_JOB_NAME, PADDLE_ATTEMPT, PADDLE_SECRET and PADDLE_PEER_TIMEOUT.

    Raises: ConfigError: if the timeout is no number of seconds of at least 0.1.
    """
    text = environ.get("PADDLE_PEER_TIMEOUT") or "15"
    try:
        peer_timeout = float(text)
    except ValueError:
        peer_timeout = 0.0
    if not 0.1 <= peer_timeout <= 86400:
        raise ConfigError(f"PADDLE_PEER_TIMEOUT is '{text}'; set it to seconds between 0.1 and 86400, e.g. 15")
    return JobEnvironment(
        environ.get("PADDLE_JOB_NAME", ""),
        environ.get("PADDLE_ATTEMPT", ""),
        environ.get("PADDLE_SECRET", ""),
        peer_timeout,
    )
