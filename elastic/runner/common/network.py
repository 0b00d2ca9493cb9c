"""Requests and responses between two programs with the same key.

    service = BasicService("name", key, nics=None)            # a subclass answers further requests in `_handle`
    client = BasicClient("name", service.addresses(), key, verbose=0)
    client._send(PingRequest())

A message is an HMAC-SHA256 (32 bytes), the length of the body (4 bytes, little-endian), and the body. The body is an
object of a class with plain data or arrays in its attributes. The class has to be defined in this module, or in a
module that defines a class of the service or of the client. A reader makes objects of no other class, and parses a body
only if its digest is right. A request may be sent more than once; a repeated request must do no harm.

On a connection the service first sends a nonce, and the client answers with its own. The HMAC of a message then covers
both nonces, the direction, the number of the message, its length, and the SHA-256 of its body, which follows the
length. So no recorded message is taken on another connection, and the first 68 bytes of a request prove the key. In
other streams the HMAC covers the body alone.

Names and signatures are those of `horovod.runner.common.util.network`, whose messages are made by pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import queue
import socket
import struct
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from elastic.process.objects import dump_object, load_object
from elastic.runner.common.secret import DIGEST_LENGTH, check_digest, compute_digest
from elastic.runner.util.network import find_port
from elastic.runner.util.threads import in_thread
from runtime import glog
from runtime.errors import ConfigError, DataError, PeerUnreachableError, UsageError
from runtime.network.front import Admitted, Front, FrontLimits, Refused
from runtime.network.interfaces import list_nics

MOST_MESSAGE_BYTES = 4 << 20
LIMITS = FrontLimits(unproven=64, of_address=32, proven=64)
REQUEST_S = 10.0  # maximum seconds until a request has arrived
ANSWER_S = 600.0  # maximum seconds until a service has answered
_CHUNK = 64 << 10  # characters
_LENGTH, _NUMBER = struct.Struct("<I"), struct.Struct("<Q")
NONCE_BYTES = 32
_PROOF_BYTES = (
    NONCE_BYTES + DIGEST_LENGTH + _LENGTH.size + DIGEST_LENGTH
)  # of a client's nonce and the head of a message
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


class NoValidAddressesFound(PeerUnreachableError):
    """No address belongs to the service."""


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
        head = _read_all(rfile, DIGEST_LENGTH + _LENGTH.size)
        if self._session is not None:
            head += _read_all(rfile, DIGEST_LENGTH)
            if not self._session.is_next(self._key, head):
                raise ConfigError(_WRONG_KEY)
        (length,) = _LENGTH.unpack_from(head, DIGEST_LENGTH)
        if length > MOST_MESSAGE_BYTES:
            raise DataError(f"a message has {length} bytes, and at most {MOST_MESSAGE_BYTES} are read")
        body = _read_all(rfile, length)
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


def _read_all(rfile: ByteReader, length: int) -> bytes:
    data = rfile.read(length)
    if len(data) < length:
        raise EOFError("the stream has ended within a message")
    return data


def _list_modules(one: object) -> set[str]:
    """Return the modules that define the class of an object and its base classes."""
    return {kind.__module__ for kind in type(one).__mro__ if kind is not object}


class _TimedReader:
    """Reads from a socket until a deadline, even if bytes keep arriving.

    Args: data: bytes that have arrived before.
    Raises: TimeoutError: the deadline has passed.
    """

    def __init__(self, stream: socket.socket, seconds: float, data: bytes = b"") -> None:
        self._stream, self._until, self._data = stream, time.monotonic() + seconds, data

    def read(self, length: int) -> bytes:
        parts = bytearray(self._data[:length])
        self._data = self._data[length:]
        while len(parts) < length:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"only {len(parts)} of {length} bytes have arrived in time")
            self._stream.settimeout(left)
            chunk = self._stream.recv(min(length - len(parts), 1 << 16))
            if not chunk:
                break
            parts += chunk
        return bytes(parts)


class BasicService:
    """A server for requests of clients with the same key.

    Args: nics: interfaces at which clients reach the service; None: all.
    Raises: NoValidAddressesFound: none of these interfaces has an address.
    """

    def __init__(self, service_name: str, key: bytes, nics: Collection[str] | None) -> None:
        self._service_name, self._nics = service_name, nics
        self._key, self._wire = key, Wire(key, _list_modules(self))
        listener, self._port = find_port(partial(socket.create_server, backlog=LIMITS.unproven))
        try:
            self._addresses = self._get_local_addresses()
        except NoValidAddressesFound:
            listener.close()
            raise
        limits = LIMITS._replace(head_s=REQUEST_S)
        self._front = Front(listener, self._judge, self._serve, limits, partial(os.urandom, NONCE_BYTES))

    def _judge(self, data: bytes, greeting: bytes) -> Admitted | Refused | None:
        head = data[NONCE_BYTES:_PROOF_BYTES]
        if len(data) < _PROOF_BYTES:
            return None
        nonces = greeting + data[:NONCE_BYTES]
        is_proven = Session(nonces, b"service", b"client").is_next(self._key, head)
        return Admitted(nonces) if is_proven else Refused(b"")

    def _serve(self, stream: socket.socket, address: str, data: bytes, nonces: bytes) -> bool:
        """Answer the request of a connection."""
        wire = self._wire.bind(Session(nonces, b"service", b"client"))
        try:
            request = wire.read(_TimedReader(stream, REQUEST_S, data[NONCE_BYTES:]))
        except (EOFError, OSError, ConfigError, DataError):
            return False  # no log line, because a client may go away at any time
        stream.settimeout(ANSWER_S)
        try:
            self._answer(wire, stream, self._handle(request, (address, 0)), request)
        except Exception as exc:
            glog.error(f"a request of {address} has failed: {glog.clean(repr(exc), 300)}")
        return False

    def _answer(self, wire: Wire, stream: socket.socket, response: Any, request: Any) -> None:
        if not response:
            raise NotImplementedError(f"{type(self).__name__} does not answer {type(request).__name__}")
        first, *texts = response if isinstance(response, tuple) else (response,)
        # the client may be gone
        with contextlib.suppress(ConnectionError, TimeoutError), stream.makefile("wb") as wfile:
            wire.write(first, wfile)
            for text in texts:
                wire.stream(text, wfile)

    def _handle(self, req: Any, client_address: tuple[str, int]) -> Any:
        """Return the response to a request: an object, or an object and a text that follows it.

        Raises: NotImplementedError: the service does not know the request.
        """
        if isinstance(req, PingRequest):
            return PingResponse(self._service_name, client_address[0])
        raise NotImplementedError(f"{self._service_name} does not answer {type(req).__name__}")

    def _get_local_addresses(self) -> dict[str, list[tuple[str, int]]]:
        there = list_nics()
        found = {nic: [(one, self._port)] for nic, one in there.items() if not self._nics or nic in self._nics}
        if not found and self._nics:
            raise NoValidAddressesFound(
                f"none of the interfaces {', '.join(self._nics)} has an IPv4 address; these interfaces have one: "
                f"{', '.join(sorted(there))}"
            )
        return found

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses of the service by interface."""
        return dict(self._addresses)

    def shutdown(self) -> None:
        """Answer the requests that have arrived, and close the port."""
        self._front.close(ANSWER_S)

    def get_port(self) -> int:
        """Return the port of the service."""
        return self._port


