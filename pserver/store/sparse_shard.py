"""The rows of tables on one sparse service, and steps with the gradients of some rows.

As in v0.10, on synchronous servers every row takes every step, so that a table trains like a dense parameter. If rows
are lazy (`pserver.store.updates.lazy_rows`), only rows that a batch touches cost time. The other rows catch up when a
trainer requests them. On asynchronous servers, only the rows of received gradients take steps.

L1 and L2 are applied separately after the step, as in v0.10 for sparse parameters.

Source: spec/distributed.md 3.6 to 3.8, spec/trainer.md 4.12, 4.14. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paddle_base.kernels.tables import RowIds, descend_rows, merge_rows, put_rows, take_rows
from paddle_base.runtime.errors import BugError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from pserver.optim.method import Hyperparameters
from pserver.optim.methods import METHODS, check_supported
from pserver.optim.settings import Array, Optimization, ParameterSpec, Steps
from pserver.optim.sgd import Momentum
from pserver.optim.weight_decay import separate_decay
from pserver.store.parameter_groups import GroupSettings, ParameterGroup, check_momentum
from pserver.store.shard import Shard
from pserver.store.updates.lazy_rows import Doubles, LazyRows, find_lazy_rows

BLOCK = 1 << 16  # number of elements of rows that are processed at a time; copies of these rows stay in the cache

SparseGradient = tuple[RowIds, Array]  # the ascending numbers of n rows of a table, and their gradients: (n, width)


class SparseShard(Shard):
    """A shard whose parameters are tables, which take steps by rows.

    Args: tables: the parameters with the rows of this service (`pserver.store.sparse_partition.local_specs`).
        is_asynchronous: whether rows without a received gradient skip the step.
    Raises: ConfigError: the optimization is not supported, or does not fit a parameter.
    Thread safety: only one thread may call the methods.
    """

    def __init__(
        self,
        tables: Sequence[ParameterSpec],
        optimization: Optimization,
        *,
        is_asynchronous: bool = False,
        pool: ThreadPool = SINGLE_THREAD,
    ) -> None:
        check_supported(optimization)
        groups = make_table_groups(tables, optimization, is_asynchronous=is_asynchronous)
        super().__init__(groups, sum(table.size for table in tables), optimization, pool)
        self._is_asynchronous = is_asynchronous
        self._tables = [self._make_table(group) for group in groups]
        self._widths = [table.width for table in self._tables]

    def _make_table(self, group: ParameterGroup) -> _Table:
        is_averaged, settings = self.data.averaging is not None, group.settings

        def make_sums() -> Doubles:
            # the sums are stored with the clocks, so that a checkpoint contains the sums
            clock = self.data.row_clocks[f"pulled {settings.name}"] = np.zeros(2 + 2 * group.rows, np.int64)
            return clock.view(np.float64).reshape(-1, 2)

        lazy: LazyRows | None = LazyRows()
        if not self._is_asynchronous:
            lazy = find_lazy_rows(group.method, settings.decay, is_averaged=is_averaged, make_sums=make_sums)
        is_plain_sgd = (
            type(lazy) is LazyRows
            and isinstance(group.method, Momentum)
            and not (settings.hyperparameters.momentum or settings.decay or settings.clip)
            and not (is_averaged or self._is_asynchronous)
        )
        return _Table(group, lazy, is_plain_sgd, *self.data.matrices_of(group))

    # ----- Steps -----

    def step_sparse(self, gradients: Sequence[Sequence[SparseGradient]], samples: int) -> None:
        """Take one optimiser step with the sum of the gradients.

        Args: gradients: for each trainer, in the order of addition, one gradient for every table. samples: samples of
            the global batch.
        Raises: BugError: a trainer does not have one gradient for each table.
        """
        if any(len(one) != len(self._tables) for one in gradients):
            raise BugError(f"a step needs gradients of each trainer for {len(self._tables)} tables")
        self.begin_step(samples)
        for number, table in enumerate(self._tables):
            self._step_table(table, [one[number] for one in gradients])
        for table in self._tables:
            if self._decay.is_due(table.group):
                self._decay_table(table)
        if self.data.averaging and self.data.averaging.is_window_full:
            for table in self._tables:
                if table.lazy is not None:
                    self._sums.add_all_rows(table.group)
        self.finish_step()

    def _step_table(self, table: _Table, parts: Sequence[SparseGradient]) -> None:
        group, lazy = table.group, table.lazy
        if table.is_plain_sgd and descend_rows(table.values, group.method.rate, parts):
            return
        rows, total = merge_rows(parts)
        if lazy is None:
            self._step_all_rows(table, rows, total)
            return
        for some in _blocks(table, len(rows)):
            self._step_some_rows(table, lazy, rows[some], total[some])
        lazy.end_step(np.float32(self.data.rate * group.settings.hyperparameters.learning_rate))
        lazy.note(rows)
        if lazy.is_full:
            self._settle_rows(table, lazy)

    def _step_some_rows(self, table: _Table, lazy: LazyRows, rows: RowIds, g: Array) -> None:
        data, group = self.data, table.group
        settings = group.settings
        if settings.clip:
            g = np.clip(g, np.float32(-settings.clip), np.float32(settings.clip))
        w, arrays = table.take(rows)
        scratch = data.scratch_like(w)
        last = self._last(group, rows) if lazy.counts or self._is_asynchronous else None
        if last is not None and lazy.moves:
            lazy.catch_up(w, arrays, rows, data.steps - 1 - last)
        group.method.update(w, g, arrays, scratch, last)
        if settings.decay is not None and settings.decay.period == 1:
            self._decay.pull(group, w, arrays, scratch, 1)
        if data.averaging:
            # before the new values replace them, the old ones count for the steps that these rows have skipped
            self._sums.add_rows(group, rows, data.steps - 1)
        table.put(rows, arrays, w)
        if last is not None:
            data.row_clocks["step"][rows + np.uint32(group.first_row)] = data.steps
        if data.averaging:
            self._sums.add_rows(group, rows, data.steps)

    def _last(self, group: ParameterGroup, rows: RowIds) -> Steps:
        """Return the number of each row's last step, as a column."""
        clock = self.data.row_clocks["step"].take(rows + np.uint32(group.first_row))[:, None]
        if self._is_asynchronous:  # steps of gradients without this row do not count as steps that the row has missed
            return np.where(clock > 0, self.data.steps - 1, 0)
        return np.maximum(clock, group.settled)

    def _step_all_rows(self, table: _Table, rows: RowIds, g: Array) -> None:
        """Update the whole table by one step, with a gradient that is zero except for some rows."""
        group = table.group
        if table.gradient is None:
            table.gradient = np.zeros(table.values.shape, np.float32)
        put_rows(table.gradient, rows, g)
        starts = range(group.start, group.stop, BLOCK)
        chunks = [self.data.cut(group, start, min(start + BLOCK, group.stop)) for start in starts]
        self._dense.run(chunks, [table.gradient.reshape(-1)], group.start)
        table.gradient[rows] = 0

    # ----- Rows for trainers -----

    def count_elements(self, rows: Sequence[RowIds]) -> int:
        """Return the total number of elements of the given rows of each table."""
        count = 0
        for one, width in zip(rows, self._widths, strict=True):
            count += one.size * width
        return count

    def take(self, rows: Sequence[RowIds], out: Array | None = None) -> Array:
        """Return the values of rows after the last step, table by table, in `out` if it is given.

        Shapes: result, out: (elements of all these rows,).
        """
        result = np.empty(self.count_elements(rows), np.float32) if out is None else out
        start = 0
        for table, some, width in zip(self._tables, rows, self._widths, strict=True):
            end = start + some.size * width
            self._bring_up(table, some)
            take_rows(table.values, some, result[start:end].reshape(-1, width))
            start = end
        return result

    def catch_up(self) -> None:
        """Bring every row up to date with the last step."""
        for table in self._tables:
            decay = table.group.settings.decay
            if decay is not None and decay.period > 1:
                self._decay_table(table)
            if table.lazy is not None and not self._is_asynchronous:
                self._settle_rows(table, table.lazy)
            if table.lazy is not None and self.data.averaging:
                self._sums.add_all_rows(table.group)

    def _decay_table(self, table: _Table) -> None:
        """Decay all rows of a table; lazy rows are first added to the averages with their current values."""
        if table.lazy is not None and self.data.averaging:
            self._sums.add_all_rows(table.group)
        self._decay.decay_group(table.group)

    def _bring_up(self, table: _Table, rows: RowIds) -> None:
        """Bring some rows up to date without a step; only rows whose values change in every step need this."""
        lazy = table.lazy
        if lazy is None or not lazy.moves:
            return
        last = self._last(table.group, rows)
        late = np.flatnonzero(last[:, 0] < self.data.steps)
        for block in _blocks(table, len(late)):
            some = late[block]
            self._catch_up(table, lazy, rows[some], last[some])

    def _catch_up(self, table: _Table, lazy: LazyRows, rows: RowIds, last: Steps) -> None:
        w, arrays = table.take(rows)
        if lazy.moves:
            lazy.catch_up(w, arrays, rows, self.data.steps - last)
            lazy.note(rows)
            table.put(rows, arrays, w)
        else:
            table.group.method.pass_over(arrays, self.data.steps - last)
            table.put(rows, arrays)
        self.data.row_clocks["step"][rows + np.uint32(table.group.first_row)] = self.data.steps

    def _settle_rows(self, table: _Table, lazy: LazyRows) -> None:
        """Bring all rows up to date, and restart the counts."""
        group = table.group
        if lazy.counts and group.settled < self.data.steps:
            clock = self.data.clock_of("step", group)
            for block in _blocks(table, group.rows):
                last = np.maximum(clock[block], group.settled)
                late = np.flatnonzero(last < self.data.steps)
                self._catch_up(table, lazy, (late + block.start).astype(np.uint32), last[late, None])
            group.settled = self.data.steps
            lazy.restart()

    def _ranges_to_flush(self) -> Iterable[tuple[int, int]]:
        """Return the ranges of tables whose rows change in every step; denormals in other tables cost no time."""
        return [(table.group.start, table.group.stop) for table in self._tables if table.lazy is None]


