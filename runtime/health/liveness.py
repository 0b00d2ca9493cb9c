"""When the loop of this process turned last: what /healthz judges (pure but for the clock).

A turn is whatever shows that the main thread is not stuck: a look at the sockets of a server, a batch, a batch of a
test, a look at whether the peers have answered. What takes long inside of one turn (the provider that loads its data,
a save) is no fault before PADDLE_STUCK_TIMEOUT.
"""

from __future__ import annotations

import time


class Liveness:
    """The last turn.

    Thread safety: the main thread sets `turned`, others read it.
    """

    def __init__(self) -> None:
        self.turned = time.monotonic()

    def turn(self) -> None:
        """Note that the loop turns."""
        self.turned = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last turn."""
        return time.monotonic() - self.turned


LIVENESS = Liveness()  # a process has one main loop, so there is one
