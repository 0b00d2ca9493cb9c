"""Delays between repeated attempts. Pure: no input or output."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


def exponential_backoff(
    first: float, longest: float, *, factor: float = 2.0, spread: float = 0.5, draw: Callable[[], float] = random.random
) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end.

        for delay in exponential_backoff(0.1, 5.0):
            if attempt():
                break
            wait(delay)

    The delays grow by `factor` up to `longest`. Each delay is multiplied by a random number between `1 - spread` and 1,
    so that programs that lost the same server do not reconnect at the same moment.

    Args: first, longest: seconds, 0 < first <= longest.  factor: at least 1.  spread: in [0, 1].
        draw: returns a number in [0, 1); a test passes its own.
    """
    delay = first
    while True:
        yield delay * (1.0 - spread * draw())
        delay = min(delay * factor, longest)
