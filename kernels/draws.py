"""The legacy's random numbers, and masks made from them. If a function returns None, the caller must use numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, plain

Draws = npt.NDArray[np.uint32]


def fill(out: Draws, state: int) -> int | None:
    """Fill an array with the random numbers that follow a state of `rand_r`, and return the state after them."""
    return None if compiled is None else int(compiled.draws(out, state))


def keep(draws: Draws, rate: float, dtype: npt.DTypeLike) -> npt.NDArray[np.floating[Any]]:
    """Return 1 where the random number, as a float32 from 0 to 1, is above the rate, else 0."""
    if compiled is not None and dtype == np.float32:
        mask = np.empty(draws.shape, np.float32)
        compiled.keep(mask, draws, rate)
        return mask
    return plain.keep(draws, rate).astype(dtype)
