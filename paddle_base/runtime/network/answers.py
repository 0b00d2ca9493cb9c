"""Sends HTTP requests to a server that may be false or broken: each answer has one deadline and a limit of bytes."""

from __future__ import annotations

import http.cookiejar
import ssl
import zlib
from collections.abc import Iterator
from typing import Any

import requests

from paddle_base.runtime import glog
from paddle_base.runtime.network.timed import TimedResponse

# the base class of the errors that urllib3 raises while a body is read; requests does not convert these errors
UNTRANSLATED: type[Exception] = vars(requests.exceptions)["BaseHTTPError"]


class TimedSession(requests.Session):
    """Connections with one deadline for each answer, which is the timeout of the request.

    A session ignores proxies, CA bundles, passwords and SSLKEYLOGFILE in the environment, because they are not meant
    for this server. A session keeps no cookies, and follows no redirect, which could send a password or token to
    another server.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        adapter = requests.adapters.HTTPAdapter()
        pools: Any = adapter.poolmanager
        kinds = dict(pools.pool_classes_by_scheme)
        for scheme, members in (("http", {}), ("https", {"connect": connect})):
            pool = kinds[scheme]
            connection = type("TimedConnection", (pool.ConnectionCls,), {"response_class": TimedResponse, **members})
            kinds[scheme] = type("TimedPool", (pool,), {"ConnectionCls": connection})
            self.mount(f"{scheme}://", adapter)
        pools.pool_classes_by_scheme = kinds

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None. Without this override, requests would read the body of a redirect without a limit."""


def connect(connection: Any) -> None:
    """Connect with a TLS context that verifies the server's certificate and name, by the CA of the request only.

    From version 3.13, the contexts of Python and urllib3 by default demand extensions of RFC 5280, for example the key
    usage of a CA. The certificates of some clusters lack them, and kubectl accepts these clusters. A context of urllib3
    would also write the keys of the connection to the file that SSLKEYLOGFILE names.
    """
    connection.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    super(type(connection), connection).connect()


def read_answer(raw: Any, packing: str, limit: int) -> bytes:
    """Return the decompressed body of an answer.

    Args: raw: the unread urllib3 response. packing: the response's Content-Encoding.
    Raises: ValueError: the body has more than `limit` bytes, is damaged, or has an encoding that was not requested.
    """
    if packing.strip().lower() not in ("", "identity", "gzip"):
        raise ValueError(f'Content-Encoding is "{glog.clean(packing, 60)}", expected gzip')
    unpacker = zlib.decompressobj(wbits=31) if packing.strip().lower() == "gzip" else None
    content, received = bytearray(), 0
    while chunk := raw.read(1 << 16, decode_content=False):
        received += len(chunk)
        try:
            content += unpacker.decompress(chunk, limit + 1 - len(content)) if unpacker else chunk
        except zlib.error as problem:
            raise ValueError(f"it is no gzip: {problem}") from None
        if max(received, len(content)) > limit:
            raise ValueError(f"it has more than {limit >> 20} MiB")
        if unpacker and unpacker.eof:
            break
    if unpacker and not unpacker.eof:
        raise ValueError("its gzip is cut off")
    return bytes(content)


def read_lines(raw: Any, limit: int) -> Iterator[bytes]:
    """Yield the complete lines of an answer that has no end, without their ends.

    Args: raw: the unread urllib3 response, which is not compressed.
    Raises: ValueError: a line has more than `limit` bytes.
    """
    rest = b""
    for chunk in raw.stream(1 << 16, decode_content=False):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
        if len(rest) > limit:
            raise ValueError(f"a line has more than {limit >> 20} MiB")
