"""Conversions between float32 and the floats of 16 bits: float16, and bfloat16, which is the upper half of a float32.

numpy converts float16 number by number, and does not know bfloat16. Without the compiled module numpy gives equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, plain

Array = npt.NDArray[Any]
MAX_SOURCES = 15  # arrays that the compiled module adds at once


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


def add_float16(sources: Sequence[Array], out: Array, divisor: float = 1.0) -> None:
    """Write the sum of float16 arrays to `out`: added in float32 in their order, divided, and rounded once.

    Shapes: all (n,). `out` may be one of the sources.
    """
    if compiled is not None and _can_add(sources, out):
        compiled.add_float16(out.view(np.uint16), divisor, *(one.view(np.uint16) for one in sources))
    else:
        round_to_float16(_add(sources, divisor, widen_float16), out)


def add_bfloat16(sources: Sequence[Array], out: Array, divisor: float = 1.0) -> None:
    """Write the sum of bfloat16 arrays, as uint16, to `out`; see `add_float16`."""
    if compiled is not None and _can_add(sources, out):
        compiled.add_bfloat16(out, divisor, *sources)
    else:
        round_to_bfloat16(_add(sources, divisor, widen_bfloat16), out)


def _can_add(sources: Sequence[Array], out: Array) -> bool:
    return len(sources) <= MAX_SOURCES and all(_fits(one, out) for one in sources)


def _add(sources: Sequence[Array], divisor: float, widen: Callable[[Array, Array], None]) -> Array:
    total, values = (np.empty(len(sources[0]), np.float32) for _ in range(2))
    widen(sources[0], total)
    for source in sources[1:]:
        widen(source, values)
        total += values
    if divisor != 1.0:
        total /= np.float32(divisor)
    return total


def _fits(one: Array, other: Array) -> bool:
    flags, more = one.flags, other.flags
    return flags.c_contiguous and flags.aligned and more.c_contiguous and more.aligned
