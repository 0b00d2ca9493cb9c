"""Hot loops over arrays: compiled where a C compiler was there when the project was installed, else in numpy.

Both give the same results: update rules and random draws bit for bit, sums and exponentials within float32 rounding.
The compiled module takes contiguous float32 only; all else, such as the float64 of gradient checks, goes to numpy.

PADDLE_KERNELS=plain in the environment leaves the compiled module out.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_FLOAT32 = np.dtype(np.float32)


def _load() -> ModuleType | None:
    if os.environ.get("PADDLE_KERNELS") == "plain":
        return None
    try:
        return importlib.import_module("kernels._compiled")
    except ImportError:
        return None


compiled = _load()


def fits(*arrays: npt.NDArray[Any] | None) -> bool:
    """Return whether all arrays (None is none) are what the compiled functions take: contiguous, aligned float32."""
    for one in arrays:  # a loop: a generator would take longer than some of the functions
        if one is None:
            continue
        flags = one.flags
        if one.dtype != _FLOAT32 or not flags.c_contiguous or not flags.aligned:
            return False
    return True


def flush_denormals() -> None:
    """Make this thread's processor take numbers too small for full precision as zero, as the legacy did.

    Arithmetic on them is many times slower. Does nothing without the compiled module.
    """
    if compiled is not None:
        compiled.flush_denormals()
