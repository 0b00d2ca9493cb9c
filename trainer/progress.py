"""How far training is: a line for people, on request only, since the legacy had none."""

from __future__ import annotations

import time
from collections.abc import Callable

INTERVAL_S = 10.0


class Progress:
    """Counts samples and says every ten seconds how far the pass and the run are.

    How many samples a pass has is known from the second pass on.

    Args: passes: how many this run makes.  clock: seconds, monotonic.
    """

    def __init__(self, passes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._passes = passes
        self._clock = clock
        self._pass = 0
        self._pass_samples = 0  # of the pass before
        self._samples = 0  # in this pass
        self._start = self._last = clock()
        self._since_start = self._since_last = 0

    def start_pass(self) -> None:
        """Begin to count a pass."""
        self._samples = 0

    def finish_pass(self) -> str:
        """Count the pass and return its last line."""
        self._pass_samples = self._samples
        text = self._text(self._clock())
        self._pass += 1
        return text

    def add(self, samples: int) -> str:
        """Count a batch and return the line that is due, or ""."""
        self._samples += samples
        self._since_start += samples
        self._since_last += samples
        now = self._clock()
        return self._text(now) if now - self._last >= INTERVAL_S else ""

    def _text(self, now: float) -> str:
        speed = self._since_last / max(now - self._last, 1e-9)
        average = self._since_start / max(now - self._start, 1e-9)
        self._last, self._since_last = now, 0
        words = [f"progress: pass {self._pass + 1} of {self._passes}"]
        if self._pass_samples:
            share = min(self._samples / self._pass_samples, 1.0)
            words.append(f"{share:.0%} of the pass")
        else:
            words.append(f"{self._samples} samples")
        words.append(f"{speed:.0f} samples/s")
        if self._pass_samples and average > 0:
            left = max(self._pass_samples - self._samples, 0) + self._pass_samples * (self._passes - self._pass - 1)
            words.append(f"{_spell_time(left / average)} left")
        return ", ".join(words)


def _spell_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
