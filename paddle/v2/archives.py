"""Texts and members of the archives of data sets, with bounds on what is read at once."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import GzipFile
from typing import IO

from paddle_base.runtime.errors import DataError

_MOST_LINE = 1 << 20  # maximum bytes of a line
MOST_MEMBER = 1 << 27  # maximum bytes of a member that is read as a whole; a file of CIFAR-100 has 155 MB in all


@contextmanager
def open_tar(path: str) -> Iterator[tarfile.TarFile]:
    """Open a tar file, compressed or not.

    Raises: DataError: it is none, or is damaged (also while it is read).
    """
    try:
        with tarfile.open(path) as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it to fetch it again") from error


def members(tar: tarfile.TarFile, wanted: Callable[[str], object]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of each regular member whose name is wanted, in the order of the archive."""
    for member in tar:
        if member.isfile() and wanted(member.name):
            content = tar.extractfile(member)
            assert content is not None
            yield member.name, content


def member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Return the content of a member, whose name may begin with `./`.

    Raises: DataError: there is none.
    """
    for _, content in members(tar, lambda found: found.removeprefix("./") == name.removeprefix("./")):
        return content
    raise DataError(f"{tar.name!r} has no member {name}")


def read_all(name: str, content: IO[bytes], most: int = MOST_MEMBER) -> bytes:
    """Return the bytes of a member."""
    data = content.read(most + 1)
    if len(data) > most:
        raise DataError(f"{name} has more than {most} bytes")
    return data


def read_lines(name: str, content: IO[bytes] | GzipFile) -> Iterator[str]:
    """Yield the lines of a text, stripped. Bytes that are not UTF-8 become surrogates."""
    while line := content.readline(_MOST_LINE + 1):
        if len(line) > _MOST_LINE:
            raise DataError(f"{name} has a line of more than {_MOST_LINE} bytes")
        yield line.decode("utf-8", "surrogateescape").strip()
