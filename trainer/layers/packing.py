"""The frames of a batch in the order in which a recurrent layer takes them: step by step, over all sequences."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kernels.rows import take_sum
from trainer.arguments import Array, DistinctGradient, Flowing, Ids, sum_repeated
from trainer.layers.workspace import Workspace


class Packing:
    """Packed order: the first frames of all sequences, then the second ones, ..., each from the longest sequence down.

    So the frames of step t are the rows begins[t]:begins[t + 1] of a packed matrix, and those that belong to the
    sequences which go on are the first ones of them: h[begins[t - 1]:][:live[t]] is the state before step t.

    Args: starts: where each sequence begins, and the end.  is_reversed: the first step is each sequence's last frame.
    Shapes: order: (sequences,) the longest first; live: (steps,) how many sequences have a frame at each step;
        begins: (steps + 1,); rows: (frames,) the frame of each packed row.
    """

    def __init__(self, starts: Ids, is_reversed: bool) -> None:
        lengths = np.diff(starts)
        self.frames = int(starts[-1]) if len(starts) else 0
        self.order: Ids = np.argsort(-lengths, kind="stable")
        self.steps = int(lengths.max(initial=0))
        ended = np.bincount(lengths, minlength=self.steps + 1)[: self.steps].cumsum()
        self.live: list[int] = (len(lengths) - ended).tolist()
        self.begins: list[int] = [0, *np.cumsum(self.live, dtype=np.int64).tolist()]
        self._step_of = np.repeat(np.arange(self.steps), self.live)
        self._place_in_step = np.arange(self.frames) - np.take(self.begins, self._step_of)
        sequence_of = self.order[self._place_in_step]
        if is_reversed:
            self.rows: Ids = starts[1:][sequence_of] - 1 - self._step_of
        else:
            self.rows = starts[sequence_of] + self._step_of

    @cached_property
    def places(self) -> Ids:
        """The packed row of each frame."""
        places = np.empty_like(self.rows)
        places[self.rows] = np.arange(self.frames)
        return places

    @cached_property
    def previous(self) -> Ids:
        """The packed row of the frame before, for each packed row from the second step on."""
        first = self.begins[min(1, self.steps)]
        previous: Ids = np.take(self.begins, self._step_of[first:] - 1) + self._place_in_step[first:]
        return previous

    def span(self, step: int) -> slice:
        """Return the packed rows of a step."""
        return slice(self.begins[step], self.begins[step + 1])

    def span_before(self, step: int) -> slice:
        """Return the packed rows of the step before, of the sequences that go on to this one."""
        return slice(self.begins[step - 1], self.begins[step - 1] + self.live[step])


class PackedInput:
    """The dense input of a recurrent layer, in packed order; where its rows repeat, its distinct rows are enough.

    Shapes: matrix: (any, width); rows: (frames,), the row of the matrix of each packed row.
    """

    def __init__(self, matrix: Array, index: Ids | None, packing: Packing) -> None:
        self.matrix = matrix
        self.rows = packing.rows if index is None else index.take(packing.rows)
        self._packing = packing
        self._repeats = index is not None

    def copy_step(self, step: int, result: Array, bias: Array | None = None, more: Array | None = None) -> None:
        """Copy the rows of a step, plus a bias, plus more rows for the first of them."""
        take_sum(result, self.matrix, self.rows[self._packing.span(step)], bias, more)

    def gradient(self, packed: Array, kept: Workspace) -> Flowing:
        """Return the input's gradient from the one in packed order; `kept` has the array for it."""
        if self._repeats:
            return DistinctGradient(sum_repeated(packed, self.rows))
        result = kept.rows("gradient", len(packed), packed.shape[1], packed.dtype)
        take_rows(packed, self._packing.places, result)
        return result


def take_rows(matrix: Array, rows: Ids, result: Array) -> None:
    """Copy rows of a matrix: result[i] = matrix[rows[i]]."""
    np.take(matrix, rows, axis=0, out=result, mode="clip")  # the default mode would copy `result` twice


def sum_rows(matrix: Array) -> Array:
    """Return the sum of a tall matrix's rows."""
    total: Array = np.ones(len(matrix), matrix.dtype) @ matrix
    return total
