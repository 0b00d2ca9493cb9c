"""The legacy's random draws, and the masks made of them. Where a function returns None, numpy has to do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, plain

Draws = npt.NDArray[np.uint32]


def fill(out: Draws, state: int) -> int | None:
    """Fill an array with the draws that follow a state of `rand_r`, and return the state afterwards."""
    return None if compiled is None else int(compiled.draws(out, state))


def keep(draws: Draws, rate: float, dtype: npt.DTypeLike) -> npt.NDArray[np.floating[Any]]:
    """Return 1 where the draw, as a float32 from 0 to 1, is over the rate, else 0."""
    if compiled is not None and dtype == np.float32:
        mask = np.empty(draws.shape, np.float32)
        compiled.keep(mask, draws, rate)
        return mask
    return plain.keep(draws, rate).astype(dtype)
