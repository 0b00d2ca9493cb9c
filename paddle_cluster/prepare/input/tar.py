"""Reads a tar archive as a stream, member by member. The memory use does not depend on the archive.

The standard library's module tarfile is not used, because it can exhaust the memory. It reads an extended header (for
example a long name) of any length as a whole, and keeps all headers until the end.
Source: POSIX.1-2017, pax; the GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import FILES

BLOCK = 512
EXTENDED_BYTES = 1 << 16  # maximum size of an extended header; a file name has at most 4 KiB
PIECE = 1 << 20
FILE_KINDS = (b"0", b"\0", b"7")
DIRECTORY_KIND = b"5"
LONG_NAME, LONG_LINK = b"L", b"K"
RECORDS, SUN_RECORDS, RECORDS_OF_ALL, LABEL = b"x", b"X", b"g", b"V"


@dataclass(frozen=True)
class Member:
    """A file of the archive. The file's bytes can be read until the next member is requested."""

    name: str
    size: int
    source: IO[bytes]
    archive: str

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the file.

        Raises: DataError: if the archive ends too early.
        """
        left = self.size
        while left:
            piece = self.source.read(min(left, PIECE))
            if not piece:
                raise _damaged(self.archive, f"the archive is cut off in {self.name!r}")
            left -= len(piece)
            yield piece


def is_tar(start: bytes) -> bool:
    """Return whether a file that begins with these bytes is a tar archive."""
    return len(start) >= BLOCK and _has_its_sum(start[:BLOCK])


def members(source: IO[bytes], archive: str) -> Iterator[Member]:
    """Yield the files of a tar archive.

    Args: source: the unpacked bytes.  archive: name of the archive, for messages.
    Raises: DataError: if the archive is damaged, or has a member that is neither a plain file nor a directory.
    """
    long_name, records = "", dict[bytes, bytes]()
    for _ in range(2 * FILES):
        header = source.read(BLOCK)
        if not header.strip(b"\0"):
            return
        if len(header) < BLOCK or not _has_its_sum(header):
            raise _damaged(archive, "the header of a member is cut off or has a wrong checksum")
        kind, size = header[156:157], _number(header[124:136], archive)
        if kind in (LONG_NAME, LONG_LINK, RECORDS, SUN_RECORDS, RECORDS_OF_ALL):
            content = _extended(source, size, archive)
            if kind == LONG_NAME:
                long_name = _text(content)
            elif kind in (RECORDS, SUN_RECORDS):
                records = _records(content, archive)
            continue
        name = _text(records[b"path"]) if b"path" in records else long_name or _name(header)
        size = _number(records[b"size"], archive, 10) if b"size" in records else size
        _require_plain(kind, name, records)
        long_name, records = "", {}
        if kind in FILE_KINDS and not name.endswith("/"):
            yield Member(name, size, source, archive)
            _skip(source, -size % BLOCK, archive)
    raise DataError(f"archive {archive} has more than {FILES} members; give it in parts")


def _require_plain(kind: bytes, name: str, records: dict[bytes, bytes]) -> None:
    is_sparse = any(key.startswith(b"GNU.sparse") for key in records)
    if is_sparse or kind == b"S":
        raise DataError(f"archive member {name!r} is a sparse file; make the archive without --sparse")
    if kind not in (*FILE_KINDS, DIRECTORY_KIND, LABEL):
        raise DataError(f"archive member {name!r} is a link or a device; only plain files are unpacked")


def _extended(source: IO[bytes], size: int, archive: str) -> bytes:
    if size > EXTENDED_BYTES:
        raise _damaged(archive, f"the name or the attributes of a member have {size} bytes")
    content = source.read(size)
    if len(content) < size:
        raise _damaged(archive, "it is cut off")
    _skip(source, -size % BLOCK, archive)
    return content


def _skip(source: IO[bytes], count: int, archive: str) -> None:
    if len(source.read(count)) < count:
        raise _damaged(archive, "it is cut off")


def _records(content: bytes, archive: str) -> dict[bytes, bytes]:
    """Read the records `length key=value\\n` of an extended header; `length` is the length of the whole record."""
    found = {}
    place = 0
    while place < len(content):
        length, space, _ = content[place : place + 12].partition(b" ")
        end = place + _number(length, archive, 10)
        key, equals, value = content[place + len(length) + 1 : end - 1].partition(b"=")
        if not space or not equals or end > len(content) or content[end - 1 : end] != b"\n":
            raise _damaged(archive, "the attributes of a member cannot be read")
        found[key] = value
        place = end
    return found


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _number(field: bytes, archive: str, base: int = 8) -> int:
    """Read a number of a header: octal digits, or the binary form of 95 bits that GNU tar uses for larger numbers."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    if not digits.isdigit() or len(digits) > 20 or (base == 8 and set(digits) & set(b"89")):
        raise _damaged(archive, f"{field[:20]!r} is no number")
    return int(digits, base)


def _has_its_sum(header: bytes) -> bool:
    digits = header[148:156].strip(b" \0")
    if not digits.isdigit() or set(digits) & set(b"89"):
        return False
    blank = header[:148] + b" " * 8 + header[156:]
    signed = sum(byte - 256 if byte > 127 else byte for byte in blank)
    return int(digits, 8) in (sum(blank), signed)


def _damaged(archive: str, reason: str) -> DataError:
    return DataError(f"archive {archive} is damaged: {reason}; give another copy of it")
