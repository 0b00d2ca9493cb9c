"""Opens what a user names: a path, or an address with a scheme."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from paddle_base.remote.addresses import Address, is_address, parse_address
from paddle_base.remote.patience import Patience
from paddle_base.remote.reader import open_file
from paddle_base.remote.stores import list_files, open_store
from paddle_base.runtime.errors import MissingInputError
from paddle_base.runtime.regular_files import open_regular

Place = str | Path | Address


def read_place(text: str) -> Path | Address:
    """Return the path or the address that a text of a command line names.

    Raises: ConfigError: see `parse_address`.
    """
    return parse_address(text, "the address") if is_address(text) else Path(text)


def expand(places: Iterable[Path | Address], name: str) -> Iterator[Path | Address]:
    """Yield each path as it is, and the addresses of the objects that an address names as a prefix or a pattern.

    Args: name: what the addresses are, for messages.
    Raises: PaddleError: see `list_files`.
    """
    for place in places:
        if isinstance(place, Path):
            yield place
        elif place.is_local:
            yield Path(str(place))
        else:
            yield from (file.address for file in list_files(open_store(place), place, Patience(name)))


def open_place(place: Place, name: str) -> BinaryIO:
    """Open a regular file of this machine, or one object or file of an address, for reading.

    Args: name: what the place is, for messages.
    Raises: OSError: see `open_regular`, for a path.  PaddleError: see `Patience`, for an address.
    """
    if isinstance(place, str):
        place = read_place(place)
    if isinstance(place, Path) or place.is_local:
        return open_regular(Path(str(place)))
    store, patience = open_store(place), Patience(name)
    file = patience.begin().repeat(lambda: store.find(place), place)
    if file is None:
        raise MissingInputError(f"{patience.show(place)}: no object is there; correct the address")
    return open_file(store, file, patience)


def size_of(file: BinaryIO) -> int:
    """Return the number of bytes of a file of `open_place`."""
    try:
        return os.fstat(file.fileno()).st_size
    except io.UnsupportedOperation:
        return file.seek(0, os.SEEK_END)


def read_at(file: BinaryIO, size: int, offset: int) -> bytes:
    """Return `size` bytes of a file of `open_place` from an offset on, or fewer at its end.

    Raises: OSError.  PaddleError: see `open_file`.
    """
    try:
        return os.pread(file.fileno(), size, offset)
    except io.UnsupportedOperation:
        file.seek(offset)
        return file.read(size)
