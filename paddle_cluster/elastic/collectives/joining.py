"""Connects the ranks of a new group.

Every rank publishes its address in a store, connects to all lower ranks, and accepts connections from all higher ranks.
The store carries only addresses. A connection begins with a handshake (`pserver.wire.authentication`). By this
handshake both sides prove that they know the job's secret, and the connecting side proves its rank and its group, and
that it has read the address of the other side in the store of this job.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.network.open_files import FREE_FILES
from paddle_base.runtime.schema import Integer, Record, SchemaError, Text, parse_object
from paddle_base.runtime.wakeup import WakeUp
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.peers import PeerRank, tune
from paddle_cluster.elastic.errors import HorovodInternalError
from pserver.wire.authentication import DATA, NONCE_BYTES, ClientHandshake, Handshake, ServerHandshake
from pserver.wire.connection import Pool

HANDSHAKE_S = 5.0  # maximum seconds of a handshake, which has four messages
PAUSE_S = 0.1  # seconds without accepting connections after the process ran out of file descriptors
# Seconds until the first look whether a rank that is waited for is lost, and the most between two later looks. Each
# look is a request of each waiting rank to the driver.
FIRST_LOOK_S, LOOK_S = 0.05, 1.0
LOST = "lost"  # key in the scope of a group: the driver's text about a worker that has failed
MAX_UNPROVEN = 128  # maximum number of connections with an unfinished handshake
# name of a connection: hash of the group's scope and of the called rank's incarnation, rank of the client, group's size
_NAME = struct.Struct("<8sII")
MAX_ADDRESS_BYTES = 1 << 12
_TEXT = Text(MAX_ADDRESS_BYTES)
_ADDRESS = Record("incarnation", host=_TEXT, port=Integer(1, 65535), incarnation=_TEXT)


class AddressStore(Protocol):
    """The store of the ranks' addresses; `paddle_cluster.elastic.rendezvous_client.RendezvousClient` implements it."""

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value."""

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        """Return a value, or None after `wait` seconds without a value."""


class RankAddress(NamedTuple):
    """The address of a rank, and the unique name of its process."""

    host: str
    port: int
    incarnation: str


@dataclass(frozen=True)
class GroupPlan:
    """The plan of a group, and the rank of this process.

    Attributes:
    - scope: scope under which the store keeps the addresses; every group has a new scope.
    - host: address at which other ranks reach this rank.
    - secret: secret of the job, or empty.
    - timeout: maximum seconds until all ranks are connected.
    - port: port on which this rank listens; 0: any free port.
    - incarnation: unique name of this process, by which the ranks of two jobs differ whose scopes are equal.
    - terms: text about the ranks' settings that have to be the same on all of them.
    """

    rank: int
    size: int
    scope: str
    host: str = "127.0.0.1"
    secret: str = ""
    timeout: float = 30.0
    port: int = 0
    incarnation: str = ""
    terms: str = ""


def join(plan: GroupPlan, store: AddressStore, check_job: Callable[[], None] = lambda: None) -> Mesh:
    """Connect to all other ranks, and return the connections.

    Args: check_job: called each LOOK_S seconds; raises an error that ends the wait.
    Raises: HorovodInternalError: a rank has not connected in time, or its worker has failed.
    """

    def check() -> None:
        check_job()
        check_lost(plan, store)

    deadline = time.monotonic() + plan.timeout
    pool = Pool()
    peers: dict[int, PeerRank] = {}
    with Acceptor(plan, pool) as acceptor, contextlib.ExitStack() as on_error:
        address = {"host": plan.host, "port": acceptor.port, "shm": True, "incarnation": plan.incarnation}
        store.put(plan.scope, str(plan.rank), json.dumps(address).encode())
        names = []
        for number in range(plan.rank):
            peers[number], name = _call(plan, store, number, pool, deadline, check)
            on_error.callback(peers[number].connection.close)
            names.append(name)
        peers.update(acceptor.wait(deadline, check))
        on_error.pop_all()
    return Mesh(plan.rank, peers, f"{plan.scope} {plan.size} {[*names, plan.incarnation][0]}")


def check_lost(plan: GroupPlan, store: AddressStore) -> None:
    """Raises: HorovodInternalError: a worker of the group has failed, so that the group cannot form."""
    text = store.get(plan.scope, LOST)
    if text is not None:
        raise HorovodInternalError(f"the group of {plan.size} ranks cannot form: {text.decode('utf-8', 'replace')}")


def _token(plan: GroupPlan, caller: int, called: str) -> bytes:
    """Return the name of a connection, by the rank that calls and the incarnation that is called."""
    return _NAME.pack(hashlib.sha256(f"{plan.scope}\n{called}".encode()).digest()[:8], caller, plan.size)


# ----- Calling -----


def _call(
    plan: GroupPlan, store: AddressStore, number: int, pool: Pool, deadline: float, check: Callable[[], None]
) -> tuple[PeerRank, str]:
    """Connect to a lower rank with repeated attempts until the deadline; return the connection and the incarnation."""
    why = "the rank has not published its address"
    for delay in exponential_backoff(FIRST_LOOK_S, LOOK_S):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        value = store.get(plan.scope, str(number), min(left, delay))
        if value is None:
            check()
            continue
        address = read_address(value, number)
        try:
            until = min(deadline, time.monotonic() + HANDSHAKE_S)
            return _shake(plan, address, pool, until), address.incarnation
        except (OSError, _RefusedError) as exc:
            why = f"{address.host}:{address.port}: {exc}"
            check()
        time.sleep(min(delay, max(0.0, deadline - time.monotonic())))  # pause between two attempts at the same address
    raise HorovodInternalError(f"rank {number} of {plan.size} cannot be reached within {plan.timeout:.0f} s: {why}")


class _RefusedError(Exception):
    """The handshake with the program at the address of a rank has failed."""


def _shake(plan: GroupPlan, address: RankAddress, pool: Pool, until: float) -> PeerRank:
    """Connect to a rank; the handshake ends at the time `until` even if the other side sends single bytes."""
    name = _token(plan, plan.rank, address.incarnation) + DATA
    handshake = ClientHandshake(plan.secret, name, secrets.token_bytes(NONCE_BYTES))
    stream = socket.create_connection((address.host, address.port), _left(until))
    try:
        answer = handshake.greeting
        while handshake.wanted:
            stream.settimeout(_left(until))
            stream.sendall(answer)
            stream.settimeout(_left(until))
            data = stream.recv(handshake.wanted)
            if not data:
                raise _RefusedError("the other side ended the connection")
            answer = handshake.feed(data)
        if handshake.fault:
            raise _RefusedError(handshake.fault)
        tune(stream)
    except BaseException:
        stream.close()
        raise
    return PeerRank(stream, handshake.keys, pool)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise _RefusedError("its handshake has not ended in time")
    return left


def read_address(value: bytes, number: int) -> RankAddress:
    """Parse the address that a rank has published.

    Raises: HorovodInternalError: the value is no address.
    """
    try:
        if len(value) > MAX_ADDRESS_BYTES:
            raise SchemaError("size", f"it has {len(value)} bytes")
        address = parse_object(value, _ADDRESS, "the value", depth=4, values=64)
    except SchemaError as exc:
        raise HorovodInternalError(f"rank {number} has published a value which is no address: {exc}") from exc
    return RankAddress(address["host"], address["port"], address.get("incarnation", ""))


# ----- Being called -----


class Acceptor:
    """A thread that accepts the connections of the higher ranks; no rank waits for the handshake of another rank."""

    def __init__(self, plan: GroupPlan, pool: Pool) -> None:
        self._plan, self._pool = plan, pool
        self._listener = socket.create_server(("", plan.port), backlog=512)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._unproven: dict[int, tuple[socket.socket, ServerHandshake, float]] = {}
        self._peers: dict[int, PeerRank] = {}
        self._wanted = set(range(plan.rank + 1, plan.size))
        self._changed = threading.Condition()
        self._is_over = False
        self._wakeup = WakeUp()
        self._thread = ServiceThread(self._run, "group-acceptor")

    def __enter__(self) -> Acceptor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._wakeup.call()
        self._thread.join()
        self._wakeup.close()
        self._listener.close()
        for unproven in self._unproven.values():
            unproven[0].close()
        for peer in self._peers.values():  # `wait` has not handed them over
            peer.connection.close()

    def wait(self, deadline: float, check: Callable[[], None] = lambda: None) -> dict[int, PeerRank]:
        """Wait for the connections of all higher ranks, and return the connections.

        Args: check: called at least each LOOK_S seconds; raises an error that ends the wait.
        Raises: HorovodInternalError: a rank has not connected by the deadline.
        """
        for pause in exponential_backoff(FIRST_LOOK_S, LOOK_S):
            left = deadline - time.monotonic()
            with self._changed:
                if self._changed.wait_for(lambda: self._wanted <= self._peers.keys(), max(0.0, min(left, pause))):
                    break
            if left <= pause:
                break
            check()
        with self._changed:
            missing = sorted(self._wanted - self._peers.keys())
            if not missing:
                found, self._peers = self._peers, {}
                return found
        names = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing[:16]))}"
        own = f"rank {self._plan.rank} of {self._plan.size}"
        raise HorovodInternalError(f"{own} got no connection from {names} within {self._plan.timeout:.0f} s")

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wakeup, select.POLLIN)
        while not self._is_over:
            for file, _ in poller.poll(1000):
                if file == self._listener.fileno():
                    self._accept(poller)
                elif file in self._unproven:
                    self._feed(poller, file)
            now = time.monotonic()
            for file in [file for file, (_, _, until) in self._unproven.items() if until < now]:
                self._drop(poller, file)

    def _accept(self, poller: select.poll) -> None:
        if len(self._unproven) >= MAX_UNPROVEN or (self._unproven and not FREE_FILES.take(1)):
            self._drop(poller, next(iter(self._unproven)))  # the oldest goes: idle connections must not keep a rank out
        try:
            stream = self._listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:  # no free file descriptor, and no connection whose descriptor could serve
            time.sleep(PAUSE_S)
            return
        stream.setblocking(False)
        handshake = ServerHandshake(self._plan.secret, secrets.token_bytes(NONCE_BYTES))
        self._unproven[stream.fileno()] = (stream, handshake, time.monotonic() + HANDSHAKE_S)
        poller.register(stream, select.POLLIN)

    def _drop(self, poller: select.poll, file: int) -> None:
        stream = self._unproven.pop(file)[0]
        poller.unregister(file)
        stream.close()

    def _feed(self, poller: select.poll, file: int) -> None:
        stream, handshake, _ = self._unproven[file]
        try:
            data = stream.recv(handshake.wanted)
            answer = handshake.feed(data) if data else b""
            if handshake.name and not handshake.wanted and not self._expects(handshake.name):
                data = answer = b""  # without a proof, the client knows that it has to read the address again
            if answer:
                stream.send(answer)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or handshake.fault:
            self._drop(poller, file)
        elif not handshake.wanted:
            poller.unregister(file)
            del self._unproven[file]
            self._admit(stream, handshake)

    def _expects(self, name: bytes) -> bool:
        """Return whether a client is a higher rank of this group that has called this process, and no other job's."""
        rank = _NAME.unpack(name[:-1])[1]
        return rank in self._wanted and name == _token(self._plan, rank, self._plan.incarnation) + DATA

    def _admit(self, stream: socket.socket, handshake: Handshake) -> None:
        tune(stream)
        rank = _NAME.unpack(handshake.name[:-1])[1]
        with self._changed:
            earlier = self._peers.pop(rank, None)
            if earlier is not None:
                earlier.connection.close()  # the rank missed the end of its earlier handshake, and connected again
            self._peers[rank] = PeerRank(stream, handshake.keys, self._pool)
            self._changed.notify_all()
