"""How a worker hears that hosts have come or gone: a small server in the worker, and the driver's client of it.

Names and signatures are those of Horovod 0.28's `horovod.runner.elastic.worker`. A notice travels as a signed PUT of
JSON; the driver also stores it, so that a worker whose server starts late is told then.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from elastic.constants import (
    HOROVOD_GLOO_IFACE,
    HOROVOD_GLOO_RENDEZVOUS_ADDR,
    HOROVOD_GLOO_RENDEZVOUS_PORT,
    HOROVOD_HOSTNAME,
    HOROVOD_LOCAL_RANK,
    PADDLE_ELASTIC_INCARNATION,
)
from elastic.http_server import HttpAnswer, HttpRequest, KVStoreHandler, KVStoreServer
from elastic.rendezvous.client import RendezvousClient
from runtime import glog
from runtime.bounded_json import BoundedJsonError, is_integer, parse_bounded
from runtime.environment import read_environment
from runtime.errors import PaddleError
from runtime.interfaces import find_own_addresses

NOTIFY_S = 5.0  # seconds that a worker has to take a notice
SCOPE, KEY = "notices", "hosts_updated"


class HostUpdateResult:
    """How hosts have changed, as flags."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class HostsListener(Protocol):
    """What wants to hear of changes, as a `State` does."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take a change: when it was, in seconds since 1970, and how, as flags of `HostUpdateResult`."""


class WorkerNotificationManager:
    """Tells the listeners of this process what the driver says.

    Thread safety: every method may be called from any thread; listeners are called by a thread of the server.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._service: WorkerNotificationService | None = None
        self._listeners: list[HostsListener] = []

    def init(
        self,
        rendezvous_addr: str | None = None,
        rendezvous_port: int | None = None,
        nic: str | None = None,
        hostname: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        """Begin to listen, and tell the driver where; without a driver do nothing. A further call does nothing.

        Args: each one defaults to its variable of the environment.
        Raises: PeerUnreachableError: the driver does not answer.  ConfigError: it refuses the secret.
        """
        address = rendezvous_addr or os.environ.get(HOROVOD_GLOO_RENDEZVOUS_ADDR)
        with self._lock:
            if self._service is not None or not address:
                return
            secret = read_environment(os.environ).secret
            self._service = WorkerNotificationService(
                secret, os.environ.get(HOROVOD_GLOO_IFACE, "") if nic is None else nic, self
            )
            addresses = self._service.addresses()
        port = int(os.environ[HOROVOD_GLOO_RENDEZVOUS_PORT]) if rendezvous_port is None else rendezvous_port
        RendezvousClient(address, port, secret).register_addresses(
            os.environ[HOROVOD_HOSTNAME] if hostname is None else hostname,
            int(os.environ[HOROVOD_LOCAL_RANK]) if local_rank is None else local_rank,
            os.environ.get(PADDLE_ELASTIC_INCARNATION, ""),
            addresses,
        )

    def register_listener(self, listener: HostsListener) -> None:
        """Tell this listener, too."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: HostsListener) -> None:
        """Tell this listener no more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell every listener."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)

    def shutdown(self) -> None:
        """End the server."""
        with self._lock:
            service, self._service = self._service, None
        if service is not None:
            service.shutdown()


class WorkerNotificationService:
    """The server of a worker.

    Args: key: the job's secret.  nic: interface, or "" for all.
    """

    def __init__(self, key: str, nic: str | None, manager: WorkerNotificationManager) -> None:
        class NotificationHandler(KVStoreHandler):
            """Takes notices and nothing else."""

            def answer(self, request: HttpRequest) -> HttpAnswer:
                if (request.method, request.scope, request.key) != ("PUT", SCOPE, KEY):
                    return HttpAnswer(HTTPStatus.NOT_FOUND)
                try:
                    fields = parse_bounded(request.body, depth=1, values=10)
                except BoundedJsonError as exc:
                    return HttpAnswer(HTTPStatus.BAD_REQUEST, f"a notice {exc}\n".encode())
                stamp, result = fields.get("timestamp"), fields.get("result")
                if not isinstance(stamp, int | float) or not is_integer(result, 0, HostUpdateResult.mixed):
                    return HttpAnswer(HTTPStatus.BAD_REQUEST, b"this is no notice\n")
                manager.handle_hosts_updated(stamp, int(result or 0))
                return HttpAnswer(HTTPStatus.OK)

        self._nic = nic or ""
        self._server = KVStoreServer(secret=key)
        self._port = self._server.start_server(NotificationHandler)

    def addresses(self) -> list[tuple[str, int]]:
        """Return where the driver may reach it."""
        return [(address, self._port) for address in find_own_addresses(self._nic)]

    def shutdown(self) -> None:
        """End it."""
        self._server.shutdown_server()


class WorkerNotificationClient:
    """The driver's side.

    Args: addresses: of the worker; the first one that answers is used.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], key: str = "", verbose: int = 0, match_intf: bool = False
    ) -> None:
        self.addresses = tuple((host, port) for host, port in addresses)
        self._clients = [
            RendezvousClient(host, port, key, NOTIFY_S / max(1, len(addresses))) for host, port in addresses
        ]
        self._verbose = verbose

    def notify_hosts_updated(self, timestamp: float, update_res: int) -> bool:
        """Tell the worker of a change; return whether it has taken it. Never raises."""
        body = json.dumps({"timestamp": timestamp, "result": update_res}).encode()
        for client in self._clients:
            try:
                client.put(SCOPE, KEY, body)
            except PaddleError as exc:
                if self._verbose >= 2:
                    glog.info(f"a worker has not taken that hosts have changed: {exc}")
                continue
            return True
        return False
