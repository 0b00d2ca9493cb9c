"""The pool: encoded samples that batches are picked from.

Picking is done while a batch is cut, in the main thread and with its random stream: that makes a shuffled run repeat.
With the pool P of n samples, each sample costs one draw r: exchange P[r mod n] and P[0], take P[0] off the front.
So the taken samples, in the order taken, are what P looks like before its head: the next pass of a cached provider.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from kernels.samples import pick_samples
from runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.data.columns import ColumnSet
from trainer.data.provider2 import DataProvider
from trainer.data.reader import Chunk

COMPACT_ROWS = 4096  # taken samples are forgotten when there are at least this many and they are the majority


class SamplePool:
    """Samples in columns, and the order in which they are picked.

    Args: shuffled: whether to pick at random.  stream: draws where to pick.
    Attributes: columns: the encoded samples.  order: rows of the columns; those before `head` are taken.
        units_left: what is not taken yet, in units of the batch size.
    Thread safety: one thread.
    """

    def __init__(self, provider: DataProvider, *, shuffled: bool, stream: Stream) -> None:
        self._provider = provider
        self._shuffled = shuffled
        self._stream = stream
        self.columns = ColumnSet(provider.input_order, provider.slots)
        self._units: list[int] = []  # of every row of the columns; empty where each counts one
        self.order = array("q")
        self.head = 0
        self._read = 0  # number of rows of the columns that are in the pool
        self.units_left = 0

    def rewind(self) -> None:
        """Give all samples again, in the order in which they were taken."""
        self.head = 0
        self.units_left = sum(self._units) if self._units else len(self.order)

    def append(self, chunk: Chunk) -> None:
        """Append the samples of a chunk to the columns; `fill` takes them into the pool."""
        self.columns.extend(chunk.encoded, chunk.rows)
        if chunk.units is not None:
            self._units += chunk.units

    def take_all(self) -> None:
        """Take all samples of the columns into the pool."""
        self._read = self.columns.rows
        self.order = array("q", range(self._read))

    def fill(self, wanted: int, receive: Callable[[], bool]) -> None:
        """Take samples into the pool until it has `wanted` units, or there are no more.

        Args: receive: appends a chunk; False when there is none.
        """
        while self.units_left < wanted:
            if self._read == self.columns.rows and not receive():
                return
            if self._units:
                self.order.append(self._read)
                self.units_left += self._units[self._read]
                self._read += 1
            else:
                count = min(wanted - self.units_left, self.columns.rows - self._read)
                self.order.extend(range(self._read, self._read + count))
                self.units_left += count
                self._read += count

    def pick(self, size: int) -> int:
        """Move the head over the samples of one batch, and return their units."""
        units = self._pick_by_units(size) if self._units else self._pick_by_count(size)
        self.units_left -= units
        return units

    def _pick_by_count(self, size: int) -> int:
        count = min(size, len(self.order) - self.head)
        if self._shuffled and count:
            pick_samples(self.order, self.head, self._stream.draws(count))
        self.head += count
        return count

    def _pick_by_units(self, size: int) -> int:
        total, order = 0, self.order
        while total < size and self.head < len(order):
            if self._shuffled:
                picked = self.head + self._stream.draw() % (len(order) - self.head)
                order[self.head], order[picked] = order[picked], order[self.head]
            units = self._units[order[self.head]]
            if not self._provider.can_over_batch_size and total + units > size:
                if total == 0 and self._provider.takes_longer_alone:
                    self.head += 1
                    return units
                if total == 0:
                    raise DataError(
                        f"data provider {self._provider}: a sample counts {units} units, more than the "
                        f"batch size {size}, and can_over_batch_size is off; raise batch_size, or set it"
                    )
                break
            total += units
            self.head += 1
        return total

    def gather(self, start: int) -> dict[str, Argument]:
        """Return the samples from a place in the order up to the head, by slot."""
        return self.columns.gather(np.array(self.order[start : self.head], np.int64))

    def gather_part(self, first: int, last: int) -> tuple[dict[str, Argument], int]:
        """Return the samples of some places in the order, by slot, and their units."""
        rows = np.array(self.order[first:last], np.int64)
        units = sum(self._units[row] for row in rows.tolist()) if self._units else len(rows)
        return self.columns.gather(rows), units

    def compact(self) -> None:
        """Forget taken samples, when they are many, so that reading on takes no more memory."""
        if self.head < max(COMPACT_ROWS, len(self.order) // 2):
            return
        ahead = range(self._read, self.columns.rows)
        kept = np.array([*self.order[self.head :], *ahead], np.int64)
        self.columns.keep(kept)
        if self._units:
            self._units = [self._units[row] for row in kept.tolist()]
        self._read = len(self.order) - self.head
        self.order, self.head = array("q", range(self._read)), 0
