"""Products of matrices, rounded as in the legacy program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]


def multiply(a: Array, b: Array) -> Array:
    """Return a b. Shapes: a: (n, k), b: (k, m) -> (n, m).

    If b has a single column, it is multiplied as two equal columns. BLAS would add the terms of a product of a matrix
    and a vector in a different order.
    """
    if b.shape[1] == 1:
        return np.ascontiguousarray((a @ np.repeat(b, 2, axis=1))[:, :1])
    product: Array = a @ b
    return product
