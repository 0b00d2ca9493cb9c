"""Opens the input, which is a file or directory on a mounted volume, or a download with a known SHA-256."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import (
    ApiForbiddenError,
    ConfigError,
    DataError,
    MissingInputError,
    PeerUnreachableError,
)
from paddle_cluster.prepare.errors import write_pieces, writing_to
from paddle_cluster.prepare.input.archive import unpack_if_archive
from paddle_cluster.prepare.input.folder import DIRECTORY, Folder
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.input.packed import from_start
from paddle_cluster.prepare.limits import Meter, disk_meter, memory_meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.values import Settings

CHUNK = 1 << 20
INSTEAD = "raise DATA_TIMEOUT, or fetch the file yourself and set DATA_PATH"
SOCKET_TIMEOUT = 30.0
FIRST_DELAY = 0.2
LAST_DELAY = 10.0


def fetch(settings: Settings, scratch: Path) -> Input:
    """Return the input, which is one file or a directory; an archive is unpacked into the directory `scratch`.

    Raises: MissingInputError, ApiForbiddenError, PeerUnreachableError: if the input cannot be obtained.
    DataError: if the input does not match DATA_SHA256, exceeds DATA_MAX_BYTES, or is an archive with members outside
    its directory.  VolumeError: if `scratch` cannot be written.
    """
    path = _download(settings, scratch) if settings.data_url else settings.data_path
    assert path is not None  # read_settings has checked that there is an input
    disk, memory = disk_meter(settings.data_max_bytes), memory_meter(settings.data_max_memory)
    try:
        descriptor = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"DATA_PATH {path} does not exist; mount the data there, or set DATA_URL") from None
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if settings.data_sha256 and not is_file:
        raise ConfigError(f"DATA_SHA256 is set, but {path} is not a file")
    if settings.data_sha256:
        _check_digest(path, descriptor, settings.data_sha256)
    unpacked = scratch / "unpacked"
    if not is_file:
        return Input(path, disk, memory, folder=Folder(path, descriptor), out_dir=settings.out_dir)
    if unpack_if_archive(descriptor, path.name, unpacked, disk, memory):
        os.close(descriptor)
        return Input(path, disk.fresh(), memory, folder=Folder(unpacked), out_dir=settings.out_dir)
    return Input(path, disk, memory, descriptor=descriptor)


def _open(path: Path) -> int:
    """Return the descriptor of the input. A link must not lead out of its directory."""
    if path.name in ("", ".."):
        return os.open(path, DIRECTORY)
    with Folder(path.parent) as folder:
        return folder.open(path.name)


def _check_digest(path: Path, descriptor: int, expected: str) -> None:
    with from_start(descriptor) as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
    if found != expected:
        raise DataError(
            f"{path.name} has SHA-256 {found}, not {expected} (DATA_SHA256); it is another file, or damaged"
        )


def _download(settings: Settings, scratch: Path) -> Path:
    """Download DATA_URL, with retries until DATA_TIMEOUT, and return the path of the copy."""
    url = urlsplit(settings.data_url)
    if url.scheme == "file":
        path = Path(unquote(url.path))
        if not path.exists():
            raise MissingInputError(f"DATA_URL {settings.data_url}: there is no such file; correct DATA_URL")
        return path
    target = scratch / (Path(unquote(url.path)).name or "download")
    deadline = time.monotonic() + settings.data_timeout
    for delay in exponential_backoff(FIRST_DELAY, LAST_DELAY, spread=0.0):
        try:
            _copy(settings.data_url, target, deadline, disk_meter(settings.data_max_bytes))
        except (OSError, http.client.HTTPException) as error:
            _raise_if_final(settings.data_url, error)
            if time.monotonic() + delay > deadline:
                waited = f"tried for {settings.data_timeout:g} s"
                raise PeerUnreachableError(f"DATA_URL {settings.data_url}: {error} ({waited}); {INSTEAD}") from error
            say(f"{settings.data_url}: {error}; next try in {delay:.1f} s")
            time.sleep(delay)
        else:
            break
    return target


def _raise_if_final(url: str, error: Exception) -> None:
    """Raise an error of this package if a retry cannot succeed."""
    if isinstance(error, HTTPError):
        error.close()
        if error.code in (401, 403):
            raise ApiForbiddenError(f"DATA_URL {url}: {error.code} {error.reason}; the server denies access") from error
        if 400 <= error.code < 500 and error.code not in (408, 425, 429):
            raise MissingInputError(f"DATA_URL {url}: {error.code} {error.reason}") from error
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise ConfigError(
            f"DATA_URL {url}: the certificate is not trusted ({reason.verify_message}); for a private CA, set "
            "SSL_CERT_FILE"
        ) from error


class _HttpsOnly(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            raise DataError(f"DATA_URL {req.full_url} leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(url: str, target: Path, deadline: float, disk: Meter) -> None:
    opener = build_opener(_HttpsOnly, HTTPSHandler(context=ssl.create_default_context()))
    with opener.open(url, timeout=SOCKET_TIMEOUT) as answer:
        expected = answer.headers.get("Content-Length")
        with writing_to(target):
            output = target.open("wb")
        write_pieces(_arriving(answer, url, deadline, disk), output, target)
        received = target.stat().st_size
    if expected is not None and expected.isdecimal() and received != int(expected):
        raise http.client.IncompleteRead(b"", int(expected) - received)


def _arriving(answer: http.client.HTTPResponse, url: str, deadline: float, disk: Meter) -> Iterator[bytes]:
    received = 0
    while chunk := answer.read1(CHUNK):  # what is there: read() would wait for the whole piece
        received += len(chunk)
        disk.take(len(chunk), f"DATA_URL {url}")
        yield chunk
        if time.monotonic() > deadline:
            had = f"{received} of {answer.headers.get('Content-Length') or 'an unknown number of'} bytes"
            raise PeerUnreachableError(f"DATA_URL {url}: {had} had arrived when DATA_TIMEOUT was over; {INSTEAD}")
