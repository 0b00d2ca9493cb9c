"""Provide the batches of a data configuration, pass after pass, in the order of v0.10.

With a limited pool, the order of samples in v0.10 depended on the progress of its loading thread. In this program the
order does not depend on timing, because the pool is filled before every batch. The pool is filled to min_pool_size plus
the number of units that the pass has taken so far, but at most to pool_size. The pool therefore grows during the pass,
as in v0.10 when loading was faster than training.

Source: spec/config.md 15; gserver/dataproviders/PyDataProvider2.cpp of v0.10.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from paddle_base.runtime import glog
from trainer.arrays.arguments import Argument
from trainer.arrays.encoding import decode_array, encode_array, shorten_ids
from trainer.arrays.rng import Stream
from trainer.data import random_states
from trainer.data.pool import SamplePool
from trainer.data.provider2 import CacheType, DataProvider
from trainer.data.reader import Entries, SampleReader

UNLIMITED = sys.maxsize
AHEAD_DIVISOR = 16  # this part of the units of a full pool is read ahead, or what the next batch needs if that is more


@dataclass(frozen=True)
class DataStreams:
    """The random streams of a data source.

    Attributes: picking: the stream with which the main thread picks samples. mixing: a stream that is never drawn from.
        Every pass starts a reading thread, whose stream for picking list entries begins with the state of `mixing`.
    """

    picking: Stream
    mixing: Stream


class BatchSource(Protocol):
    """The source of a job's batches, pass after pass. `DataSource` describes the methods."""

    def look(self) -> None:
        """Read a sample of each entry of the list."""

    def start_pass(self) -> None:
        """Begin a pass."""

    def close(self) -> None:
        """Stop reading."""

    def next_batch(self, size: int) -> tuple[dict[str, Argument], int] | None:
        """Return the next batch and its size in units (see trainer/data/pool.py); None at the end of the pass."""

    def is_ready(self, size: int) -> bool:
        """Whether `next_batch` will not wait for the provider. False if this is not known."""

    def track(self) -> None:
        """Begin to store the data that `position` returns."""

    @property
    def is_read(self) -> bool:
        """Whether no provider is being read now."""

    def position(self, batches: int | None) -> dict[str, Any]:
        """Return the state with which another process can continue after `batches` batches of the pass."""

    def resume(self, position: Mapping[str, Any], size: int) -> None:
        """Continue at a position that `position` has returned. `size` is the batch size."""


@dataclass
class _Tracked:
    """What `position` needs to know about a pass.

    Attributes: first_order: the order of the pool at the start of the pass, if the pass is read from memory and
        shuffled. states: the states of the stream `picking` before each batch of the pass, if samples are shuffled.
        random: the states of the random generators of Python and numpy when the reading of the pool's samples began.
    """

    first_order: array[int] = field(default_factory=lambda: array("q"))
    states: array[int] = field(default_factory=lambda: array("I"))
    random: random_states.States | None = None


