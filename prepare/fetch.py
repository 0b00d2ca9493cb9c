"""Gets the input: from a mounted path, or from an address with a known SHA-256."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from prepare.archive import is_archive, unpack
from prepare.errors import (
    DataError,
    ForbiddenError,
    MissingInputError,
    SettingsError,
    UnreachableError,
    writing_to,
)
from prepare.log import say
from prepare.settings import Settings

CHUNK = 1 << 20
SOCKET_TIMEOUT = 30.0
FIRST_DELAY = 0.2
LAST_DELAY = 10.0


def fetch(settings: Settings, scratch: Path) -> Path:
    """Return the input as a plain file or folder; archives are unpacked into scratch.

    Raises: MissingInputError, ForbiddenError, UnreachableError: if it cannot be had.  DataError: if it is not the
    one that DATA_SHA256 names, or an archive that would write outside its folder.  VolumeError: if scratch is full.
    """
    path = _download(settings, scratch) if settings.data_url else settings.data_path
    if path is None or not path.exists():
        raise MissingInputError(f"DATA_PATH {path} does not exist; mount the data there, or set DATA_URL")
    if settings.data_sha256:
        _check_digest(path, settings.data_sha256)
    if path.is_file() and is_archive(path):
        folder = scratch / "unpacked"
        unpack(path, folder)
        return folder
    return path


def _check_digest(path: Path, expected: str) -> None:
    if not path.is_file():
        raise SettingsError(f"DATA_SHA256 is set, but {path} is not a file")
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        raise DataError(f"{path.name} has SHA-256 {found}, not {expected} (DATA_SHA256); another file, or damaged")


def _download(settings: Settings, scratch: Path) -> Path:
    """Return the local copy of DATA_URL, trying again until DATA_TIMEOUT."""
    url = urlsplit(settings.data_url)
    if url.scheme == "file":
        path = Path(unquote(url.path))
        if not path.exists():
            raise MissingInputError(f"DATA_URL {settings.data_url}: there is no such file")
        return path
    target = scratch / (Path(unquote(url.path)).name or "download")
    deadline = time.monotonic() + settings.data_timeout
    delay = FIRST_DELAY
    while True:
        try:
            _copy(settings.data_url, target, deadline)
        except (OSError, http.client.HTTPException) as error:
            _raise_if_final(settings.data_url, error)
            if time.monotonic() + delay > deadline:
                waited = f"tried for {settings.data_timeout:g} s"
                raise UnreachableError(f"DATA_URL {settings.data_url}: {error} ({waited})") from error
            say(f"{settings.data_url}: {error}; next try in {delay:.1f} s")
            time.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
        else:
            return target


def _raise_if_final(url: str, error: Exception) -> None:
    """Raise the error that no later try will change."""
    if isinstance(error, HTTPError):
        error.close()
        if error.code in (401, 403):
            raise ForbiddenError(f"DATA_URL {url}: {error.code} {error.reason}; the server refuses us") from error
        if 400 <= error.code < 500 and error.code not in (408, 425, 429):
            raise MissingInputError(f"DATA_URL {url}: {error.code} {error.reason}") from error
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise SettingsError(
            f"DATA_URL {url}: certificate not trusted ({reason.verify_message}); for a private CA set SSL_CERT_FILE"
        ) from error


class _HttpsOnly(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            raise DataError(f"DATA_URL {req.full_url} leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(url: str, target: Path, deadline: float) -> None:
    opener = build_opener(_HttpsOnly, HTTPSHandler(context=ssl.create_default_context()))
    with opener.open(url, timeout=SOCKET_TIMEOUT) as answer:
        expected = answer.headers.get("Content-Length")
        with writing_to(target):
            output = target.open("wb")
        with output:
            received = 0
            while chunk := answer.read(CHUNK):
                received += len(chunk)
                with writing_to(target):
                    output.write(chunk)
                if time.monotonic() > deadline:
                    had = f"{received} bytes of {expected or 'unknown'}"
                    raise UnreachableError(f"DATA_URL {url}: {had} when DATA_TIMEOUT was over")
            with writing_to(target):
                output.flush()
    if expected is not None and received != int(expected):
        raise http.client.IncompleteRead(b"", int(expected) - received)