class BasicClient:
    """The client of a service.

    Args:
    - addresses: addresses of the service by interface; an address that does not answer with the service's name is left
      out.
    - match_intf: whether to leave out an address that this machine does not reach by its interface of the same name.
    - probe_timeout: maximum seconds until an address has answered.
    - attempts: maximum number of times that a request is sent.

    Raises: NoValidAddressesFound: no address is left.
    """

    def __init__(
        self,
        service_name: str,
        addresses: Mapping[str, Sequence[tuple[str, int]]],
        key: bytes,
        verbose: int,
        match_intf: bool = False,
        probe_timeout: float = 20,
        attempts: int = 3,
    ) -> None:
        self._service_name, self._verbose, self._match_intf = service_name, verbose, match_intf
        self._wire = Wire(key, _list_modules(self))
        self._probe_timeout, self._attempts = probe_timeout, attempts
        self._addresses = self._probe(addresses)
        if not self._addresses:
            raise NoValidAddressesFound(
                f"{service_name} answers at none of its addresses {dict(addresses)}; check that the programs have the "
                "same key, and that a network connects them"
            )

    def _probe(self, addresses: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, list[tuple[str, int]]]:
        good: queue.SimpleQueue[tuple[str, tuple[str, int]]] = queue.SimpleQueue()
        pairs = [(intf, (host, port)) for intf, found in addresses.items() for host, port in found]
        for thread in [in_thread(self._probe_one, (*pair, good)) for pair in pairs]:
            thread.join()
        result: dict[str, list[tuple[str, int]]] = {}
        while not good.empty():
            intf, address = good.get()
            result.setdefault(intf, []).append(address)
        return result

    def _probe_one(
        self, intf: str, addr: tuple[str, int], result_queue: queue.SimpleQueue[tuple[str, tuple[str, int]]]
    ) -> None:
        for _ in range(self._attempts):
            with contextlib.suppress(OSError, EOFError, ConfigError, DataError):
                response = self._exchange(addr, PingRequest(), None, self._probe_timeout)
                if not isinstance(response, PingResponse) or response.service_name != self._service_name:
                    return
                if self._match_intf and response.source_address != list_nics().get(intf):
                    if self._verbose >= 2:
                        glog.warning(f"the address {addr[0]}:{addr[1]} is left out, because {intf} does not reach it")
                    return
                result_queue.put((intf, addr))
                return

    def _send_one(self, addr: tuple[str, int], req: Any, stream: Any = None) -> Any:
        """Send a request to an address, and repeat it after a failure; return the response.

        A failure of `stream` also leads to the next attempt, which copies the text that is left.

        Raises: OSError, EOFError, ConfigError, DataError, or an exception of `stream`: the last attempt has failed.
        """
        for attempt in range(self._attempts):
            try:
                return self._exchange(addr, req, stream, ANSWER_S)
            except Exception:
                if attempt == self._attempts - 1:
                    raise
        return None

    def _exchange(self, addr: tuple[str, int], request: Any, stream: Any, seconds: float) -> Any:
        with socket.create_connection(addr, seconds) as connection, connection.makefile("wb") as wfile:
            rfile, own = _TimedReader(connection, seconds), os.urandom(NONCE_BYTES)
            wire = self._wire.bind(Session(_read_all(rfile, NONCE_BYTES) + own, b"client", b"service"))
            wfile.write(own)
            wire.write(request, wfile)
            response = wire.read(rfile)
            if stream is not None and isinstance(response, AckStreamResponse):
                wire.copy_stream(_TimedReader(connection, ANSWER_S), stream)
            return response

    def _send(self, req: Any, stream: Any = None) -> Any:
        """Send a request to the service; return the response, and copy the text that follows it to `stream`."""
        return self._send_one(next(iter(self._addresses.values()))[0], req, stream)

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses that answer, by interface."""
        return self._addresses
