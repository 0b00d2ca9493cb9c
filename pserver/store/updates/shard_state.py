"""The data of a shard: values, the optimiser's arrays, clocks of rows, and counters.

The parts of a shard (`steps`, `decay_steps`, `average_sums`) share one `ShardState`, which only stores data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from paddle_base.kernels.rules import zeros_apart
from paddle_base.runtime.processor.thread_pool import ThreadPool
from pserver.optim.averaging import SUMS, Averaging
from pserver.optim.settings import Array, Optimization, Steps
from pserver.store.parameter_groups import ParameterGroup

# number of elements that are processed at a time, so that values, state and scratch arrays stay in the cache;
# bench/pserver.py has measured the best number
CHUNK = 1 << 17
SCRATCHES = 4  # number of scratch arrays of each thread: one for the sum of gradients, and up to three for a rule
# finfo is read at import, while denormals are enabled, because numpy also determines the smallest denormal
TINY = np.finfo(np.float32).tiny
NO_CLOCKS: Steps = np.empty(0, np.int64)


class GroupChunk(NamedTuple):
    """The elements [start, stop) of a group: views of their values, and of the optimiser's arrays by name."""

    group: ParameterGroup
    start: int
    stop: int
    values: Array
    arrays: dict[str, Array]


class ShardState:
    """The arrays and counters of one shard.

    Attributes:
        groups: the parts of the flat vector whose elements are updated together.
        size: number of elements of all groups.  values: the parameters.
        arrays: the optimiser's arrays by name. An array exists if some group needs it; its memory is used only at
            that group's elements.
        row_clocks: for each purpose, the number of the step up to which each row with separate steps is up to date.
        averaging: the counters of model averaging, or None.
        pool: the threads that take a step together.  scratches: scratch arrays of each thread.
        steps: number of steps since the start of the run.  batch: number of steps of this pass.
        rate: rate of the last step, without a parameter's own factor.
    Shapes: values, arrays: (size,) float32; row_clocks: (rows of all groups,) int64.
    """

    def __init__(self, groups: list[ParameterGroup], size: int, optimization: Optimization, pool: ThreadPool) -> None:
        self.groups = groups
        self.size = size
        self.averaging = Averaging.of(optimization)
        self.values: Array = zeros_apart(size, 0)
        names = {name for group in groups for name in group.method.state_names()}
        kept = sorted(names | set(SUMS if self.averaging else ()))
        # number 0 belongs to the values, and number 1 to the gradient
        self.arrays = {name: zeros_apart(size, number) for number, name in enumerate(kept, 2)}
        self._recorded: dict[tuple[int, int], tuple[list[GroupChunk], list[GroupChunk]]] = {}
        rows = sum(group.rows for group in groups)
        clocks = ("step", "decay", "average") if rows else ()
        self.row_clocks: dict[str, Steps] = {name: np.zeros(rows, np.int64) for name in clocks}
        widest = max((group.settings.row_width for group in groups), default=0)
        length = max(min(CHUNK, size), widest)
        self.pool = pool
        self.scratches = [[np.empty(length, np.float32) for _ in range(SCRATCHES)] for _ in range(pool.count)]
        self.steps = 0
        self.batch = 0
        self.rate = float(np.float32(optimization.learning_rate))

    def work_on(self, values: Array) -> None:
        """Store the values in another array of the same length; its current contents become the values."""
        self.values = values
        self._recorded.clear()

    def whole_of(self, group: ParameterGroup) -> GroupChunk:
        """Return a whole group as one chunk."""
        parts, _ = self.parts_of(group.start, group.stop)
        return parts[0] if parts else self.cut(group, group.start, group.stop)

    def chunks_of(self, group: ParameterGroup) -> list[GroupChunk]:
        """Return the chunks of a group."""
        return self.parts_of(group.start, group.stop)[1]

    def parts_of(self, start: int, stop: int) -> tuple[list[GroupChunk], list[GroupChunk]]:
        """Return the groups' parts in the elements [start, stop): first each part as a whole, then all in chunks.

        The result is computed once for each range, because a range is always a group or a piece of a service.
        """
        known = self._recorded.get((start, stop))
        if known is None:
            found = [(one, max(start, one.start), min(stop, one.stop)) for one in self.groups]
            parts = [(one, first, last) for one, first, last in found if first < last]
            known = (
                [self.cut(*part) for part in parts],
                [self.cut(one, *ends) for one, first, last in parts for ends in chunks(first, last)],
            )
            self._recorded[start, stop] = known
        return known

    def cut(self, group: ParameterGroup, start: int, stop: int) -> GroupChunk:
        """Return the elements [start, stop) of a group."""
        return GroupChunk(group, start, stop, self.values[start:stop], self.arrays_of(group, start, stop))

    def arrays_of(self, group: ParameterGroup, start: int | None = None, stop: int | None = None) -> dict[str, Array]:
        """Return views of the optimiser's arrays of a group, or of its elements [start, stop)."""
        part = slice(group.start if start is None else start, group.stop if stop is None else stop)
        return {name: self.arrays[name][part] for name in group.method.state_names()}

    def matrices_of(self, group: ParameterGroup) -> tuple[Array, dict[str, Array]]:
        """Return views of a group's values and optimiser's arrays. Shapes: (rows, width) each."""
        shape = (-1, group.settings.row_width)
        arrays = {name: array.reshape(shape) for name, array in self.arrays_of(group).items()}
        return self.values[group.start : group.stop].reshape(shape), arrays

    def clock_of(self, purpose: str, group: ParameterGroup) -> Steps:
        """Return a view of the clocks of a group's rows; it is empty if the service has no row of a small table."""
        clocks = self.row_clocks.get(purpose, NO_CLOCKS)
        return clocks[group.first_row : group.first_row + group.rows]

    def scratch_like(self, array: Array) -> list[Array]:
        """Return the first thread's scratch arrays in the shape of an array of at most CHUNK elements or one row."""
        return [one[: array.size].reshape(array.shape) for one in self.scratches[0]]

    def flush_denormals(self, start: int, stop: int) -> None:
        """Set denormal numbers in the optimiser's arrays to zero.

        v0.10 always flushed denormal numbers (SSE FTZ/DAZ). The decaying state of elements without gradient would
        reach and keep denormal values, and arithmetic on denormals is many times slower.
        """
        for array in self.arrays.values():
            for first, last in chunks(start, stop):
                part = array[first:last]
                magnitude = np.abs(part, out=self.scratches[0][0][: part.size])
                part[magnitude < TINY] = 0


def chunks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges, at most CHUNK long, in which [start, stop) is processed."""
    for begin in range(start, stop, CHUNK):
        yield begin, min(begin + CHUNK, stop)


def row_chunks(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges in which `count` rows are processed. A range has at most CHUNK elements, or one row."""
    length = max(CHUNK // width, 1)
    for begin in range(0, count, length):
        yield begin, min(begin + length, count)
