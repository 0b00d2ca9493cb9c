"""Hot loops over arrays, compiled if the machine had a C compiler at installation, otherwise in numpy.

The compiled loops and the numpy loops give equal results. Update rules and random draws are equal bit for bit; sums and
exponentials are equal within float32 rounding. The compiled module accepts only contiguous float32 arrays; numpy
handles all other arrays, such as the float64 arrays of gradient checks.

PADDLE_KERNELS=plain in the environment disables the compiled module.
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
        return importlib.import_module("paddle_base.kernels._compiled")
    except ImportError:
        return None


compiled = _load()


def fits(*arrays: npt.NDArray[Any] | None) -> bool:
    """Return whether all arrays are contiguous float32 arrays, as the compiled functions need; None is ignored."""
    for one in arrays:  # `all` with a generator would take longer than some of the compiled functions
        if one is None:
            continue
        flags = one.flags
        if one.dtype != _FLOAT32 or not flags.c_contiguous or not flags.aligned:
            return False
    return True


def flush_denormals() -> None:
    """Make this thread's processor treat denormal numbers as zero, as in PaddlePaddle v0.10.

    Arithmetic on denormal numbers is many times slower. Without the compiled module this function does nothing.
    """
    if compiled is not None:
        compiled.flush_denormals()


def keep_memory() -> None:
    """Let this process keep the memory of freed arrays for the next arrays.

    Without this call, the process returns the memory of every large array to the operating system. The next batch would
    then need new pages, and the system fills each new page with zeros. Without the compiled module this function does
    nothing.
    """
    if compiled is not None:
        compiled.keep_memory()
