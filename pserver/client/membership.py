"""A trainer's membership in a job: joining every service, the start of passes, checkpoints, and leaving."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
from runtime import glog
from runtime.errors import BugError, PaddleError, PeerUnreachableError

GOODBYE_TIMEOUT = 10.0  # seconds for the answers to a goodbye
LINGER = 1.0  # seconds for the last messages to be read


@dataclass(frozen=True)
class ClientOptions:
    """The settings of a client; times in seconds.

    job, attempt, secret: what the servers were started with.
    own_addresses: addresses of this trainer; with services there it shares memory.
    source: the address among them from which it connects; empty: the system's choice.
    peer_timeout: without a sign of life after which a server is lost.
    connect_timeout: for all servers to answer the first hello.
    wait_timeout: for any other answer; long, because a server answers when the slowest trainer has pushed.
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
        """Return the part of a hello that says what else this trainer is, beside its number."""
        return {"num_trainers": self.num_trainers}

    def describe_view(self) -> Mapping[str, Any]:
        """Return the note of a heartbeat's ping: which trainers take part, where that changes."""
        return NOTHING

    def first_service(self, services: int) -> int:
        """Return the service that is called first: another one for every trainer, so that not all call the same."""
        return self.trainer_id * services // max(self.num_trainers, 1)

    def refuse_to_join(self) -> PaddleError | None:
        """Return why this trainer waits no longer for the answers to its hello, if it does not."""
        return None


@dataclass(frozen=True)
class ModelSetup:
    """What a client tells the services of the model. `note` is the note of INITIALISE."""

    parameters: Sequence[ParameterSpec]
    note: Mapping[str, Any]

    @property
    def elements(self) -> int:
        """The number of elements of all parameters that are not static."""
        return partition.count_elements(self.parameters)

    def describe(self) -> dict[str, Any]:
        """Return the part of a hello by which a service finds out whether two trainers have the same model."""
        settings = hashlib.sha256(json.dumps(self.note, sort_keys=True).encode()).hexdigest()[:16]
        return {
            "dtype": protocol.DTYPE,
            "parameters": partition.digest(self.parameters),
            "shape": [sum(not parameter.is_static for parameter in self.parameters), self.elements],
            "settings": settings,
        }


class JoinRequest(ServiceRequest):
    """The hello to every service, which offers shared memory to those on this host.

    Args: channels: one to each service, in order.
    """

    def __init__(self, options: ClientOptions, model: ModelSetup, channels: Sequence[ServerChannel]) -> None:
        super().__init__(Op.HELLO, "join")
        self._options, self._channels = options, channels
        self._model = model.describe()

    def interruption(self) -> PaddleError | None:
        """Return why this trainer does not join these services."""
        return self._options.refuse_to_join()

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the hello to a service."""
        is_near = channel.connection.host in self._options.own_addresses and channel.layout.size
        if is_near and channel.memory is None:  # a hello that is said again offers what the first one did
            channel.memory = SharedMemory.make(4 * channel.layout.size)
        service = self._channels.index(channel)
        return {
            "job": self._options.job,
            "attempt": self._options.attempt_of(service),
            **self._options.introduce(),
            **self._model,
            "service": service,
            "services": len(self._channels),
            "memory": channel.memory.offer if channel.memory else None,
        }

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Check that a server is of this job, and note whether it accepts the shared memory."""
        attempt = self._options.attempt_of(self._channels.index(channel))
        fault = protocol.find_fault(answer, self._options.job, attempt)
        if fault:
            fault = glog.clean(fault, 1000)
            trainer = self._options.trainer_id
            raise PeerUnreachableError(f"{channel.name} is not a server of trainer {trainer}'s job: {fault}")
        if answer.note.get("shares_memory") is not True:
            channel.close_memory()


class JobMember:
    """A trainer's connection to some services of a job; what dense and sparse clients have in common.

    Args: services: host and port of each, in the order that all trainers share.
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
        """Connect to every service and be admitted as this trainer.

        Args: layouts: for each service the elements of the flat vector that lie there.
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
        """Send trainer 0's values, or the state of a checkpoint, divided anew where that is of other numbers.

        Raises: ConfigError: the checkpoint does not fit the model.  DamagedError: it cannot be divided.
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
        """Return the number of services."""
        return len(self._services)

    # ----- Between -----

    def check(self) -> None:
        """Return if the job can go on as far as is known; for a caller that computes or waits elsewhere for long.

        Raises: LostPeerError: it cannot.
        """
        if self._heartbeat and self._heartbeat.failure:
            raise self._heartbeat.failure

    def start_pass(self, batch: int = 0) -> None:
        """Wait until every trainer wants to start this pass.

        Args: batch: batches of the pass that were trained before, in an earlier attempt.
        Raises: ConfigError: another trainer has already ended its last pass.
        """
        self._request(ServiceRequest(Op.START_PASS, f"start pass {self._passes}", batch))
        self._batch = batch

    def gather_checkpoint(self, own: Any) -> CheckpointState | None:
        """Give this trainer's part of a checkpoint (JSON-able); trainer 0 gets all parts and the servers' state.

        All trainers call it after the same batch, or after the pass. Only trainer 0 waits for the others.
        """
        return self._require_checkpoints().gather_checkpoint(own)

    def leave_blob(self, data: memoryview) -> None:
        """Leave bytes for the checkpoints to come, as a part of what this trainer says of itself."""
        self._require_checkpoints().leave_blob(data)

    def fetch_blob(self, size: int) -> memoryview:
        """Return the bytes that this trainer had left for the checkpoint that the job goes on from."""
        return self._require_checkpoints().fetch_blob(size)

    # ----- Leaving -----

    def goodbye(self) -> None:
        """Tell every server that this trainer is done, and close; a server that does not hear it is only logged."""
        try:
            self._request(ServiceRequest(Op.GOODBYE, "say goodbye"), GOODBYE_TIMEOUT)
        except PaddleError as exc:
            glog.warning(f"goodbye was not heard by all: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Tell every server why this trainer gives up, so that the others can name it, and close; never raises."""
        if self._fan_out:
            self._fan_out.abort(reason)
            close_all([channel.connection for channel in self._channels], LINGER)
        self.close()

    def close(self) -> None:
        """Close every connection without a message; may be called again."""
        if self._heartbeat:
            self._heartbeat.stop()
            self._heartbeat = None
        for channel in self._channels:
            channel.close()
        self._channels, self._fan_out, self._checkpoints = [], None, None

    # ----- Requests -----

    def _request(self, request: ServiceRequest, timeout: float | None = None) -> int:
        """Send a request to every service, wait for all answers, and return their flags."""
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
        """Return if an array is a flat vector of the model.

        Raises: BugError.
        """
        if array.shape != (self._elements,) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise BugError(
                f"needs a contiguous float32 array of {self._elements} elements, "
                f"not {array.dtype} of shape {array.shape}"
            )
