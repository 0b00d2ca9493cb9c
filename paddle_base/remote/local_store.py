"""Files of the file system, with the same functions as the files of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from paddle_base.remote.addresses import Address
from paddle_base.remote.failures import StaleVersionError
from paddle_base.remote.interface import BLOCK, Page, RemoteFile
from paddle_base.runtime.durable_files import write_mark
from paddle_base.runtime.regular_files import open_regular


class LocalStore:
    """The file system. Its errors are OSErrors, and are not temporary."""

    def find(self, address: Address) -> RemoteFile | None:
        """See `Store`."""
        path = Path(address.key)
        return _describe(address, path.stat()) if path.is_file() else None

    def list_page(self, address: Address, token: str) -> Page:
        """See `Store`; the only page has all files. Names that begin with a dot are left out."""
        folder = address.key.rpartition("/")[0] or ("/" if address.key.startswith("/") else ".")
        found = []
        for above, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.normpath(Path(above) / name)
                if not name.startswith(".") and path.startswith(address.key) and Path(path).is_file():
                    found.append(_describe(address.with_key(path), Path(path).stat()))
        return Page(found, "")

    def open(self, file: RemoteFile) -> LocalSource:
        """See `Store`."""
        return LocalSource(open_regular(Path(file.address.key)), file)

    def put(self, path: Path, address: Address) -> None:
        """See `Store`."""
        target = Path(address.key)
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as source:
            write_mark(target, iter(lambda: source.read(BLOCK), b""))


class LocalSource:
    """An open file of the file system."""

    def __init__(self, handle: BinaryIO, file: RemoteFile) -> None:
        self._handle = handle
        self.file = _describe(file.address, os.fstat(handle.fileno()))
        if file.size >= 0 and (file.size, file.version) != (self.file.size, self.file.version):
            handle.close()
            raise StaleVersionError

    def pieces(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """See `Source`."""
        end = self.file.size if stop is None else min(stop, self.file.size)
        self._handle.seek(start)
        while start < end and (piece := self._handle.read(min(BLOCK, end - start))):
            start += len(piece)
            yield piece

    def is_md5_sure(self) -> bool:
        """See `Source`; a file system tells no digest."""
        return False

    def close(self) -> None:
        """See `Source`."""
        self._handle.close()


def _describe(address: Address, facts: os.stat_result) -> RemoteFile:
    return RemoteFile(address, facts.st_size, f"{facts.st_mtime_ns}")
