"""The trainer's side: joins every server, pushes gradients and takes values in place.

    client = Client([("10.0.0.1", 7164), ("10.0.0.2", 7164)], trainer_id=1, num_trainers=2)
    client.join(parameters, optimization)
    client.initialise(values)
    for each pass:
        client.start_pass()
        client.push_pull(gradient, values, samples)      # once per batch
        client.finish_pass(values)
    client.goodbye()

Each call is one request to every service and returns when all have answered. Gradients and values are flat float32
arrays of all non-static parameters in order; each service gets its elements as one frame.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import zmq

from pserver import blocks, glog, protocol
from pserver.arithmetic import as_array, describe_setup
from pserver.channel import Channel
from pserver.environment import JobEnvironment, read_environment
from pserver.errors import BugError, ConfigError, LostPeerError, PaddleError, PeerUnreachableError
from pserver.heartbeat import Heartbeat, error_of
from pserver.membership import DATA, HEARTBEAT, TOKEN_BYTES
from pserver.protocol import AVERAGES, Flag, Message, Op
from pserver.rules import Array, Optimization, ParameterSpec

__all__ = ["Client", "JobEnvironment", "read_environment"]

POLL_INTERVAL_MS = 250
ASK_INTERVAL = 1.0  # seconds between two questions what a server waits for
REPORT_INTERVAL = 30.0  # seconds between two log lines about one wait
GOODBYE_TIMEOUT = 10.0
LINGER_MS = 1000


class Ask(NamedTuple):
    """One request as it goes to each service; an answer with values is written into `values`."""

    op: Op
    doing: str  # for messages
    argument: int = 0
    note: Callable[[Channel], Mapping[str, Any]] | None = None
    send: Array | None = None
    values: Array | None = None


class Client:
    """A trainer's connection to all services of a job.

    Args: services: host and port of each, in the order that all trainers share.  trainer_id: 0 to num_trainers-1.
        job, attempt, secret: what the servers were started with.
        peer_timeout: seconds without a sign of life after which a server is lost.
        connect_timeout: seconds for all servers to answer the first hello.
        wait_timeout: seconds for any other answer; long, because a server answers when the slowest trainer has pushed.
    Raises (every call): LostPeerError: a server or another trainer is gone, hangs or gave up; the message names it.
    Thread safety: one thread calls it.  Blocking: every call but `close` and `abort`.
    """

    def __init__(
        self,
        services: Sequence[tuple[str, int]],
        *,
        trainer_id: int,
        num_trainers: int,
        job: str = "",
        attempt: str = "",
        secret: str = "",
        peer_timeout: float = 15.0,
        connect_timeout: float = 60.0,
        wait_timeout: float = 3600.0,
    ) -> None:
        if not services:
            raise BugError("a client needs at least one service")
        self._services = list(services)
        self._trainer = trainer_id
        self._num_trainers = num_trainers
        self._job, self._attempt, self._secret = job, attempt, secret
        self._session = protocol.session_of(job, attempt)
        self._peer_timeout, self._connect_timeout, self._wait_timeout = peer_timeout, connect_timeout, wait_timeout
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._sequence = 0
        self._passes = self._batch = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._channels: list[Channel] = []
        self._channel_of: dict[zmq.Socket[bytes], Channel] = {}
        self._poller = zmq.Poller()
        self._heartbeat: Heartbeat | None = None
        self._parameters: Sequence[ParameterSpec] = ()
        self._optimization = Optimization()
        self._elements = 0

    # ----- The calls, in order -----

    def join(self, parameters: Sequence[ParameterSpec], optimization: Optimization) -> None:
        """Connect to every service and be admitted as this trainer.

        Raises: PeerUnreachableError: a server does not answer, or is none of this job and attempt.
            ConfigError: a server and this trainer, or two trainers, disagree; both sides are named.
        """
        self._parameters, self._optimization = list(parameters), optimization
        self._elements = blocks.count_elements(parameters)
        for number, ((host, port), ranges) in enumerate(
            zip(self._services, blocks.layout(parameters, len(self._services)), strict=True)
        ):
            glog.info(f"pserver {number} {host}:{port}", at="ParameterClient2.cpp:114")
            channel = self._connect(host, port, blocks.find_runs(parameters, ranges))
            if channel.size * 4 > protocol.MAX_PAYLOAD_BYTES:
                raise ConfigError(
                    f"{channel.name} would hold {channel.size} elements; at most "
                    f"{protocol.MAX_PAYLOAD_BYTES // 4} fit, so use more ports or hosts"
                )
            self._channels.append(channel)
            self._channel_of[channel.socket] = channel
        shape = [sum(not parameter.is_static for parameter in parameters), self._elements]
        digest = blocks.digest(parameters)
        setup = json.dumps(describe_setup(parameters, optimization), sort_keys=True)
        settings = hashlib.sha256(setup.encode()).hexdigest()[:16]

        def hello(channel: Channel) -> Mapping[str, Any]:
            return protocol.describe_hello(
                self._job,
                self._attempt,
                self._secret,
                channel.nonce,
                self._trainer,
                self._token + DATA,
                role="join",
                num_trainers=self._num_trainers,
                dtype=protocol.DTYPE,
                parameters=digest,
                shape=shape,
                settings=settings,
                service=self._channels.index(channel),
                services=len(self._channels),
            )

        self._request(Ask(Op.HELLO, "join", note=hello), self._connect_timeout)
        self._heartbeat = Heartbeat(
            self._context, self._services, self._token + HEARTBEAT, self._session, self._trainer, self._peer_timeout
        )
        self._heartbeat.start()

    def initialise(self, values: Array) -> None:
        """Trainer 0 gives its values to the servers; the others wait for them and get them, in place.

        Raises: ConfigError: the optimization is not supported.
        """
        self._check(values)
        if self._trainer == 0:
            setup = describe_setup(self._parameters, self._optimization)
            self._request(Ask(Op.INITIALISE, "send the initial values", note=lambda _: setup, send=values))
        else:
            self._request(Ask(Op.FETCH, "fetch the initial values", values=values))

    def check(self) -> None:
        """Return if the job can go on as far as is known; for who computes or waits elsewhere for long."""
        self._raise_failure()

    def start_pass(self) -> None:
        """Wait until every trainer wants to start this pass.

        Raises: ConfigError: another trainer has already ended its last pass.
        """
        self._request(Ask(Op.START_PASS, f"start pass {self._passes}"))
        self._batch = 0

    def push_pull(self, gradient: Array, values: Array, samples: int) -> None:
        """Push this batch's summed gradient, wait for the step of all, and get the new values in place.

        Args: samples: samples of this trainer's batch.
        """
        self._check(gradient)
        self._check(values)
        self._batch += 1
        self._request(
            Ask(Op.PUSH, f"push batch {self._batch} of pass {self._passes}", samples, send=gradient, values=values)
        )

    def finish_pass(self, values: Array) -> None:
        """Wait for the trainers that still have batches, then get the values after the pass in place."""
        self._check(values)
        self._request(Ask(Op.FINISH_PASS, f"finish pass {self._passes}", values=values))
        self._passes += 1

    def fetch_averages(self, averages: Array) -> None:
        """Get the averages of the last steps' values, as the settings ask for them, in place."""
        self._check(averages)
        self._request(Ask(Op.FETCH, "fetch the averages", AVERAGES, values=averages))

    def goodbye(self) -> None:
        """Tell every server that this trainer is done, and close; a server that does not hear it is only logged."""
        try:
            self._request(Ask(Op.GOODBYE, "say goodbye"), GOODBYE_TIMEOUT)
        except PaddleError as exc:
            glog.warning(f"goodbye was not heard by all: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Tell every server why this trainer gives up, so that the others can name it, and close; never raises."""
        message = Message(Op.ABORT, self._session, self._trainer, self._sequence + 1, note={"reason": reason})
        for channel in self._channels:
            with contextlib.suppress(zmq.ZMQError):
                channel.socket.send_multipart(protocol.encode(message), zmq.NOBLOCK)
        self.close()

    def close(self) -> None:
        """Close every connection without a word; may be called again."""
        if self._heartbeat:
            self._heartbeat.stop()
            self._heartbeat = None
        self._context.destroy(linger=LINGER_MS)
        self._channels = []

    # ----- One request to every service -----

    def _connect(self, host: str, port: int, runs: Sequence[blocks.Run]) -> Channel:
        socket = self._context.socket(zmq.DEALER)
        socket.routing_id = self._token + DATA
        socket.maxmsgsize = protocol.MAX_PAYLOAD_BYTES
        socket.reconnect_ivl = 100
        socket.linger = LINGER_MS  # also when nobody closes it: a server that is gone must not hold up the exit
        try:
            socket.connect(f"tcp://{host}:{port}")
        except zmq.ZMQError as exc:
            raise ConfigError(f"'{host}:{port}' is no address of a pserver: {exc.strerror}") from exc
        self._poller.register(socket, zmq.POLLIN)
        return Channel(socket, host, port, runs)

    def _request(self, ask: Ask, timeout: float | None = None) -> None:
        if not self._channels:
            raise BugError(f"cannot {ask.doing}: the client has not joined or is closed")
        self._raise_failure()
        self._sequence += 1
        # every trainer begins with another server, so that they do not all call the first one first
        first = self._trainer * len(self._channels) // max(self._num_trainers, 1)
        pending = {channel.socket: channel for channel in self._channels[first:] + self._channels[:first]}
        for channel in pending.values():
            self._send(channel, ask)
        started = time.monotonic()
        deadline = started + (self._wait_timeout if timeout is None else timeout)
        asked, reported = started, started
        while pending:
            for socket, _ in self._poller.poll(POLL_INTERVAL_MS):
                self._receive(socket, ask, pending)
            now = time.monotonic()
            if not pending:
                return
            self._raise_failure()
            if now > deadline:
                raise self._late(ask, pending.values(), now - started)
            if now - asked > min(ASK_INTERVAL, self._peer_timeout / 5):
                asked = now
                self._ask_progress(pending.values(), ask)
            if now - reported > REPORT_INTERVAL:
                reported = now
                glog.info(f"waiting for {now - started:.0f} s to {ask.doing}: {_describe(pending.values())}")

    def _send(self, channel: Channel, ask: Ask) -> None:
        note = ask.note(channel) if ask.note else {}
        payload = () if ask.send is None else (channel.gather(ask.send),)
        message = Message(
            ask.op, self._session, self._trainer, self._sequence, ask.argument, note=note, payload=payload
        )
        channel.socket.send_multipart(protocol.encode(message), copy=False)

    def _receive(self, socket: zmq.Socket[bytes], ask: Ask, pending: dict[zmq.Socket[bytes], Channel]) -> None:
        """Read what one server sent; its answer takes it out of `pending`."""
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            channel = self._channel_of[socket]
            try:
                answer = protocol.decode([frame.buffer for frame in frames])
            except protocol.ProtocolError as exc:
                raise PeerUnreachableError(f"{channel.name} answers what is no message of ours: {exc}") from exc
            if answer.op == Op.ERROR and (answer.flags & Flag.FATAL or answer.sequence in (0, self._sequence)):
                raise error_of(answer, channel.name)
            if answer.sequence != self._sequence or socket not in pending:
                continue  # late: the answer to a request that was repeated
            if answer.op == Op.PING:
                self._repeat_if_lost(channel, ask, answer)
            elif answer.op == ask.op:
                self._accept(channel, ask, answer)
                del pending[socket]

    def _accept(self, channel: Channel, ask: Ask, answer: Message) -> None:
        if ask.op == Op.HELLO:
            fault = protocol.find_fault(answer, self._job, self._attempt, self._secret, channel.nonce)
            if fault:
                raise PeerUnreachableError(f"{channel.name} is not a server of trainer {self._trainer}'s job: {fault}")
        if ask.values is not None:
            sizes = [memoryview(part).nbytes for part in answer.payload]
            if sizes != [channel.size * 4]:
                raise BugError(f"{channel.name} answers with arrays of {sizes} bytes instead of {channel.size * 4}")
            channel.scatter(as_array(answer.payload[0]), ask.values)
        channel.last = f"answered '{ask.doing}'"

    def _ask_progress(self, pending: Collection[Channel], ask: Ask) -> None:
        """Ask on the data connection, behind the request, how far a server is with it.

        While some servers do not answer the hello, the others are asked: there is no heartbeat yet to assure them.
        """
        others = [channel for channel in self._channels if channel not in pending]
        for channel in others if ask.op == Op.HELLO else pending:
            ping = Message(Op.PING, self._session, self._trainer, self._sequence)
            with contextlib.suppress(zmq.Again):
                channel.socket.send_multipart(protocol.encode(ping), zmq.NOBLOCK)

    def _repeat_if_lost(self, channel: Channel, ask: Ask, pong: Message) -> None:
        """Send the request again if the server never got it, or if its answer was lost with a connection.

        The question went out after the request and its answer comes after the request's, on one connection: so what
        has not arrived by now was lost. The server counts a repeated request once.
        """
        channel.waits_for = str(pong.note.get("waits_for", ""))
        if pong.note.get("received") != self._sequence or pong.note.get("answered"):
            glog.warning(f"{channel.name} lost '{ask.doing}' with a connection; sending it again")
            self._send(channel, ask)

    # ----- What can go wrong -----

    def _check(self, array: Array) -> None:
        if array.shape != (self._elements,) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise BugError(
                f"needs a contiguous float32 array of {self._elements} elements, "
                f"not {array.dtype} of shape {array.shape}"
            )

    def _raise_failure(self) -> None:
        failure = self._heartbeat.failure if self._heartbeat else None
        if failure:
            last = "; ".join(
                f"{channel.name} last {channel.last}"
                for channel in self._channels
                if f"{channel.name} is lost" in str(failure)
            )
            raise type(failure)(f"{failure} ({last})" if last else str(failure))

    def _late(self, ask: Ask, pending: Collection[Channel], waited: float) -> PaddleError:
        kind = PeerUnreachableError if ask.op == Op.HELLO else LostPeerError
        return kind(f"trainer {self._trainer} waited {waited:.0f} s to {ask.doing}: {_describe(pending)}")


def _describe(pending: Collection[Channel]) -> str:
    return "; ".join(
        f"{channel.name} " + (f"waits for {channel.waits_for}" if channel.waits_for else "does not answer")
        for channel in list(pending)[:4]
    )
