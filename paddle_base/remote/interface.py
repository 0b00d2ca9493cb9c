"""What a store of files offers. The errors of a store are those of its library; `failures` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from paddle_base.remote.addresses import Address

BLOCK = 4 << 20  # bytes that are asked for at a time; a transfer holds at most two such blocks


class RemoteFile(NamedTuple):
    """A file in a store.

    Attributes: size: bytes; -1 if the store has not told it yet.  version: the ETag, or another text that changes with
    the content; "" if the store has none.  md5: the MD5 of the content as 32 hexadecimal digits; "" if it is not known.
    """

    address: Address
    size: int = -1
    version: str = ""
    md5: str = ""


class Page(NamedTuple):
    """A part of a listing, and the token with which the next part is asked for; "" after the last part."""

    files: Sequence[RemoteFile]
    token: str


class Source(Protocol):
    """An open file of a store.

    Attributes: file: what the store tells about the file; size and version may become known with the first piece.
    """

    file: RemoteFile

    def pieces(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, or to the end, in pieces; a piece may be empty.

        Raises: Exception: the library's; StaleVersionError: the content is not that of `file` any more.
        """
        ...

    def is_md5_sure(self) -> bool:
        """Return whether `file.md5` is the digest of the content, after the content had another one."""
        ...

    def close(self) -> None:
        """End the connections of this file."""
        ...


class Store(Protocol):
    """A store of files. It keeps no listing and no content."""

    def find(self, address: Address) -> RemoteFile | None:
        """Return the file of an address, or None if there is no file of this name."""
        ...

    def list_page(self, address: Address, token: str) -> Page:
        """Return the next part of the sorted names that begin with the key of the address."""
        ...

    def open(self, file: RemoteFile) -> Source:
        """Open a file for reading."""
        ...

    def put(self, path: Path, address: Address) -> None:
        """Write a local file to an address; readers see the old or the new content."""
        ...
