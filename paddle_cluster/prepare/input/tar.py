"""Reads a tar archive as a stream, member by member. The memory use does not depend on the archive.

The module tarfile reads all headers of a member at once, whatever their size, and keeps all members until the end.
`_Forward` limits what it reads as the headers of one member, and `members` makes it forget each member.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import FILES

BLOCK = tarfile.BLOCKSIZE
HEADER_BYTES = 1 << 17  # maximum bytes of all headers of a member; a file name has at most 4 KiB
PIECE = 1 << 20
LABEL = b"V"
# what tarfile raises for damaged headers, beside its own errors
DAMAGES = (tarfile.TarError, ArithmeticError, LookupError, TypeError, ValueError)


class _Forward:
    """The archive as tarfile reads it: a file that goes only forward, with a limit for the headers of a member."""

    def __init__(self, source: IO[bytes], archive: str) -> None:
        self._source = source
        self._archive = archive
        self._place = 0
        self.left = HEADER_BYTES
        self.last = b""  # the last bytes that were read

    def tell(self) -> int:
        return self._place

    def read(self, size: int) -> bytes:
        self.left -= size
        if size < 0 or self.left < 0:
            raise _damaged(self._archive, f"the name or the attributes of a member have {size} bytes")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        self.last = self._source.read(size)
        self._place += len(self.last)
        return self.last

    def seek(self, place: int) -> None:
        while self._place < place and self._take(min(place - self._place, PIECE)):
            pass

    def pieces(self, size: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of the file whose headers were read last."""
        while size:
            piece = self._take(min(size, PIECE))
            if not piece:
                raise _damaged(self._archive, f"the archive is cut off in {name!r}")
            size -= len(piece)
            yield piece


def is_tar(start: bytes) -> bool:
    """Return whether a file that begins with these bytes is a tar archive."""
    try:
        tarfile.TarInfo.frombuf(start[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def members(source: IO[bytes], archive: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield (name, pieces of the content) of each file; the pieces can be read until the next file is requested.

    Args: source: the unpacked bytes.  archive: name of the archive, for messages.
    Raises: DataError: if the archive is damaged, or has a member that is neither a plain file nor a directory.
    """
    stream = _Forward(source, archive)
    try:
        content = tarfile.TarFile(fileobj=stream, encoding="utf-8")  # type: ignore[arg-type]
    except DAMAGES as error:
        raise _damaged(archive, str(error)) from error
    for _ in range(FILES):
        stream.left = HEADER_BYTES
        try:
            member = content.next()
        except DAMAGES as error:
            raise _damaged(archive, str(error)) from error
        if member is None:
            if stream.last.strip(b"\0"):  # for tarfile, a header that is none ends the archive
                raise _damaged(archive, "the header of a member is cut off or has a wrong checksum")
            return
        content.members = []  # type: ignore[attr-defined]
        content.pax_headers = {}  # they are of all members that follow, and none is needed
        _require_plain(member, archive)
        if member.isreg() and not member.name.endswith("/"):
            yield member.name, stream.pieces(member.size, member.name)
    raise DataError(f"archive {archive} has more than {FILES} members; give it in parts")


def _require_plain(member: tarfile.TarInfo, archive: str) -> None:
    if member.size < 0:
        raise _damaged(archive, f"the size of {member.name!r} is negative")
    if member.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise DataError(f"archive member {member.name!r} is a sparse file; make the archive without --sparse")
    if not member.isreg() and not member.isdir() and member.type != LABEL:
        raise DataError(f"archive member {member.name!r} is a link or a device; only plain files are unpacked")


def _damaged(archive: str, reason: str) -> DataError:
    return DataError(f"archive {archive} is damaged: {reason}; give another copy of it")
