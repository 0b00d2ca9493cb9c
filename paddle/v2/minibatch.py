"""`paddle.batch`: samples in lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["batch"]


def batch(reader: Callable[[], Iterable[Any]], batch_size: int) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of lists of `batch_size` samples; the last list of a pass may be shorter.

    Raises: ValueError: batch_size is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be a positive integer")

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, batch_size)):
            yield part

    return batches
