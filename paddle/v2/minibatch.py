"""`paddle.batch`: samples in lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainer.data.checks import shorten
from trainer.v2.errors import WrongTypeError, WrongValueError, advising

__all__ = ["batch"]


@advising
def batch(reader: Callable[[], Iterable[Any]], batch_size: int) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of lists of `batch_size` samples; the last list of a pass may be shorter.

    Raises: TypeError, ValueError: the reader is no function, or batch_size is no positive integer.
    """
    if not callable(reader):
        raise WrongTypeError(f"batch: the reader is {shorten(reader)}; it must be a function that returns samples")
    if not isinstance(batch_size, int):
        raise WrongTypeError(f"batch: batch_size is {shorten(batch_size)}; it must be a positive integer")
    if batch_size < 1:
        raise WrongValueError(f"batch_size is {batch_size}; it must be a positive integer")

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, batch_size)):
            yield part

    return batches
