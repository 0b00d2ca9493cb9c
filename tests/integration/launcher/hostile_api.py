"""A false API server on a plain TLS socket: every byte of its answers is the test's, also where none is HTTP."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import trustme

Script = Callable[["HostileApi", bytes], Iterable[bytes]]  # returns the answer to a request, in pieces
PAUSE_S = 0.5  # between two pieces of a slow answer


class HostileApi:
    """Serves one script; a context manager. `requests` are the heads that came; `token` is accepted, whatever it is."""

    def __init__(self, script: Script, directory: Path, *, is_plain: bool = False) -> None:
        self.script, self.is_plain = script, is_plain
        self.requests: list[bytes] = []
        self.closed = threading.Event()
        authority = trustme.CA()
        directory.mkdir(parents=True, exist_ok=True)
        authority.cert_pem.write_to_path(directory / "ca.crt")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> HostileApi:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(20)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # the launcher may leave whenever it has had enough
            if self.is_plain:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            with self._context.wrap_socket(connection, server_side=True) as secure:
                head = b""
                while b"\r\n\r\n" not in head and (chunk := secure.recv(1 << 16)):
                    head += chunk
                self.requests.append(head)
                for piece in self.script(self, head):
                    if self.closed.is_set():
                        return
                    secure.sendall(piece)


# ----- Answers


def head(status: int = 200, **headers: str) -> bytes:
    """Returns status line and headers; `_` stands for `-`."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def say(*pieces: bytes) -> Script:
    """The same bytes to everyone, and the end of the connection."""
    return lambda *_: pieces


def answer(body: bytes | Any, status: int = 200, **headers: str) -> Script:
    """A whole answer; what is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return say(head(status, Content_Length=str(len(content)), Connection="close", **headers) + content)


def for_ever(first: bytes, piece: bytes) -> Script:
    """An answer without end, as fast as it is taken."""

    def pieces(*_: Any) -> Iterator[bytes]:
        yield first
        while True:
            yield piece

    return pieces


def slowly(first: bytes, rest: bytes) -> Script:
    """An answer of which one byte comes at a time, for ever."""

    def pieces(api: HostileApi, _: bytes) -> Iterator[bytes]:
        yield first
        while True:
            for byte in rest:
                api.closed.wait(PAUSE_S)
                yield bytes([byte])

    return pieces


def silence(api: HostileApi, _: bytes) -> Iterator[bytes]:
    """No answer at all."""
    api.closed.wait(20)
    yield b""


def later(make: Callable[[], Script]) -> Script:
    """The answer of a script that takes long to make: every worker reads the table, one needs the answer."""
    made = functools.cache(make)
    return lambda api, request: made()(api, request)


def bomb(mebibytes: int, layers: int = 1) -> bytes:
    """Zeros, packed so that a thousandth is left of them. Their checksum is wrong: who reads that has unpacked them."""
    packer = zlib.compressobj(9, wbits=-15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # alone, so that it may be repeated
    head, end = gzip.compress(b"", mtime=0)[:10], packer.flush()
    content = head + piece * mebibytes + end + struct.pack("<II", 1, mebibytes << 20)
    return content if layers == 1 else zlib.compress(content, 9, wbits=31)


def spell(text: str) -> bytes:
    """A text as JSON may spell it."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text).encode()


# ----- Pods
