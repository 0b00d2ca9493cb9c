"""Computes the delays between repeated attempts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

# a generator of its own: data providers use Python's global one, and a lost connection must not change their samples
_DELAYS = random.Random()


def exponential_backoff(
    first: float,
    longest: float,
    *,
    factor: float = 2.0,
    spread: float = 0.5,
    draw: Callable[[], float] = _DELAYS.random,
) -> Iterator[float]:
    """Yield without end the seconds to wait before each further attempt.

        for delay in exponential_backoff(0.1, 5.0):
            if attempt():
                break
            wait(delay)

    The delays grow by `factor` up to `longest`. Each delay is multiplied by a random number between `1 - spread` and 1.
    Without the random number, all programs that lost a server would reconnect at the same time.

    Args: first, longest: seconds, 0 < first <= longest.  factor: at least 1.  spread: in [0, 1].
        draw: returns a number in [0, 1); tests pass their own function.
    """
    delay = first
    while True:
        yield delay * (1.0 - spread * draw())
        delay = min(delay * factor, longest)
