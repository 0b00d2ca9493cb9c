"""Answers of the API server, read within a deadline and a limit of bytes."""

from __future__ import annotations

import dataclasses
import email.utils
import http.cookiejar
import re
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import requests

from runtime.kubernetes.text import one_line, shorten
from runtime.kubernetes.timed import TimedResponse

REQUEST_TIMEOUT_S = 10.0  # seconds to connect, again to agree on TLS, and again for the whole answer
RETRY_AFTER_LIMIT_S = 60.0  # seconds that a Retry-After of the API server counts for at most

UNTRANSLATED: type[Exception] = vars(requests.exceptions)[
    "BaseHTTPError"
]  # urllib3's, which a body that is read raises


class ApiSession(requests.Session):
    """Connections to the API server, with one deadline for each answer.

    No proxy, CA bundle or password of the environment is used: none is meant for the API server. Cookies are not kept.
    No redirect is followed, which would take the token elsewhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        adapter = requests.adapters.HTTPAdapter()
        pools: Any = adapter.poolmanager
        pool = pools.pool_classes_by_scheme["https"]
        connection = type("TimedConnection", (pool.ConnectionCls,), {"response_class": TimedResponse})
        pools.pool_classes_by_scheme = {"https": type("TimedPool", (pool,), {"ConnectionCls": connection})}
        self.mount("https://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Returns none. Else requests would read the body of a redirect without a limit, and not even follow it."""


def read_answer(raw: Any, packing: str, limit: int) -> bytes:
    """Returns the body of an answer, unpacked.

    Args: raw: its urllib3 response, unread. packing: its Content-Encoding.
    Raises: ValueError: it has more than `limit` bytes, is damaged, or packed in a way that was not asked for.
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
    """An answer of the API server, read to its end; `body` is without the token."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def beginning(self) -> str:
        """The first words of the body, for an error."""
        return one_line(self.body[:400].decode("utf-8", "replace"), 120)


def describe_failure(problem: BaseException, redact: Callable[[str], str]) -> str:
    """Returns the innermost cause of a failed request, which says more than the exceptions around it."""
    cause = problem
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            return one_line(redact(f"{type(cause).__name__}: {cause}"))
        cause = inner


def parse_retry_after(value: str | None) -> float:
    """Returns the seconds that a Retry-After header asks for (number or date), 0 for none or nonsense.

    They are at most RETRY_AFTER_LIMIT_S: the API server may be well again sooner.
    """
    try:
        if value and re.fullmatch(r"[0-9]+", value.strip()):
            asked = float(value)
        else:
            asked = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, IndexError):  # what the parser of dates raises
        return 0.0
    return min(max(0.0, asked), RETRY_AFTER_LIMIT_S)