@dataclass
class _Table:
    """One table, and the way in which its rows take steps.

    `lazy` computes skipped steps. If `lazy` is None, every row takes every step. In this case, `gradient` is the
    gradient of the whole table, and is zero between steps. `is_plain_sgd` says whether the gradients are summed and
    subtracted from the values in one operation.

    Shapes: values, each of arrays, gradient: (rows, width).
    """

    group: ParameterGroup
    lazy: LazyRows | None
    is_plain_sgd: bool
    values: Array
    arrays: dict[str, Array]
    gradient: Array | None = None

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return self.group.settings.row_width

    def take(self, rows: RowIds) -> tuple[Array, dict[str, Array]]:
        """Return copies of some rows of the values and of the optimiser's arrays."""
        return take_rows(self.values, rows), {name: take_rows(matrix, rows) for name, matrix in self.arrays.items()}

    def put(self, rows: RowIds, arrays: Mapping[str, Array], w: Array | None = None) -> None:
        """Write rows of the optimiser's arrays back, and also rows of the values if values are given."""
        if w is not None:
            put_rows(self.values, rows, w)
        for name, matrix in self.arrays.items():
            put_rows(matrix, rows, arrays[name])


def _blocks(table: _Table, count: int) -> Iterator[slice]:
    """Yield the ranges in which `count` rows of a table are processed."""
    length = max(BLOCK // table.width, 1)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


def make_table_groups(
    tables: Sequence[ParameterSpec], optimization: Optimization, *, is_asynchronous: bool
) -> list[ParameterGroup]:
    """Return one group for each table, even for tables without a row on this service."""
    groups: list[ParameterGroup] = []
    at = row = 0
    for index, p in enumerate(tables):
        if not p.sparse_update or p.is_static or p.row_width < 1 or p.size % p.row_width:
            raise BugError(f"parameter {p.name} is not a table that is updated by rows")
        check_momentum(p, optimization)
        decay = separate_decay(p)
        hyperparameters = Hyperparameters(p.learning_rate, p.momentum, is_sparse=is_asynchronous)
        settings = GroupSettings(
            hyperparameters,
            p.gradient_clipping_threshold,
            None if decay is None else replace(decay, by_row=False),
            p.row_width,
            p.name,
        )
        method = METHODS[optimization.learning_method](optimization, hyperparameters)
        groups.append(ParameterGroup(at, at + p.size, settings, method, index, row))
        at, row = at + p.size, row + groups[-1].rows
    return groups
