"""Batches that several trainers divide among them: all have the same order of samples, whoever comes or leaves.

The order of a pass depends on the seed and on the number of the pass, and on nothing that has happened before. So a
trainer that joins, or goes back to an earlier batch, finds the batches that the others have.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.data.loading import OpenedProvider
from trainer.data.source import DataSource, DataStreams


class BatchShare(NamedTuple):
    """What one trainer has of a batch.

    Attributes: slots: its samples.  samples: their number, in units of the batch size; perhaps 0.  whole: the same of
        the whole batch.
    """

    slots: dict[str, Argument]
    samples: int
    whole: int


class DividedSource(DataSource):
    """The samples of one provider, which every trainer reads whole and of which each gets its share.

    A provider that is cached is read to its end before the first batch, so that later trainers have the same pool.

    Attributes: seed: of the order of all passes.

    Args: check: called now and then while the provider is waited for; what it raises ends the waiting.
        list_name: the list file, for messages.
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
        self._place: tuple[int, int] | None = None  # pass and batch that come next; None: not known

    def go_to(self, number: int, batches: int, size: int) -> None:
        """Let the next batch be the one after `batches` of pass `number`; `size` is that of the batches.

        Raises: DataError, MissingInputError: as of a batch; or the pass has fewer batches.
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
                    f"others have trained {batches}; it must give every process the same samples in the same order"
                )
        self._place = number, batches

    def next_share(self, size: int, number: int, trainers: int) -> BatchShare | None:
        """Return the share of trainer `number` of the next batch of `size` units, or None at the end of the pass.

        Raises: DataError, MissingInputError: if the provider raised or a sample is wrong or larger than a batch.
        """
        assert self._place is not None  # `go_to` comes first
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
    """Return the state that a stream begins a pass with; passes that follow each other have far ones."""
    return zlib.crc32(f"{seed} {number}".encode())


def seed_generators(seed: int) -> None:
    """Let the generators that a provider may draw from, Python's and numpy's, begin alike in every process."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
