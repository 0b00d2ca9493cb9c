"""Read a tar archive of parameters that the version-2 API wrote. Sizes and positions in it are checked before use.

Source: spec/trainer.md 3.8.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from paddle_base.runtime.errors import DataError, reading_error
from paddle_base.runtime.regular_files import open_regular

MAGIC_PLACE, MAGIC = 257, b"ustar"  # every uncompressed tar archive has this text at this position
# Maps the first bytes of a compressed file to the function that opens the file. Python 2's tarfile supported only these
# formats.
OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
DESCRIPTION = ".protobuf"  # the end of the name of the file that describes a parameter
MEMBERS_LIMIT = 100_000  # maximum number of members of an archive
HEADER_LIMIT = 1 << 16  # maximum bytes of a member's extended header, which tarfile reads into memory
# an archive may have EXPANDED_LIMIT decompressed bytes, or EXPANSION_LIMIT times its compressed bytes if that is more
EXPANDED_LIMIT = 1 << 30
EXPANSION_LIMIT = 100


def is_archive(path: Path) -> bool:
    """Return whether a file begins like a compressed or uncompressed tar archive.

    Raises: PaddleError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            start = file.read(MAGIC_PLACE + len(MAGIC))
    except OSError as error:
        raise reading_error(DataError, f"{path} cannot be read", error) from error
    return start.endswith(MAGIC) or start.startswith(tuple(OPENERS))


class ParameterArchive:
    """A tar archive, compressed or not. For each parameter it has a file of values, and a file with a description.

    Args: source: the path of the archive, or an open file, which may decompress what it reads.
    Raises: DataError: the archive is damaged, or exceeds a limit above.
    """

    def __init__(self, source: Path | IO[bytes]) -> None:
        self._path = source if isinstance(source, Path) else getattr(source, "name", "the file")
        with contextlib.ExitStack() as opened:
            try:
                plain = opened.enter_context(open_regular(source)) if isinstance(source, Path) else source
                self._file = _BoundedFile(plain, opened)
                self._members = self._list_members()
            except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, RecursionError) as error:
                raise self._wrong(str(error)) from error
            self.close = opened.pop_all().close

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of the member `name`, or None if there is no such member."""
        member = self._members.get(name)
        if member is None:
            return None
        length = min(most, member.size)
        try:
            self._file.seek(member.offset_data)
            data = self._file.read_all(length)
        except (OSError, EOFError, zlib.error) as error:
            raise self._wrong(f"member {name} cannot be read: {error}") from error
        if len(data) < length:
            raise self._wrong(f"member {name} is cut off: it has {len(data)} of {member.size} bytes")
        return data

    def names(self) -> list[str]:
        """Return the names of the parameters, in the order of the archive."""
        return [name for name in self._members if not name.endswith(DESCRIPTION)]

    def _list_members(self) -> dict[str, tarfile.TarInfo]:
        members: dict[str, tarfile.TarInfo] = {}
        with tarfile.open(fileobj=self._file, mode="r:") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive, 1):
                if count > MEMBERS_LIMIT:
                    raise self._wrong(f"it has more than {MEMBERS_LIMIT} members")
                if member.size < 0 or member.offset_data < 0:
                    raise self._wrong(f"member {member.name} has {member.size} bytes")
                if member.isreg() and not member.issparse():
                    members[member.name] = member
        return members

    def _wrong(self, why: str) -> DataError:
        return DataError(
            f"{self._path} is no tar archive of parameters: {why}; give a file that Parameters.to_tar wrote"
        )


class _BoundedFile:
    """The decompressed archive, as a file for `tarfile`. The sizes of a header and of the archive are limited."""

    def __init__(self, plain: IO[bytes], opened: contextlib.ExitStack) -> None:
        start = plain.read(max(map(len, OPENERS)))
        opener = next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), None)
        expands = opener is not None or isinstance(plain, gzip.GzipFile | bz2.BZ2File)
        size = _count_bytes(plain)
        plain.seek(0)
        self._file: IO[bytes] = opened.enter_context(opener(plain)) if opener else plain
        self._limit = max(EXPANDED_LIMIT, EXPANSION_LIMIT * size) if expands else size
        self.tell = self._file.tell

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of a header."""
        if not 0 <= size <= HEADER_LIMIT:
            raise tarfile.ReadError(f"a header has {size} bytes, but at most {HEADER_LIMIT} are allowed")
        return self._file.read(size)

    def read_all(self, size: int) -> bytes:
        """Return up to `size` bytes of a member."""
        return self._file.read(size)

    def seek(self, place: int) -> int:
        """Move to a position in the decompressed archive.

        Raises: tarfile.ReadError: the position is beyond the limit.
        """
        if not 0 <= place <= self._limit:
            raise tarfile.ReadError(f"a member begins at byte {place}, but the archive has at most {self._limit} bytes")
        return self._file.seek(place)


def _count_bytes(file: IO[bytes]) -> int:
    """Return the size of a file; of one that decompresses, that of the compressed file, or 0 if it is unknown."""
    if not isinstance(file, gzip.GzipFile | bz2.BZ2File):
        return file.seek(0, 2)
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:  # it reads no file of the system
        return 0
