"""The types of arrays that collectives take, and bfloat16, which numpy does not have.

A bfloat16 number is the upper half of a float32 number. No I/O.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import halves

Flat = npt.NDArray[Any]
# marks 2 bytes as bfloat16; an array of uint16 becomes an array of bfloat16 by `.view(BFLOAT16)`
BFLOAT16 = np.dtype([("bfloat16", "<u2")])
DTYPES: tuple[np.dtype[Any], ...] = (
    *map(np.dtype, (np.float16, np.float32, np.float64, np.int32, np.int64)),
    *map(np.dtype, (np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_)),
    BFLOAT16,
)

_FLOAT16, _FLOAT32 = map(np.dtype, (np.float16, np.float32))


def name_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name of a type; numpy's own name of bfloat16 would be that of its bytes."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def widen_bfloat16(values: Flat, out: Flat | None = None) -> Flat:
    """Return bfloat16 numbers as float32 numbers, which is exact. Shapes: all (n,)."""
    if out is None:
        out = np.empty(len(values), np.float32)
    halves.widen_bfloat16(values.view(np.uint16), out)
    return out


def round_to_bfloat16(values: Flat, out: Flat) -> None:
    """Write float32 numbers to `out` as bfloat16 numbers, each rounded to the nearest, and a tie to the even one.

    Shapes: all (n,).
    """
    halves.round_to_bfloat16(values, out.view(np.uint16))


def convert(values: Flat, out: Flat) -> None:
    """Write numbers to `out` in its type, each rounded to the nearest, and a tie to the even one. Shapes: all (n,).

    Between float64 and a type of 16 bits numbers are rounded to float32, too, as in torch.
    """
    if values.dtype == out.dtype:
        out[...] = values
    elif (values.dtype, out.dtype) == (BFLOAT16, _FLOAT32):
        widen_bfloat16(values, out)
    elif values.dtype == BFLOAT16:
        out[...] = widen_bfloat16(values)
    elif out.dtype == BFLOAT16:
        round_to_bfloat16(values.astype(_FLOAT32, copy=False), out)
    elif (values.dtype, out.dtype) == (_FLOAT16, _FLOAT32):
        halves.widen_float16(values, out)
    elif out.dtype == _FLOAT16:
        halves.round_to_float16(values.astype(_FLOAT32, copy=False), out)
    else:
        out[...] = values
