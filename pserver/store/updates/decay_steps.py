"""Apply L1 and L2 to the values of a shard separately from the optimiser's step.

`pserver.optim.weight_decay.pull` has the arithmetic. Decay is applied after every step, after every k-th batch of a
pass (num_batches_regularization), or to a row when a batch touches the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddle_base.runtime.errors import BugError
from pserver.optim.settings import Array, Steps
from pserver.optim.weight_decay import pull
from pserver.store.parameter_groups import ParameterGroup
from pserver.store.updates.shard_state import ShardState, chunks, row_chunks


class DecaySteps:
    """Weight decay of one shard."""

    def __init__(self, data: ShardState) -> None:
        self._data = data

    def is_due(self, group: ParameterGroup) -> bool:
        """Return whether a whole group decays after this batch."""
        decay = group.settings.decay
        return decay is not None and decay.period > 1 and self._data.batch % decay.period == 0

    def decay_part(self, group: ParameterGroup, start: int, stop: int) -> None:
        """Decay the elements [start, stop) of a group for the batches since the last decay of the whole group."""
        data = self._data
        batches = data.batch - group.decayed
        if not batches:
            return
        for first, last in chunks(start, stop):
            w = data.values[first:last]
            self.pull(group, w, data.arrays_of(group, first, last), data.scratch_like(w), batches)

    def decay_group(self, group: ParameterGroup) -> None:
        """Decay a whole group for the batches since its last decay."""
        self.decay_part(group, group.start, group.stop)
        group.decayed = self._data.batch

    def decay_rows(self, group: ParameterGroup) -> None:
        """Decay the rows of a group for the steps that did not touch them."""
        data, has_rates = self._data, group.method.has_rates
        clock = data.clock_of("decay", group)
        seen = data.clock_of("step", group) > 0
        late = np.flatnonzero((clock < data.steps) & (seen | (not has_rates)))
        values, matrices = data.matrices_of(group)
        for begin, end in row_chunks(late.size, group.settings.row_width):
            some = late[begin:end]
            w = values[some]
            arrays = {name: matrix[some] for name, matrix in matrices.items()} if has_rates else {}
            self.pull(group, w, arrays, data.scratch_like(w), data.steps - clock[some, None])
            values[some] = w
        clock[:] = data.steps

    def catch_up(self, group: ParameterGroup) -> None:
        """Apply the decay that is due for a group."""
        decay = group.settings.decay
        if decay is not None and decay.by_row:
            self.decay_rows(group)
        elif decay is not None and decay.period > 1:
            self.decay_group(group)

    def pull(
        self,
        group: ParameterGroup,
        w: Array,
        arrays: Mapping[str, Array],
        scratch: Sequence[Array],
        batches: Steps | int,
    ) -> None:
        """Apply the decay of the given number of batches to values of a group, at the learning rate of the last step.

        Args: arrays: the optimiser's arrays of these elements. scratch: at least two arrays that may be overwritten.
            batches: number of batches to decay for, or for rows, a column with the number of each row.
        Raises: BugError: the group has no separate decay.
        """
        decay = group.settings.decay
        if decay is None:
            raise BugError("a group without separate decay cannot decay")
        rates = None
        if group.method.has_rates:
            rates = scratch[1]
            group.method.rates(arrays, rates)
        rate = np.float32(self._data.rate * group.settings.hyperparameters.learning_rate)
        pull(w, rates, scratch[0], decay, rate=rate, batches=batches)
