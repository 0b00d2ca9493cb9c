"""Batches of a data configuration, pass after pass, in the legacy's order.

Picking is done while a batch is cut, in the main thread and with its random stream: that makes a shuffled run repeat.
With the pool P of n samples, each sample costs one draw r: exchange P[r mod n] and P[0], take P[0] off the front.
So the taken samples, in the order taken, are what P looks like before its head: the next pass of a cached provider.

With a limited pool the legacy's order depended on how far its loading thread was. Here the pool is filled before every
batch, whatever the timing: to its size, or, where min_pool_size lets training begin earlier, to that and as many units
more as were taken. So it grows with the pass, as it did when loading was faster than training.

Source: spec/config.md 15; gserver/dataproviders/PyDataProvider2.cpp of v0.10.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kernels.samples import pick_samples
from pserver import glog
from pserver.errors import DataError
from trainer.arguments import Argument, Ids
from trainer.data import random_states
from trainer.data.columns import ColumnSet
from trainer.data.provider2 import CacheType, DataProvider
from trainer.data.reader import Reader
from trainer.encoding import decode_array, encode_array, shorten_ids
from trainer.rng import Stream

UNLIMITED = sys.maxsize
_COMPACT_ROWS = 4096  # used samples are forgotten when they are so many, and the majority


class DataSource:
    """The samples of one provider.

    Args: provider: the user's, instantiated.  files: the entries of its list.  shuffled: whether to pick at random.
        stream: the main thread's, for picking.  mixing: what the stream of a reading thread begins as, which picks
        among list entries; every pass has a new thread.
        check: called now and then while the provider is waited for; what it raises ends the waiting.
        list_name: the list file, for messages.  constants: further slots by name, of one number that is the same in
        every row; they have the rows and sequences of the first slot.
    Thread safety: one thread.
    """

    def __init__(
        self,
        provider: DataProvider,
        files: Sequence[str],
        *,
        shuffled: bool,
        stream: Stream,
        mixing: Stream,
        check: Callable[[], None] = lambda: None,
        list_name: str = "the list",
        constants: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._provider = provider
        self._files = files
        self._shuffled = shuffled
        self._stream = stream
        self._mixing_state = mixing.state
        self._check = check
        self._list_name = list_name
        self._constants = constants
        self._cached = provider.cache == CacheType.CACHE_PASS_IN_MEM
        self._complete = False  # a cached pass has been read to its end
        self._reader: Reader | None = None
        self._taken_units = 0  # in this pass
        self._tracks = False
        self._is_from_memory = False  # this pass
        self._first_order = array("q")  # the pool at the start of this pass, if it is from memory and shuffled
        self._states = array("I")  # of the stream, before each batch of this pass; only where it is drawn from
        self._random: random_states.States | None = None  # when the reading of what is in the columns began
        self._forget()

    def _forget(self) -> None:
        self._columns = ColumnSet(self._provider.input_order, self._provider.slots)
        self._units: list[int] = []  # of every row of the columns; empty where each counts one
        self._pool = array("q")  # rows: those before the head are taken
        self._head = 0
        self._read = 0  # rows of the columns that are in the pool
        self._pooled_units = 0  # of what is left in the pool

    def start_pass(self) -> None:
        """Begin a pass: from memory where the provider is cached and has been read to its end, else by reading anew."""
        self.close()
        self._head = 0
        self._taken_units = 0
        self._is_from_memory = self._complete
        self._states = array("I")
        if self._complete:
            self._pooled_units = sum(self._units) if self._units else len(self._pool)
            if self._tracks and self._shuffled:
                self._first_order = self._pool[:]
            return
        self._start_reading()

    def _start_reading(self) -> None:
        self._forget()
        if self._tracks:
            self._random = random_states.take()
        self._reader = Reader(
            self._provider,
            self._files,
            self._columns,
            shuffled=self._shuffled,
            stream=Stream(self._mixing_state),
            check=self._check,
            list_name=self._list_name,
        )

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def next_batch(self, size: int) -> tuple[dict[str, Argument], int] | None:
        """Return the next batch of `size` units and its units, or None at the end of the pass.

        Raises: DataError, MissingInputError: if the provider raised or a sample is wrong or larger than a batch.
        """
        start, units = self._take(size)
        if not units:  # also where samples are left that count nothing, as in the legacy
            return None
        return self._gather(np.array(self._pool[start : self._head], np.int64)), units

    def _take(self, size: int) -> tuple[int, int]:
        """Move the head over the next batch, and return where that begins in the pool, and its units."""
        if self._tracks and self._shuffled:
            self._states.append(self._stream.state)
        if not self._cached:
            self._compact()
        self._fill(self._wanted_units(size))
        start = self._head
        units = self._pick(size)
        self._pooled_units -= units
        self._taken_units += units
        return start, units

    # ----- Where reading has got to -----

    def track(self) -> None:
        """Remember from now on what `position` needs."""
        self._tracks = True

    def position(self, batches: int | None) -> dict[str, Any]:
        """Return what another process needs to go on from here, as JSON can hold it.

        Args: batches: so many of this pass count as delivered; None: all, the next one is the first of the next pass.
        """
        between = batches is None
        is_read = between or self._reader is None or self._reader.has_ended
        record: dict[str, Any] = {"batches": batches, "mixing": self._mixing_state, "is_read": is_read}
        if self._complete if between else self._is_from_memory:
            order = self._pool if between else self._first_order
            record["samples"] = len(self._pool)
            record["order"] = encode_array(shorten_ids(np.array(order))) if self._shuffled else None
        if not between and self._shuffled:
            record["states"] = encode_array(np.array(self._states[:batches], np.uint32))
        if self._random is not None and ("samples" in record or not between):
            record["random"] = random_states.write(self._random)
        return record

    def resume(self, position: Mapping[str, Any], size: int) -> None:
        """Go on where `position` was taken: inside a pass it is begun here; between passes `start_pass` comes next.

        The provider is read again with the random states of then, and the batches are picked again, but not computed.
        If its generators ran no more (`is_read`), they do not when this returns; else nobody may touch these states.
        Args: size: that of the batches.
        Raises: DataError, MissingInputError: if the provider raised or a sample is wrong.
        """
        self._mixing_state = position["mixing"]
        if "random" in position:
            random_states.put_back(position["random"])
        if "samples" in position:
            self._read_all(position["samples"], position["order"])
        if position["batches"] is None:
            return
        self.start_pass()
        states = decode_array(position["states"]).tolist() if position.get("states") else []
        for number in range(position["batches"]):
            if number < len(states):
                self._stream.state = states[number]
            if not self._take(size)[1]:
                self._warn(f"it gives {number} batches; {position['batches']} of the pass were trained on")
                return
        if self._reader is not None and position["is_read"]:
            self._reader.wait_for_end()

    def _read_all(self, samples: int, order: Mapping[str, Any] | None) -> None:
        """Read into memory what was there when a position was taken."""
        self.close()
        self._start_reading()
        while self._receive():
            pass
        rows = self._read = self._columns.rows
        self._pool = array("q", range(rows))
        if rows != samples:
            self._warn(f"it gives {rows} samples, not {samples}")
        elif order is not None:
            self._pool = array("q", decode_array(order).tolist())

    def _warn(self, finding: str) -> None:
        glog.warning(
            f"the data provider {self._provider} does not repeat what it gave before the checkpoint: {finding}; the "
            "parameters go on from the checkpoint, but the order of the samples is another one"
        )

    def _gather(self, rows: Ids) -> dict[str, Argument]:
        batch = self._columns.gather(rows)
        if self._constants:
            first = batch[self._columns.names[0]]
            for name, number in self._constants.items():
                batch[name] = first.with_value(np.full((first.rows, 1), number, np.float32))
        return batch

    def _wanted_units(self, size: int) -> int:
        if not self._shuffled:
            return size
        least, most = (
            UNLIMITED if limit < 0 else limit for limit in (self._provider.min_pool_size, self._provider.pool_size)
        )
        return max(size, min(least + self._taken_units, most))

    def _fill(self, wanted: int) -> None:
        """Move samples from the reader to the pool until it has so many units, or the provider has no more."""
        while self._pooled_units < wanted:
            if self._read == self._columns.rows and not self._receive():
                return
            if self._units:
                self._pool.append(self._read)
                self._pooled_units += self._units[self._read]
                self._read += 1
            else:
                count = min(wanted - self._pooled_units, self._columns.rows - self._read)
                self._pool.extend(range(self._read, self._read + count))
                self._pooled_units += count
                self._read += count

    def _receive(self) -> bool:
        """Append the reader's next chunk to the columns; False when there is none."""
        chunk = self._reader.take() if self._reader is not None else None
        if chunk is None:
            if self._reader is not None:
                self._complete = self._cached
                self._reader = None
            return False
        self._columns.extend(chunk.encoded, chunk.rows)
        if chunk.units is not None:
            self._units += chunk.units
        return True

    def _pick(self, size: int) -> int:
        """Move the head over the samples of one batch, and return their units."""
        if self._units:
            return self._pick_by_units(size)
        count = min(size, len(self._pool) - self._head)
        if self._shuffled and count:
            pick_samples(self._pool, self._head, self._stream.draws(count))
        self._head += count
        return count

    def _pick_by_units(self, size: int) -> int:
        total, pool = 0, self._pool
        while total < size and self._head < len(pool):
            if self._shuffled:
                picked = self._head + self._stream.draw() % (len(pool) - self._head)
                pool[self._head], pool[picked] = pool[picked], pool[self._head]
            units = self._units[pool[self._head]]
            if not self._provider.can_over_batch_size and total + units > size:
                if total == 0:
                    raise DataError(
                        f"data provider {self._provider}: a sample counts {units} units, more than the "
                        f"batch size {size}, and can_over_batch_size is off"
                    )
                break
            total += units
            self._head += 1
        return total

    def _compact(self) -> None:
        """Forget taken samples, when they are many, so that reading on takes no more memory."""
        if self._head < max(_COMPACT_ROWS, len(self._pool) // 2):
            return
        ahead = range(self._read, self._columns.rows)
        kept = np.array([*self._pool[self._head :], *ahead], np.int64)
        self._columns.keep(kept)
        if self._units:
            self._units = [self._units[row] for row in kept.tolist()]
        self._read = len(self._pool) - self._head
        self._pool, self._head = array("q", range(self._read)), 0
