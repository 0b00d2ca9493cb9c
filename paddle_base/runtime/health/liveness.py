"""Records when the program's main loop last made progress. /healthz uses this time to decide whether the loop is stuck.

The main thread records progress at each check of a server's sockets, at each batch of training or testing, and at each
check whether the peers have answered. Between two records, a provider may load its data, or a model may be saved. A
process counts as stuck only after PADDLE_STUCK_TIMEOUT, because such work can take long.
"""

from __future__ import annotations

import time


class Liveness:
    """The time at which the main loop last made progress.

    Thread safety: the main thread sets `turned`, and other threads read it.
    """

    def __init__(self) -> None:
        self.turned = time.monotonic()

    def turn(self) -> None:
        """Record that the main loop makes progress."""
        self.turned = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the main loop last recorded progress."""
        return time.monotonic() - self.turned

    def why_stuck(self, program: str, limit_s: float) -> str:
        """Return the text for /healthz of a program whose main loop is stuck, or "".

        Args: limit_s: seconds without progress after which the loop counts as stuck.
        """
        age = self.age
        return f"the main loop of the {program} has made no progress for {age:.0f} s" if age > limit_s else ""


LIVENESS = Liveness()  # a process has only one main loop
