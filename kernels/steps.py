"""Activations in one pass. If a function returns False, the caller must use numpy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]

KINDS = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}  # the compiled activations, by `active_type`


def are_compiled(kinds: Iterable[str]) -> bool:
    """Return whether all these activations are compiled."""
    return all(kind in KINDS for kind in kinds)


def activate(kind: str, z: Array) -> bool:
    """Replace z by the activation's y."""
    if compiled is None or kind not in KINDS or not fits(z):
        return False
    compiled.activate(KINDS[kind], z)
    return True


def differentiate(kind: str, out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of z; g is the gradient of y. `out` may be g."""
    if compiled is None or kind not in KINDS or not fits(out, g, y):
        return False
    compiled.differentiate(KINDS[kind], out, g, y)
    return True


def softmax(y: Array, floor: float) -> bool:
    """Replace each row by its softmax; numbers more than `-floor` below the row's maximum are raised to that limit.

    Shapes: y: (rows, width), not empty.
    """
    if compiled is None or not fits(y) or not y.size:
        return False
    compiled.softmax(y, y.shape[1], floor)
    return True


def differentiate_softmax(out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of a softmax's z; g is the gradient of y. Shapes: (rows, width), not empty."""
    if compiled is None or not fits(out, g, y) or not y.size:
        return False
    compiled.softmax_gradient(out, g, y, y.shape[1])
    return True
