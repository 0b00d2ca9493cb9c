"""Files of servers of https. This needs no extra: the data job of an image without s3fs downloads by it.

An attempt that was cut off goes on at the byte where it stopped, if the server knows ranges and the ETag is the same.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from paddle_base.remote.addresses import Address
from paddle_base.remote.failures import BrokenTransferError, StaleVersionError
from paddle_base.remote.interface import Page, RemoteFile
from paddle_base.runtime.errors import ConfigError, DataError

SOCKET_S = 30.0  # seconds without a byte after which an attempt has failed
CHUNK = 1 << 20


class HttpsStore:
    """The servers of https; only their certificates prove who they are."""

    def __init__(self) -> None:
        self._opener = build_opener(_HttpsOnly, HTTPSHandler(context=ssl.create_default_context()))

    def find(self, address: Address) -> RemoteFile | None:
        """See `Store`; None if the server answers 404 or 410."""
        request = Request(_url(address), headers={"Accept-Encoding": "identity"}, method="HEAD")
        try:
            with self._opener.open(request, timeout=SOCKET_S) as answer:
                return _described(address, answer)
        except HTTPError as error:
            error.close()
            if error.code in (404, 410):
                return None
            raise

    def list_page(self, address: Address, token: str) -> Page:
        """Raise an error. Raises: ConfigError: a server of https has no listing."""
        raise ConfigError(f"{address}: https:// has no directories; name one file")

    def open(self, file: RemoteFile) -> HttpsSource:
        """See `Store`."""
        return HttpsSource(self._opener, file)

    def put(self, path: Path, address: Address) -> None:
        """Raise an error. Raises: ConfigError: servers of https are only read."""
        raise ConfigError(f"{address}: https:// is only read; name a bucket")


class HttpsSource:
    """A file of a server of https. Its first answer tells size and ETag, if they are not known yet."""

    def __init__(self, opener: OpenerDirector, file: RemoteFile) -> None:
        self._opener = opener
        self.file = file

    def pieces(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """See `Source`. A server that knows no ranges sends the beginning again, which is skipped."""
        headers = {"Accept-Encoding": "identity"}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if self.file.version and not self.file.version.startswith("W/"):
                headers["If-Range"] = f'"{self.file.version}"'
        request = Request(_url(self.file.address), headers=headers)
        with self._opener.open(request, timeout=SOCKET_S) as answer:
            self._compare(_described(self.file.address, answer))
            at = _begin_of(answer, start) if answer.status == http.client.PARTIAL_CONTENT else 0
            end = self.file.size if stop is None else stop
            while chunk := answer.read1(CHUNK):  # what is there: read() would wait for the whole piece
                kept = chunk[max(start - at, 0) :]
                at += len(chunk)
                yield kept if stop is None else kept[: max(len(kept) - max(at - stop, 0), 0)]
                if stop is not None and at >= stop:
                    return
        if 0 <= at < end:
            raise BrokenTransferError(f"the server ended the transfer at byte {at} of {end}")

    def is_md5_sure(self) -> bool:
        """See `Source`; the headers tell no digest."""
        return False

    def close(self) -> None:
        """See `Source`; `pieces` has closed its connection."""

    def _compare(self, found: RemoteFile) -> None:
        known = self.file
        if known.version and found.version and known.version != found.version:
            raise StaleVersionError
        if known.size >= 0 and found.size >= 0 and known.size != found.size:
            raise StaleVersionError
        self.file = found._replace(size=max(known.size, found.size), version=known.version or found.version)


class _HttpsOnly(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            raise DataError(f"{req.full_url.partition('?')[0]} leads to {newurl.partition('?')[0]}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _url(address: Address) -> str:
    return f"https://{address.root}/{address.key}"


def _described(address: Address, answer: http.client.HTTPResponse) -> RemoteFile:
    """Return what the headers of an answer tell about the whole file."""
    length = answer.headers.get("Content-Length", "")
    if answer.status == http.client.PARTIAL_CONTENT:
        length = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
    tag = (answer.headers.get("ETag") or "").strip().removeprefix('"').removesuffix('"')
    return RemoteFile(address, int(length) if length.isdecimal() else -1, tag)


def _begin_of(answer: http.client.HTTPResponse, start: int) -> int:
    found = re.match(r"bytes ([0-9]{1,18})-", answer.headers.get("Content-Range") or "")
    if found is None or int(found[1]) > start:
        raise BrokenTransferError("the server answered with another range of bytes than the one that was asked for")
    return int(found[1])
