"""The messages between two programs with the same key, and the proof of the key that each has.

A message is an HMAC-SHA256 (32 bytes), the length of the body (4 bytes, little-endian), and the body. The body is an
object of a class with plain data or arrays in its attributes. The class has to be defined in this module, or in a
module that defines a class of the service or of the client. A reader makes objects of no other class, and parses a body
only if its digest is right.

On a connection the service first sends a nonce, and the client answers with its own. The HMAC of a message then covers
both nonces, the direction, the number of the message, its length, and the SHA-256 of its body, which follows the
length. So no recorded message is taken on another connection, and the first 68 bytes of a request prove the key. In
other streams the HMAC covers the body alone.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import sys
from collections.abc import Collection
from typing import Any, Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError, UsageError
from paddle_cluster.elastic.process.objects import dump_object, load_object
from paddle_cluster.elastic.runner.common.secret import DIGEST_LENGTH, check_digest, compute_digest

MOST_MESSAGE_BYTES = 4 << 20
NONCE_BYTES = 32
_CHUNK = 64 << 10  # characters
_LENGTH, _NUMBER = struct.Struct("<I"), struct.Struct("<Q")
HEAD_BYTES = DIGEST_LENGTH + _LENGTH.size + DIGEST_LENGTH  # before the body of a message on a connection
_WRONG_KEY = "Security error: the digest of a message is wrong; writer and reader have different keys"
_PLAIN = ""  # name of the class of a message that is plain data


class ByteReader(Protocol):
    """A stream of bytes."""

    def read(self, length: int, /) -> bytes:
        """Return `length` bytes, or fewer at the end of the stream."""


class ByteWriter(Protocol):
    """A stream of bytes."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""

    def flush(self) -> object:
        """Flush the written bytes."""


class TextReader(Protocol):
    """A source of text, e.g. a `Pipe`."""

    def read(self, length: int, /) -> Any:
        """Return at most `length` characters, or an empty value at the end."""


class PingRequest:
    """Asks a service for its name."""


class PingResponse:
    """The answer to `PingRequest`."""

    def __init__(self, service_name: str, source_address: str) -> None:
        self.service_name, self.source_address = service_name, source_address


class AckResponse:
    """An answer without data."""


class AckStreamResponse:
    """An answer after which the service sends a text."""


class Session:
    """The two nonces of a connection, and the numbers of its messages in each direction.

    Args: own, other: the letters of the two directions: of messages that this side writes, and that it reads.
    """

    def __init__(self, nonces: bytes, own: bytes, other: bytes) -> None:
        self._nonces, self._own, self._other = nonces, own, other
        self._written = self._read = 0

    def write_head(self, key: bytes, body: bytes) -> bytes:
        """Return the bytes before a body."""
        facts = _LENGTH.pack(len(body)) + hashlib.sha256(body).digest()
        self._written += 1
        return self._prove(key, self._own, self._written, facts) + facts

    def is_next(self, key: bytes, head: bytes) -> bool:
        """Return whether the bytes before a body prove that it is the next message of the other side."""
        self._read += 1
        return hmac.compare_digest(
            head[:DIGEST_LENGTH], self._prove(key, self._other, self._read, head[DIGEST_LENGTH:])
        )

    def _prove(self, key: bytes, direction: bytes, number: int, facts: bytes) -> bytes:
        return compute_digest(key, self._nonces + direction + _NUMBER.pack(number) + facts)


