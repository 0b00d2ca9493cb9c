"""A trainer's membership in a job: its settings, its hello to every service, its connections and its heartbeats."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError, PeerUnreachableError
from pserver.client.connection import ServerConnection
from pserver.client.heartbeat import Heartbeat, ServerLiveness
from pserver.client.server_channel import SenderId, ServerChannel, ServiceRequest, VectorLayout
from pserver.optim.settings import ParameterSpec
from pserver.store import partition
from pserver.store.partition import StridedRun
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, TOKEN_BYTES
from pserver.wire.connection import Pool
from pserver.wire.protocol import NOTHING, Message, Op
from pserver.wire.shared_memory import SharedMemory

# maximum bytes of an array of rows in shared memory; a longer array is sent over the connection
MOST_SHARED_ROWS = 16 << 20


@dataclass(frozen=True)
class ClientOptions:
    """The settings of a client; times are in seconds.

    - `job`, `attempt`, `secret`: the job's name, attempt and secret; the servers must have the same.
    - `own_addresses`: addresses of this trainer, which shares memory with services on these addresses.
    - `source`: the local address of connections; if it is empty, the system chooses an address.
    - `peer_timeout`: a server that does not answer for this time is lost.
    - `connect_timeout`: maximum time until all servers have answered the first hello.
    - `wait_timeout`: maximum time for any other answer. It is long, because a server answers a push only after the
      slowest trainer has pushed.
    """

    trainer_id: int
    num_trainers: int
    job: str = ""
    attempt: str = ""
    secret: str = ""
    own_addresses: Collection[str] = ()
    source: str = ""
    peer_timeout: float = 10.0
    connect_timeout: float = 60.0
    wait_timeout: float = 3600.0

    def attempt_of(self, service: int) -> str:
        """Return the attempt that a service belongs to."""
        return self.attempt

    def introduce(self) -> dict[str, Any]:
        """Return the fields of a hello that describe this trainer, without its number."""
        return {"num_trainers": self.num_trainers}

    def describe_view(self) -> Mapping[str, Any]:
        """Return the note of a heartbeat's ping: the members of the view, if the job has views."""
        return NOTHING

    def first_service(self, services: int) -> int:
        """Return the number of the service to which requests are sent first; it differs between trainers to spread the
        load.
        """
        return self.trainer_id * services // max(self.num_trainers, 1)

    def refuse_to_join(self) -> PaddleError | None:
        """Return an error that ends the wait for answers to the hello, or None."""
        return None


@dataclass(frozen=True)
class ModelSetup:
    """The description of the model for the services. `note` is the description in the form that INITIALISE sends."""

    parameters: Sequence[ParameterSpec]
    note: Mapping[str, Any]

    @cached_property
    def elements(self) -> int:
        """The number of elements of all parameters that are not static."""
        return partition.count_elements(self.parameters)

    def shared_bytes(self, elements: int) -> int:
        """Return how many bytes of memory a trainer shares with a service for each direction.

        The memory for tables is limited, because a batch uses only few rows.

        Args: elements: number of elements on the service.
        """
        return min(4 * elements, MOST_SHARED_ROWS) if "by_rows" in self.note else 4 * elements

    def describe(self) -> dict[str, Any]:
        """Return the part of a hello by which a service compares the models of two trainers."""
        settings = hashlib.sha256(json.dumps(self.note, sort_keys=True).encode()).hexdigest()[:16]
        return {
            "dtype": protocol.DTYPE,
            "parameters": partition.digest(self.parameters),
            "shape": [sum(not parameter.is_static for parameter in self.parameters), self.elements],
            "settings": settings,
        }


class JoinRequest(ServiceRequest):
    """The hello to every service. This request offers shared memory to services on this host.

    Args: channels: the channel of each service, in the order of the services.
    """

    def __init__(self, options: ClientOptions, model: ModelSetup, channels: Sequence[ServerChannel]) -> None:
        super().__init__(Op.HELLO, "join")
        self._options, self._channels = options, channels
        self._model, self._description = model, model.describe()

    def interruption(self) -> PaddleError | None:
        """Return an error if this trainer must not join these services, or None."""
        return self._options.refuse_to_join()

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the hello to a service."""
        # a repeated hello offers the same memory as the first hello
        if channel.memory is None and channel.layout.size and self._is_near(channel.connection.host):
            channel.memory = SharedMemory.make(self._model.shared_bytes(channel.layout.size))
        service = self._channels.index(channel)
        return {
            "job": self._options.job,
            "attempt": self._options.attempt_of(service),
            **self._options.introduce(),
            **self._description,
            "service": service,
            "services": len(self._channels),
            "memory": channel.memory.offer if channel.memory else None,
        }

    def _is_near(self, host: str) -> bool:
        """Return whether an address or a host name belongs to this host."""
        own = self._options.own_addresses
        if not own:
            return False
        try:
            found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # the connection reports an unknown name
            return False
        return any(address[0] in own for *_, address in found)

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Check that a server belongs to this job, and release the shared memory if the server does not accept it."""
        attempt = self._options.attempt_of(self._channels.index(channel))
        fault = protocol.find_fault(answer, self._options.job, attempt)
        if fault:
            fault = glog.clean(fault, 1000)
            trainer = self._options.trainer_id
            raise PeerUnreachableError(f"{channel.name} is not a server of trainer {trainer}'s job: {fault}")
        self.notes[channel] = answer.note
        if answer.note.get("shares_memory") is not True:
            channel.close_memory()


class JobMember:
    """A trainer's membership in a job: its identity, its connections and its heartbeats.

    Attributes: heartbeat: None before `start_heartbeats` and after `end`.

    Args: services: host and port of each service, in an order that is the same in all trainers.
    """

    def __init__(self, services: Sequence[tuple[str, int]], options: ClientOptions) -> None:
        self.services, self.options = list(services), options
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._pool = Pool()
        self.heartbeat: Heartbeat | None = None

    def open_channel(self, service: int, runs: Sequence[StridedRun], kind: bytes = DATA) -> ServerChannel:
        """Return a channel to a service, which connects when the client waits for its answers.

        Args: runs: the elements of the flat vector that the service stores. kind: the kind of the connection.
        """
        (host, port), one = self.services[service], self.options
        most = protocol.MAX_PAYLOAD_BYTES if kind == DATA else 0
        connection = ServerConnection(host, port, self._token + kind, one.secret, max_payload=most, source=one.source)
        sender = SenderId(protocol.session_of(one.job, one.attempt_of(service)), one.trainer_id)
        return ServerChannel(connection, VectorLayout(runs), sender, self._pool)

    def start_heartbeats(self, channels: Sequence[ServerChannel]) -> None:
        """Begin to check that all servers are alive, after all services have answered the hello."""
        one = self.options
        servers = [
            ServerLiveness(
                ServerConnection(host, port, self._token + HEARTBEAT, one.secret, source=one.source),
                channel.sender.session,
            )
            for (host, port), channel in zip(self.services, channels, strict=True)
        ]
        self.heartbeat = Heartbeat(servers, one.trainer_id, one.peer_timeout, one.describe_view)
        self.heartbeat.start()

    def hurry(self) -> None:
        """Send a heartbeat with the current view to every service immediately; any thread may call this method."""
        heartbeat = self.heartbeat
        if heartbeat is not None:
            heartbeat.hurry()

    def end(self) -> None:
        """End the heartbeats; repeated calls are allowed."""
        if self.heartbeat:
            self.heartbeat.stop()
            self.heartbeat = None
