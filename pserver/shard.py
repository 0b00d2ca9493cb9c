"""The values of some ranges of the parameters with the optimiser's state beside them: one step, no sockets.

A trainer without servers holds one shard of everything; each service of a server holds its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pserver import glog, rules
from pserver.blocks import Range
from pserver.errors import BugError
from pserver.rules import Array, Optimization, ParameterSpec

CHUNK = 1 << 17  # elements worked on at a time, so that values, state and scratch of a chunk stay in the cache
FLUSH_PERIOD = 128  # steps between two flushes of denormal numbers


@dataclass(frozen=True)
class Segment:
    """A stretch of the flat vector, [start, stop), whose parameters have the same settings."""

    start: int
    stop: int
    learning_rate: float
    momentum: np.float32
    decay: np.float32
    clip: np.float32


class Shard:
    """Flat float32 values of `ranges`, and one optimiser step on them in place.

    Args: parameters: all parameters, in order.  ranges: what of them lies here.
        clip: whether gradients are clipped element-wise at the parameters' thresholds: a server does, a local
        dense run does not.
    Raises: ConfigError: if the optimization is not supported.
    Thread safety: none; one thread steps.
    """

    def __init__(
        self, parameters: Sequence[ParameterSpec], ranges: Sequence[Range], optimization: Optimization, *, clip: bool
    ) -> None:
        rules.check_supported(optimization)
        self.optimization = optimization
        self.segments = find_segments(parameters, ranges, clip=clip)
        self.size = sum(stop - start for _, start, stop in ranges)
        self.values: Array = np.zeros(self.size, np.float32)
        self.samples = 0
        self.steps = 0
        self.passes = 0
        self.state = {name: np.zeros(self.size, np.float32) for name in self._state_names()}
        self._scratch = [np.empty(min(CHUNK, self.size), np.float32) for _ in range(3)]
        self._warned_of_zero_rate = False

    def step(self, gradient: Array | Sequence[Array], samples: int) -> None:
        """Take one optimiser step in place with the sum of the gradients.

        Args: gradient: the gradient, or those of the trainers in the order in which they are to be added.
            samples: samples of the global batch.
        Shapes: each gradient: (size,) float32; they are not changed.
        Raises: BugError: if a gradient has another shape or type.
        """
        gradients = [gradient] if isinstance(gradient, np.ndarray) else list(gradient)
        if not gradients or any(g.shape != self.values.shape or g.dtype != np.float32 for g in gradients):
            raise BugError(
                f"a step needs float32 gradients of {self.size} elements, not "
                f"{[(str(g.dtype), g.shape) for g in gradients]}"
            )
        self.steps += 1
        self.samples += samples
        rate = self._scheduled_rate()
        for segment in self.segments:
            update = self._bind_rule(segment, rate)
            for start in range(segment.start, segment.stop, CHUNK):
                stop = min(start + CHUNK, segment.stop)
                update(start, stop, self._sum(gradients, start, stop, segment.clip))
        if self.steps % FLUSH_PERIOD == 0:
            self._flush_denormals()

    def finish_pass(self) -> None:
        """Count the pass; schedules by pass depend on it."""
        self.passes += 1

    def _state_names(self) -> tuple[str, ...]:
        if self.optimization.learning_method == "adam":
            return ("first_moment", "second_moment")
        return ("velocity",) if any(segment.momentum for segment in self.segments) else ()

    def _scheduled_rate(self) -> float:
        rate = rules.scheduled_rate(self.optimization, self.samples, self.passes)
        if rate == 0 and self.optimization.learning_rate_schedule == "caffe_poly" and not self._warned_of_zero_rate:
            self._warned_of_zero_rate = True
            glog.warning(
                f"the learning rate is 0 from now on: caffe_poly ends at learning_rate_decay_a = "
                f"{self.optimization.learning_rate_decay_a:g} samples, {self.samples} are processed"
            )
        return rate

    def _sum(self, gradients: Sequence[Array], start: int, stop: int, clip: np.float32) -> Array:
        """Return the clipped sum of a stretch; with one gradient and no clipping it is that gradient itself."""
        total = gradients[0][start:stop]
        if len(gradients) > 1:
            total = np.add(total, gradients[1][start:stop], out=self._scratch[0][: stop - start])
            for more in gradients[2:]:
                total += more[start:stop]
        return np.clip(total, -clip, clip, out=self._scratch[0][: stop - start]) if clip else total

    def _bind_rule(self, segment: Segment, rate: float) -> Callable[[int, int, Array], None]:
        values, one, two = self.values, self._scratch[1], self._scratch[2]
        if self.optimization.learning_method == "adam":
            plain = np.float32(float(np.float32(self.optimization.learning_rate)) * segment.learning_rate)
            step = rules.adam_rate(float(plain), self.optimization, self.steps)
            beta1, beta2 = np.float32(self.optimization.adam_beta1), np.float32(self.optimization.adam_beta2)
            epsilon = np.float32(self.optimization.adam_epsilon)
            first, second = self.state["first_moment"], self.state["second_moment"]
            return lambda a, b, g: rules.adam(
                values[a:b],
                g,
                first[a:b],
                second[a:b],
                one[: b - a],
                two[: b - a],
                rate=step,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
            )
        eta = np.float32(rate * segment.learning_rate)
        if segment.momentum:
            velocity = self.state["velocity"]
            return lambda a, b, g: rules.momentum(
                values[a:b], g, velocity[a:b], one[: b - a], rate=eta, mu=segment.momentum, decay=segment.decay
            )
        return lambda a, b, g: rules.sgd(values[a:b], g, one[: b - a], rate=eta, decay=segment.decay)

    def _flush_denormals(self) -> None:
        """Set denormal numbers in the state to zero.

        The legacy flushed them always (SSE FTZ/DAZ). Decaying state of elements without gradient ends there and
        stays, and arithmetic on denormals is many times slower.
        """
        tiny = np.finfo(np.float32).tiny
        for array in self.state.values():
            for start in range(0, self.size, CHUNK):
                part = array[start : start + CHUNK]
                magnitude = np.abs(part, out=self._scratch[0][: part.size])
                part[magnitude < tiny] = 0


def find_segments(parameters: Sequence[ParameterSpec], ranges: Sequence[Range], *, clip: bool) -> list[Segment]:
    """Return the stretches of the shard that one call of the rule can update."""
    segments: list[Segment] = []
    at = 0
    for index, start, stop in ranges:
        p = parameters[index]
        threshold = p.gradient_clipping_threshold if clip else 0.0
        new = Segment(
            at,
            at + stop - start,
            p.learning_rate,
            np.float32(p.momentum),
            np.float32(p.decay_rate),
            np.float32(threshold),
        )
        last = segments[-1] if segments else None
        same = last and (last.learning_rate, last.momentum, last.decay, last.clip) == (
            new.learning_rate,
            new.momentum,
            new.decay,
            new.clip,
        )
        if last and same:
            segments[-1] = Segment(last.start, new.stop, new.learning_rate, new.momentum, new.decay, new.clip)
        else:
            segments.append(new)
        at = new.stop
    return segments
