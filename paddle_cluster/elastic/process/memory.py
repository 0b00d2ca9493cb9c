"""Memory for what other ranks send, whose sizes nobody has signed."""

from __future__ import annotations

import os

import numpy as np

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.dtypes import Flat


def check_fits(nbytes: int, sender: int, what: str) -> None:
    """Check that this machine could have memory for the bytes that a rank will send.

    Raises: DataError: it could not.
    """
    if not 0 <= nbytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise _refuse(nbytes, sender, what)


def allocate(nbytes: int, sender: int, what: str) -> Flat:
    """Return memory for the bytes that a rank will send; the system gives the memory when it is written.

    Raises: DataError: this machine has no memory of this size.
    """
    check_fits(nbytes, sender, what)
    try:
        return np.empty(nbytes, np.uint8)
    except MemoryError as exc:
        raise _refuse(nbytes, sender, what) from exc


def _refuse(nbytes: int, sender: int, what: str) -> DataError:
    return DataError(f"rank {sender} sent {what} of {nbytes} bytes, for which this machine has no memory")