class Wire:
    """Reads and writes messages.

    Args: modules: names of further modules whose classes may be sent.  session: what the messages of one connection
        are bound to; None: the stream is no connection.
    """

    def __init__(self, key: bytes, modules: Collection[str] = (), session: Session | None = None) -> None:
        self._key, self._modules, self._session = key, {__name__, *modules}, session

    def bind(self, session: Session) -> Wire:
        """Return the wire of a connection."""
        return Wire(self._key, self._modules, session)

    def write(self, obj: object, wfile: ByteWriter) -> None:
        """Write a message.

        Raises: UsageError: the object is neither plain data nor of a class that may be sent, or the object is too
            large.
        """
        kind = type(obj)
        name = f"{kind.__module__}:{kind.__qualname__}" if kind.__module__ in self._modules else _PLAIN
        if name and self._find(name) is not kind:
            raise UsageError(f"{name} cannot be sent: define the class at the top level of its module")
        try:
            body = dump_object([name, vars(obj) if name else obj])
        except TypeError as exc:
            why = str(exc).partition("; unsafe_pickle")[0]
            raise UsageError(f"{name or kind.__name__} cannot be sent: {why}; no message uses pickle") from exc
        if len(body) > MOST_MESSAGE_BYTES:
            raise UsageError(f"{name} has {len(body)} bytes; a message has at most {MOST_MESSAGE_BYTES}")
        if self._session is None:
            wfile.write(compute_digest(self._key, body) + _LENGTH.pack(len(body)) + body)
        else:
            wfile.write(self._session.write_head(self._key, body) + body)
        wfile.flush()

    def read(self, rfile: ByteReader) -> Any:
        """Return the next message.

        Raises: EOFError: the stream has ended.  ConfigError: the writer has another key.  DataError: the message is too
            long, or is an object of a class that may not be sent.
        """
        head = read_all(rfile, DIGEST_LENGTH + _LENGTH.size)
        if self._session is not None:
            head += read_all(rfile, DIGEST_LENGTH)
            if not self._session.is_next(self._key, head):
                raise ConfigError(_WRONG_KEY)
        (length,) = _LENGTH.unpack_from(head, DIGEST_LENGTH)
        if length > MOST_MESSAGE_BYTES:
            raise DataError(f"a message has {length} bytes, and at most {MOST_MESSAGE_BYTES} are read")
        body = read_all(rfile, length)
        if self._session is None and not check_digest(self._key, body, head[:DIGEST_LENGTH]):
            raise ConfigError(_WRONG_KEY)
        if self._session is not None and hashlib.sha256(body).digest() != head[-DIGEST_LENGTH:]:
            raise DataError("the body of a message is not the one that its head names")
        try:
            name, value = load_object(body)
        except (TypeError, ValueError) as exc:
            raise DataError("a message does not name its class") from exc
        return value if isinstance(name, str) and name == _PLAIN else self._make(name, value)

    def stream(self, stream: TextReader, wfile: ByteWriter) -> None:
        """Write a whole text as several messages; an empty message ends the text."""
        while text := stream.read(_CHUNK):
            self.write(text, wfile)
        self.write("", wfile)

    def copy_stream(self, rfile: ByteReader, stream: Any) -> None:
        """Read a text that the other program has sent by its method `stream`, and write the text to a stream."""
        while text := self.read(rfile):
            stream.write(text)

    def _find(self, name: str) -> type | None:
        """Return the class of a module that this process has imported already, or None."""
        module, _, kind = name.partition(":")
        found = getattr(sys.modules.get(module), kind, None) if module in self._modules else None
        return found if isinstance(found, type) and found.__module__ == module else None

    def _make(self, name: object, fields: object) -> object:
        kind = self._find(name) if isinstance(name, str) else None
        if kind is None or not isinstance(fields, dict):
            raise DataError(f"a message has a class that may not be sent here: {glog.clean(name, 100)}")
        try:
            made: object = object.__new__(kind)
            vars(made).update(fields)
        except TypeError as exc:
            raise DataError(f"a message has the class {name}, which has no plain attributes") from exc
        return made


def read_all(rfile: ByteReader, length: int) -> bytes:
    """Return so many bytes.

    Raises: EOFError: the stream has ended before.
    """
    data = rfile.read(length)
    if len(data) < length:
        raise EOFError("the stream has ended within a message")
    return data
