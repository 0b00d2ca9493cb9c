"""A file of a store as a seekable file of Python, for libraries that read parts of it, such as pyarrow."""

from __future__ import annotations

import io
import os

from paddle_base.remote.failures import BrokenTransferError
from paddle_base.remote.interface import BLOCK, RemoteFile, Source, Store
from paddle_base.remote.patience import Deadline, Patience
from paddle_base.runtime.errors import ConfigError


def open_file(store: Store, file: RemoteFile, patience: Patience, buffer: int = BLOCK) -> io.BufferedReader:
    """Return a reader of a file. Reads of less than `buffer` bytes are served from memory.

    The read of each part has a deadline of its own. A read raises ChangedError if the file has changed since it was
    listed, and other PaddleErrors for the reasons of `Patience`.
    Raises: the same.
    """
    return io.BufferedReader(_Parts(store, file, patience), buffer)


class _Parts(io.RawIOBase):
    """Asks the store for each part that is read."""

    def __init__(self, store: Store, file: RemoteFile, patience: Patience) -> None:
        super().__init__()
        self._store, self._file, self._patience = store, file, patience
        self._source: Source | None = None
        self._place = 0
        if file.size < 0:  # a server of https tells the size in its first answer
            found = patience.begin().repeat(lambda: store.find(file.address), file.address)
            self._file = found or file
        if self._file.size < 0:
            raise ConfigError(f"{patience.show(file.address)}: the server tells no size; download the file first")

    @property
    def name(self) -> str:
        """The address, for messages."""
        return str(self._file.address)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning of the file")
        self._place = base + offset
        return self._place

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer from the current position, and return the number of bytes; 0 at the end."""
        wanted = min(len(target), self._file.size - self._place)
        if wanted <= 0:
            return 0
        deadline = self._patience.begin()
        done = 0
        while done < wanted:
            done += self._take(target, done, wanted, deadline)
        self._place += done
        return done

    def _take(self, target: memoryview, done: int, wanted: int, deadline: Deadline) -> int:
        """Read what one attempt gives, and return its number of bytes."""
        taken = 0
        try:
            if self._source is None:
                self._source = self._store.open(self._file)
                self._file = self._source.file
            for piece in self._source.pieces(self._place + done, self._place + wanted):
                target[done + taken : done + taken + len(piece)] = piece
                taken += len(piece)
                deadline.check(self._file.address, f"{done + taken} of {wanted} bytes")
            if not taken:
                raise BrokenTransferError(f"no byte came from byte {self._place + done} on")
        except Exception as error:
            self._drop()
            deadline.pause(error, self._file.address)
        return taken

    def _drop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()
