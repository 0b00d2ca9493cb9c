"""The messages of an Arrow file, which tell how large its record batches become when they are decoded.

A buffer that is compressed begins with its size, which may be any number; a decoder allocates this size. Each message
is therefore measured before it is decoded. The messages of a file follow one another as those of a stream do.
Source: apache/arrow, docs/source/format/Columnar.rst, format/Message.fbs and File.fbs; flatbuffers' internals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

DICTIONARY, RECORDS = 2, 3  # kinds of messages
CONTINUATION = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1"
MOST_METADATA = 64 << 20  # maximum bytes of the metadata of a message
MOST_BUFFERS = 1 << 20  # maximum number of buffers of a message


class MessageError(Exception):
    """The file is damaged; the error's text says how."""


class Message(NamedTuple):
    """A message: its kind, its number of rows, and the bytes of its buffers when they are decoded."""

    kind: int
    rows: int
    size: int


def measure_messages(file: IO[bytes], begin: int, end: int) -> Iterator[Message]:
    """Yield the messages of a part of a file, up to the mark of their end.

    Raises: MessageError: the messages are damaged.
    """
    at = begin
    while at < end:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8 or head[:4] != CONTINUATION:
            raise MessageError(f"at byte {at} there is no message")
        length = int.from_bytes(head[4:], "little")
        if length == 0:
            return
        if length > min(MOST_METADATA, end - at - 8):
            raise MessageError(f"the message at byte {at} is cut off")
        root = _Table.root(file.read(length))
        body, body_length = at + 8 + length, root.number(3, 8)
        if not 0 <= body_length <= end - body:
            raise MessageError(f"the message at byte {at} is cut off")
        yield _measure(file, root, body, body_length)
        at = body + body_length


def _measure(file: IO[bytes], root: _Table, body: int, length: int) -> Message:
    kind = root.number(1, 1)
    if kind not in (DICTIONARY, RECORDS):
        return Message(kind, 0, length)
    header = root.table(2)
    batch = header.table(1) if kind == DICTIONARY else header
    rows = batch.number(0, 8)
    if rows < 0:
        raise MessageError("a record batch has a negative number of rows")
    if not batch.has(3):
        return Message(kind, rows, length)
    size = 0
    for offset, count in batch.pairs(2):
        if not (0 <= offset <= length and 0 <= count <= length - offset):
            raise MessageError("a buffer lies outside of its message")
        if count:
            file.seek(body + offset)
            plain = int.from_bytes(file.read(8), "little", signed=True)
            size += count if plain == -1 else max(plain, 0)  # -1: this buffer is not compressed
    return Message(kind, rows, size)


class _Table:
    """A table of flatbuffers.

    Raises (of all methods): MessageError: the bytes are damaged.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read(at, 4)
        self._length = self._read(self._fields, 2)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        if len(data) < 4:
            raise MessageError("a message has no metadata")
        return cls(data, int.from_bytes(data[:4], "little"))

    def _read(self, at: int, size: int) -> int:
        if not 0 <= at <= len(self._data) - size:
            raise MessageError("the metadata of a message are damaged")
        return int.from_bytes(self._data[at : at + size], "little", signed=True)

    def _place(self, field: int) -> int:
        """Return the position of a field, or 0 if it has its default."""
        entry = 4 + 2 * field
        offset = self._read(self._fields + entry, 2) if entry < self._length else 0
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def number(self, field: int, size: int) -> int:
        place = self._place(field)
        return self._read(place, size) if place else 0

    def table(self, field: int) -> _Table:
        place = self._place(field)
        if not place:
            raise MessageError("the metadata of a message are damaged")
        return _Table(self._data, place + self._read(place, 4))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of numbers of 64 bits in a vector."""
        place = self._place(field)
        if not place:
            return
        at = place + self._read(place, 4)
        count = self._read(at, 4)
        if not 0 <= count <= MOST_BUFFERS:
            raise MessageError("the metadata of a message are damaged")
        for number in range(count):
            yield self._read(at + 4 + 16 * number, 8), self._read(at + 12 + 16 * number, 8)
