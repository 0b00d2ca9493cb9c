"""The values of some ranges of the parameters, the optimiser's state of these values, and the optimiser's steps.

A trainer without servers has one `DenseShard` of all parameters. Each service of a server has its own shard: a
`DenseShard` of blocks, or a `SparseShard` (`pserver.store.sparse_shard`) of rows. The parts of a step are in `steps`,
`decay_steps` and `average_sums`; the data is in `shard_state`. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from paddle_base.runtime.errors import BugError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from pserver.optim.methods import ALL_METHODS, check_supported
from pserver.optim.schedules import Schedule
from pserver.optim.settings import Array, Optimization, ParameterSpec, Rows
from pserver.store.parameter_groups import ParameterGroup, find_parameter_groups
from pserver.store.partition import Range
from pserver.store.updates.average_sums import AverageSums
from pserver.store.updates.decay_steps import DecaySteps
from pserver.store.updates.shard_state import GroupChunk, ShardState
from pserver.store.updates.steps import DenseSteps, TouchedRows, report_clipping

FLUSH_PERIOD = 128  # number of steps between two flushes of denormal numbers
ALL_ROWS: Mapping[int, Rows] = {}


class Shard:
    """The common part of dense and sparse shards: steps, passes, and averages that replace the values.

    Attributes:
        data: the arrays and counters.  values: the parameters in one flat array, which is `data.values`.
        samples: samples of all trainers since the start of the run. passes: number of finished passes.
    Raises: ConfigError: the optimization is not supported, or does not fit a parameter. Thread safety: only one thread
        may call the methods.
    """

    def __init__(
        self, groups: list[ParameterGroup], size: int, optimization: Optimization, pool: ThreadPool = SINGLE_THREAD
    ) -> None:
        self.optimization = optimization
        self.data = ShardState(groups, size, optimization, pool)
        self.values = self.data.values
        self.schedule = Schedule(optimization)
        self.samples = 0
        self.passes = 0
        self._decay = DecaySteps(self.data)
        self._sums = AverageSums(self.data)
        self._dense = DenseSteps(self.data, self._decay)
        self._unaveraged: Array | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.data.size

    def work_on(self, values: Array) -> None:
        """Store the values in another array of the same length; its current contents become the values."""
        self.data.work_on(values)
        self.values = values

    @property
    def groups(self) -> Sequence[ParameterGroup]:
        """The groups of elements of the flat vector; the elements of a group are updated together."""
        return self.data.groups

    @property
    def steps(self) -> int:
        """The number of steps since the start of the run."""
        return self.data.steps

    @property
    def state(self) -> Mapping[str, Array]:
        """The optimiser's arrays by name; after `catch_up` they have the state after the last step."""
        return self.data.arrays

    # ----- Steps and passes -----

    def begin_step(self, samples: int) -> None:
        """Begin a step of a global batch of `samples` samples: compute its rate and the methods' constants."""
        data = self.data
        data.steps += 1
        data.batch += 1
        self.samples += samples
        if ALL_METHODS[self.optimization.learning_method].uses_schedule:
            data.rate = self.schedule.rate(self.samples, self.passes)
        if data.averaging:
            data.averaging.start_step()
        for group in data.groups:
            group.method.start_step(data.rate, data.steps)

    def finish_step(self) -> None:
        """End a step, after all elements have taken it."""
        data = self.data
        for group in data.groups:
            whole = data.whole_of(group)
            group.method.finish_step(whole.values, whole.arrays)
            if self._decay.is_due(group):
                group.decayed = data.batch
        self._sums.finish_step()
        if data.steps % FLUSH_PERIOD == 0:
            for start, stop in self._ranges_to_flush():
                data.flush_denormals(start, stop)

    def finish_pass(self) -> None:
        """Bring every element up to date and count the pass, on which pass-based schedules depend."""
        self.catch_up()
        self.data.batch = 0
        for group in self.data.groups:
            group.decayed = 0
        self.passes += 1
        if self.data.averaging:
            self.data.averaging.finish_pass()

    def catch_up(self) -> None:
        """Bring every element up to date with the last step, including decay that is still due."""
        raise NotImplementedError

    def _ranges_to_flush(self) -> Iterable[tuple[int, int]]:
        """Return the elements whose state may become denormal."""
        raise NotImplementedError

    # ----- Averages -----

    @property
    def is_averaged(self) -> bool:
        """Whether the values of the last steps are averaged."""
        return self.data.averaging is not None

    @property
    def shows_averages(self) -> bool:
        """Whether `values` contains averages."""
        return self._unaveraged is not None

    def apply_average(self) -> None:
        """Replace the values by the average of recent values, until `restore` is called."""
        self.catch_up()
        averaging = self.data.averaging
        if averaging is None or self._unaveraged is not None or not averaging.count:
            return
        self._unaveraged = self.values.copy()
        self.values[:] = self._sums.average()

    def restore(self) -> None:
        """Replace the average by the values for training."""
        if self._unaveraged is not None:
            self.values[:] = self._unaveraged
            self._unaveraged = None

    def averages(self) -> Array:
        """Return a new array: the average of recent values, or a copy of the values if nothing is averaged.

        Every element is brought up to date first, so decay that is due only after every k-th batch may be applied
        early.
        """
        self.catch_up()
        return self._sums.average()


