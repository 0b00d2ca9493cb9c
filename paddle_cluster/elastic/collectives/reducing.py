"""The arithmetic of reductions: scale factors, types of partial results, and roundings.

Sums, averages, products, minima and maxima of the arrays of several ranks are always computed in the same order. Those
of float16 and bfloat16, and their scale factors, are computed in float32 and rounded once; of float16 the products with
the first factor are rounded, too. Averages of integers, and integers that are multiplied by a scale factor, are rounded
toward zero. Both are as in Horovod. Averages of integers of 8 or 16 bits do not overflow, because their sums have 32
bits. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paddle_base.kernels.halves import add_bfloat16, add_float16
from paddle_cluster.elastic.collectives.dtypes import BFLOAT16, Flat, convert
from paddle_cluster.elastic.collectives.requests import Reduction, Request

BLOCK_BYTES = 1 << 17  # bytes of the result per step, so that the result and its sources stay in the processor's cache
_FLOAT16, _FLOAT32, _INT32 = map(np.dtype, (np.float16, np.float32, np.int32))
# of truth values, a sum and a maximum are "or", a product and a minimum are "and"
_UFUNCS = {
    Reduction.SUM: np.add,
    Reduction.AVERAGE: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
    Reduction.PRODUCT: np.multiply,
}


class Arithmetic(NamedTuple):
    """How the arrays of a request become its result.

    Attributes: prescale: factor of each array.  postscale: factor of the result.
    """

    dtype: np.dtype[Any]
    reduction: int
    prescale: float = 1.0
    postscale: float = 1.0

    @classmethod
    def of(cls, request: Request) -> Arithmetic:
        """Return the arithmetic of an all-reduce or a reduce-scatter."""
        return cls(request.dtype, request.argument, request.prescale, request.postscale)

    @property
    def working_dtype(self) -> np.dtype[Any]:
        """The type of partial results."""
        is_exact = self.reduction in (Reduction.MIN, Reduction.MAX) and self.prescale == self.postscale == 1.0
        if self.dtype == BFLOAT16 or (self.dtype == _FLOAT16 and not is_exact):
            return _FLOAT32
        is_narrow = self.dtype.kind in "iu" and self.dtype.itemsize < _INT32.itemsize
        is_divided = self.reduction == Reduction.AVERAGE or not self.prescale == self.postscale == 1.0
        return _INT32 if is_narrow and is_divided else self.dtype

    def load(self, source: Flat, out: Flat) -> None:
        """Write the scaled array to `out`. Shapes: all (n,). Types: `dtype`; `working_dtype` for `out`."""
        if self.prescale == 1.0:
            convert(source, out)
            return
        step = BLOCK_BYTES // out.itemsize
        for begin in range(0, len(out), step):
            part = out[begin : begin + step]
            if part.dtype.kind == "f":
                convert(source[begin : begin + step], part)
                np.multiply(part, self.prescale, out=part)
                if self.dtype == _FLOAT16:  # as Horovod, which has no larger numbers there
                    rounded = part.astype(_FLOAT16)
                    np.copyto(part, rounded, where=np.isfinite(rounded))
            else:
                _truncate(source[begin : begin + step], self.prescale, part)

    def fold(self, out: Flat, first: Flat, second: Flat) -> None:
        """Write the reduction of two partial results to `out`; `out` may be `first` or `second`."""
        _UFUNCS[Reduction(self.reduction)](first, second, out=out)

    def finish(self, total: Flat, size: int) -> None:
        """Turn the reduction of `size` arrays into the result in place; its type remains `working_dtype`."""
        is_average = self.reduction == Reduction.AVERAGE
        if total.dtype.kind == "f":
            if is_average and size > 1:
                np.divide(total, size, out=total)
            if self.postscale != 1.0:
                np.multiply(total, self.postscale, out=total)
        elif self.postscale != 1.0:
            _truncate(total, self.postscale / size if is_average else self.postscale, total)
        elif is_average:
            total -= np.fmod(total, size)  # the remainder has the sign of the sum, so the rest is divided exactly
            np.floor_divide(total, size, out=total)

    def store(self, total: Flat, out: Flat) -> None:
        """Write results of the type `working_dtype` to `out`, in its own type. Shapes: all (n,)."""
        convert(total, out)

    def combine(self, out: Flat, sources: Sequence[Flat], size: int) -> None:
        """Write the reduction of the sources, in their order, to `out`; `out` may be one of the first two sources.

        Shapes: all (n,). Args: size: divisor of an average.
        """
        if out.dtype.itemsize == 2 and self._adds_halves:
            self._add_halves(out, sources, size)
            return
        ufunc, work = _UFUNCS[Reduction(self.reduction)], self.working_dtype
        # then numpy itself converts the sources
        is_plain = self.prescale == 1.0 and not (work == _FLOAT32 and self.dtype.itemsize == 2)
        step = BLOCK_BYTES // work.itemsize
        room = min(step, len(out))
        totals: Flat = np.empty(0 if work == out.dtype else room, work)
        loaded: list[Flat] = [] if is_plain else [np.empty(room, work) for _ in range(2)]
        for begin in range(0, len(out), step):
            parts = [source[begin : begin + step] for source in sources]
            target = out[begin : begin + step]
            total = target if work == out.dtype else totals[: len(target)]
            first = self._loaded(parts[0], loaded, 0)
            if len(parts) == 1:
                total[...] = first
            for number, part in enumerate(parts[1:]):
                ufunc(total if number else first, self._loaded(part, loaded, 1), out=total, dtype=work)
            self.finish(total, size)
            if total is not target:
                self.store(total, target)

    @property
    def _adds_halves(self) -> bool:
        """Whether floats of 16 bits are added, without scale factors."""
        is_sum = self.reduction in (Reduction.SUM, Reduction.AVERAGE) and self.prescale == self.postscale == 1.0
        return is_sum and self.dtype in (_FLOAT16, BFLOAT16)

    def _add_halves(self, out: Flat, sources: Sequence[Flat], size: int) -> None:
        divisor = float(size) if self.reduction == Reduction.AVERAGE else 1.0
        if self.dtype == BFLOAT16:
            add_bfloat16([one.view(np.uint16) for one in sources], out.view(np.uint16), divisor)
        else:
            add_float16(sources, out, divisor)

    def combine_in_pairs(self, out: Flat, sources: Sequence[Flat], size: int) -> None:
        """Do the same as `combine` in the order in which a tree of ranks combines them, and so with the same bits.

        First as many pairs are combined as to leave a power of two of partial results, then always neighbours.
        """
        if len(sources) < 4:  # both orders are the same
            self.combine(out, sources, size)
            return
        parts = [self._loaded(source, [np.empty(len(source), self.working_dtype)], 0) for source in sources]
        pairs = len(parts) - (1 << (len(parts).bit_length() - 1))
        while len(parts) > 1:
            pairs = pairs or len(parts) // 2
            for first, second in zip(parts[: 2 * pairs : 2], parts[1 : 2 * pairs : 2], strict=True):
                self.fold(first, first, second)
            parts, pairs = [*parts[: 2 * pairs : 2], *parts[2 * pairs :]], 0
        self.finish(parts[0], size)
        self.store(parts[0], out)

    def _loaded(self, source: Flat, memory: Sequence[Flat], number: int) -> Flat:
        """Return the values as partial results; without memory, as they are."""
        if not memory:
            return source
        values = memory[number][: len(source)]
        self.load(source, values)
        return values


def _truncate(values: Flat, factor: float, out: Flat) -> None:
    out[...] = values * np.float64(factor)  # a product out of the type's range is undefined, as in Horovod
