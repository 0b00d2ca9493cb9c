"""Requests and responses between two programs with the same key.

    service = BasicService("name", key, nics=None)            # a subclass answers further requests in `_handle`
    client = BasicClient("name", service.addresses(), key, verbose=0)
    client._send(PingRequest())

A message is the HMAC-SHA256 of its body (32 bytes), the length of the body (4 bytes, little-endian), and the body. The
body is an object of a class with plain data or arrays in its attributes. The class has to be defined in this module, or
in a module that defines a class of the service or of the client. A reader makes objects of no other class, and parses a
body only if its digest is right. A request may be sent more than once; a repeated request must do no harm.

Names and signatures are those of `horovod.runner.common.util.network`, whose messages are made by pickle.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from elastic.process.objects import dump_object, load_object
from elastic.runner.common.secret import DIGEST_LENGTH, check_digest, compute_digest
from elastic.runner.util.network import find_port
from elastic.runner.util.threads import in_thread
from runtime import glog
from runtime.errors import ConfigError, DataError, PeerUnreachableError, UsageError
from runtime.network.interfaces import list_nics

MOST_MESSAGE_BYTES = 4 << 20
MOST_CALLERS = 64  # maximum number of requests at the same time
REQUEST_S = 10.0  # maximum seconds until a request has arrived
ANSWER_S = 600.0  # maximum seconds until a service has answered
_CHUNK = 64 << 10  # characters
_LENGTH = struct.Struct("<I")
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


class Wire:
    """Reads and writes messages.

    Args: modules: names of further modules whose classes may be sent.
    """

    def __init__(self, key: bytes, modules: Collection[str] = ()) -> None:
        self._key, self._modules = key, {__name__, *modules}

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
        wfile.write(compute_digest(self._key, body) + _LENGTH.pack(len(body)) + body)
        wfile.flush()

    def read(self, rfile: ByteReader) -> Any:
        """Return the next message.

        Raises: EOFError: the stream has ended.  ConfigError: the writer has another key.  DataError: the message is too
            long, or is an object of a class that may not be sent.
        """
        digest = _read_all(rfile, DIGEST_LENGTH)
        (length,) = _LENGTH.unpack(_read_all(rfile, _LENGTH.size))
        if length > MOST_MESSAGE_BYTES:
            raise DataError(f"a message has {length} bytes, and at most {MOST_MESSAGE_BYTES} are read")
        body = _read_all(rfile, length)
        if not check_digest(self._key, body, digest):
            raise ConfigError("Security error: the digest of a message is wrong; writer and reader have different keys")
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

    Raises: TimeoutError: the deadline has passed.
    """

    def __init__(self, stream: socket.socket, seconds: float) -> None:
        self._stream, self._until = stream, time.monotonic() + seconds

    def read(self, length: int) -> bytes:
        parts = bytearray()
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


class _ServiceServer(socketserver.ThreadingTCPServer):
    """Answers each request in a thread; `server_close` waits for the requests that are being answered."""

    request_queue_size = MOST_CALLERS
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        self._callers = threading.Semaphore(MOST_CALLERS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._callers.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._callers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        glog.error(f"a request of {client_address[0]} has failed: {glog.clean(repr(sys.exc_info()[1]), 300)}")


class BasicService:
    """A server for requests of clients with the same key.

    Args: nics: interfaces at which clients reach the service; None: all.
    Raises: NoValidAddressesFound: none of these interfaces has an address.
    """

    def __init__(self, service_name: str, key: bytes, nics: Collection[str] | None) -> None:
        self._service_name, self._nics = service_name, nics
        self._wire = Wire(key, _list_modules(self))
        handler = self._make_handler()
        self._server, self._port = find_port(lambda address: _ServiceServer(address, handler))
        try:
            self._addresses = self._get_local_addresses()
        except NoValidAddressesFound:
            self._server.server_close()
            raise
        self._thread = in_thread(self._server.serve_forever, args=(0.05,), name=service_name)

    def _make_handler(self) -> type[socketserver.BaseRequestHandler]:
        service = self

        class RequestHandler(socketserver.StreamRequestHandler):
            """Answers a request."""

            def handle(self) -> None:
                try:
                    request = service._wire.read(_TimedReader(self.connection, REQUEST_S))
                except (EOFError, OSError, ConfigError, DataError):
                    return  # no log line, because anybody may connect, and could fill the log
                self.connection.settimeout(ANSWER_S)
                response = service._handle(request, self.client_address)
                if not response:
                    raise NotImplementedError(f"{type(service).__name__} does not answer {type(request).__name__}")
                first, *texts = response if isinstance(response, tuple) else (response,)
                with contextlib.suppress(ConnectionError, TimeoutError):  # the client is gone
                    service._wire.write(first, self.wfile)
                    for text in texts:
                        service._wire.stream(text, self.wfile)

        return RequestHandler

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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

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
            self._wire.write(request, wfile)
            rfile = _TimedReader(connection, seconds)
            response = self._wire.read(rfile)
            if stream is not None and isinstance(response, AckStreamResponse):
                self._wire.copy_stream(_TimedReader(connection, ANSWER_S), stream)
            return response

    def _send(self, req: Any, stream: Any = None) -> Any:
        """Send a request to the service; return the response, and copy the text that follows it to `stream`."""
        return self._send_one(next(iter(self._addresses.values()))[0], req, stream)

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses that answer, by interface."""
        return self._addresses
