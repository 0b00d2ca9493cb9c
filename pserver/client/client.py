"""The trainer's side of dense services: the client pushes gradients and receives the new values.

    client = Client([("10.0.0.1", 7164), ("10.0.0.2", 7164)], trainer_id=1, num_trainers=2)
    client.join(parameters, optimization)
    client.initialise(values)
    for each pass:
        client.start_pass()
        client.push_pull(gradient, values, samples)      # once per batch
        client.finish_pass(values)
    client.goodbye()

Each call is one request to every service and returns when all services have answered. Gradients and values are flat
float32 arrays of all non-static parameters in order; each service gets its elements in pieces. Values are received in
place: they are written into the array that the caller passes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.environment import JobEnvironment, read_environment
from paddle_base.runtime.errors import BugError, LostPeerError, PaddleError, PeerUnreachableError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.rate_limit import RateLimit
from pserver.client.checkpoint_requests import CheckpointRequests
from pserver.client.connection import close_all
from pserver.client.exchange import Exchange
from pserver.client.membership import ClientOptions, JobMember, JoinRequest, ModelSetup
from pserver.client.server_channel import FetchVector, PushVector, SendVector, ServerChannel, ServiceRequest
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.store.partition import StridedRun
from pserver.store.snapshot import CheckpointState
from pserver.wire import notes
from pserver.wire.authentication import PROBE
from pserver.wire.protocol import NOTHING, Fetch, MessageFlag, Op

__all__ = ["BaseClient", "Client", "JobEnvironment", "count_trainers", "read_environment"]

POLL_INTERVAL = 0.25  # maximum seconds that one read waits for answers
ASK_INTERVAL = 1.0  # seconds between two PINGs to a server that has not answered
REPORT_INTERVAL = 30.0  # seconds between two log lines about one wait
# seconds until a wait before the first push is logged; short, because a server or trainer may not have started
FIRST_REPORT = 2.0
_FLOAT32 = np.dtype(np.float32)  # comparing with a dtype is faster than with a type
START_HINT = "; start `paddle pserver` there, or correct --pservers and --port"
GOODBYE_TIMEOUT = 10.0  # maximum seconds until all services have answered GOODBYE
LINGER = 1.0  # maximum seconds until the last messages are sent


def count_trainers(service: tuple[str, int], **options: Any) -> int:
    """Return the number of trainers that a service was started for, without joining it; 0 if trainers come and go.

    Args: service: host and port. options: the fields of `ClientOptions`; `num_trainers` has no effect.
    Raises: PeerUnreachableError: the server does not answer, or belongs to another job or attempt.
    """
    client = BaseClient([service], **options)
    try:
        return client.ask_number()
    finally:
        client.close()


class BaseClient:
    """A trainer's connection to some services of a job; the common part of dense and sparse clients.

    A request goes to every service. `request` sends all of it and receives all answers. Callers that have other work
    meanwhile call the steps of `request`: `begin`, then `send`, which sends what is left, then `collect`. A PING
    follows a request on the same connection, and its answer follows the answers to the request. If the PING is answered
    first, a message was lost when an earlier connection broke.

    Args: services: host and port of each service, in an order that is the same in all trainers. options: the settings,
        or their fields.

    Attributes: member: the membership in the job. channels: the channel of each service, in the order of the services;
        empty before the client joins and after its end. sends_early: whether `Client.push_from` can send anything
        (piece 0 of each service waits for `push_pull`).
    """

    def __init__(
        self, services: Sequence[tuple[str, int]], options: ClientOptions | None = None, **fields: Any
    ) -> None:
        if not services:
            raise BugError("a client needs at least one service")
        self.member = JobMember(services, options or ClientOptions(**fields))
        self._use([])
        self._request = ServiceRequest(Op.PING, "nothing")
        self._model, self._optimization = ModelSetup((), {}), Optimization()
        self._passes = self._batch = 0
        self._has_pushed = False

    # ----- Joining -----

    def _join(self, model: ModelSetup, optimization: Optimization, layouts: Sequence[Sequence[StridedRun]]) -> None:
        """Connect to every service and register as this trainer.

        Args: layouts: for each service, the elements of the flat vector that the service stores.
        """
        self._model, self._optimization = model, optimization
        channels = []
        for number, ((host, port), runs) in enumerate(zip(self.member.services, layouts, strict=True)):
            glog.info(f"pserver {number} {host}:{port}", at="ParameterClient2.cpp:114")
            channels.append(self.member.open_channel(number, runs))
        self._say_hello(channels)
        self.member.start_heartbeats(channels)

    def ask_number(self) -> int:
        """See `count_trainers`; the client has one service, and does not join it."""
        hello = self._say_hello([self.member.open_channel(0, [], PROBE)])
        return int(notes.get(hello.notes[self.channels[0]], "num_trainers", notes.INTEGER))

    def _say_hello(self, channels: list[ServerChannel]) -> JoinRequest:
        options = self.member.options
        self._use(channels)
        hello = JoinRequest(options, self._model, channels)
        self.request(hello, options.connect_timeout)
        return hello

    def _use(self, channels: list[ServerChannel]) -> None:
        first = self.member.options.first_service(len(channels)) if channels else 0
        self.channels = channels
        self._turns = [*channels[first:], *channels[:first]]  # in the order in which requests are sent
        self.sends_early = any(channel.layout.pieces > 1 for channel in channels)
        self._exchange = Exchange(self._turns)

    # ----- Requests -----

    def request(self, request: ServiceRequest, timeout: float | None = None) -> int:
        """Send a request to every service, wait for all answers, and return the flags of the answers.

        Raises: LostPeerError, PeerUnreachableError: a service does not answer. PaddleError: a service answered with
            this error.
        """
        self.begin(request)
        return self.finish(timeout=timeout)

    def begin_all(self, request: ServiceRequest) -> None:
        """Send a request to every service; `collect` waits for the answers."""
        self.begin(request)
        self.send()

    def finish(self, flags: int = MessageFlag.NONE, timeout: float | None = None) -> int:
        """Send what is left of a request, and wait for all answers; see `send` and `collect`."""
        self._request.flags |= flags
        return self.collect(timeout)

    def begin(self, request: ServiceRequest) -> None:
        """Begin a request, of which nothing is sent yet."""
        self._check_joined()
        self._raise_failure()
        self._request = request
        self._has_pushed |= request.op == Op.PUSH
        for channel in self._turns:
            channel.begin(request)

    def send(self, flags: int = MessageFlag.NONE) -> None:
        """Send the pieces that are left to all services in turn, with `flags` added, and receive answers meanwhile."""
        self._request.flags |= flags
        self._exchange.advance(self._request, 0)

    def collect(self, timeout: float | None = None) -> int:
        """Send what is left of the current request, wait for all answers, and return their flags."""
        self._check_joined()
        started = time.monotonic()
        deadline = started + (self.member.options.wait_timeout if timeout is None else timeout)
        asked = started
        lines: RateLimit | None = None  # most answers come before the first line is due
        pending = [channel for channel in self._turns if channel.pending]
        while pending:
            self._exchange.advance(self._request, POLL_INTERVAL)
            if self._request.op == Op.HELLO:
                self._raise_refusal(pending)
            LIVENESS.turned = now = time.monotonic()
            pending = [channel for channel in pending if channel.pending]
            if not pending:
                break
            self._raise_failure()
            if interruption := self._request.interruption():
                raise interruption
            if now - asked < min(ASK_INTERVAL, self.member.options.peer_timeout / 5):
                continue
            if now > deadline:
                raise self._late(pending, now - started)
            asked = now
            self._ask_progress(pending)
            if lines is None:
                lines = RateLimit(REPORT_INTERVAL, started + (REPORT_INTERVAL if self._has_pushed else FIRST_REPORT))
            if lines.is_due(now):
                hint = START_HINT if self._request.op == Op.HELLO and _has_silent(pending) else ""
                glog.info(f"has waited {now - started:.0f} s to {self._request.doing}: {_describe(pending)}{hint}")
        return self._request.answer_flags

    def fetch_vector(self, doing: str, kind: int, values: Array, note: Mapping[str, Any] = NOTHING) -> FetchVector:
        """Receive an array of the size of the model in place; return the request with the notes of the answers.

        Args: kind: a number of `Fetch`. note: the note of the request.
        """
        self._check_vector(values)
        request = FetchVector(Op.FETCH, doing, values, kind, note=note)
        self.request(request)
        return request

    def _ask_progress(self, pending: Collection[ServerChannel]) -> None:
        """Send a PING on the data connection, after the request. The answer reports what a server has received, and
        what it waits for.

        While some servers have not answered the hello, the PINGs go to the servers that have answered, because
        heartbeats begin only after the hello. A hello that was lost when its connection broke is sent again, because a
        server does not answer a PING of a trainer that has not joined.
        """
        if self._request.op == Op.HELLO:
            for channel in pending:
                if channel.breaks != channel.connection.breaks:
                    channel.breaks = channel.connection.breaks
                    channel.send_piece(min(channel.pending))
        others = [channel for channel in self._turns if channel not in pending]
        for channel in others if self._request.op == Op.HELLO else pending:
            channel.ask()

    # ----- Errors -----

    def _raise_refusal(self, pending: Collection[ServerChannel]) -> None:
        """Raise an error if a server's handshake has failed, because this trainer then cannot join."""
        for channel in pending:
            if channel.connection.fault:
                trainer = self.member.options.trainer_id
                raise PeerUnreachableError(
                    f"{channel.name} is not a server of trainer {trainer}'s job: {channel.connection.fault}"
                )

    def _raise_failure(self) -> None:
        heartbeat = self.member.heartbeat
        if heartbeat is not None and (failure := heartbeat.failure):
            last = "; ".join(
                f"{channel.name} last {channel.last}"
                for channel in self._turns
                if f"{channel.name} is lost" in str(failure)
            )
            raise type(failure)(f"{failure} ({last})" if last else str(failure))

    def _late(self, pending: Collection[ServerChannel], waited: float) -> PaddleError:
        kind = PeerUnreachableError if self._request.op == Op.HELLO else LostPeerError
        trainer = self.member.options.trainer_id
        return kind(f"trainer {trainer} waited {waited:.0f} s to {self._request.doing}: {_describe(pending)}")

    def _check_joined(self) -> None:
        if not self._turns:
            raise BugError("the client has not joined, or is closed")

    def _check_vector(self, array: Array) -> None:
        """Check that an array is a flat vector of the model.

        Raises: BugError: the array has another type or size.
        """
        elements = self._model.elements
        if array.shape != (elements,) or array.dtype != _FLOAT32 or not array.flags.c_contiguous:
            raise BugError(
                f"the client needs a contiguous float32 array of {elements} elements, "
                f"not {array.dtype} of shape {array.shape}"
            )

    def count_services(self) -> int:
        """Return the number of services of this client."""
        return len(self.member.services)

    # ----- Training -----

    def send_initial_values(self, values: Array, restored: CheckpointState | None = None) -> None:
        """Send the initial values, or the state in a checkpoint; a service of a task job that already has values
        ignores them.

        Raises: ConfigError: the checkpoint does not fit the model.  DamagedError: the checkpoint cannot be divided.
        """
        self._check_vector(values)
        self._checkpoints.restore(self._model, self._optimization, values, restored)

    def check(self) -> None:
        """Raise an error if the heartbeats have found that the job has failed.

        A caller that computes or waits elsewhere for a long time should call this method regularly.

        Raises: LostPeerError: the job cannot continue.
        """
        if (heartbeat := self.member.heartbeat) and heartbeat.failure:
            raise heartbeat.failure

    def start_pass(self, batch: int = 0) -> None:
        """Wait until every trainer is ready to start this pass.

        Args: batch: number of batches of the pass that an earlier attempt has trained.
        Raises: ConfigError: another trainer has already ended its last pass.
        """
        self.request(ServiceRequest(Op.START_PASS, f"start pass {self._passes}", batch))
        self._batch = batch

    def gather_checkpoint(self, own: Any) -> CheckpointState | None:
        """Send this trainer's part of a checkpoint (JSON); trainer 0 receives all parts and the servers' state.

        All trainers call this method after the same batch, or after the pass. Only trainer 0 waits for the other
        trainers.
        """
        return self._checkpoints.gather_checkpoint(own)

    def leave_blob(self, data: memoryview) -> None:
        """Store binary data for the next checkpoints on the servers, as a part of this trainer's state."""
        self._checkpoints.leave_blob(data)

    def fetch_blob(self, size: int) -> memoryview:
        """Return this trainer's binary data from the checkpoint that the job resumes from."""
        return self._checkpoints.fetch_blob(size)

    @property
    def _checkpoints(self) -> CheckpointRequests:
        self._check_joined()
        options = self.member.options
        return CheckpointRequests(self.request, self.channels, options.trainer_id, self._model.elements)

    # ----- Leaving -----

    def goodbye(self) -> None:
        """Send GOODBYE to every server, and close. A failure to deliver GOODBYE is only logged."""
        try:
            self.request(ServiceRequest(Op.GOODBYE, "say goodbye"), GOODBYE_TIMEOUT)
        except PaddleError as exc:
            glog.warning(f"goodbye was not received by all servers: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Send every server the reason why this trainer gives up, and close. The method raises no error.

        The servers report the reason to the other trainers.
        """
        for channel in self._turns:
            channel.abort(reason)
        if self.channels:
            close_all([channel.connection for channel in self.channels], LINGER)
        self.close()

    def close(self) -> None:
        """Close every connection without a message; repeated calls are allowed."""
        self.member.end()
        for channel in self.channels:
            channel.close()
        self._use([])


class Client(BaseClient):
    """A trainer's connection to all dense services of a job.

    Args: see `BaseClient`.
    Raises (every call): LostPeerError: a server or another trainer is lost, hangs or has given up; the message names
        this server or trainer.
    Thread safety: all calls must come from one thread. Every call blocks, except `close` and `abort`.
    """

    _has_begun = False  # whether `begin_push` has begun a push that `push_pull` ends

    def join(self, parameters: Sequence[ParameterSpec], optimization: Optimization) -> None:
        """Connect to every service and register as this trainer.

        Raises: PeerUnreachableError: a server does not answer, or belongs to another job or attempt. ConfigError: a
            server and this trainer, or two trainers, have different settings; the message names the settings.
        """
        ranges = partition.layout(parameters, len(self.member.services))
        model = ModelSetup(list(parameters), describe_setup(parameters, optimization))
        self._join(model, optimization, [partition.find_runs(parameters, one) for one in ranges])

    def initialise(self, values: Array, restored: CheckpointState | None = None) -> Any:
        """Send trainer 0's values to the servers; the other trainers wait for these values and receive them in place.

        Args: restored: the checkpoint that trainer 0 resumes from, or None. Its values replace `values`.
        Returns: this trainer's own part of the checkpoint, or None if the job does not resume from a checkpoint.
        Raises: ConfigError: the optimization is not supported, or the checkpoint does not fit the model.  DamagedError:
            the checkpoint comes from another number of services, and cannot be divided among the present services.
        """
        if self.member.options.trainer_id != 0:
            found = self.fetch_vector("fetch the initial values", Fetch.INITIAL, values)
            return found.notes.get(self.channels[0], NOTHING).get("own")
        self.send_initial_values(values, restored)
        if restored is None:
            return None
        self.fetch_vector("fetch the restored values", Fetch.CURRENT, values)
        return restored.trainers[0]

    def begin_push(self, gradient: Array, values: Array, samples: int) -> None:
        """Begin a `push_pull` while its gradient is still being computed."""
        self._check_vector(gradient)
        self._check_vector(values)
        self._batch += 1
        self.begin(PushVector(self._describe_push(), gradient, values, samples))
        self._has_begun = True

    def push_from(self, start: int) -> None:
        """Push the pieces whose elements are all at position `start` of the gradient or later, without blocking.

        The caller has computed the gradient from `start` to its end. Piece 0 of each service is not sent, because
        `push_pull` sets its flags. Some new values may already have been received when this method returns.
        """
        for channel in self._turns:
            lowest = channel.layout.lowest
            for piece in [one for one in sorted(channel.unsent, reverse=True) if one and lowest(one) >= start]:
                channel.send_piece(piece)
        self._exchange.receive(0)

    def push_pull(self, gradient: Array, values: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push this batch's summed gradient, wait for the step of all trainers, and receive the new values in place.

        If `begin_push` has begun to push this gradient, the rest of it is pushed.

        Args: samples: samples of this trainer's batch.  checkpoint: whether this trainer requests a checkpoint.
        Returns: whether a checkpoint is due. If it is due, all trainers call `gather_checkpoint`.
        """
        if not self._has_begun:
            self.begin_push(gradient, values, samples)
        self._has_begun = False
        flags = self.finish(MessageFlag.CHECKPOINT if checkpoint else MessageFlag.NONE)
        return bool(flags & MessageFlag.CHECKPOINT)

    def push(self, gradient: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push as `push_pull` does, but receive no values: the answer only confirms the step."""
        self._check_vector(gradient)
        self._batch += 1
        flags = MessageFlag.KEEP | (MessageFlag.CHECKPOINT if checkpoint else MessageFlag.NONE)
        request = SendVector(Op.PUSH, self._describe_push(), gradient, samples=samples, flags=flags)
        return bool(self.request(request) & MessageFlag.CHECKPOINT)

    def fetch_values(self, values: Array) -> None:
        """Receive the values after the last step, in place."""
        self.fetch_vector("fetch the values", Fetch.CURRENT, values)

    def fetch_averages(self, averages: Array) -> None:
        """Receive in place the averages of the values over the last steps; the config sets the number of steps."""
        self.fetch_vector("fetch the averages", Fetch.AVERAGES, averages)

    def finish_pass(self, values: Array, own: Any = None) -> None:
        """Wait for the trainers that still have batches, then receive the values after the pass in place.

        Args: own: this trainer's part of checkpoints that other trainers may make before they finish the pass.
        """
        self._check_vector(values)
        note = {} if own is None else {"own": own}
        self.request(FetchVector(Op.FINISH_PASS, f"finish pass {self._passes}", values, note=note))
        self._passes += 1

    def _describe_push(self) -> str:
        return f"push batch {self._batch} of pass {self._passes}"


def _has_silent(pending: Collection[ServerChannel]) -> bool:
    return any(not channel.waits_for for channel in pending)


def _describe(pending: Collection[ServerChannel]) -> str:
    return "; ".join(
        f"{channel.name} " + (f"waits for {channel.waits_for}" if channel.waits_for else channel.connection.silence)
        for channel in list(pending)[:4]
    )
