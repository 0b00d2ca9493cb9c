"""Rows of matrices: what tables and sparse inputs are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, plain

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def _fits(*arrays: Array | None) -> bool:
    return compiled is not None and all(
        one is None or (one.dtype == np.float32 and one.flags.c_contiguous) for one in arrays
    )


def _as_int64(ids: Ids) -> Ids:
    return np.ascontiguousarray(ids, np.int64)


def add_rows(target: Array, ids: Ids, rows: Array) -> None:
    """Add rows[i] to target[ids[i]] in place; repeated ids add up.

    Shapes: target: (any, width), ids: (n,) not negative, rows: (n, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and _fits(target, rows) and rows.shape[1]:
        compiled.add_rows(target, _as_int64(ids), rows, rows.shape[1])
    else:
        plain.add_rows(target, ids, rows)


def sum_rows(table: Array, ids: Ids, starts: Ids, values: Array | None = None) -> Array:
    """Return for each stretch [starts[i], starts[i + 1]) the sum of values[k] * table[ids[k]]; zeros for an empty one.

    Shapes: table: (any, width), starts: (stretches + 1,), ids: (n,), values: (n,) or None for ones.
        result: (stretches, width)
    """
    if compiled is not None and _fits(table, values) and table.shape[1]:
        result = np.empty((len(starts) - 1, table.shape[1]), np.float32)
        compiled.sum_rows(result, table, _as_int64(ids), _as_int64(starts), table.shape[1], values)
        return result
    return plain.sum_rows(table, ids, starts, values)


def add_outer(target: Array, rows: Array, ids: Ids, starts: Ids, values: Array | None = None) -> None:
    """Add values[k] * rows[i] to target[ids[k]] in place for every k in [starts[i], starts[i + 1]).

    The gradient of `sum_rows`. Shapes: as there; rows: (stretches, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and _fits(target, rows, values) and rows.shape[1]:
        compiled.add_outer(target, rows, _as_int64(ids), _as_int64(starts), rows.shape[1], values)
    else:
        plain.add_outer(target, rows, ids, starts, values)
