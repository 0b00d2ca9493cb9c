"""Batches are picked from a pool of encoded samples. A sample counts one unit, or what calc_batch_size returns.

When a batch is made, the main thread picks the samples with its own random stream. A shuffled run is therefore
reproducible. If the pool P has n samples, a sample is picked with one draw r: exchange P[r mod n] and P[0], then remove
P[0]. The removed samples stay in memory, before the head of P and in the order of their removal. A cached provider
delivers the removed samples again in the next pass. For other providers, new samples take the memory of removed
samples, so that a full pool needs little more memory than its samples.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from paddle_base.kernels.samples import pick_samples
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.data.chunks import Chunk
from trainer.data.columns import ColumnSet
from trainer.data.provider2 import DataProvider

# taken samples are deleted if they need this many bytes, and at least this part of the bytes of all samples; a deletion
# moves as many samples as it deletes if all have the same size, and otherwise all samples that remain
COMPACT_BYTES = 1 << 20
FIXED_SHARE = 1 / 16
VARYING_SHARE = 1 / 7


class SamplePool:
    """Samples in columns, and the order in which they are picked.

    Args: shuffled: whether to pick randomly. stream: the random stream for picking.
    Attributes: columns: the encoded samples. order: row numbers of the columns; the rows before position `head` have
        been taken. units_left: sum of the units of the samples that remain in the pool.
    Thread safety: only one thread may use the pool.
    """

    def __init__(self, provider: DataProvider, *, shuffled: bool, stream: Stream) -> None:
        self._provider = provider
        self._shuffled = shuffled
        self._stream = stream
        self.columns = ColumnSet(provider.slots_of_data_layers)
        self._units: list[int] = []  # the units of every row of the columns; empty if every row counts one unit
        self.order = array("q")
        self.head = 0
        self._unread = array("q")  # rows of the columns that `fill` has not added to the pool
        self.units_left = 0

    @property
    def units_known(self) -> int:
        """The units of the samples in the pool and, if all count one, of those that `fill` adds without `receive`."""
        return self.units_left + (0 if self._units else len(self._unread))

    def rewind(self) -> None:
        """Move all taken samples back into the pool, in the order in which they were taken."""
        self.head = 0
        self.units_left = sum(self._units) if self._units else len(self.order)

    def append(self, chunk: Chunk) -> None:
        """Append the samples of a chunk to the columns. `fill` adds them to the pool later."""
        self._unread.extend(range(self.columns.rows, self.columns.rows + chunk.rows))
        self.columns.extend(chunk.encoded, chunk.rows)
        if chunk.units is not None:
            self._units += chunk.units

    def take_all(self) -> None:
        """Add all samples of the columns to the pool."""
        self._unread = array("q")
        self.order = array("q", range(self.columns.rows))

    def fill(self, wanted: int, receive: Callable[[], bool]) -> None:
        """Add samples to the pool until the pool has `wanted` units or the samples end.

        Args: receive: a function that appends a chunk to the columns, and that returns False at the end of the samples.
        """
        while self.units_left < wanted:
            if not self._unread and not receive():
                return
            if self._units:
                row = self._unread.pop(0)
                self.order.append(row)
                self.units_left += self._units[row]
            else:
                count = min(wanted - self.units_left, len(self._unread))
                self.order.extend(self._unread[:count])
                del self._unread[:count]
                self.units_left += count

    def pick(self, size: int) -> int:
        """Move the head past the samples of one batch, and return the sum of their units."""
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
                        f"data provider {self._provider}: a sample counts {units} units, more than the batch size "
                        f"{size}, and can_over_batch_size is off; raise batch_size, or set can_over_batch_size"
                    )
                break
            total += units
            self.head += 1
        return total

    def gather(self, start: int) -> dict[str, Argument]:
        """Return the samples from position `start` in the order up to the head, by slot."""
        return self.columns.gather(np.array(self.order[start : self.head], np.int64))

    def gather_part(self, first: int, last: int) -> tuple[dict[str, Argument], int]:
        """Return the samples at positions [first, last) in the order, by slot, and the sum of their units."""
        rows = np.array(self.order[first:last], np.int64)
        units = sum(self._units[row] for row in rows.tolist()) if self._units else len(rows)
        return self.columns.gather(rows), units

    def compact(self) -> None:
        """Delete the taken samples if they need much memory, so that further reading can use this memory."""
        needed = self.columns.nbytes
        taken = needed * self.head / max(1, self.columns.rows)  # as if all samples had the same size
        share = FIXED_SHARE if self.columns.is_fixed else VARYING_SHARE
        if not self.head or taken < max(COMPACT_BYTES, needed * share):
            return
        kept = np.array(self.order[self.head :] + self._unread, np.int64)
        places = self.columns.keep(kept)
        if self._units:
            units = np.empty(len(kept), np.int64)
            units[places] = np.array(self._units, np.int64)[kept]
            self._units = units.tolist()
        left = len(self.order) - self.head
        self.order, self._unread = array("q", places[:left].tobytes()), array("q", places[left:].tobytes())
        self.head = 0
