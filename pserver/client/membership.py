"""A trainer's membership in a job: the trainer joins every service, starts passes, makes checkpoints and leaves."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, PaddleError, PeerUnreachableError
from pserver.client.checkpoint_requests import CheckpointRequests
from pserver.client.connection import ServerConnection, close_all
from pserver.client.fan_out import FanOut
from pserver.client.heartbeat import Heartbeat, ServerLiveness
from pserver.client.request import ServiceRequest
from pserver.client.server_channel import ServerChannel
from pserver.client.vector_layout import VectorLayout
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.partition import StridedRun
from pserver.store.resharding import reshard
from pserver.store.snapshot import CheckpointState
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, TOKEN_BYTES
from pserver.wire.protocol import NOTHING, Message, Op
from pserver.wire.shared_memory import SharedMemory

GOODBYE_TIMEOUT = 10.0  # maximum seconds until all services have answered GOODBYE
LINGER = 1.0  # maximum seconds until the last messages are sent
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

    @property
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
    """A trainer's connection to some services of a job; the common part of dense and sparse clients.

    Args: services: host and port of each service, in an order that is the same in all trainers.
        options: the fields of `ClientOptions`.
    """

    def __init__(self, services: Sequence[tuple[str, int]], **options: Any) -> None:
        if not services:
            raise BugError("a client needs at least one service")
        self._services = list(services)
        self._options = self._read_options(options)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._passes = self._batch = 0
        self._channels: list[ServerChannel] = []
        self._model = ModelSetup((), {})
        self._elements = 0
        self._fan_out: FanOut | None = None
        self._checkpoints: CheckpointRequests | None = None
        self._heartbeat: Heartbeat | None = None

    # ----- Joining -----

    def _read_options(self, options: Mapping[str, Any]) -> ClientOptions:
        return ClientOptions(**options)

    def _join(self, model: ModelSetup, optimization: Optimization, layouts: Sequence[Sequence[StridedRun]]) -> None:
        """Connect to every service and register as this trainer.

        Args: layouts: for each service, the elements of the flat vector that the service stores.
        """
        one = self._options
        self._model, self._optimization, self._elements = model, optimization, model.elements
        for number, ((host, port), runs) in enumerate(zip(self._services, layouts, strict=True)):
            glog.info(f"pserver {number} {host}:{port}", at="ParameterClient2.cpp:114")
            name, longest = self._token + DATA, protocol.MAX_PAYLOAD_BYTES
            connection = ServerConnection(host, port, name, one.secret, max_payload=longest, source=one.source)
            session = protocol.session_of(one.job, one.attempt_of(number))
            self._channels.append(ServerChannel(connection, VectorLayout(runs), session))
        self._fan_out = FanOut(
            self._channels,
            one.trainer_id,
            first=one.first_service(len(self._channels)),
            peer_timeout=one.peer_timeout,
            wait_timeout=one.wait_timeout,
            failure=lambda: self._heartbeat.failure if self._heartbeat else None,
        )
        self._checkpoints = CheckpointRequests(self._fan_out, self._channels, one.trainer_id, self._elements)
        self._request(JoinRequest(one, model, self._channels), one.connect_timeout)
        servers = [
            ServerLiveness(
                ServerConnection(host, port, self._token + HEARTBEAT, one.secret, source=one.source), channel.session
            )
            for (host, port), channel in zip(self._services, self._channels, strict=True)
        ]
        self._heartbeat = Heartbeat(servers, one.trainer_id, one.peer_timeout, one.describe_view)
        self._heartbeat.start()

    def _send_initial_values(self, values: Array, restored: CheckpointState | None) -> None:
        """Send the initial values, or the state in a checkpoint.

        The state is divided again if the checkpoint has another number of services.

        Raises: ConfigError: the checkpoint does not fit the model.  DamagedError: the checkpoint cannot be divided.
        """
        if restored is not None and (restored.origins is not None or len(restored.services) != len(self._channels)):
            restored = self._divide_anew(restored)
        self._require_checkpoints().restore(self._model.note, values, restored)

    def _divide_anew(self, restored: CheckpointState) -> CheckpointState:
        origins = restored.origins
        parts = reshard(
            restored.services,
            self._model.parameters,
            self._optimization,
            len(self._channels),
            by_rows=bool(self._model.note.get("by_rows")),
            origins=range(len(restored.trainers)) if origins is None else origins,
            begins_pass=origins is not None,
        )
        return dataclasses.replace(restored, services=parts)

    def count_services(self) -> int:
        """Return the number of services of this client."""
        return len(self._services)

    # ----- Training -----

    def check(self) -> None:
        """Raise an error if the heartbeats have found that the job has failed.

        A caller that computes or waits elsewhere for a long time should call this method regularly.

        Raises: LostPeerError: the job cannot continue.
        """
        if self._heartbeat and self._heartbeat.failure:
            raise self._heartbeat.failure

    def start_pass(self, batch: int = 0) -> None:
        """Wait until every trainer is ready to start this pass.

        Args: batch: number of batches of the pass that an earlier attempt has trained.
        Raises: ConfigError: another trainer has already ended its last pass.
        """
        self._request(ServiceRequest(Op.START_PASS, f"start pass {self._passes}", batch))
        self._batch = batch

    def gather_checkpoint(self, own: Any) -> CheckpointState | None:
        """Send this trainer's part of a checkpoint (JSON); trainer 0 receives all parts and the servers' state.

        All trainers call this method after the same batch, or after the pass. Only trainer 0 waits for the other
        trainers.
        """
        return self._require_checkpoints().gather_checkpoint(own)

    def leave_blob(self, data: memoryview) -> None:
        """Store binary data for the next checkpoints on the servers, as a part of this trainer's state."""
        self._require_checkpoints().leave_blob(data)

    def fetch_blob(self, size: int) -> memoryview:
        """Return this trainer's binary data from the checkpoint that the job resumes from."""
        return self._require_checkpoints().fetch_blob(size)

    # ----- Leaving -----

    def goodbye(self) -> None:
        """Send GOODBYE to every server, and close. A failure to deliver GOODBYE is only logged."""
        try:
            self._request(ServiceRequest(Op.GOODBYE, "say goodbye"), GOODBYE_TIMEOUT)
        except PaddleError as exc:
            glog.warning(f"goodbye was not received by all servers: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Send every server the reason why this trainer gives up, and close. The method raises no error.

        The servers report the reason to the other trainers.
        """
        if self._fan_out:
            self._fan_out.abort(reason)
            close_all([channel.connection for channel in self._channels], LINGER)
        self.close()

    def close(self) -> None:
        """Close every connection without a message; repeated calls are allowed."""
        if self._heartbeat:
            self._heartbeat.stop()
            self._heartbeat = None
        for channel in self._channels:
            channel.close()
        self._channels, self._fan_out, self._checkpoints = [], None, None

    # ----- Requests -----

    def _request(self, request: ServiceRequest, timeout: float | None = None) -> int:
        """Send a request to every service, wait for all answers, and return the flags of the answers."""
        return self._require_fan_out().request(request, timeout)

    def _require_fan_out(self) -> FanOut:
        if self._fan_out is None:
            raise BugError("the client has not joined, or is closed")
        return self._fan_out

    def _require_checkpoints(self) -> CheckpointRequests:
        if self._checkpoints is None:
            raise BugError("the client has not joined, or is closed")
        return self._checkpoints

    def _check_vector(self, array: Array) -> None:
        """Check that an array is a flat vector of the model.

        Raises: BugError: the array has another type or size.
        """
        if array.shape != (self._elements,) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise BugError(
                f"the client needs a contiguous float32 array of {self._elements} elements, "
                f"not {array.dtype} of shape {array.shape}"
            )
