"""The time of this machine without its steps: a clock that is set back or forward must not order events anew."""

from __future__ import annotations

import time

_BEGAN_S = time.time() - time.monotonic()  # seconds since the epoch at which `time.monotonic` was 0


def steady_time() -> float:
    """Return the seconds since the epoch by the machine's clock at the start of this program, and by no later step.

    Only times of one process may be compared, because the clocks of two machines may differ by any amount.
    """
    return _BEGAN_S + time.monotonic()
