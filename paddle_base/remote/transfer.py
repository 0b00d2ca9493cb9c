"""Copies files from and to a store: with retries, a deadline, a check of size and digest, and bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.failures import BrokenTransferError
from paddle_base.remote.interface import RemoteFile, Source, Store
from paddle_base.remote.patience import Deadline, Patience
from paddle_base.runtime.durable_files import saving_error
from paddle_base.runtime.errors import DataError

ATTEMPTS = 2  # downloads of a file whose content has another digest than the store says


class DamagedTransferError(DataError):
    """The content that has arrived has another digest than the store says."""


def read_pieces(store: Store, file: RemoteFile, deadline: Deadline) -> Iterator[bytes]:
    """Yield the content of a file in pieces. After a temporary error, it goes on at the byte where it stopped.

    Raises: PaddleError: a final error of the store, or the time is over.  ChangedError: the file has changed since it
    was listed, or meanwhile.  DamagedTransferError: the digest of the content is another one than the store's.
    """
    received, digest = 0, hashlib.md5(usedforsecurity=False)
    while True:
        source: Source | None = None
        try:
            source = store.open(file)
            for piece in _unbroken(source, received):
                received += len(piece)
                digest.update(piece)
                deadline.progress()
                yield piece
                deadline.check(file.address, f"{received} of {_size_of(source)} bytes")
            file = source.file
            if file.md5 and digest.hexdigest() != file.md5 and source.is_md5_sure():
                raise DamagedTransferError(
                    f"{deadline.patience.show(file.address)}: its {received} bytes have MD5 {digest.hexdigest()}, not "
                    f"{file.md5}, which the store names; run the same command again"
                )
            return
        except Exception as error:
            # what the first answer has told, such as the ETag, is demanded of the next one
            file = source.file if source is not None else file
            deadline.pause(error, file.address)
        finally:
            if source is not None:
                source.close()


def _unbroken(source: Source, start: int) -> Iterator[bytes]:
    """Yield the pieces of a source from a byte on. Raises: BrokenTransferError: if the last one is missing."""
    for piece in source.pieces(start):
        start += len(piece)
        yield piece
    if start < source.file.size:
        raise BrokenTransferError(f"the transfer ended at byte {start} of {source.file.size}")


def _size_of(source: Source) -> str:
    return str(source.file.size) if source.file.size >= 0 else "an unknown number of"


def download(
    store: Store,
    file: RemoteFile,
    target: Path,
    deadline: Deadline,
    count: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy a file of a store to a path.

    Args: count: is called with the bytes of each piece before the piece is written.
    Raises: VolumeError: the path cannot be written.  PaddleError: see `read_pieces`, and those of `count`.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            _write(read_pieces(store, file, deadline), target, count)
            return
        except DamagedTransferError:
            if not left:
                raise
            count(-target.stat().st_size)


def _write(pieces: Iterator[bytes], target: Path, count: Callable[[int], None]) -> None:
    try:
        output = target.open("wb")
    except OSError as error:
        raise saving_error(target.parent, error) from error
    with output:
        for piece in pieces:
            count(len(piece))
            try:
                output.write(piece)
            except OSError as error:
                error.filename = error.filename or str(target)
                raise saving_error(target.parent, error) from error


def upload(store: Store, path: Path, address: Address, patience: Patience) -> None:
    """Copy a file to an address, with retries; readers of the address see the old or the new content.

    Raises: PaddleError: a final error of the store, or the time is over.
    """
    patience.begin().repeat(lambda: store.put(path, address), address)
