"""Opens the store of an address, and lists the files that an address names."""

from __future__ import annotations

from collections.abc import Iterator

from paddle_base.remote.addresses import FILE, HTTPS, Address, matches
from paddle_base.remote.fsspec_store import open_fsspec
from paddle_base.remote.https_store import HttpsStore
from paddle_base.remote.interface import RemoteFile, Store
from paddle_base.remote.local_store import LocalStore
from paddle_base.remote.patience import Patience
from paddle_base.runtime.errors import DataError, MissingInputError

MOST_FILES = 1_000_000  # maximum number of files below a directory; the data job has the same limit for a folder


def open_store(address: Address) -> Store:
    """Return the store of an address.

    Raises: ConfigError: the library of this scheme is not installed.
    """
    if address.scheme == FILE:
        return LocalStore()
    return HttpsStore() if address.scheme == HTTPS else open_fsspec(address)


def list_files(store: Store, address: Address, patience: Patience, most: int = MOST_FILES) -> Iterator[RemoteFile]:
    """Yield the file of an address, or those below it if it is a directory, or those that match it as a pattern.

    The names of an object store come sorted, and only one page of them is in memory. Objects that stand for directories
    (their names end in `/`) are left out.

    Raises: MissingInputError: there is none.  DataError: there are more than `most` names.  PaddleError: see Patience.
    """
    exact = RemoteFile(address) if address.scheme == HTTPS else None  # a server need not know HEAD
    if exact is None and address.key and not address.key.endswith("/"):
        exact = patience.begin().repeat(lambda: store.find(address), address)
    if exact is not None:
        yield exact
        return
    found = 0
    for number, file in enumerate(_names(store, address, patience)):
        if number >= most:
            raise DataError(
                f"{patience.show(address)}: the listing has more than {most} names; name a smaller directory, or pack "
                "the files"
            )
        if not file.address.key.endswith("/") and (not address.has_pattern or matches(address.key, file.address.key)):
            found += 1
            yield file
    if not found:
        raise MissingInputError(
            f"{patience.show(address)}: no object {'matches this pattern' if address.has_pattern else 'is there'}; "
            "correct the address"
        )


def _names(store: Store, address: Address, patience: Patience) -> Iterator[RemoteFile]:
    below = address.prefix
    if not address.has_pattern and below and not below.endswith("/"):
        below += "/"
    token = ""
    while True:
        page = patience.begin().repeat(lambda: store.list_page(address.with_key(below), token), address)  # noqa: B023
        yield from page.files
        token = page.token
        if not token:
            return
