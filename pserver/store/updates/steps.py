"""Update a parameter group by optimiser steps: either all elements in chunks, or some rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from paddle_base.kernels.server_rounds import add_gradients
from paddle_base.runtime import glog
from pserver.optim.settings import Array, Rows
from pserver.store.parameter_groups import GroupSettings, ParameterGroup
from pserver.store.updates.average_sums import AverageSums
from pserver.store.updates.decay_steps import DecaySteps
from pserver.store.updates.shard_state import GroupChunk, ShardState, row_chunks


class DenseSteps:
    """Updates all elements of given chunks by one optimiser step, in the threads of the pool."""

    def __init__(self, data: ShardState, decay: DecaySteps) -> None:
        self._data = data
        self._decay = decay

    def run(self, chunks: Sequence[GroupChunk], gradients: Sequence[Array], origin: int = 0) -> None:
        """Update the values and the state of some chunks in place by one step with the summed gradients.

        Args: origin: the element of the shard at which each gradient begins.
        Shapes: all gradients have one length, and reach at least to the end of the last chunk.
        """
        self._data.pool.share(chunks, partial(self._step_chunk, gradients, origin))

    def _step_chunk(self, gradients: Sequence[Array], origin: int, thread: int, chunk: GroupChunk) -> None:
        group, start, stop, w, arrays = chunk
        data, settings = self._data, group.settings
        scratch = [one[: stop - start] for one in data.scratches[thread]]
        g = sum_gradients(gradients, start - origin, stop - origin, settings.clip, scratch.pop())
        group.method.update(w, g, arrays, scratch)
        if settings.decay is not None and settings.decay.period == 1:
            self._decay.pull(group, w, arrays, scratch, 1)
        if data.averaging:
            data.arrays["sum_recent"][start:stop] += w


class TouchedRows:
    """Updates only the rows that a batch touched. The other rows skip the step or are lazy (`ParameterGroup.rows`).

    Args: log_clipping: whether to log which rows are clipped.
    """

    def __init__(self, data: ShardState, decay: DecaySteps, sums: AverageSums, *, log_clipping: bool) -> None:
        self._data = data
        self._decay = decay
        self._sums = sums
        self._log_clipping = log_clipping

    def step(self, group: ParameterGroup, gradients: Sequence[Array], rows: Rows) -> None:
        """Update these rows of a group in place by one step with the summed gradients.

        Shapes: each gradient: (size of the shard,).
        """
        by_row = group.settings.decay is not None and group.settings.decay.by_row
        if not rows.size:
            return
        # the compiled loop reads one gradient, and neither clips nor decays
        is_plain = len(gradients) == 1 and not (group.settings.clip or by_row)
        if is_plain and self._step_in_place(group, gradients[0], rows):
            return
        data, steps = self._data, self._data.row_clocks["step"]
        values, matrices = data.matrices_of(group)
        for begin, end in row_chunks(rows.size, group.settings.row_width):
            some = rows[begin:end]
            clock = some + group.first_row
            w, arrays = values.take(some, axis=0), {name: one.take(some, axis=0) for name, one in matrices.items()}
            scratch = data.scratch_like(w)
            g = self._sum_rows(group, gradients, some)
            # a catch-up of all rows is noted once in `settled`, and not in each row's clock
            group.method.update(w, g, arrays, scratch, np.maximum(steps[clock, None], group.settled))
            steps[clock] = data.steps
            if by_row:
                decayed = data.row_clocks["decay"]
                self._decay.pull(group, w, arrays, scratch, data.steps - decayed[clock, None])
                decayed[clock] = data.steps
            values[some] = w
            for name, matrix in matrices.items():
                matrix[some] = arrays[name]
            if data.averaging:
                self._sums.add_rows(group, some, data.steps)

    def catch_up(self, group: ParameterGroup, now: int) -> None:
        """Apply the steps up to the step `now` that rows of a group have skipped."""
        if not group.rows or group.settled == now:
            return
        clock = self._data.clock_of("step", group)
        np.maximum(clock, group.settled, out=clock)
        late = np.flatnonzero(clock < now)
        _, matrices = self._data.matrices_of(group)
        for begin, end in row_chunks(late.size, group.settings.row_width):
            some = late[begin:end]
            arrays = {name: matrix.take(some, axis=0) for name, matrix in matrices.items()}
            group.method.pass_over(arrays, now - clock[some, None])
            for name, matrix in matrices.items():
                matrix[some] = arrays[name]
        group.settled = now

    def _step_in_place(self, group: ParameterGroup, gradient: Array, rows: Rows) -> bool:
        """Update these rows in place if the method has a compiled loop; return whether the rows were updated."""
        data, clock = self._data, rows + group.first_row
        values, matrices = data.matrices_of(group)
        last = np.maximum(data.row_clocks["step"][clock], group.settled)
        g = gradient[group.start : group.stop].reshape(values.shape)
        if not group.method.update_rows(values, g, matrices, np.ascontiguousarray(rows, np.int64), last):
            return False
        data.row_clocks["step"][clock] = data.steps
        if data.averaging:
            self._sums.add_rows(group, rows, data.steps)
        return True

    def _sum_rows(self, group: ParameterGroup, gradients: Sequence[Array], rows: Rows) -> Array:
        """Return the clipped sum of the gradients of some rows, in a new array."""
        settings = group.settings
        parts = [g[group.start : group.stop].reshape(-1, settings.row_width).take(rows, axis=0) for g in gradients]
        total = parts[0]
        for part in parts[1:]:
            total += part
        if settings.clip:
            if self._log_clipping:
                for row in total:
                    report_clipping(settings, row)
            np.clip(total, np.float32(-settings.clip), np.float32(settings.clip), out=total)
        return total


def sum_gradients(gradients: Sequence[Array], start: int, stop: int, clip: float, out: Array) -> Array:
    """Return the sum of the trainers' gradients of the elements [start, stop), added in the given order and clipped.

    Args: clip: the maximum magnitude of an element of the sum; 0: no limit. out: an array for the sum, which stays
        unused if a single aligned gradient without clipping is returned unchanged.
    """
    if len(gradients) > 1:
        add_gradients(out, gradients, start)
        total = out
    else:
        total = gradients[0][start:stop]
    if clip:
        return np.clip(total, np.float32(-clip), np.float32(clip), out=out)
    if not total.flags.aligned:  # a message may contain an unaligned array; compiled loops need aligned arrays
        np.copyto(out, total)
        return out
    return total


def report_clipping(settings: GroupSettings, gradient: Array) -> None:
    """Log the clipping of a gradient if an element exceeds the limit."""
    magnitudes = np.abs(gradient)
    if magnitudes.size and magnitudes.max() > settings.clip:
        glog.info(
            f"parameter={settings.name} need clipping, max grad={magnitudes.max():g} avg grad={magnitudes.mean():g}"
        )
