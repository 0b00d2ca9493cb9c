"""Notices of changed hosts: a small HTTP server in each worker, and the client by which the driver sends notices.

Names and signatures are those of Horovod 0.28's `horovod.runner.elastic.worker`. A notice is a signed PUT of JSON. The
driver also stores the notice for workers whose servers start later.
"""

from __future__ import annotations

import enum
import json
import os
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import PaddleError
from paddle_base.runtime.network.front import FrontLimits
from paddle_base.runtime.network.interfaces import find_own_nics
from paddle_base.runtime.schema import Integer, Number, Record, SchemaError, parse_object
from paddle_cluster.elastic.constants import (
    HOROVOD_GLOO_IFACE,
    HOROVOD_GLOO_RENDEZVOUS_ADDR,
    HOROVOD_GLOO_RENDEZVOUS_PORT,
    HOROVOD_HOSTNAME,
    HOROVOD_LOCAL_RANK,
    PADDLE_ELASTIC_INCARNATION,
)
from paddle_cluster.elastic.http_server import HttpAnswer, HttpRequest, KVStoreHandler, KVStoreServer
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

NOTIFY_S = 5.0  # maximum seconds until a worker has accepted a notice
SCOPE, KEY = "notices", "hosts_updated"
# only the driver sends notices; the descriptors of the training process are for its data
LIMITS = FrontLimits(unproven=16, of_address=8, proven=8)


class HostUpdateResult(enum.IntFlag):
    """Flags that describe a change of hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


_NOTICE = Record(timestamp=Number(), result=Integer(0, HostUpdateResult.mixed))


class HostsListener(Protocol):
    """A listener for changes of hosts, e.g. a `State`."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Handle a change of hosts.

        Args: timestamp: a number that is larger for a later change; the driver of a job sends the revision of its
            notice, because the clocks of two drivers may differ.  update_res: flags of `HostUpdateResult`.
        """


class WorkerNotificationManager:
    """Passes the notices of the driver to the listeners of this process.

    Attributes: addresses: the addresses at which this process receives notices; empty: no notices arrive.

    Thread safety: every method may be called from any thread; a thread of the server calls the listeners.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._service: WorkerNotificationService | None = None
        self._listeners: list[HostsListener] = []
        self.addresses: tuple[tuple[str, int], ...] = ()

    def init(
        self,
        rendezvous_addr: str | None = None,
        rendezvous_port: int | None = None,
        nic: str | None = None,
        hostname: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        """Start the server and register its addresses with the driver.

        Without a driver, and after the first call, this method does nothing.

        Args: each argument defaults to its environment variable.
        Raises: PeerUnreachableError: the driver does not answer.  ConfigError: the driver rejects the secret.
        """
        address = rendezvous_addr or os.environ.get(HOROVOD_GLOO_RENDEZVOUS_ADDR)
        with self._lock:
            if self._service is not None or not address:
                return
            secret = read_environment(os.environ).secret
            self._service = WorkerNotificationService(
                secret, os.environ.get(HOROVOD_GLOO_IFACE, "") if nic is None else nic, self
            )
            self.addresses = tuple(flatten_addresses(self._service.addresses()))
        port = int(os.environ[HOROVOD_GLOO_RENDEZVOUS_PORT]) if rendezvous_port is None else rendezvous_port
        host = os.environ[HOROVOD_HOSTNAME] if hostname is None else hostname
        number = int(os.environ[HOROVOD_LOCAL_RANK]) if local_rank is None else local_rank
        incarnation = os.environ.get(PADDLE_ELASTIC_INCARNATION, "")
        RendezvousClient(address, port, secret).register_addresses(host, number, incarnation, self.addresses)

    def register_listener(self, listener: HostsListener) -> None:
        """Add a listener."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: HostsListener) -> None:
        """Remove a listener."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Pass a notice to every listener."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)

    def shutdown(self) -> None:
        """Stop the server."""
        with self._lock:
            service, self._service, self.addresses = self._service, None, ()
        if service is not None:
            service.shutdown()


class WorkerNotificationService:
    """The server in a worker, which accepts the notices of the driver.

    Args: key: the job's secret; a key of bytes is used as its hexadecimal text.  nic: network interface, or "" for all.
    """

    def __init__(self, key: str | bytes, nic: str | None, manager: WorkerNotificationManager) -> None:
        class NotificationHandler(KVStoreHandler):
            """Accepts notices and no other request."""

            def answer(self, request: HttpRequest) -> HttpAnswer:
                if (request.method, request.scope, request.key) != ("PUT", SCOPE, KEY):
                    return HttpAnswer(HTTPStatus.NOT_FOUND)
                try:
                    fields = parse_object(request.body, _NOTICE, "the notice", depth=1, values=10)
                except SchemaError as exc:
                    return HttpAnswer(HTTPStatus.BAD_REQUEST, f"{exc}\n".encode())
                manager.handle_hosts_updated(fields["timestamp"], fields["result"])
                return HttpAnswer(HTTPStatus.OK)

        self._nic = nic or ""
        self._server = KVStoreServer(secret=_read_key(key), limits=LIMITS)
        self._port = self._server.start_server(NotificationHandler)

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses at which the driver may reach the server, by network interface."""
        return {name: [(address, self._port)] for name, address in find_own_nics(self._nic).items()}

    def shutdown(self) -> None:
        """Stop the server."""
        self._server.shutdown_server()


class WorkerNotificationClient:
    """The driver's client of the server in a worker.

    Args: addresses: addresses of the worker, possibly by network interface; a notice goes to the first address that
        answers.  key: as in `WorkerNotificationService`.  match_intf: has no effect.
    """

    def __init__(
        self,
        addresses: Mapping[str, Sequence[tuple[str, int]]] | Sequence[tuple[str, int]],
        key: str | bytes = "",
        verbose: int = 0,
        match_intf: bool = False,
    ) -> None:
        self.addresses = tuple(flatten_addresses(addresses))
        limit_s = NOTIFY_S / max(1, len(self.addresses))
        self._clients = [RendezvousClient(host, port, _read_key(key), limit_s) for host, port in self.addresses]
        self._verbose = verbose

    def notify_hosts_updated(self, timestamp: float, update_res: int) -> bool:
        """Send a notice to the worker; return whether the worker has accepted the notice. Never raises."""
        body = json.dumps({"timestamp": timestamp, "result": update_res}).encode()
        for client in self._clients:
            try:
                client.put(SCOPE, KEY, body)
            except PaddleError as exc:
                if self._verbose >= 2:
                    glog.info(f"a worker has not accepted the notice of changed hosts: {exc}")
                continue
            return True
        return False


def flatten_addresses(
    addresses: Mapping[str, Sequence[tuple[str, int]]] | Sequence[tuple[str, int]],
) -> list[tuple[str, int]]:
    """Return the addresses of all network interfaces."""
    pairs = [one for found in addresses.values() for one in found] if isinstance(addresses, Mapping) else addresses
    return [(host, port) for host, port in pairs]


def _read_key(key: str | bytes) -> str:
    return key.hex() if isinstance(key, bytes) else key
