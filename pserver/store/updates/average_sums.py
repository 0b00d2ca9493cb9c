"""The sums of the values of the last steps, and their average (`average_window` of the config).

`pserver.optim.averaging` counts; here the sums are kept. An element that takes every step is added to the recent sum
by the step itself. A row that takes steps of its own is added when it changes, once for every step since.
"""

from __future__ import annotations

import numpy as np

from kernels.tables import put_rows, take_rows
from pserver.optim.averaging import SUMS
from pserver.optim.settings import Array, Rows
from pserver.store.parameter_groups import ParameterGroup
from pserver.store.updates.shard_state import ShardState, chunks, row_chunks


class AverageSums:
    """The sums of one shard; without effect where nothing is averaged."""

    def __init__(self, data: ShardState) -> None:
        self._data = data

    def add_rows(self, group: ParameterGroup, rows: Rows, now: int) -> None:
        """Add rows to the recent sum for the steps until `now` that it does not have yet."""
        data = self._data
        place = rows + rows.dtype.type(group.first_row)
        missed = (now - data.row_clocks["average"].take(place)).astype(np.float32)
        data.row_clocks["average"][place] = now
        ids = np.ascontiguousarray(rows, np.uint32)
        values, _ = data.matrices_of(group)
        sums = data.arrays[SUMS[0]][group.start : group.stop].reshape(values.shape)
        put_rows(sums, ids, take_rows(sums, ids) + take_rows(values, ids) * missed[:, None])

    def add_all_rows(self, group: ParameterGroup) -> None:
        """Add all rows of a group to the recent sum, for the steps that it does not have yet."""
        for begin, end in row_chunks(group.rows, group.settings.row_width):
            self.add_rows(group, np.arange(begin, end, dtype=np.uint32), self._data.steps)

    def finish_step(self) -> None:
        """Move the recent sum into the older one where that is due, and both into the previous window's."""
        averaging = self._data.averaging
        if averaging is None:
            return
        recent, older, previous = (self._data.arrays[name] for name in SUMS)
        if averaging.is_fold_due:
            older += recent
            recent.fill(0)
        if averaging.is_window_full:
            for group in self._data.groups:
                if group.is_sparse:
                    self.add_all_rows(group)
            np.add(recent, older, out=previous)
            recent.fill(0)
            older.fill(0)
            averaging.start_window()

    def average(self) -> Array:
        """Return the average of the last steps' values, or the values where nothing is averaged: a fresh array."""
        data = self._data
        if data.averaging is None or not data.averaging.count:
            return data.values.copy()
        result = np.empty_like(data.values)
        scale = np.float32(1.0 / data.averaging.count)
        for start, stop in chunks(0, data.size):
            part, scratch = result[start:stop], data.scratches[0][0][: stop - start]
            np.multiply(data.arrays[SUMS[0]][start:stop], scale, out=part)
            for name in SUMS[1:]:
                part += np.multiply(data.arrays[name][start:stop], scale, out=scratch)
        return result
