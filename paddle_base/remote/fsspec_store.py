"""Object stores behind fsspec. Each is an extra: s3fs for s3://, gcsfs for gs://, adlfs for az://.

Credentials come from where the library looks for them: variables, files of profiles, and the identity of a pod.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddle_base.remote.addresses import STORES, Address
from paddle_base.remote.failures import StaleVersionError, read_failure
from paddle_base.remote.interface import BLOCK, Page, RemoteFile
from paddle_base.runtime.errors import ConfigError

CONNECT_S, READ_S = 10.0, 30.0  # seconds without a byte after which an attempt has failed
PAGE = 1000  # files of a page; S3 has this limit
MOST_PARTS = 9000  # of an upload; S3 has a limit of 10,000
PLAIN_MD5 = re.compile(r"[0-9a-f]{32}")  # the ETag of an object that was uploaded in one part
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # `Patience` repeats, because only it knows the deadline and heeds Retry-After
    "s3": {
        "config_kwargs": {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
        },
    },
}


def open_fsspec(address: Address) -> FsspecStore:
    """Return the store of an address.

    Raises: ConfigError: the library of this scheme is not installed.
    """
    scheme = STORES[address.scheme]
    try:
        importlib.import_module(scheme.module)
        fsspec: Any = importlib.import_module("fsspec")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{address.scheme}:// addresses need {scheme.module}; install it with: pip install {scheme.package}"
        ) from error
    settings = SETTINGS.get(scheme.protocol, {})
    system = fsspec.filesystem(scheme.protocol, skip_instance_cache=True, use_listings_cache=False, **settings)
    if scheme.protocol == "s3":
        vars(system)["retries"] = 1
        return S3Store(system)
    return FsspecStore(system)


class FsspecStore:
    """A store behind fsspec, whose listings come as a whole.

    Args: system: the file system of fsspec.
    """

    def __init__(self, system: Any) -> None:
        self.system = system

    def find(self, address: Address) -> RemoteFile | None:
        """See `Store`."""
        try:
            facts = self.system.info(_path(address))
        except FileNotFoundError:
            return None
        return _file_of(address, facts) if facts.get("type") == "file" else None

    def list_page(self, address: Address, token: str) -> Page:
        """See `Store`; the only page has all files."""
        folder = address.with_key(address.key.rpartition("/")[0])
        found = self.system.find(_path(folder), detail=True)
        files = [
            _file_of(address.with_key(name.lstrip("/").removeprefix(f"{address.root}/")), facts)
            for name, facts in found.items()
        ]
        return Page([one for one in files if one.address.key.startswith(address.key)], "")

    def open(self, file: RemoteFile) -> FsspecSource:
        """See `Store`."""
        return FsspecSource(self._handle_of(file), file)

    def put(self, path: Path, address: Address) -> None:
        """See `Store`."""
        self.system.put_file(str(path), _path(address))

    def remove(self, address: Address) -> None:
        """See `Store`."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm_file(_path(address))

    def _handle_of(self, file: RemoteFile) -> Any:
        # without a size, s3fs asks for the ETag, and then demands it of each block
        return self.system.open(_path(file.address), "rb", block_size=BLOCK, cache_type="none")


class S3Store(FsspecStore):
    """A store of S3, whose listings come in pages."""

    def find(self, address: Address) -> RemoteFile | None:
        """See `Store`. A listing is asked first, because the errors of HEAD have no text."""
        try:
            page = self._list(address, MaxKeys=1)
        except PermissionError as error:
            if read_failure(error).code != "AccessDenied":
                raise
            return super().find(address)  # the user may read objects, and not list them
        return next((one for one in page.files if one.address == address), None)

    def list_page(self, address: Address, token: str) -> Page:
        """See `Store`."""
        return self._list(address, MaxKeys=PAGE, **({"ContinuationToken": token} if token else {}))

    def open(self, file: RemoteFile) -> S3Source:
        """See `Store`."""
        return S3Source(self._handle_of(file), file, self)

    def put(self, path: Path, address: Address) -> None:
        """See `Store`. An upload holds at most two parts in memory, of 8 MiB up to a file of 70 GB."""
        part = max(2 * BLOCK, path.stat().st_size // MOST_PARTS + 1)
        self.system.put_file(str(path), _path(address), chunksize=part, max_concurrency=2)

    def _list(self, address: Address, **how: Any) -> Page:
        answer = self.system.call_s3("list_objects_v2", Bucket=address.root, Prefix=address.key, **how)
        files = [_file_of(address.with_key(one["Key"]), one) for one in answer.get("Contents", ())]
        return Page(files, answer.get("NextContinuationToken", "") if answer.get("IsTruncated") else "")


class FsspecSource:
    """An open file of fsspec. Each block is one request with a range; s3fs guards it with the file's ETag.

    Raises: StaleVersionError: the file has another version than in the listing.
    """

    def __init__(self, handle: Any, file: RemoteFile) -> None:
        self._handle = handle
        self.file = _file_of(file.address, handle.details)
        if file.size >= 0 and (file.size, file.version) != (self.file.size, self.file.version):
            raise StaleVersionError

    def pieces(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """See `Source`."""
        end = self.file.size if stop is None else min(stop, self.file.size)
        while start < end:
            self._handle.seek(start)
            piece = self._handle.read(min(BLOCK, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece

    def is_md5_sure(self) -> bool:
        """See `Source`."""
        return True

    def close(self) -> None:
        """See `Source`."""
        self._handle.close()


class S3Source(FsspecSource):
    """An open file of S3. The ETag of an object of one part is its MD5, if the server has not encrypted it with a key.

    Args: store: the store of the file.
    """

    def __init__(self, handle: Any, file: RemoteFile, store: S3Store) -> None:
        super().__init__(handle, file)
        self._store = store
        if PLAIN_MD5.fullmatch(self.file.version):
            self.file = self.file._replace(md5=self.file.version)

    def is_md5_sure(self) -> bool:
        """See `Source`."""
        address = self.file.address
        about = self._store.system.call_s3("head_object", Bucket=address.root, Key=address.key)
        return about.get("ServerSideEncryption") in (None, "AES256") and not about.get("SSECustomerAlgorithm")


def _path(address: Address) -> str:
    return f"{address.root}/{address.key}" if address.key else address.root


def _file_of(address: Address, facts: Mapping[str, Any]) -> RemoteFile:
    """Return what a listing, or the facts about one file, tell. The names of the facts differ between stores."""
    given = {name.lower(): value for name, value in facts.items()}
    size = given.get("size", given.get("contentlength"))
    moments = (given.get(name) for name in ("generation", "last_modified", "lastmodified", "updated", "mtime"))
    version = given.get("etag") or next(
        (one.timestamp() if hasattr(one, "timestamp") else one for one in moments if one), ""
    )
    return RemoteFile(address, int(size) if size is not None else -1, str(version).strip('"'), _md5_of(given))


def _md5_of(given: Mapping[str, Any]) -> str:
    settings = given.get("content_settings") or {}
    told = given.get("md5hash") or (settings.get("content_md5") if isinstance(settings, Mapping) else None)
    if isinstance(told, bytes | bytearray):
        return bytes(told).hex()
    if isinstance(told, str):
        try:
            return base64.b64decode(told, validate=True).hex()
        except (binascii.Error, ValueError):
            return ""
    return ""
