"""The reading thread runs a provider's generators during the computation, and encodes samples as arrays.

The main thread decides in which order samples are used. Each entry of the list file has its own generator. If samples
are shuffled and there are several entries, the reading thread picks the generator of each sample with its own random
stream. The order of reading therefore depends only on the seed, and not on timing.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.rate_limit import RateLimit
from trainer.arrays.rng import Stream
from trainer.data.checks import SampleError, user_code
from trainer.data.chunks import CHUNK_BYTES, Chunk
from trainer.data.columns import ColumnSet
from trainer.data.provider2 import DataProvider

CHUNK_ROWS = 256  # maximum number of samples in a chunk
FIRST_CHUNK_ROWS = 4  # samples in the first chunk; their bytes determine the number of samples in the next chunk
BYTES_AHEAD = 1 << 27  # the thread stops reading while chunks of this many bytes wait for the computation
CHUNKS_AHEAD = 128  # the thread stops reading while this many chunks wait for the computation
LEAST_AHEAD = 1 << 22  # the thread reads this many bytes ahead even if they have more units than `units_ahead`
PROVIDER_LINE_S = 30.0  # seconds between two log lines about a slow provider
CHECK_PERIOD_S = 0.5  # seconds between two checks whether the rest of the job still runs
LOOK_S = 10.0  # seconds after which `Entries.read_first` opens no further entry


# (name of the entry in messages, number of the sample in the entry, counted from 1, and the sample)
Drawn = tuple[str, int, Any]


class SampleChunks:
    """Makes chunks of samples, which user code yields one by one."""

    def __init__(self, provider: DataProvider, samples: Iterator[Drawn], columns: ColumnSet) -> None:
        self._provider, self._samples, self._columns = provider, samples, columns
        self._rows = FIRST_CHUNK_ROWS

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        """Return the next chunk.

        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid.
        """
        drawn = list(itertools.islice(self._samples, self._rows))
        if not drawn:
            raise StopIteration
        chunk = self._encode(drawn)
        self._rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES * chunk.rows // max(1, chunk.size)))
        return chunk

    def _encode(self, drawn: list[Drawn]) -> Chunk:
        samples = [sample for _, _, sample in drawn]
        try:
            encoded = self._columns.encode(samples)
        except SampleError as error:
            places = [drawn[0], drawn[-1]] if error.row is None else [drawn[error.row]]
            where = " to ".join(f"sample {number} of {entry}" for entry, number, _ in places)
            raise DataError(
                f"data provider {self._provider} yields a sample of a wrong form: {where} (counted from 1): {error}"
            ) from error
        calculate: Callable[[Any], int] | None = self._provider.calc_batch_size
        if calculate is None:
            return Chunk(len(samples), encoded, None)
        with user_code(f"calc_batch_size of the data provider {self._provider}"):
            units = [operator.index(calculate(list(sample))) for sample in samples]
        if min(units) < 0:
            raise DataError(f"calc_batch_size of the data provider {self._provider} gives {min(units)} for a sample")
        return Chunk(len(samples), encoded, units)


class SampleReader:
    """The reader of one pass; `take` returns the chunks of the pass in order.

    Args: source: the chunks in the order of reading. check: a function that `take` calls repeatedly; an error that it
        raises ends the wait.
    Thread safety: only one thread may call the methods.
    """

    def __init__(
        self,
        provider: DataProvider,
        source: Iterator[Chunk],
        columns: ColumnSet,
        *,
        check: Callable[[], None],
        units_ahead: float = math.inf,
    ) -> None:
        self._provider = provider
        self._check = check
        self._columns = columns
        self._source = source
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self.units_ahead = units_ahead
        self._reads_all = False  # whether the thread reads to the end of the pass without a limit
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=f"provider {provider}", daemon=True).start()

    def take(self) -> Chunk | None:
        """Return the next chunk, or None at the end of the pass. Wait for the provider without a deadline.

        The wait has no deadline, because the user's code may need a long time. A log line reports the wait every
        PROVIDER_LINE_S seconds.
        Raises: DataError, MissingInputError: the provider raised an error, or a sample is invalid.
        """
        self._check()
        lines = RateLimit(PROVIDER_LINE_S, time.monotonic() + PROVIDER_LINE_S)
        with self._changed:
            while not self._chunks and not self._ended:
                self._changed.wait(CHECK_PERIOD_S)
                self._check()
                if lines.is_due(time.monotonic()):
                    glog.info(f"waiting for the data provider {self._provider}: look at what it reads and computes")
            if not self._chunks and self._error is not None:
                raise self._error
            if not self._chunks:
                return None
            chunk = self._chunks.popleft()
            self._changed.notify_all()
            return chunk

    def holds(self, units: int) -> bool:
        """Return whether samples of so many units, or all that are left, wait for `take`."""
        with self._changed:
            return self._ended or sum(chunk.total for chunk in self._chunks) >= units

    @property
    def units_waiting(self) -> int:
        """The units of the samples that wait for `take`."""
        with self._changed:
            return sum(chunk.total for chunk in self._chunks)

    @property
    def has_ended(self) -> bool:
        """Whether the provider has been read to its end. `take` may still have chunks to return."""
        return self._ended

    def wait_for_end(self) -> None:
        """Read the provider to its end, however many chunks then wait, and return when that is done."""
        with self._changed:
            self._reads_all = True
            self._changed.notify_all()
            while not self._ended:
                self._changed.wait(CHECK_PERIOD_S)
                self._check()

    def close(self) -> None:
        """Make the reading thread stop at its next chunk."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._deliver():
                pass
        except BaseException as error:  # the error is passed to the thread that calls `take`
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _deliver(self) -> bool:
        """Read a chunk, and put it into the queue when the queue has room. Return False at the provider's end."""
        chunk = next(self._source, None)
        if chunk is None:
            self._columns.end()
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            if chunk is None or self._closed:
                return False
            self._chunks.append(chunk)
            self._changed.notify_all()
        return True

    def _is_full(self) -> bool:
        """Whether enough samples wait for the computation."""
        size, units = sum(chunk.size for chunk in self._chunks), sum(chunk.total for chunk in self._chunks)
        if self._reads_all:
            return False
        has_enough = size >= LEAST_AHEAD and units >= self.units_ahead
        return has_enough or len(self._chunks) >= CHUNKS_AHEAD or size >= BYTES_AHEAD


