"""The compact protocol of Thrift, in which the headers of a Parquet file are written. No I/O.

Source: apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, SHORT, INT, LONG, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DEPTH = 16  # maximum number of structures in one another; the headers of Parquet need 6
VARINT_BYTES = 10  # of a number of 64 bits


class ThriftError(Exception):
    """The bytes are no structure of Thrift; the error's text says why."""


class ThriftEnd(ThriftError):
    """The bytes end inside a structure, so more bytes may complete it."""


class ThriftReader:
    """Reads structures from bytes. Time and memory are proportional to the bytes that are read.

    Attributes: at: the position of the next byte.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a structure by their ids. Binary fields are skipped; their values are None.

        Raises: ThriftError: the bytes are no structure.
        """
        found: dict[int, Any] = {}
        last = 0
        while header := self.byte():
            last = last + (header >> 4) if header >> 4 else self.number()
            kind = header & 15
            if last in found:  # of two values, another reader may take the other one
                raise ThriftError(f"field {last} occurs twice")
            found[last] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int = 0) -> Any:
        """Return a value of a type.

        Raises: ThriftError: see `fields`.
        """
        if kind in (SHORT, INT, LONG):
            return self.number()
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind == BINARY:
            self._skip(self.length())
        elif kind == DOUBLE:
            self._skip(8)
        elif kind in (STRUCT, LIST, SET, MAP):
            if depth >= DEPTH:
                raise ThriftError(f"structures are more than {DEPTH} deep")
            return self._compound(kind, depth + 1)
        else:
            raise ThriftError(f"{kind} is no type")
        return None

    def _compound(self, kind: int, depth: int) -> Any:
        if kind == STRUCT:
            return self.fields(depth)
        if kind == MAP:
            count = self.length()
            kinds = self.byte() if count else 0
            return [(self.value(kinds >> 4, depth), self.value(kinds & 15, depth)) for _ in range(count)]
        count, item = self.list_header()
        return [self.value(item, depth) for _ in range(count)]

    def list_header(self) -> tuple[int, int]:
        """Return the number and the type of the items of a list, which follow.

        Raises: ThriftError: see `fields`.
        """
        header = self.byte()
        return (self.length() if header >> 4 == 15 else header >> 4), header & 15

    def byte(self) -> int:
        """Return the next byte.

        Raises: ThriftEnd: there is none.
        """
        if self.at >= len(self._data):
            raise ThriftEnd("the bytes end inside a structure")
        self.at += 1
        return self._data[self.at - 1]

    def length(self) -> int:
        """Return an unsigned number, of as many items or bytes as still follow at most.

        Raises: ThriftError: see `fields`.
        """
        value = self._varint()
        if value > len(self._data) - self.at:
            raise ThriftEnd("the bytes end inside a structure")
        return value

    def number(self) -> int:
        """Return a signed number.

        Raises: ThriftError: see `fields`.
        """
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for place in range(VARINT_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise ThriftError(f"a number has more than {VARINT_BYTES} bytes")

    def _skip(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise ThriftEnd("the bytes end inside a structure")
        self.at += count
