"""The errors of RecordIO files, and the position that their messages contain."""

from __future__ import annotations

from typing import NamedTuple

from paddle_base.runtime.errors import DataError


class ChunkPlace(NamedTuple):
    """The position of a chunk: its file, its number from 0, and the offset of its header in bytes."""

    path: str
    number: int
    offset: int

    def __str__(self) -> str:
        """Return the position in the form that messages use."""
        return f"{self.path}: chunk {self.number} at byte {self.offset}"


class DamagedChunkError(DataError):
    """A chunk of a RecordIO file is damaged, or exceeds the reader's limits."""

    def __init__(self, message: str, place: ChunkPlace):
        super().__init__(f"{place}: {message}")
        self.place = place


class ForeignFileError(DamagedChunkError):
    """A file does not begin as RecordIO files do."""

    def __init__(self, message: str, place: ChunkPlace):
        DataError.__init__(self, message)  # the message names only the file, because there is no chunk
        self.place = place


class OversizedRecordError(DataError):
    """A record has more bytes than a chunk may have."""
