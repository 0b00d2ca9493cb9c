"""Conversions between float32 and the floats of 16 bits: float16, and bfloat16, which is the upper half of a float32.

numpy converts float16 number by number, and does not know bfloat16. Without the compiled module numpy gives equal bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, plain

Array = npt.NDArray[Any]


def widen_float16(values: Array, out: Array) -> None:
    """Write float16 numbers to `out` as float32 numbers, which is exact. Shapes: both (n,)."""
    if compiled is not None and _fits(values, out):
        compiled.widen_float16(out.view(np.uint32), values.view(np.uint16))
    else:
        out[...] = values


def round_to_float16(values: Array, out: Array) -> None:
    """Write float32 numbers to `out` as float16 numbers, each rounded to the nearest, and a tie to the even one.

    Shapes: both (n,).
    """
    if compiled is not None and _fits(values, out):
        compiled.round_to_float16(out.view(np.uint16), values.view(np.uint32))
    else:
        out[...] = values


def widen_bfloat16(values: Array, out: Array) -> None:
    """Write bfloat16 numbers, as uint16, to `out` as float32 numbers, which is exact. Shapes: both (n,)."""
    if compiled is not None and _fits(values, out):
        compiled.widen_bfloat16(out.view(np.uint32), values)
    else:
        plain.widen_bfloat16(values, out)


def round_to_bfloat16(values: Array, out: Array) -> None:
    """Write float32 numbers to `out` as bfloat16 numbers in uint16; see `round_to_float16`. Shapes: both (n,)."""
    if compiled is not None and _fits(values, out):
        compiled.round_to_bfloat16(out, values.view(np.uint32))
    else:
        plain.round_to_bfloat16(values, out)


def _fits(one: Array, other: Array) -> bool:
    flags, more = one.flags, other.flags
    return flags.c_contiguous and flags.aligned and more.c_contiguous and more.aligned