@dataclass(frozen=True)
class Entries:
    """The entries of a list file. The provider's generator of an entry runs when its samples are read.

    Attributes: files: the lines of the list. check: a function that is called repeatedly during a wait for samples; an
        error that it raises ends the wait. list_name: the list file, for messages.
    """

    provider: DataProvider
    files: Sequence[str]
    check: Callable[[], None]
    list_name: str

    def read(self, columns: ColumnSet, mixing: Stream | None, units_ahead: float) -> SampleReader:
        """Return the reader of a pass. The stream `mixing`, if given, picks the entry of each sample."""
        chunks = self.provider.open_chunks(self.files, columns, mixing)
        if chunks is not None:
            return self._read(columns, chunks, units_ahead)
        entries = list(self._open())
        if self.provider.order_samples is not None:
            samples = self.provider.order_samples(entries)
        else:
            samples = _mix(entries, mixing) if mixing else itertools.chain.from_iterable(entries)
        return self._read(columns, SampleChunks(self.provider, samples, columns), units_ahead)

    def read_first(self, columns: ColumnSet) -> SampleReader:
        """Return a reader of the first sample of each entry, of at least one sample.

        If the entries take long to open, as files on a slow volume do, the rest is left out after the first sample.
        """
        end = time.monotonic() + LOOK_S
        chunks = self.provider.open_chunks(self.files, columns, None, first_until=end)
        if chunks is None:
            chunks = SampleChunks(self.provider, self._first_samples(end), columns)
        return self._read(columns, chunks)

    def _read(self, columns: ColumnSet, chunks: Iterator[Chunk], units_ahead: float = math.inf) -> SampleReader:
        return SampleReader(self.provider, chunks, columns, check=self.check, units_ahead=units_ahead)

    def _open(self) -> Iterator[Iterator[Drawn]]:
        for line, file in enumerate(self.files, 1):
            yield _start(self.provider, file, f"line {line} of {self.list_name}")

    def _first_samples(self, end: float) -> Iterator[Drawn]:
        has_sample = False
        for entry in self._open():
            for drawn in itertools.islice(entry, 1):
                has_sample = True
                yield drawn
            if has_sample and time.monotonic() > end:
                return
        if not has_sample:
            raise DataError(
                f"the data provider {self.provider} gives no sample: check {self.list_name} and the files that it names"
            )


def _start(provider: DataProvider, file: str, line: str) -> Iterator[Drawn]:
    """Yield the samples of an entry of the list file.

    An error names the entry, or the line of a blank entry, and the number of samples before it.
    """
    blank = "" if file.strip() else f"{file!r} ({line} is blank)"
    number = 0
    with user_code(f"data provider {provider}, reading {blank or repr(file)}", lambda: number):
        for number, sample in enumerate(provider.generator(provider, file), 1):
            yield blank or file, number, sample


def _mix(entries: Sequence[Iterator[Drawn]], stream: Stream) -> Iterator[Drawn]:
    """Yield samples. For each sample, pick at random one of the generators that have samples left.

    As in v0.10, the first generator takes the place of a generator that has ended.
    """
    if len(entries) == 1:
        yield from entries[0]
        return
    live = deque(entries)
    while live:
        picked = stream.draw() % len(live)
        try:
            yield next(live[picked])
        except StopIteration:
            live[picked] = live[0]
            live.popleft()
