"""The progress of training: the finished fractions of the pass and of the job, the speed, and the time left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.terminal import draw_bar, is_terminal

SPEED_S = 5.0  # minimum seconds over which a speed is measured
BAR_PERIOD_S = 0.1  # minimum seconds between two updates of the bar


class Place(NamedTuple):
    """The progress of a run at one moment. A field that is not known is None.

    `passes` is the number of the last pass, plus 1. `samples` is the number of the pass's trained samples.
    `samples_per_second` is this trainer's speed over at least SPEED_S seconds. In the first SPEED_S seconds, and after
    the end of the run, it is the speed over the whole run. `seconds_left` is computed from the speed over the whole
    run.
    """

    pass_number: int
    passes: int
    samples: int
    samples_per_second: float
    pass_fraction: float | None = None
    job_fraction: float | None = None
    seconds_left: float | None = None

    def text(self, job_samples_per_second: float) -> str:
        """Return the log line. The speed in the line is that of all trainers together."""
        words = [f"progress: pass {self.pass_number + 1} of {self.passes}"]
        if self.pass_fraction is None or self.job_fraction is None:
            words.append(f"{self.samples} samples")
        else:
            words += [f"{self.pass_fraction:.0%} of the pass", f"{self.job_fraction:.0%} of the job"]
        words.append(f"{job_samples_per_second:.0f} samples/s")
        if self.seconds_left is not None:
            words.append(f"{spell_time(self.seconds_left)} left")
        return ", ".join(words)

    def bar(self) -> str:
        """Return a progress bar, followed by the text of the log line.

        Before the length of a pass is known, the bar counts only whole passes.
        """
        fraction = self.job_fraction
        if fraction is None:
            fraction = self.pass_number / max(self.passes, 1)
        return f"{draw_bar(fraction)} {self.text(self.samples_per_second).removeprefix('progress: ')}"


class TerminalBar:
    """A progress bar at the bottom of the terminal. `is_on` is false if stderr is not a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_on = is_terminal(sys.stderr, os.environ)
        self._clock, self._next = clock, 0.0

    def show(self, place: Place) -> None:
        """Show the progress, at most once in BAR_PERIOD_S seconds."""
        if self.is_on and self._clock() >= self._next:
            self._next = self._clock() + BAR_PERIOD_S
            glog.set_bottom_line(place.bar())


class Progress:
    """A counter of samples. The length of a pass is known after the first pass, or from an earlier run of the job.

    Attributes: passes: the number of the last pass, plus 1. pass_samples: the number of samples of a pass, or 0.

    Args: passes: see above. pass_samples: the number of samples of a pass in an earlier run,
        or 0. clock: returns monotonic seconds. has_whole_passes: whether this trainer trains the same samples in every
        pass; otherwise the fraction of a pass is unknown.
    """

    def __init__(
        self,
        passes: int,
        pass_samples: int = 0,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_whole_passes: bool = True,
    ) -> None:
        self.pass_samples = pass_samples
        self.passes, self._clock, self._has_whole_passes = passes, clock, has_whole_passes
        # the current pass, the samples trained in it, and the samples trained since `begin`
        self._number = self._samples = self._since_start = 0
        self.begin()

    def begin(self) -> None:
        """Begin to measure time and speed."""
        self._start = self._window_start = self._clock()
        self._window_samples = 0
        self._speed: float | None = None  # the speed in the last window of SPEED_S; None before the first window ends

    def start_pass(self, number: int, samples: int = 0) -> None:
        """Begin a pass, or continue in it after `samples` samples."""
        self._number, self._samples = number, samples

    def add(self, samples: int) -> None:
        """Count a batch of `samples` samples."""
        self._samples += samples
        self._since_start += samples
        self._window_samples += samples

    def finish_pass(self, samples: int) -> None:
        """End a pass, which has had `samples` samples."""
        self._samples = samples
        if self._has_whole_passes:
            self.pass_samples = samples

    def look(self, *, is_over: bool = False) -> Place:
        """Return the present progress. If `is_over`, that is, after the run, the speed is that of the whole run."""
        now = self._clock()
        average = self._since_start / max(now - self._start, 1e-9)
        if now - self._window_start >= SPEED_S:
            self._speed = self._window_samples / (now - self._window_start)
            self._window_start, self._window_samples = now, 0
        speed = average if is_over or self._speed is None else self._speed
        if not self.pass_samples:
            return Place(self._number, self.passes, self._samples, speed)
        fraction = min(self._samples / self.pass_samples, 1.0)
        passes_left = self.passes - self._number - fraction
        left = self.pass_samples * passes_left / average if average else None
        done = (self._number + fraction) / max(self.passes, 1)
        return Place(self._number, self.passes, self._samples, speed, fraction, done, left)


def spell_time(seconds: float) -> str:
    """Return a time in the form h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
