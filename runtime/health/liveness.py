"""Records the time of the main loop's last turn. /healthz uses this time to decide whether the process is stuck.

A turn is any event that shows that the main thread runs: a check of a server's sockets, a batch of training or testing,
or a check whether the peers have answered. A process with a long step inside one turn (a provider that loads its data,
a save) counts as stuck only after PADDLE_STUCK_TIMEOUT.
"""

from __future__ import annotations

import time


class Liveness:
    """The time of the last turn.

    Thread safety: the main thread sets `turned`, other threads read it.
    """

    def __init__(self) -> None:
        self.turned = time.monotonic()

    def turn(self) -> None:
        """Record a turn of the loop."""
        self.turned = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last turn."""
        return time.monotonic() - self.turned


LIVENESS = Liveness()  # a process has only one main loop
