"""Requests and responses between two programs with the same key.

    service = BasicService("name", key, nics=None)            # a subclass answers further requests in `_handle`
    client = BasicClient("name", service.addresses(), key, verbose=0)
    client._send(PingRequest())

`paddle_cluster.elastic.runner.common.wire` has the messages. A request may be sent more than once; a repeated request
must do no harm.

Names and signatures are those of `horovod.runner.common.util.network`, whose messages are made by pickle.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError, PeerUnreachableError
from paddle_base.runtime.network.front import Admitted, Front, FrontHandlers, FrontLimits, Refused
from paddle_base.runtime.network.interfaces import list_nics
from paddle_cluster.elastic.runner.common.wire import (
    HEAD_BYTES,
    MOST_MESSAGE_BYTES,
    NONCE_BYTES,
    AckResponse,
    AckStreamResponse,
    PingRequest,
    PingResponse,
    Session,
    Wire,
    read_all,
)
from paddle_cluster.elastic.runner.util.network import find_port
from paddle_cluster.elastic.runner.util.threads import in_thread

__all__ = [
    "MOST_MESSAGE_BYTES",
    "AckResponse",
    "AckStreamResponse",
    "BasicClient",
    "BasicService",
    "NoValidAddressesFound",
    "PingRequest",
    "PingResponse",
    "Wire",
]

LIMITS = FrontLimits(unproven=64, of_address=32, proven=64)
REQUEST_S = 10.0  # maximum seconds until a request has arrived
PAUSE_S = 0.2  # seconds before the second attempt to reach a service; the third comes after twice the time
ANSWER_S = 600.0  # maximum seconds until a service has answered
_PROOF_BYTES = NONCE_BYTES + HEAD_BYTES  # of a client's nonce and the head of its request


class NoValidAddressesFound(PeerUnreachableError):
    """No address belongs to the service."""


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
        handlers = FrontHandlers(self._judge, self._serve, partial(os.urandom, NONCE_BYTES))
        self._front = Front(listener, handlers, LIMITS._replace(head_s=REQUEST_S))

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
        for attempt in range(self._attempts):
            time.sleep(PAUSE_S * attempt)  # a flood of others may have closed the connection
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
            wire = self._wire.bind(Session(read_all(rfile, NONCE_BYTES) + own, b"client", b"service"))
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
