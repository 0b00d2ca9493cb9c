"""What numpy says about the results of collectives, in the widest types, and arrays of every type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import BFLOAT16, round_to_bfloat16, widen_bfloat16
from paddle_cluster.elastic.collectives.requests import Reduction


def some_numbers(dtype: np.dtype, count: int, seed: int) -> np.ndarray:
    """Small whole numbers of any type, whose sums and products are exact."""
    values = np.random.default_rng(seed).integers(0 if dtype.kind in "ub" else -8, 8, count)
    return convert(values > 4 if dtype.kind == "b" else values, dtype)


def convert(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers in another type, which may be bfloat16."""
    if dtype != BFLOAT16:
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    out = np.empty(values.shape, np.uint16).view(BFLOAT16)
    round_to_bfloat16(values.astype(np.float32).reshape(-1), out.reshape(-1))
    return out


def widen(values: np.ndarray) -> np.ndarray:
    """The numbers in the widest type of their kind."""
    if values.dtype == BFLOAT16:
        return widen_bfloat16(values.reshape(-1)).reshape(values.shape).astype(np.float64)
    return values.astype(np.float64 if values.dtype.kind == "f" else values.dtype if values.dtype == bool else np.int64)


def reduced(data: Sequence[np.ndarray], reduction: int, prescale: float = 1.0, postscale: float = 1.0) -> np.ndarray:
    """The formula of an all-reduce. Integers that are averaged or scaled are truncated."""
    wide = np.stack([widen(one) for one in data])
    is_whole = wide.dtype.kind == "i"
    if prescale != 1.0:
        wide = (wide * prescale).astype(wide.dtype)
    folds = {Reduction.MIN: np.minimum, Reduction.MAX: np.maximum, Reduction.PRODUCT: np.multiply}
    total = folds.get(Reduction(reduction), np.add).reduce(wide, 0)
    divisor = len(data) if reduction == Reduction.AVERAGE else 1
    if divisor != 1 or postscale != 1.0:
        total = total * (postscale / divisor) if postscale != 1.0 else total / divisor
        total = np.trunc(total) if is_whole else total
    return convert(total.astype(np.int64) if is_whole else total, data[0].dtype)
