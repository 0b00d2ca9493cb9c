"""The values of some ranges of the parameters with the optimiser's state beside them: one step, no sockets.

A trainer without servers holds one shard of everything; each service of a server holds its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from pserver import glog
from pserver.averaging import SUMS, Averaging
from pserver.blocks import Range
from pserver.crew import ALONE, Crew
from pserver.errors import BugError
from pserver.methods import ALL_METHODS, check_supported
from pserver.methods.base import Steps
from pserver.regularization import pull
from pserver.rules import Array, Optimization, ParameterSpec, Rows
from pserver.schedules import Schedule
from pserver.segments import Segment, Settings, find_segments

CHUNK = 1 << 17  # elements worked on at a time: values, state and scratch stay in the cache, Python is not noticed
FLUSH_PERIOD = 128  # steps between two flushes of denormal numbers
TINY = np.finfo(np.float32).tiny  # found while denormals are computed with: numpy looks for the smallest one, too
SCRATCHES = 4
ALL_ROWS: Mapping[int, Rows] = {}

Chunk = tuple[Segment, int, int]  # [start, stop) of a stretch


class Shard:
    """Flat float32 values of `ranges`, and one optimiser step on them in place.

    `state` holds the optimiser's flat arrays by name, as long as the values; an array exists when some stretch needs
    it, and its memory is used where it does; after `catch_up` it is that of the last step. `row_steps` holds, for rows
    that can take steps of their own, the number of the step which brought each up to date, by purpose.
    `batch` counts the steps of this pass; `rate` is that of the last step, without a parameter's own factor.

    Args: parameters: all parameters, in order.  ranges: what of them lies here.
        per_parameter: whether every parameter has an optimiser of its own, as on a server and in local training with
        sparse parameters; clipping, L1, num_batches_regularization and sparse rows exist only there.
        log_clipping: whether to say which gradients are clipped.
        segments: the stretches, where they are not those of `find_segments`.
        crew: the threads that take a step together; what they do to an element does not depend on their number.
    Raises: ConfigError: if the optimization is not supported, or does not fit a parameter.
    Thread safety: none; one thread calls.
    """

    def __init__(
        self,
        parameters: Sequence[ParameterSpec],
        ranges: Sequence[Range],
        optimization: Optimization,
        *,
        per_parameter: bool,
        log_clipping: bool = False,
        crew: Crew = ALONE,
        segments: list[Segment] | None = None,
    ) -> None:
        check_supported(optimization)
        self.optimization = optimization
        self.segments = (
            find_segments(parameters, ranges, optimization, per_parameter=per_parameter, named=log_clipping)
            if segments is None
            else segments
        )
        self.size = sum(stop - start for _, start, stop in ranges)
        self.values: Array = np.zeros(self.size, np.float32)
        self.samples = 0
        self.steps = 0
        self.passes = 0
        self.batch = 0  # of this pass
        self.averaging = Averaging.of(optimization)
        names = {name for segment in self.segments for name in segment.method.state_names()}
        # zeros cost no memory before they are written
        self.state = {
            name: np.zeros(self.size, np.float32) for name in sorted(names | set(SUMS if self.averaging else ()))
        }
        rows = sum(segment.rows for segment in self.segments)
        clocks = ("step", "decay", "average") if rows else ()
        self.row_steps: dict[str, Steps] = {name: np.zeros(rows, np.int64) for name in clocks}
        widest = max((segment.settings.row_width for segment in self.segments), default=0)
        length = max(min(CHUNK, self.size), widest)
        self._crew = crew
        self._scratches = [[np.empty(length, np.float32) for _ in range(SCRATCHES)] for _ in range(crew.count)]
        self._scratch = self._scratches[0]
        self.schedule = Schedule(optimization)
        self.rate = float(np.float32(optimization.learning_rate))
        self._log_clipping = log_clipping
        self._raw: Array | None = None

    # ----- Steps -----

    def step(self, gradient: Array | Sequence[Array], samples: int, touched: Mapping[int, Rows] = ALL_ROWS) -> None:
        """Take one optimiser step in place with the sum of the gradients.

        Args: gradient: the gradient, or those of the trainers in the order in which they are to be added.
            samples: samples of the global batch.
            touched: by number of the parameter, the rows that this batch touched, rising; all where it is not given.
        Shapes: each gradient: (size,) float32; they are not changed.
        Raises: BugError: if a gradient has another shape or type.
        """
        gradients = [gradient] if isinstance(gradient, np.ndarray) else list(gradient)
        if not gradients or any(g.shape != self.values.shape or g.dtype != np.float32 for g in gradients):
            raise BugError(
                f"a step needs float32 gradients of {self.size} elements, not "
                f"{[(str(g.dtype), g.shape) for g in gradients]}"
            )
        self.begin_step(samples)
        chunks: list[Chunk] = []
        for segment in self.segments:
            chunks += self._step_segment(segment, gradients, touched.get(segment.parameter) if segment.rows else None)
        self._crew.share(chunks, partial(self._step_chunk, gradients, 0))
        for segment in self.segments:
            self._decay_when_due(segment, segment.start, segment.stop)
        self.finish_step()

    def begin_step(self, samples: int) -> None:
        """Begin a step that is taken range by range: every range once by `step_range`, then `finish_step`."""
        self.steps += 1
        self.batch += 1
        self.samples += samples
        if ALL_METHODS[self.optimization.learning_method].uses_schedule:
            self.rate = self.schedule.rate(self.samples, self.passes)
        if self.averaging:
            self.averaging.start_step()
        for segment in self.segments:
            segment.method.start_step(self.rate, self.steps)

    def step_range(self, start: int, gradients: Sequence[Array]) -> None:
        """Take the step on the elements from `start` on with the sum of gradients of these alone.

        Their values are final then, and may be sent: nothing that follows in `finish_step` changes any.

        Shapes: each gradient: (length,) float32, the same for all; they are not changed.
        """
        stop = start + len(gradients[0])
        found = [(one, max(start, one.start), min(stop, one.stop)) for one in self.segments]
        parts = [(segment, first, last) for segment, first, last in found if first < last]
        chunks: list[Chunk] = []
        for segment, first, last in parts:
            if segment.settled < self.steps:
                self._settle(segment, self.steps - 1)
                segment.settled = self.steps
            chunks += [(segment, *chunk) for chunk in _chunks(first, last)]
        self._crew.share(chunks, partial(self._step_chunk, gradients, start))
        for segment, first, last in parts:
            self._decay_when_due(segment, first, last)

    def finish_step(self) -> None:
        """End a step: what follows when all elements have taken it."""
        for segment in self.segments:
            segment.method.finish_step(self.values[segment.start : segment.stop], self._state_of(segment))
            if self._is_decay_due(segment):
                segment.decayed = self.batch
        if self.averaging:
            self._move_sums(self.averaging)
        if self.steps % FLUSH_PERIOD == 0:
            self._flush_denormals()

    def finish_pass(self) -> None:
        """Bring everything up to date and count the pass; schedules by pass depend on it."""
        self.catch_up()
        self.batch = 0
        for segment in self.segments:
            segment.decayed = 0
        self.passes += 1
        if self.averaging:
            self.averaging.finish_pass()

    def _step_segment(self, segment: Segment, gradients: Sequence[Array], rows: Rows | None) -> list[Chunk]:
        """Step some rows of a stretch, or return the chunks of all that is to take the step."""
        if segment.is_sparse:
            self._step_rows(segment, gradients, np.arange(segment.rows) if rows is None else rows)
            return []
        if rows is not None and segment.saves_time(rows):
            self._step_rows(segment, gradients, rows)
            return []
        self._settle(segment, self.steps - 1)
        segment.settled = self.steps
        settings = segment.settings
        if settings.clip and self._log_clipping:
            self._report_clipping(settings, np.sum([g[segment.start : segment.stop] for g in gradients], axis=0))
        return [(segment, start, stop) for start, stop in _chunks(segment.start, segment.stop)]

    def _step_chunk(self, gradients: Sequence[Array], origin: int, thread: int, chunk: Chunk) -> None:
        """Step a chunk; `origin` is the element that the gradients begin with."""
        segment, start, stop = chunk
        settings = segment.settings
        w, state = self.values[start:stop], self._state_of(segment, start, stop)
        scratch = [one[: stop - start] for one in self._scratches[thread]]
        g = self._sum(gradients, start - origin, stop - origin, settings.clip, scratch.pop())
        segment.method.update(w, g, state, scratch)
        if settings.decay is not None and settings.decay.period == 1:
            self._pull(segment, w, state, scratch, 1)
        if self.averaging:
            self.state["sum_recent"][start:stop] += w

    def _step_rows(self, segment: Segment, gradients: Sequence[Array], rows: Rows) -> None:
        settings, width = segment.settings, segment.settings.row_width
        by_row = settings.decay is not None and settings.decay.by_row
        if not rows.size:
            return
        if len(gradients) == 1 and not (settings.clip or by_row) and self._step_in_place(segment, gradients[0], rows):
            return
        values, matrices = self._matrices(segment)
        for begin, end in _chunks(0, rows.size, max(CHUNK // width, 1)):
            some = rows[begin:end]
            clock = some + segment.first_row
            w, state = values.take(some, axis=0), {name: one.take(some, axis=0) for name, one in matrices.items()}
            scratch = [one[: w.size].reshape(w.shape) for one in self._scratch]
            g = self._sum_rows(segment, gradients, some)
            last = np.maximum(self.row_steps["step"][clock, None], segment.settled)
            segment.method.update(w, g, state, scratch, last)
            self.row_steps["step"][clock] = self.steps
            if by_row:
                self._pull(segment, w, state, scratch, self.steps - self.row_steps["decay"][clock, None])
                self.row_steps["decay"][clock] = self.steps
            values[some] = w
            for name, matrix in matrices.items():
                matrix[some] = state[name]
            if self.averaging:
                self._accumulate_rows(segment, some)

    def _step_in_place(self, segment: Segment, gradient: Array, rows: Rows) -> bool:
        """Step these rows without copies of them, if the method can; return whether it can."""
        values, matrices = self._matrices(segment)
        clock = rows + segment.first_row
        last = np.maximum(self.row_steps["step"][clock], segment.settled)
        g = gradient[segment.start : segment.stop].reshape(values.shape)
        if not segment.method.update_rows(values, g, matrices, np.ascontiguousarray(rows, np.int64), last):
            return False
        self.row_steps["step"][clock] = self.steps
        if self.averaging:
            self._accumulate_rows(segment, rows)
        return True

    def _settle(self, segment: Segment, now: int) -> None:
        """Make up for the steps until `now` in which rows rested."""
        if not segment.rows or segment.settled == now:
            return
        clock = self.row_steps["step"][segment.first_row : segment.first_row + segment.rows]
        np.maximum(clock, segment.settled, out=clock)
        late = np.flatnonzero(clock < now)
        _, matrices = self._matrices(segment)
        for begin, end in _chunks(0, late.size, max(CHUNK // segment.settings.row_width, 1)):
            some = late[begin:end]
            state = {name: matrix.take(some, axis=0) for name, matrix in matrices.items()}
            segment.method.pass_over(state, now - clock[some, None])
            for name, matrix in matrices.items():
                matrix[some] = state[name]
        segment.settled = now

    def _matrices(self, segment: Segment) -> tuple[Array, dict[str, Array]]:
        """Return the values and the state of a stretch as matrices with its rows."""
        shape = (-1, segment.settings.row_width)
        state = {name: array.reshape(shape) for name, array in self._state_of(segment).items()}
        return self.values[segment.start : segment.stop].reshape(shape), state

    def _sum(self, gradients: Sequence[Array], start: int, stop: int, clip: float, out: Array) -> Array:
        """Return the clipped sum of a stretch; one gradient, aligned and not clipped, is given back as it is."""
        total = gradients[0][start:stop]
        if len(gradients) > 1:
            total = np.add(total, gradients[1][start:stop], out=out)
            for more in gradients[2:]:
                total += more[start:stop]
        if clip:
            return np.clip(total, np.float32(-clip), np.float32(clip), out=out)
        if not total.flags.aligned:  # as a message may bring it; compiled loops want it aligned
            np.copyto(out, total)
            return out
        return total

    def _sum_rows(self, segment: Segment, gradients: Sequence[Array], rows: Rows) -> Array:
        """Return the clipped sum of some rows, a fresh array."""
        settings = segment.settings
        parts = [g[segment.start : segment.stop].reshape(-1, settings.row_width).take(rows, axis=0) for g in gradients]
        total = parts[0]
        for part in parts[1:]:
            total += part
        if settings.clip:
            if self._log_clipping:
                for row in total:
                    self._report_clipping(settings, row)
            np.clip(total, np.float32(-settings.clip), np.float32(settings.clip), out=total)
        return total

    def _state_of(self, segment: Segment, start: int | None = None, stop: int | None = None) -> dict[str, Array]:
        """Return views of the state of a stretch, or of a part of it."""
        part = slice(segment.start if start is None else start, segment.stop if stop is None else stop)
        return {name: self.state[name][part] for name in segment.method.state_names()}

    def _report_clipping(self, settings: Settings, gradient: Array) -> None:
        magnitudes = np.abs(gradient)
        if magnitudes.size and magnitudes.max() > settings.clip:
            glog.info(
                f"parameter={settings.name} need clipping, max grad={magnitudes.max():g} avg grad={magnitudes.mean():g}"
            )

    # ----- Rates of elements -----

    def rates(self, start: int, stop: int) -> Array | None:
        """Return the rates that the elements [start, stop) had in their last step, without the common one.

        None if the method has no such rates. Rows that took no step have 0.
        """
        if not ALL_METHODS[self.optimization.learning_method].has_rates:
            return None
        result: Array = np.zeros(stop - start, np.float32)
        for segment in self.segments:
            first, last = max(start, segment.start), min(stop, segment.stop)
            if first < last:
                if not segment.is_sparse:
                    self._settle(segment, self.steps)
                out = result[first - start : last - start]
                segment.method.rates(self._state_of(segment, first, last), out)
                if segment.is_sparse:
                    place = np.arange(first - segment.start, last - segment.start) // segment.settings.row_width
                    clock = segment.first_row + place
                    out[self.row_steps["step"][clock] == 0] = 0
        return result

    # ----- Decay -----

    def catch_up(self) -> None:
        """Apply the decay that is still due and wake resting rows, so that all is as after the last step."""
        for segment in self.segments:
            decay = segment.settings.decay
            if decay is not None and decay.by_row:
                self._decay_rows(segment)
            elif decay is not None and decay.period > 1:
                self._decay_all(segment)
            if not segment.is_sparse:
                self._settle(segment, self.steps)
            elif self.averaging:
                self._accumulate_rows(segment, np.arange(segment.rows))

    def _is_decay_due(self, segment: Segment) -> bool:
        """Return whether this is a batch after which all of a stretch is pulled to zero."""
        decay = segment.settings.decay
        return decay is not None and decay.period > 1 and self.batch % decay.period == 0

    def _decay_when_due(self, segment: Segment, start: int, stop: int) -> None:
        if self._is_decay_due(segment):
            self._decay(segment, start, stop)

    def _decay_all(self, segment: Segment) -> None:
        self._decay(segment, segment.start, segment.stop)
        segment.decayed = self.batch

    def _decay(self, segment: Segment, start: int, stop: int) -> None:
        """Pull a part of a stretch to zero for the batches since the whole stretch was."""
        batches = self.batch - segment.decayed
        if not batches:
            return
        for first, last in _chunks(start, stop):
            scratch = [one[: last - first] for one in self._scratch]
            self._pull(segment, self.values[first:last], self._state_of(segment, first, last), scratch, batches)

    def _decay_rows(self, segment: Segment) -> None:
        clock = self.row_steps["decay"][segment.first_row : segment.first_row + segment.rows]
        seen = self.row_steps["step"][segment.first_row : segment.first_row + segment.rows] > 0
        width = segment.settings.row_width
        late = np.flatnonzero((clock < self.steps) & (seen | (not segment.method.has_rates)))
        values, matrices = self._matrices(segment)
        for begin, end in _chunks(0, late.size, max(CHUNK // width, 1)):
            some = late[begin:end]
            w = values[some]
            state = {name: matrix[some] for name, matrix in matrices.items()} if segment.method.has_rates else {}
            scratch = [one[: w.size].reshape(w.shape) for one in self._scratch]
            self._pull(segment, w, state, scratch, self.steps - clock[some, None])
            values[some] = w
        clock[:] = self.steps

    def _pull(
        self,
        segment: Segment,
        w: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        batches: Steps | int,
    ) -> None:
        """Pull values to zero for so many batches at the rate of the last step."""
        decay = segment.settings.decay
        if decay is None:
            raise BugError("a stretch without decay is to be pulled to zero")
        rates = None
        if segment.method.has_rates:
            rates = scratch[1]
            segment.method.rates(state, rates)
        rate = np.float32(self.rate * segment.settings.traits.learning_rate)
        pull(w, rates, scratch[0], decay, rate=rate, batches=batches)

    # ----- Averages -----

    def apply_average(self) -> None:
        """Put the average of the last steps' values in the place of the values, until `restore`."""
        self.catch_up()
        if self.averaging is None or self._raw is not None or not self.averaging.count:
            return
        self._raw = self.values.copy()
        self.values[:] = self._average()

    def averages(self) -> Array:
        """Return the average of the last steps' values, or the values where nothing is averaged: a fresh array.

        Everything is brought up to date first, so a decay after every k-th batch may come before its time.
        """
        self.catch_up()
        return self._average()

    def _average(self) -> Array:
        if self.averaging is None or not self.averaging.count:
            return self.values.copy()
        result = np.empty_like(self.values)
        scale = np.float32(1.0 / self.averaging.count)
        for start, stop in _chunks(0, self.size):
            part, scratch = result[start:stop], self._scratch[0][: stop - start]
            np.multiply(self.state[SUMS[0]][start:stop], scale, out=part)
            for name in SUMS[1:]:
                part += np.multiply(self.state[name][start:stop], scale, out=scratch)
        return result

    @property
    def shows_averages(self) -> bool:
        """Whether averages stand in the place of the values."""
        return self._raw is not None

    def restore(self) -> None:
        """Put the values back that training goes on with."""
        if self._raw is not None:
            self.values[:] = self._raw
            self._raw = None

    def _accumulate_rows(self, segment: Segment, rows: Rows) -> None:
        """Add rows to the recent sum, once for every step that it does not have yet."""
        clock = self.row_steps["average"]
        place = rows + segment.first_row
        width = segment.settings.row_width
        values = self.values[segment.start : segment.stop].reshape(-1, width)
        sums = self.state["sum_recent"][segment.start : segment.stop].reshape(-1, width)
        sums[rows] += values[rows] * (self.steps - clock[place, None]).astype(np.float32)
        clock[place] = self.steps

    def _move_sums(self, averaging: Averaging) -> None:
        recent, older, previous = (self.state[name] for name in SUMS)
        if averaging.is_fold_due:
            older += recent
            recent.fill(0)
        if averaging.is_window_full:
            for segment in self.segments:
                if segment.is_sparse:
                    self._accumulate_rows(segment, np.arange(segment.rows))
            np.add(recent, older, out=previous)
            recent.fill(0)
            older.fill(0)
            averaging.start_window()

    # ----- Denormal numbers -----

    def _flush_denormals(self) -> None:
        """Set denormal numbers in the state to zero.

        The legacy flushed them always (SSE FTZ/DAZ). Decaying state of elements without gradient ends there and
        stays, and arithmetic on denormals is many times slower.
        """
        self._flush_stretch(0, self.size)

    def _flush_stretch(self, first: int, last: int) -> None:
        for array in self.state.values():
            for start, stop in _chunks(first, last):
                part = array[start:stop]
                magnitude = np.abs(part, out=self._scratch[0][: part.size])
                part[magnitude < TINY] = 0


def _chunks(start: int, stop: int, length: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the stretches, at most `length` (CHUNK) long, that [start, stop) is worked on in."""
    length = length or CHUNK
    for begin in range(start, stop, length):
        yield begin, min(begin + length, stop)
