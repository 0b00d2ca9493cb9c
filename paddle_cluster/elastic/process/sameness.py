"""Finds out which arrays some rank has other than rank 0, so that a sync sends no other ones.

After a worker is lost, the others have the same arrays, those of their last commit. Their digests take a tenth of the
time of the arrays in shared memory, and far less over a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.digests import DIGEST_BYTES, digest_array
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.membership import WORKER


def list_stale(arrays: Sequence[npt.NDArray[Any]], names: bytes, name: str, *, has_same_names: bool = True) -> set[int]:
    """Return the numbers of the arrays that have other bytes on some rank than on rank 0; all ranks get the same.

    These are all arrays if a rank has not had the state of the job, or has other names.

    Args: names: what has to be the same on all ranks, e.g. names and types of the arrays.  name: begins the name of the
        collective.  has_same_names: False: this rank knows that it has other arrays than rank 0.
    """
    everything = set(range(len(arrays)))
    size = operations.size()
    if size == 1:
        return everything
    rows = [digest_array(np.frombuffer(names, np.uint8))] if WORKER.has_state and has_same_names else []
    if rows:
        rows += map(digest_array, arrays)
    own = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, DIGEST_BYTES)
    found = operations.allgather(own, f"{name}.digests")
    if not rows or len(found) != size * len(rows):
        return everything
    differs = (found.reshape(size, len(rows), DIGEST_BYTES) != found[: len(rows)]).any(axis=(0, 2))
    # a rank with another number of arrays has its names elsewhere, so that all ranks see a difference
    return everything if differs[0] else {int(number) - 1 for number in np.flatnonzero(differs)}
