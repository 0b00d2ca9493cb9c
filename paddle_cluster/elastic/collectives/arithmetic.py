"""Sums, averages, minima and maxima of the arrays of several ranks, always computed in the same order.

Sums of float16 are computed in float32 and rounded once. Averages of integers are rounded down, as in Horovod. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_cluster.elastic.collectives.requests import Reduction

Flat = npt.NDArray[Any]
BLOCK_BYTES = 1 << 17  # bytes of the result per step, so that the result and its sources stay in the processor's cache
_FLOAT16 = np.dtype(np.float16)
_UFUNCS = {
    Reduction.SUM: np.add,
    Reduction.AVERAGE: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
}


def working_dtype(dtype: np.dtype[Any], reduction: int) -> np.dtype[Any]:
    """Return the type in which a reduction computes its partial results."""
    is_sum = reduction in (Reduction.SUM, Reduction.AVERAGE)
    return np.dtype(np.float32) if dtype == _FLOAT16 and is_sum else dtype


def combine(out: Flat, sources: Sequence[Flat], reduction: int, size: int) -> None:
    """Write the reduction of the sources, in their order, to `out`; `out` may be one of the first two sources.

    Shapes: all (n,). Args: size: divisor of an average.
    """
    ufunc = _UFUNCS[Reduction(reduction)]
    work = working_dtype(out.dtype, reduction)
    step = BLOCK_BYTES // work.itemsize
    for begin in range(0, len(out), step):
        parts = [source[begin : begin + step] for source in sources]
        target = out[begin : begin + step]
        total = target if work == out.dtype else np.empty(len(target), work)
        if len(parts) == 1:
            total[...] = parts[0]
        else:
            ufunc(parts[0], parts[1], out=total, dtype=work)
        for part in parts[2:]:
            ufunc(total, part, out=total, dtype=work)
        if reduction == Reduction.AVERAGE:
            divide(total, size)
        if total is not target:
            target[...] = total


def fold(out: Flat, first: Flat, second: Flat, reduction: int) -> None:
    """Write the reduction of two partial results to `out`; `out` may be `first` or `second`."""
    _UFUNCS[Reduction(reduction)](first, second, out=out)


def divide(total: Flat, size: int) -> None:
    """Turn a sum of `size` arrays into an average in place."""
    if total.dtype.kind == "f":
        np.divide(total, size, out=total)
    else:
        np.floor_divide(total, size, out=total)
