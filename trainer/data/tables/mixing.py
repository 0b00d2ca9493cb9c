"""Mix the samples of several tables in the order in which a provider's generators are mixed (`trainer.data.reader`).

For each sample a draw of a random stream picks one of the tables that have samples left. Here many samples are picked
at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from trainer.arrays.rng import Stream
from trainer.data.chunks import Chunk
from trainer.data.lists import Encoded, slice_rows, take_rows

MOST_OPEN = 64  # maximum number of tables that are mixed at a time; the next one takes the place of one that has ended
DRAWS = 4096  # maximum number of samples in a chunk


class _Table:
    """The samples of a table that have not been taken.

    Attributes: left: the number of those in memory.
    """

    def __init__(self, blocks: Iterator[Chunk]) -> None:
        self._blocks = blocks
        self._block = Chunk(0, [], None)
        self.left = 0

    def fill(self) -> int:
        """Read a block if no sample is in memory, and return `left`, which is 0 at the end of the table."""
        while not self.left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block, self.left = block, block.rows
        return self.left

    def most_rows(self) -> int:
        """Return the number of samples in the current block, which has the size of a chunk."""
        return self._block.rows

    def take(self, count: int, levels: Sequence[int]) -> list[Encoded]:
        """Return the next samples, of which `left` are there."""
        first = self._block.rows - self.left
        self.left -= count
        return [
            slice_rows(slot, level, first, first + count)
            for slot, level in zip(self._block.encoded, levels, strict=True)
        ]


def mix(
    entries: Sequence[str], read: Callable[[str], Iterator[Chunk]], levels: Sequence[int], stream: Stream
) -> Iterator[Chunk]:
    """Yield the samples of all entries, mixed.

    Args: read: returns the blocks of an entry.  levels: for each slot the levels of lists in it.
    """
    if len(entries) == 1:
        yield from read(entries[0])
        return
    waiting = (_Table(read(entry)) for entry in entries)
    live = deque(islice(waiting, MOST_OPEN))
    draws = np.empty(0, np.uint32)
    pieces: list[tuple[npt.NDArray[np.int64], list[Encoded]]] = []  # (places in the chunk, samples)
    count, most = 0, DRAWS
    while live:
        draws = draws if len(draws) else stream.draws(DRAWS)
        picks = draws[: most - count] % np.uint32(len(live))
        ready = _count_ready(picks, live)
        if not ready:
            picked = int(picks[0])
            if not live[picked].fill():  # as in v0.10, the first table takes the place of one that has ended
                draws = draws[1:]
                live[picked] = live[0]
                live.popleft()
                live.extend(islice(waiting, 1))
            else:
                most = min(most, max(live[picked].most_rows(), count + 1))
            continue
        pieces += _take(picks[:ready], live, levels, count)
        count, draws = count + ready, draws[ready:]
        if count >= most:
            yield _join(pieces, levels, count)
            pieces, count, most = [], 0, min(DRAWS, *(table.most_rows() or DRAWS for table in live))
    if count:
        yield _join(pieces, levels, count)


def _count_ready(picks: npt.NDArray[np.uint32], live: Sequence[_Table]) -> int:
    """Return how many picks can be taken before one of an empty table."""
    ready = len(picks)
    for number, table in enumerate(live):
        places = np.flatnonzero(picks[:ready] == number)
        if len(places) > table.left:
            ready = int(places[table.left])
    return ready


def _take(
    picks: npt.NDArray[np.uint32], live: Sequence[_Table], levels: Sequence[int], count: int
) -> list[tuple[npt.NDArray[np.int64], list[Encoded]]]:
    taken = []
    for number, table in enumerate(live):
        places = np.flatnonzero(picks == number)
        if len(places):
            taken.append((places + count, table.take(len(places), levels)))
    return taken


def _join(pieces: Sequence[tuple[npt.NDArray[np.int64], list[Encoded]]], levels: Sequence[int], count: int) -> Chunk:
    order = np.empty(count, np.int64)
    order[np.concatenate([places for places, _ in pieces])] = np.arange(count)
    slots = []
    for slot, level in enumerate(levels):
        parts = zip(*(samples[slot] for _, samples in pieces), strict=True)
        slots.append(take_rows(tuple(np.concatenate(part) for part in parts), level, order))
    return Chunk(count, slots, None)
