"""Memory that a trainer shares with a server on the same host, so that payloads do not pass through a socket.

The trainer creates a file in memory without a name (memfd), and seals the file against shrinking: if another process
could truncate the file, a read beyond its end would kill the reader. The trainer offers the file in its hello. The
server opens the file through /proc, and declines a file with unexpected properties. If the server declines the file,
all arrays are sent over the connection.

Layout: a token of 16 bytes; from OUTBOX on, `length` bytes to the server; from the next page on, `length` bytes from
the server.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OUTBOX = mmap.PAGESIZE
_TOKEN_BYTES = 16
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LINK = "/memfd:paddle (deleted)"


class SharedMemory:
    """`outbox` contains arrays that the trainer sends, `inbox` arrays that it receives; each has `length` bytes.

    Thread safety: only one thread may use an object of this class. The message about a payload determines which side
    may use the payload.
    """

    def __init__(self, memory: mmap.mmap, length: int, offer: Mapping[str, Any]) -> None:
        self._memory = memory
        self.offer = offer
        view = memoryview(memory)
        inbox = _inbox_of(length)
        self.outbox, self.inbox = view[OUTBOX : OUTBOX + length], view[inbox : inbox + length]

    @classmethod
    def make(cls, length: int) -> SharedMemory:
        """Create shared memory. Its `offer` is the information that the server needs to open the memory.

        Raises: OSError: the system has too little memory.
        """
        file = os.memfd_create("paddle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, _size_of(length))
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(file, _size_of(length))
            token = secrets.token_bytes(_TOKEN_BYTES)
            memory[:_TOKEN_BYTES] = token
        except BaseException:
            os.close(file)
            raise
        return cls(memory, length, {"pid": os.getpid(), "file": file, "length": length, "token": token.hex()})

    @classmethod
    def open(cls, offer: object) -> SharedMemory | None:
        """Return the memory that a trainer offers, or None if it has unexpected properties or cannot be opened."""
        if not isinstance(offer, Mapping) or not all(_is_size(offer.get(key)) for key in ("pid", "file", "length")):
            return None
        length = int(offer["length"])
        path = f"/proc/{offer['pid']:d}/fd/{offer['file']:d}"
        try:
            # before the opening, because the number may stand for another file, such as a device
            if str(Path(path).readlink()) != _LINK:
                return None
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            # sealed against shrinking: otherwise a trainer could end this server by SIGBUS
            if os.fstat(file).st_size != _size_of(length) or fcntl.fcntl(file, fcntl.F_GET_SEALS) != _SEALS:
                return None
            memory = mmap.mmap(file, _size_of(length))
        except OSError:
            return None
        finally:
            os.close(file)
        if memory[:_TOKEN_BYTES].hex() != offer.get("token"):
            memory.close()
            return None
        return cls(memory, length, offer)

    def holds(self, array: bytes | bytearray | memoryview) -> bool:
        """Return whether an array is in this memory."""
        return isinstance(array, memoryview) and array.obj is self._memory

    def close(self) -> None:
        """Close the creator's file descriptor; the memory is released with its last view."""
        os.close(int(self.offer["file"]))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 40


def _inbox_of(length: int) -> int:
    return OUTBOX + -(-length // mmap.PAGESIZE) * mmap.PAGESIZE


def _size_of(length: int) -> int:
    return _inbox_of(length) + max(length, 1)
