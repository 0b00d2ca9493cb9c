"""Reads answers of the API server within a deadline and a limit of bytes."""

from __future__ import annotations

import dataclasses
import email.utils
import http.cookiejar
import re
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import requests

from runtime.kubernetes.text import one_line, shorten
from runtime.kubernetes.timed import TimedResponse

REQUEST_TIMEOUT_S = 10.0  # limit in seconds for a new connection, for its TLS handshake, and for a whole answer
RETRY_AFTER_LIMIT_S = 60.0  # maximum seconds that are accepted from a Retry-After header

# the base class of the errors that urllib3 raises while a body is read; requests does not convert these errors
UNTRANSLATED: type[Exception] = vars(requests.exceptions)["BaseHTTPError"]


class ApiSession(requests.Session):
    """Connections to the API server, with one deadline for each answer.

    A session ignores proxies, CA bundles and passwords in the environment, because they are not meant for the API
    server. A session keeps no cookies, and follows no redirect, which could send the token to another server.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        adapter = requests.adapters.HTTPAdapter()
        pools: Any = adapter.poolmanager
        pool = pools.pool_classes_by_scheme["https"]
        members = {"response_class": TimedResponse, "connect": connect}
        connection = type("TimedConnection", (pool.ConnectionCls,), members)
        pools.pool_classes_by_scheme = {"https": type("TimedPool", (pool,), {"ConnectionCls": connection})}
        self.mount("https://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None. Without this override, requests would read the body of a redirect without a limit."""


def connect(connection: Any) -> None:
    """Connect with a TLS context that verifies the server's certificate and name, by the CA of the request only.

    From version 3.13, the contexts of Python and urllib3 by default demand extensions of RFC 5280, for example the key
    usage of a CA. The certificates of some clusters lack them, and kubectl accepts these clusters.
    """
    connection.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    super(type(connection), connection).connect()


def read_answer(raw: Any, packing: str, limit: int) -> bytes:
    """Return the decompressed body of an answer.

    Args: raw: the unread urllib3 response. packing: the response's Content-Encoding.
    Raises: ValueError: the body has more than `limit` bytes, is damaged, or has an encoding that was not requested.
    """
    if packing.strip().lower() not in ("", "identity", "gzip"):
        raise ValueError(f"Content-Encoding is {shorten(packing)}, expected gzip")
    unpacker = zlib.decompressobj(wbits=31) if packing.strip().lower() == "gzip" else None
    content = bytearray()
    while chunk := raw.read(1 << 16, decode_content=False):
        try:
            content += unpacker.decompress(chunk, limit + 1 - len(content)) if unpacker else chunk
        except zlib.error as problem:
            raise ValueError(f"it is no gzip: {problem}") from None
        if len(content) > limit:
            raise ValueError(f"it has more than {limit >> 20} MiB")
        if unpacker and unpacker.eof:
            break
    if unpacker and not unpacker.eof:
        raise ValueError("its gzip is cut off")
    return bytes(content)


@dataclasses.dataclass(frozen=True)
class ApiAnswer:
    """A complete answer of the API server; `body` does not contain the token."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def beginning(self) -> str:
        """The first words of the body, for an error message."""
        return one_line(self.body[:400].decode("utf-8", "replace"), 120)


def describe_failure(problem: BaseException, redact: Callable[[str], str]) -> str:
    """Return the innermost cause of a failed request; it is more specific than the exceptions that contain it."""
    cause = problem
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            return one_line(redact(f"{type(cause).__name__}: {cause}"))
        cause = inner


def parse_retry_after(value: str | None) -> float:
    """Return the seconds of a Retry-After header (number or date), or 0 if it is absent or malformed.

    The result is at most RETRY_AFTER_LIMIT_S, because the API server may recover sooner.
    """
    try:
        if value and re.fullmatch(r"[0-9]+", value.strip()):
            asked = float(value)
        else:
            asked = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, IndexError):  # the errors of the date parser
        return 0.0
    return min(max(0.0, asked), RETRY_AFTER_LIMIT_S)
