"""`paddle.batch`: samples in lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def batch(reader: Callable[[], Iterable[Any]], batch_size: int) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of lists of `batch_size` samples; the last list may be shorter."""

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, batch_size)):
            yield part

    return batches