class DenseShard(Shard):
    """A shard of ranges of the parameters, in which every element takes every step, with two exceptions.

    In local training, rows of a parameter with sparse_update may skip a step. Rows without gradient skip a step and
    catch up later, if that saves time and changes no value (`ParameterGroup.rows`).

    Args: parameters: all parameters, in order.  ranges: the ranges of the parameters in this shard.
        per_parameter: whether every parameter has its own optimiser, as on a server and in local training with sparse
        parameters; otherwise, clipping, L1, num_batches_regularization and sparse rows have no effect.
        log_clipping: whether to log which gradients are clipped.
        pool: the threads that take a step together; the result does not depend on their number.
    Raises: ConfigError: the optimization is not supported, or does not fit a parameter.
    """

    def __init__(
        self,
        parameters: Sequence[ParameterSpec],
        ranges: Sequence[Range],
        optimization: Optimization,
        *,
        per_parameter: bool,
        log_clipping: bool = False,
        pool: ThreadPool = SINGLE_THREAD,
    ) -> None:
        check_supported(optimization)
        groups = find_parameter_groups(
            parameters, ranges, optimization, per_parameter=per_parameter, named=log_clipping
        )
        super().__init__(groups, sum(stop - start for _, start, stop in ranges), optimization, pool)
        self._rows = TouchedRows(self.data, self._decay, self._sums, log_clipping=log_clipping)
        self._log_clipping = log_clipping

    def step(self, gradient: Array | Sequence[Array], samples: int, touched: Mapping[int, Rows] = ALL_ROWS) -> None:
        """Take one optimiser step in place with the sum of the gradients.

        Args: gradient: the gradient, or the gradients of the trainers in the order of addition.
            samples: samples of the global batch.
            touched: for each parameter number, the rows that this batch touched, ascending. If a number is missing, the
                batch touched all rows of the parameter.
        Shapes: each gradient: (size,) float32; the gradients are not changed.
        Raises: BugError: a gradient has another shape or type.
        """
        gradients = [gradient] if isinstance(gradient, np.ndarray) else list(gradient)
        if not gradients or any(g.shape != self.values.shape or g.dtype != np.float32 for g in gradients):
            raise BugError(
                f"a step needs float32 gradients of {self.size} elements, not "
                f"{[(str(g.dtype), g.shape) for g in gradients]}"
            )
        self.begin_step(samples)
        pending: list[GroupChunk] = []
        for group in self.data.groups:
            pending += self._step_group(group, gradients, touched.get(group.parameter) if group.rows else None)
        self._dense.run(pending, gradients)
        for group in self.data.groups:
            if self._decay.is_due(group):
                self._decay.decay_part(group, group.start, group.stop)
        self.finish_step()

    def step_range(self, start: int, gradients: Sequence[Array]) -> None:
        """Update a range of elements by one step with the summed gradients. The range begins at `start` and is as long
        as each gradient.

        The caller first calls `begin_step`, then this method once for every range, then `finish_step`. After this
        method the range's values are final and may be sent, because `finish_step` does not change them.

        Shapes: each gradient: (length,) float32, one length for all; the gradients are not changed.
        """
        data = self.data
        parts, pending = data.parts_of(start, start + len(gradients[0]))
        for part in parts:
            if part.group.settled < data.steps:
                self._rows.catch_up(part.group, data.steps - 1)
                part.group.settled = data.steps
        self._dense.run(pending, gradients, start)
        for part in parts:
            if self._decay.is_due(part.group):
                self._decay.decay_part(part.group, part.start, part.stop)

    def _step_group(self, group: ParameterGroup, gradients: Sequence[Array], rows: Rows | None) -> list[GroupChunk]:
        """Update some rows of a group by one step, or return the group's chunks if the whole group must be updated."""
        if group.is_sparse:
            self._rows.step(group, gradients, np.arange(group.rows) if rows is None else rows)
            return []
        if rows is not None and group.saves_time(rows):
            self._rows.step(group, gradients, rows)
            return []
        self._rows.catch_up(group, self.data.steps - 1)
        group.settled = self.data.steps
        if group.settings.clip and self._log_clipping:
            report_clipping(group.settings, np.sum([g[group.start : group.stop] for g in gradients], axis=0))
        return self.data.chunks_of(group)

    def catch_up(self) -> None:
        """Apply the decay that is due, and the steps that lazy rows skipped."""
        for group in self.data.groups:
            self._decay.catch_up(group)
            if not group.is_sparse:
                self._rows.catch_up(group, self.data.steps)
            elif self.data.averaging:
                self._sums.add_all_rows(group)

    def rates(self, start: int, stop: int) -> Array | None:
        """Return each element's own rate in its last step, without the common rate, for the elements [start, stop).

        Return None if the method has no separate rates for elements. The rate of rows that took no step is 0.
        """
        if not ALL_METHODS[self.optimization.learning_method].has_rates:
            return None
        result: Array = np.zeros(stop - start, np.float32)
        for group in self.data.groups:
            first, last = max(start, group.start), min(stop, group.stop)
            if first < last:
                if not group.is_sparse:
                    self._rows.catch_up(group, self.data.steps)
                out = result[first - start : last - start]
                group.method.rates(self.data.arrays_of(group, first, last), out)
                if group.is_sparse:
                    rows = np.arange(first - group.start, last - group.start) // group.settings.row_width
                    out[self.data.clock_of("step", group)[rows] == 0] = 0
        return result

    def _ranges_to_flush(self) -> Iterable[tuple[int, int]]:
        """Return all elements."""
        return [(0, self.size)]
