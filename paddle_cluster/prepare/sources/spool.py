"""Stores rows on disk, and reads them in the order of their keys. The memory does not grow with the number of rows.

This is an external merge sort: each file has some rows, sorted by key, and reading merges the files. The order of the
rows is the order of `split.shuffle`, if the keys are random numbers.
"""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from paddle_cluster.prepare.errors import writing_to
from paddle_cluster.prepare.limits import OBJECT_BYTES

PIECE = 16 << 20  # maximum bytes of rows that are sorted in memory
FAN = 64  # maximum number of files that are merged at a time
BUFFER = 8 << 20  # maximum bytes that wait to be written, for all files together
RECORD = struct.Struct("<dII")  # a row's header: key, class, number of bytes of the row
READ = 1 << 16

Record = tuple[float, int, bytes]  # key, class, row


class LabelledRow(NamedTuple):
    """A row of a table, and the number of its class."""

    text: bytes
    label: int


class Appender:
    """Appends to more files than can be open at the same time.

    Raises: VolumeError: from `add` and `flush`, if a file cannot be written.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[bytes]] = {}  # {path: the parts that wait to be written}
        self._bytes = 0

    def add(self, path: str, *parts: bytes) -> None:
        """Append to a file; the write may be delayed."""
        self._waiting.setdefault(path, []).extend(parts)
        self._bytes += sum(map(len, parts))
        if self._bytes > BUFFER:
            self.flush()

    def flush(self) -> None:
        """Write the delayed data."""
        for name, parts in self._waiting.items():
            path = Path(name)
            with writing_to(path), path.open("ab") as output:
                output.writelines(parts)
        self._waiting.clear()
        self._bytes = 0


class Spool:
    """Stores rows with their keys. A spool can return its rows repeatedly; rows with equal keys stay in their order.

    Args: folder: an empty directory for the files of the spool.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = itertools.count()
        self._files: list[Path] = []  # each is sorted, and holds rows that arrived before those of the next file
        self._held: list[Record] = []
        self._bytes = 0
        self.count = 0

    def add(self, key: float, row: LabelledRow) -> None:
        """Add a row; all rows must be added before the first row is read.

        Raises: VolumeError: if the row cannot be written.
        """
        self._held.append((key, row.label, row.text))
        self._bytes += len(row.text) + OBJECT_BYTES
        self.count += 1
        if self._bytes > PIECE:
            self._write_held()

    def in_order(self) -> Iterator[LabelledRow]:
        """Yield all rows ordered by key.

        Raises: VolumeError: if a file cannot be written.
        """
        self._write_held()
        while len(self._files) > FAN:
            parts = [self._files[begin : begin + FAN] for begin in range(0, len(self._files), FAN)]
            self._files = [self._merge(part) for part in parts]
        for _, label, text in _merged(self._files):
            yield LabelledRow(text, label)

    def _write_held(self) -> None:
        if self._held:
            self._files.append(self._write(sorted(self._held, key=itemgetter(0))))
        self._held, self._bytes = [], 0

    def _merge(self, files: list[Path]) -> Path:
        merged = self._write(_merged(files))
        for file in files:
            file.unlink()
        return merged

    def _write(self, records: Iterable[Record]) -> Path:
        path = self._folder / str(next(self._names))
        with writing_to(path), path.open("wb") as output:
            for key, label, text in records:
                output.write(RECORD.pack(key, label, len(text)) + text)
        return path


def _merged(files: Iterable[Path]) -> Iterator[Record]:
    return heapq.merge(*map(_records, files), key=itemgetter(0))


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb", READ) as file:
        while header := file.read(RECORD.size):
            key, label, length = RECORD.unpack(header)
            yield key, label, file.read(length)
