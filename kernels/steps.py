"""Activations in one pass. Where a function returns False, numpy has to do it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]

KINDS = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}  # the activations that are compiled, by `active_type`


def are_compiled(kinds: Iterable[str]) -> bool:
    """Return whether all these activations are compiled."""
    return all(kind in KINDS for kind in kinds)


def activate(kind: str, z: Array) -> bool:
    """Put the activation's y in the place of z."""
    if compiled is None or kind not in KINDS or not fits(z):
        return False
    compiled.activate(KINDS[kind], z)
    return True


def differentiate(kind: str, out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of z, where g is that of y; `out` may be g."""
    if compiled is None or kind not in KINDS or not fits(out, g, y):
        return False
    compiled.differentiate(KINDS[kind], out, g, y)
    return True
