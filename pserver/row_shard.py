"""The rows of tables that one sparse service holds: a step with the gradients of some rows, no sockets.

As in the legacy, synchronous servers let every row take every step, so that a table trains as a dense parameter does;
where rows can rest (`pserver.resting`) only those that a batch touches cost anything, and what the others missed is
made up for when somebody asks for them. Asynchronous servers step the rows they are sent and no others.

L1 and L2 are applied apart from the step, after it, as the legacy does for sparse parameters.

Source: spec/distributed.md 3.6 to 3.8, spec/trainer.md 4.12, 4.14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kernels.tables import RowIds, descend_rows, merge_rows, put_rows, take_rows
from pserver import blocks
from pserver.averaging import SUMS, Averaging
from pserver.crew import ALONE, Crew
from pserver.errors import BugError
from pserver.methods import METHODS
from pserver.methods.base import Steps, Traits
from pserver.methods.momentum import Momentum
from pserver.regularization import separate_decay
from pserver.resting import Doubles, Resting, find_resting
from pserver.rules import Array, Optimization, ParameterSpec
from pserver.segments import Segment, Settings, check_momentum
from pserver.shard import Shard

BLOCK = 1 << 16  # elements of rows that are worked on at a time, so that they stay in the cache

RowGradient = tuple[RowIds, Array]  # of one table: numbers of rows, rising, and the gradients, (n, width)


class RowShard(Shard):
    """A shard whose parameters are tables, all of them here, stepped by rows.

    Args: tables: the parameters as they lie here (`pserver.table.local_specs`).
        is_asynchronous: whether rows that are not sent wait.
    Raises: ConfigError: if the optimization is not supported, or does not fit a parameter.
    Thread safety: none; one thread calls.
    """

    def __init__(
        self,
        tables: Sequence[ParameterSpec],
        optimization: Optimization,
        *,
        is_asynchronous: bool = False,
        crew: Crew = ALONE,
    ) -> None:
        segments = make_segments(tables, optimization, is_asynchronous=is_asynchronous)
        super().__init__(tables, blocks.whole(tables), optimization, per_parameter=True, crew=crew, segments=segments)
        self._is_asynchronous = is_asynchronous
        self._resting = [Resting() if is_asynchronous else self._find_resting(one) for one in segments]
        # plain steps of rows that rest: summed and taken in one go
        self._descends = [
            type(resting) is Resting
            and isinstance(one.method, Momentum)
            and not (one.settings.traits.momentum or one.settings.decay or one.settings.clip)
            and not (self.averaging or is_asynchronous)
            for one, resting in zip(segments, self._resting, strict=True)
        ]
        self._gradients: dict[int, Array] = {}  # of whole tables, for methods by which every row moves
        self._table_values = [self._matrices(segment)[0] for segment in segments]
        self._table_states = [self._matrices(segment)[1] for segment in segments]

    def _find_resting(self, segment: Segment) -> Resting | None:
        def make_sums() -> Doubles:
            # among the clocks, so that a checkpoint has them
            clock = self.row_steps[f"pulled {segment.settings.name}"] = np.zeros(2 + 2 * segment.rows, np.int64)
            return clock.view(np.float64).reshape(-1, 2)

        is_averaged = self.averaging is not None
        return find_resting(segment.method, segment.settings.decay, is_averaged=is_averaged, make_sums=make_sums)

    # ----- Steps -----

    def step_rows(self, gradients: Sequence[Sequence[RowGradient]], samples: int) -> None:
        """Take one optimiser step with the sum of the gradients.

        Args: gradients: of each trainer, in the order in which they are to be added; of each one for every table.
            samples: of the global batch.
        """
        if any(len(one) != len(self.segments) for one in gradients):
            raise BugError(f"a step needs gradients for {len(self.segments)} tables")
        self.begin_step(samples)
        for number, segment in enumerate(self.segments):
            parts = [one[number] for one in gradients]
            if self._descends[number] and descend_rows(self._table_values[number], segment.method.rate, parts):
                continue
            rows, total = _sum_gradients(parts)
            resting = self._resting[number]
            if resting is None:
                self._step_all_rows(number, rows, total)
                continue
            for start in range(0, len(rows), self._block(segment)):
                part = slice(start, start + self._block(segment))
                self._step_some_rows(number, resting, rows[part], total[part])
            resting.end_step(np.float32(self.rate * segment.settings.traits.learning_rate))
            resting.note(rows)
            if resting.is_full:
                self._settle_rows(number, resting)
        for number, segment in enumerate(self.segments):
            if self._is_decay_due(segment):
                self._decay_table(number)
        self.finish_step()

    def _step_some_rows(self, number: int, resting: Resting, rows: RowIds, g: Array) -> None:
        segment = self.segments[number]
        settings = segment.settings
        if settings.clip:
            g = np.clip(g, np.float32(-settings.clip), np.float32(settings.clip))
        w = take_rows(self._table_values[number], rows)
        state = {name: take_rows(matrix, rows) for name, matrix in self._table_states[number].items()}
        scratch = [one[: w.size].reshape(w.shape) for one in self._scratch]
        last = self._last(segment, rows) if resting.counts or self._is_asynchronous else None
        if last is not None and resting.moves:
            resting.catch_up(w, state, rows, self.steps - 1 - last)
        segment.method.update(w, g, state, scratch, last)
        if settings.decay is not None and settings.decay.period == 1:
            self._pull(segment, w, state, scratch, 1)
        if self.averaging:
            self._add_to_sums(number, rows, self.steps - 1)
        put_rows(self._table_values[number], rows, w)
        for name, matrix in self._table_states[number].items():
            put_rows(matrix, rows, state[name])
        if last is not None:
            self.row_steps["step"][rows + np.uint32(segment.first_row)] = self.steps
        if self.averaging:
            self._add_to_sums(number, rows, self.steps)

    def _last(self, segment: Segment, rows: RowIds) -> Steps:
        """Return the step that each row took last, a column."""
        clock = self.row_steps["step"].take(rows + np.uint32(segment.first_row))[:, None]
        if self._is_asynchronous:  # what others were sent is none of their business
            return np.where(clock > 0, self.steps - 1, 0)
        return np.maximum(clock, segment.settled)

    def _step_all_rows(self, number: int, rows: RowIds, g: Array) -> None:
        """Step the whole table, with a gradient that is zero but for some rows."""
        segment = self.segments[number]
        gradient = self._gradients.get(number)
        if gradient is None:
            gradient = self._gradients[number] = np.zeros(segment.stop - segment.start, np.float32)
        matrix = gradient.reshape(-1, segment.settings.row_width)
        put_rows(matrix, rows, g)
        chunks = [
            (segment, start, min(start + BLOCK, segment.stop)) for start in range(segment.start, segment.stop, BLOCK)
        ]
        self._crew.share(chunks, partial(self._step_chunk, [gradient], segment.start))
        matrix[rows] = 0

    # ----- Rows for those who ask -----

    def count_elements(self, rows: Sequence[RowIds]) -> int:
        """Return how many elements rows of each table have."""
        return sum(len(one) * segment.settings.row_width for one, segment in zip(rows, self.segments, strict=True))

    def take(self, rows: Sequence[RowIds], out: Array | None = None) -> Array:
        """Return rows as they are after the last step, table after table, in `out` if it is given.

        Shapes: result, out: (elements of all these rows,).
        """
        result = np.empty(self.count_elements(rows), np.float32) if out is None else out
        start = 0
        for number, some in enumerate(rows):
            width = self.segments[number].settings.row_width
            size = len(some) * width
            self._bring_up(number, some)
            take_rows(self._table_values[number], some, result[start : start + size].reshape(-1, width))
            start += size
        return result

    def catch_up(self) -> None:
        """Bring every row to where it is after the last step."""
        for number, segment in enumerate(self.segments):
            resting = self._resting[number]
            if segment.settings.decay is not None and segment.settings.decay.period > 1:
                self._decay_table(number)
            if resting is not None and not self._is_asynchronous:
                self._settle_rows(number, resting)
            if resting is not None and self.averaging:
                self._add_all_to_sums(number)

    def _decay_table(self, number: int) -> None:
        """Pull all rows to zero at once; those that rested count in the averages as they were until now."""
        if self._resting[number] is not None and self.averaging:
            self._add_all_to_sums(number)
        self._decay_all(self.segments[number])

    def _bring_up(self, number: int, rows: RowIds) -> None:
        """Catch some rows up; those that take no part in a step meanwhile need it only when they move."""
        resting, segment = self._resting[number], self.segments[number]
        if resting is None or not resting.moves:
            return
        last = self._last(segment, rows)
        late = np.flatnonzero(last[:, 0] < self.steps)
        for start in range(0, len(late), self._block(segment)):
            some = late[start : start + self._block(segment)]
            self._catch_up(number, resting, rows[some], last[some])

    def _catch_up(self, number: int, resting: Resting, rows: RowIds, last: Steps) -> None:
        segment = self.segments[number]
        w = take_rows(self._table_values[number], rows)
        state = {name: take_rows(matrix, rows) for name, matrix in self._table_states[number].items()}
        if resting.moves:
            resting.catch_up(w, state, rows, self.steps - last)
            resting.note(rows)
            put_rows(self._table_values[number], rows, w)
        else:
            segment.method.pass_over(state, self.steps - last)
        for name, matrix in self._table_states[number].items():
            put_rows(matrix, rows, state[name])
        self.row_steps["step"][rows + np.uint32(segment.first_row)] = self.steps

    def _settle_rows(self, number: int, resting: Resting) -> None:
        """Catch all rows up, and count from here."""
        segment = self.segments[number]
        if resting.counts and segment.settled < self.steps:
            clock = self.row_steps["step"][segment.first_row : segment.first_row + segment.rows]
            length = self._block(segment)
            for start in range(0, segment.rows, length):
                last = np.maximum(clock[start : start + length], segment.settled)
                late = np.flatnonzero(last < self.steps)
                self._catch_up(number, resting, (late + start).astype(np.uint32), last[late, None])
            segment.settled = self.steps
            resting.restart()

    # ----- Averages -----

    def _add_to_sums(self, number: int, rows: RowIds, now: int) -> None:
        """Add rows to the recent sum for the steps until `now` that it does not have yet, in which they rested."""
        segment = self.segments[number]
        place = rows + np.uint32(segment.first_row)
        missed = (now - self.row_steps["average"].take(place)).astype(np.float32)
        self.row_steps["average"][place] = now
        sums = self.state[SUMS[0]][segment.start : segment.stop].reshape(-1, segment.settings.row_width)
        put_rows(sums, rows, take_rows(sums, rows) + take_rows(self._table_values[number], rows) * missed[:, None])

    def _add_all_to_sums(self, number: int) -> None:
        segment = self.segments[number]
        for start in range(0, segment.rows, self._block(segment)):
            stop = min(start + self._block(segment), segment.rows)
            self._add_to_sums(number, np.arange(start, stop, dtype=np.uint32), self.steps)

    def _move_sums(self, averaging: Averaging) -> None:
        if averaging.is_window_full:
            for number, resting in enumerate(self._resting):
                if resting is not None:
                    self._add_all_to_sums(number)
        super()._move_sums(averaging)

    def _flush_denormals(self) -> None:
        """Only where all rows move in every step: in rows that rest, nothing computes with such numbers."""
        for segment, resting in zip(self.segments, self._resting, strict=True):
            if resting is None:
                self._flush_stretch(segment.start, segment.stop)

    @staticmethod
    def _block(segment: Segment) -> int:
        return max(BLOCK // segment.settings.row_width, 1)


def _sum_gradients(parts: Sequence[RowGradient]) -> RowGradient:
    """Return the union of the rows and the sums, added in the order given."""
    rows, total = parts[0]
    for more_rows, more in parts[1:]:
        rows, total = merge_rows(rows, total, more_rows, more)
    return rows, total


def make_segments(
    tables: Sequence[ParameterSpec], optimization: Optimization, *, is_asynchronous: bool
) -> list[Segment]:
    """Return one stretch for each table, even for those that have no row here.

    Raises: ConfigError: if the settings of a parameter do not go together, or not with the method.
    """
    segments: list[Segment] = []
    at = row = 0
    for index, p in enumerate(tables):
        if not p.sparse_update or p.is_static or p.row_width < 1 or p.size % p.row_width:
            raise BugError(f"parameter {p.name} is no table that is updated by rows")
        check_momentum(p, optimization)
        decay = separate_decay(p)
        traits = Traits(p.learning_rate, p.momentum, is_sparse=is_asynchronous)
        settings = Settings(
            traits,
            p.gradient_clipping_threshold,
            None if decay is None else replace(decay, by_row=False),
            p.row_width,
            p.name,
        )
        method = METHODS[optimization.learning_method](optimization, traits)
        segments.append(Segment(at, at + p.size, settings, method, index, row))
        at, row = at + p.size, row + segments[-1].rows
    return segments
