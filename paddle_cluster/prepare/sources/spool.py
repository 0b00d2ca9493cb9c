"""Stores rows on disk, and reads them in shuffled order. The memory does not grow with the number of rows.

Each row has a random key in [0, 1). The rows are distributed to files by ranges of keys, until each file fits into
memory. Reading takes the files one by one, and sorts the rows of each file by key. The order of the rows is the order
of `split.shuffle`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from paddle_cluster.prepare.errors import writing_to

PIECE = 8 << 20  # maximum bytes of a file that is sorted in memory
FAN = 64  # number of files into which a larger file is split
NARROW = 2.0**-48  # minimum width of a range of keys that is split; the keys of a narrower range may be equal
BUFFER = 8 << 20  # maximum bytes that wait to be written, for all files together
RECORD = struct.Struct("<dII")  # a row's header: key, class, number of bytes of the row
READ = 1 << 20


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
    """Stores rows with their keys. A spool can return its rows repeatedly, in the order of the keys or of arrival.

    Args: folder: an empty directory for the files of the spool.
    """

    def __init__(self, folder: Path) -> None:
        self._first = folder / "rows"
        self._into = str(self._first)
        self._dealt: dict[Path, list[Path]] = {}
        self._appender = Appender()
        self.count = 0

    def add(self, key: float, row: LabelledRow) -> None:
        """Add a row; all rows must be added before the first row is read.

        Raises: VolumeError: if the row cannot be written.
        """
        self._appender.add(self._into, RECORD.pack(key, row.label, len(row.text)), row.text)
        self.count += 1

    def as_they_came(self) -> Iterator[LabelledRow]:
        """Yield all rows in the order of arrival. Do not call this function after `in_order`, which moves the rows."""
        self._appender.flush()
        if self.count:
            for _, label, text in _records(self._first):
                yield LabelledRow(text, label)

    def in_order(self) -> Iterator[LabelledRow]:
        """Yield all rows ordered by key; rows with equal keys stay in the order of arrival.

        Raises: VolumeError: if the pieces cannot be written.
        """
        self._appender.flush()
        if self.count:
            yield from self._ordered(self._first, 0.0, 1.0)

    def _ordered(self, path: Path, low: float, width: float) -> Iterator[LabelledRow]:
        """Yield the rows of a file with keys in [low, low + width). The first call splits a large file."""
        if path not in self._dealt and path.stat().st_size > PIECE and width > NARROW:
            self._dealt[path] = self._deal(path, low, width)
        if path not in self._dealt:
            yield from _sorted(path)
            return
        for number, piece in enumerate(self._dealt[path]):
            if piece.exists() or piece in self._dealt:
                yield from self._ordered(piece, low + number * width / FAN, width / FAN)

    def _deal(self, path: Path, low: float, width: float) -> list[Path]:
        pieces = [path.with_name(f"{path.name}-{number}") for number in range(FAN)]
        into = [str(piece) for piece in pieces]
        for key, label, text in _records(path):
            # without min and max, rounding could give the index -1 or FAN
            place = min(max(int((key - low) / width * FAN), 0), FAN - 1)
            self._appender.add(into[place], RECORD.pack(key, label, len(text)), text)
        self._appender.flush()
        with writing_to(path):
            path.unlink()
        return pieces


def _records(path: Path) -> Iterator[tuple[float, int, bytes]]:
    with path.open("rb", READ) as file:
        while header := file.read(RECORD.size):
            key, label, length = RECORD.unpack(header)
            yield key, label, file.read(length)


def _sorted(path: Path) -> Iterator[LabelledRow]:
    content = path.read_bytes()
    found: list[tuple[float, int, int, int]] = []
    place = 0
    while place < len(content):
        key, label, length = RECORD.unpack_from(content, place)
        found.append((key, place + RECORD.size, length, label))
        place += RECORD.size + length
    found.sort()
    for _, begin, length, label in found:
        yield LabelledRow(content[begin : begin + length], label)
