"""Several trainers divide each batch. All trainers read the samples in the same order, even if trainers join or leave.

The order of a pass depends only on the seed and the number of the pass. Therefore a trainer that joins, or returns to
an earlier batch, reads the same batches as the other trainers.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.data.loading import OpenedProvider
from trainer.data.source import DataSource, DataStreams


class BatchShare(NamedTuple):
    """The share of one trainer in a batch.

    Attributes: slots: the samples of the share. samples: the sum of the units of these samples (see
        trainer/data/pool.py); it may be 0. whole: the sum of the units of all samples of the batch.
    """

    slots: dict[str, Argument]
    samples: int
    whole: int


class DividedSource(DataSource):
    """The samples of one provider. Every trainer reads all samples, and uses only its share of each batch.

    A cached provider is read to its end before the first batch. A trainer that joins later then has the same
    samples as the other trainers.

    Attributes: seed: the seed of the order of samples in all passes.

    Args: check: a function that is called repeatedly during a wait for the provider; an error that it raises ends the
        wait. list_name: the name of the list file, for messages.
    """

    def __init__(self, opened: OpenedProvider, seed: int, check: Callable[[], None], list_name: str) -> None:
        super().__init__(
            opened.provider,
            opened.entries,
            shuffled=opened.is_shuffled,
            streams=DataStreams(Stream(seed), Stream(seed)),
            check=check,
            list_name=list_name,
            constants=opened.constants,
        )
        self.seed = seed
        self._place: tuple[int, int] | None = None  # (pass, batch) of the next batch; None: unknown

    def go_to(self, number: int, batches: int, size: int) -> None:
        """Move to the position after the first `batches` batches of pass `number`; `size` is the batch size in units.

        Raises: DataError, MissingInputError: see `next_share`. DataError: the pass has fewer than `batches` batches.
        """
        if self._place == (number, batches):
            return
        self._place = None
        if self._is_cached:
            if not self._complete:
                seed_generators(self.seed)
                self._read_whole()
            self._pool.take_all()
        self._stream.state = seed_of_pass(self.seed, number)
        seed_generators(self._stream.state)
        self.start_pass()
        for done in range(batches):
            if not self._take(size)[1]:
                raise DataError(
                    f"the data provider {self._provider} gives this trainer {done} batches of pass {number}, of which "
                    f"other trainers have trained {batches}; it must give every process the same samples in the same "
                    "order"
                )
        self._place = number, batches

    def next_share(self, size: int, number: int, trainers: int) -> BatchShare | None:
        """Return the share of trainer `number` of the next batch of `size` units, or None at the end of the pass.

        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid or larger than a
            batch.
        """
        assert self._place is not None  # `go_to` must be called first
        place, self._place = self._place, None
        start, units = self._take(size)
        self._place = place[0], place[1] + bool(units)
        if not units:
            return None
        count = self._pool.head - start
        first, last = (start + count * one // trainers for one in (number, number + 1))
        slots, own = self._pool.gather_part(first, last)
        return BatchShare(self._add_constants(slots), own, units)


def seed_of_pass(seed: int, number: int) -> int:
    """Return the initial random state of a pass. The states of successive passes are far apart."""
    return zlib.crc32(f"{seed} {number}".encode())


def seed_generators(seed: int) -> None:
    """Seed the random generators of Python and numpy, which a provider may use. All trainers use the same seed."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
