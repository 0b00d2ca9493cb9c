"""The sums of recent values, and their average (`average_window` of the config).

`pserver.optim.averaging` has the counters; this module has the sums. For an element that takes every step, the step
itself adds the element to the recent sum. A row with separate steps is added when it takes a step, multiplied by the
number of steps that the sum does not contain yet.
"""

from __future__ import annotations

import numpy as np

from paddle_base.kernels.tables import put_rows, take_rows
from pserver.optim.averaging import SUMS
from pserver.optim.settings import Array, Rows
from pserver.store.parameter_groups import ParameterGroup
from pserver.store.updates.shard_state import ShardState, chunks, row_chunks


class AverageSums:
    """The sums of recent values of one shard."""

    def __init__(self, data: ShardState) -> None:
        self._data = data

    def add_rows(self, group: ParameterGroup, rows: Rows, now: int) -> None:
        """Add rows to the recent sum for the steps until `now` that the sum does not contain yet."""
        data = self._data
        place = rows + rows.dtype.type(group.first_row)
        missed = (now - data.row_clocks["average"].take(place)).astype(np.float32)
        data.row_clocks["average"][place] = now
        ids = np.ascontiguousarray(rows, np.uint32)
        values, _ = data.matrices_of(group)
        sums = data.arrays[SUMS[0]][group.start : group.stop].reshape(values.shape)
        put_rows(sums, ids, take_rows(sums, ids) + take_rows(values, ids) * missed[:, None])

    def add_all_rows(self, group: ParameterGroup) -> None:
        """Add all rows of a group to the recent sum, for the steps that the sum does not contain yet."""
        for begin, end in row_chunks(group.rows, group.settings.row_width):
            self.add_rows(group, np.arange(begin, end, dtype=np.uint32), self._data.steps)

    def finish_step(self) -> None:
        """Add the recent sum to the older sum if this is due. At the end of a window, both sums become the sum of the
        previous window.
        """
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
        """Return a new array: the average of recent values, or a copy of the values if nothing is averaged."""
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