class DataSource:
    """The samples of one provider.

    Args: provider: an instance of the user's provider. files: the entries of the list file. shuffled: whether samples
        are picked randomly. check: a function that is called repeatedly during a wait for the provider; an error that
        it raises ends the wait. list_name: the list file, for messages. constants: the numbers of the constant slots,
        by name. A constant slot has the same number in all rows, and it has the rows and sequences of the first slot.
    Thread safety: only one thread may use the source.
    """

    def __init__(
        self,
        provider: DataProvider,
        files: Sequence[str],
        *,
        shuffled: bool,
        streams: DataStreams,
        check: Callable[[], None] = lambda: None,
        list_name: str = "the list",
        constants: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._provider = provider
        self._shuffled = shuffled
        self._stream = streams.picking
        self._mixing_state = streams.mixing.state
        self._constants = constants
        self._entries = Entries(provider, files, check, list_name)
        self._complete = False  # whether a cached pass has been read to its end
        self._reader: SampleReader | None = None
        self._taken_units = 0  # units taken in this pass
        self._is_from_memory = False  # whether this pass is read from memory
        self._tracked: _Tracked | None = None
        self._pool = self._new_pool()

    def _new_pool(self) -> SamplePool:
        return SamplePool(self._provider, shuffled=self._shuffled, stream=self._stream)

    @property
    def _is_cached(self) -> bool:
        return self._provider.cache == CacheType.CACHE_PASS_IN_MEM

    def start_pass(self) -> None:
        """Begin a pass. A cached provider that has been read to its end is not read again."""
        self.close()
        self._pool.rewind()
        self._taken_units = 0
        self._is_from_memory = self._complete
        if self._tracked is not None:
            self._tracked.states = array("I")
        if self._complete:
            if self._tracked is not None and self._shuffled:
                self._tracked.first_order = self._pool.order[:]
            return
        self._start_reading()

    def _start_reading(self) -> None:
        self._pool = self._new_pool()
        if self._tracked is not None:
            self._tracked.random = random_states.take()
        mixing = Stream(self._mixing_state) if self._shuffled else None
        self._reader = self._entries.read(self._pool.columns, mixing, self._units_ahead())

    def _units_ahead(self) -> float:
        """Return how many units may wait beside the pool: few beside a pool that is filled before each batch."""
        size = self._provider.pool_size
        if self._shuffled:
            return max(0, size) // AHEAD_DIVISOR
        return math.inf if size < 0 else size

    def look(self) -> None:
        """Read a sample of each entry of the list, so that a fault of the data is known before it costs a pass.

        Nothing is kept, and user code has the same random numbers afterwards. The provider's function is called once
        more than in v0.10, which is why only test data is looked at: its order changes no parameter.

        Raises: DataError, MissingInputError: the provider raised an error, a sample is invalid, or there is no sample.
        """
        before = random_states.take()
        reader = self._entries.read_first(self._new_pool().columns)
        try:
            while reader.take() is not None:
                pass
        finally:
            reader.close()
            random_states.restore(before)

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def next_batch(self, size: int) -> tuple[dict[str, Argument], int] | None:
        """Return the next batch of about `size` units and its exact size in units; None at the end of the pass.

        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid or larger than a
            batch.
        """
        start, units = self._take(size)
        if not units:  # as in v0.10, the pass ends even if samples of zero units remain
            return None
        return self._gather(start), units

    def is_ready(self, size: int) -> bool:
        """Whether `next_batch` will not wait for the provider."""
        return self._reader is None or self._reader.holds(self._wanted_units(size) - self._pool.units_known)

    def has_units(self) -> bool:
        """Whether samples of the pass wait in memory, so that `next_batch` does not return the end of the pass."""
        return self._pool.units_known > 0 or (self._reader is not None and self._reader.units_waiting > 0)

    def _take(self, size: int) -> tuple[int, int]:
        """Move the head of the pool past the next batch. Return the batch's first position and its sum of units."""
        if self._tracked is not None and self._shuffled:
            self._tracked.states.append(self._stream.state)
        wanted = self._wanted_units(size)
        self._pool.fill(wanted, self._receive)
        start = self._pool.head
        units = self._pool.pick(size)
        self._taken_units += units
        if self._reader is not None:  # what the next batch needs is read during the computation of this batch
            growth = self._wanted_units(size) - wanted
            self._reader.units_ahead = max(size + growth, self._units_ahead())
        return start, units

    # ----- The position of reading -----

    def track(self) -> None:
        """Begin to store the data that `position` returns."""
        if self._tracked is None:
            self._tracked = _Tracked()

    @property
    def is_read(self) -> bool:
        """Whether the provider is not being read now."""
        return self._reader is None or self._reader.has_ended

    def position(self, batches: int | None) -> dict[str, Any]:
        """Return the state, in a form that JSON can store, with which another process can continue.

        Args: batches: number of batches of this pass after which the process continues, or None if the process begins
            the next pass.
        """
        between = batches is None
        tracked = self._tracked or _Tracked()
        is_read = between or self.is_read
        record: dict[str, Any] = {"batches": batches, "mixing": self._mixing_state, "is_read": is_read}
        if self._complete if between else self._is_from_memory:
            order = self._pool.order if between else tracked.first_order
            record["samples"] = len(self._pool.order)
            record["order"] = encode_array(shorten_ids(np.array(order))) if self._shuffled else None
        if not between and self._shuffled:
            record["states"] = encode_array(np.array(tracked.states[:batches], np.uint32))
        if tracked.random is not None and ("samples" in record or not between):
            record["random"] = random_states.write(tracked.random)
        return record

    def resume(self, position: Mapping[str, Any], size: int) -> None:
        """Continue at a position that `position` has returned.

        If the position is inside a pass, this method begins the pass. If the position is between two passes, the caller
        must call `start_pass` next.

        The provider is read again with the stored random states, and the earlier batches are picked again, without
        training. If the provider had been read to its end at the position (`is_read`), this method waits until the
        provider has been read to its end again. Otherwise the provider still runs when this method returns. Other code
        must then not use the random generators of Python and numpy.
        Args: size: the batch size.
        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid.
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
                self._warn(f"it gives {number} batches, but {position['batches']} batches of the pass were trained")
                return
        if self._reader is not None and position["is_read"]:
            self._reader.wait_for_end()

    def _read_all(self, samples: int, order: Mapping[str, Any] | None) -> None:
        """Read into memory the samples that were in memory at the position."""
        self._read_whole()
        rows = self._pool.columns.rows
        if rows != samples:
            self._warn(f"it gives {rows} samples, not {samples}")
        elif order is not None:
            self._pool.order = array("q", decode_array(order).tolist())

    def _read_whole(self) -> None:
        """Read the provider to its end, and add all samples to the pool in the order of reading."""
        self.close()
        self._start_reading()
        while self._receive():
            pass
        self._pool.take_all()

    def _warn(self, finding: str) -> None:
        glog.warning(
            f"the data provider {self._provider} does not give the same samples as before the checkpoint: {finding}; "
            "the parameters are those of the checkpoint, but the order of the samples differs"
        )

    def nothing(self) -> dict[str, Argument]:
        """Return a batch that has no samples."""
        return self._add_constants(self._pool.columns.gather(np.empty(0, np.int64)))

    def _gather(self, start: int) -> dict[str, Argument]:
        return self._add_constants(self._pool.gather(start))

    def _add_constants(self, batch: dict[str, Argument]) -> dict[str, Argument]:
        if self._constants:
            first = batch[self._pool.columns.names[0]]
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

    def _receive(self) -> bool:
        """Append the next chunk of the reader to the columns. Return False if the reader has no more chunks."""
        chunk = self._reader.take() if self._reader is not None else None
        if chunk is None:
            if self._reader is not None:
                self._complete = self._is_cached
                self._reader = None
            return False
        if not self._is_cached:
            self._pool.compact()
        self._pool.append(chunk)
        return True
