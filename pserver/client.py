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
arrays of all non-static parameters in order; each service gets its elements in pieces.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pserver import blocks, deposits, glog, protocol
from pserver.arithmetic import as_bytes, describe_setup
from pserver.channel import Channel
from pserver.environment import JobEnvironment, read_environment
from pserver.errors import BugError, ConfigError, PaddleError, PeerUnreachableError
from pserver.exchange import Ask, Exchange
from pserver.heartbeat import Heartbeat
from pserver.links import Link, close_all
from pserver.membership import DATA, HEARTBEAT, TOKEN_BYTES
from pserver.protocol import Fetch, Flag, Message, Op
from pserver.rules import Array, Optimization, ParameterSpec
from pserver.shared_memory import SharedMemory
from pserver.snapshot import Captured, Part

__all__ = ["Client", "JobEnvironment", "read_environment"]

GOODBYE_TIMEOUT = 10.0
LINGER = 1.0  # seconds for the last words to be heard
_GREETING, _JOIN = 0, 1  # the two hellos, as the pieces of one request


class Client:
    """A trainer's connection to all services of a job.

    Args: services: host and port of each, in the order that all trainers share.  trainer_id: 0 to num_trainers-1.
        job, attempt, secret: what the servers were started with.
        own_addresses: addresses of this trainer; with services there it shares memory.
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
        own_addresses: Collection[str] = (),
        peer_timeout: float = 10.0,
        connect_timeout: float = 60.0,
        wait_timeout: float = 3600.0,
    ) -> None:
        if not services:
            raise BugError("a client needs at least one service")
        self._services = list(services)
        self._trainer = trainer_id
        self._num_trainers = num_trainers
        self._job, self._attempt, self._secret = job, attempt, secret
        self._own_addresses = frozenset(own_addresses)
        self._session = protocol.session_of(job, attempt)
        self._peer_timeout, self._connect_timeout, self._wait_timeout = peer_timeout, connect_timeout, wait_timeout
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._passes = self._batch = 0
        self._channels: list[Channel] = []
        self._exchange: Exchange | None = None
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
        for number, ((host, port), runs) in enumerate(zip(self._services, self.lay_out(), strict=True)):
            glog.info(f"pserver {number} {host}:{port}", at="ParameterClient2.cpp:114")
            self._channels.append(self._connect(host, port, runs))
        self._exchange = Exchange(
            self._channels,
            self._session,
            self._trainer,
            self._num_trainers,
            peer_timeout=self._peer_timeout,
            wait_timeout=self._wait_timeout,
            failure=lambda: self._heartbeat.failure if self._heartbeat else None,
        )
        self._exchange.begin(
            Ask(Op.HELLO, "join", pieces=_two, note=self._describe_join(), answers=_two, take=self._take_welcome)
        )
        for channel in self._exchange.channels:
            self._exchange.send(channel, _GREETING)
        self._exchange.collect(self._connect_timeout)
        self._heartbeat = Heartbeat(
            [(host, port, channel.key) for (host, port), channel in zip(self._services, self._channels, strict=True)],
            self._token + HEARTBEAT,
            self._session,
            self._trainer,
            self._peer_timeout,
        )
        self._heartbeat.start()

    def initialise(self, values: Array, restored: Captured | None = None) -> Any:
        """Trainer 0 gives its values to the servers; the others wait for them and get them, in place.

        Args: restored: trainer 0's, to go on from a checkpoint: its values and state take the place of `values`.
        Returns: this trainer's own part of that checkpoint; None without one.
        Raises: ConfigError: the optimization is not supported; the checkpoint is of other services.
        """
        self._check(values)
        if self._trainer != 0:
            return self._fetch(Fetch.INITIAL, "fetch the initial values", values).get("own")
        if restored is not None and len(restored.services) != len(self._channels):
            raise ConfigError(
                f"the checkpoint is of {len(restored.services)} services (hosts x ports), this job has "
                f"{len(self._channels)}; go on from the saved parameters instead (--start_pass)"
            )
        setup = self.describe_setup()

        def note(channel: Channel, piece: int) -> Mapping[str, Any]:
            if piece:
                return {}
            if restored is None:
                return setup
            part = restored.services[self._channels.index(channel)]
            state = {"counters": part.counters, "arrays": sorted(part.arrays), "trainers": list(restored.trainers)}
            return setup | state | {"deposits": deposits.describe(part.arrays)}

        self._send_array(Op.INITIALISE, "send the initial values", values, note=note)
        if restored is None:
            return None
        for number in range(max(len(part.arrays) for part in restored.services)):
            self._restore(number, restored)
        self._fetch_restored(values)
        return restored.trainers[0]

    def check(self) -> None:
        """Return if the job can go on as far as is known; for who computes or waits elsewhere for long."""
        if self._heartbeat and self._heartbeat.failure:
            raise self._heartbeat.failure

    def start_pass(self, batch: int = 0) -> None:
        """Wait until every trainer wants to start this pass.

        Args: batch: batches of the pass that were trained before, in an earlier attempt.
        Raises: ConfigError: another trainer has already ended its last pass.
        """
        self._request(Ask(Op.START_PASS, f"start pass {self._passes}", batch))
        self._batch = batch

    def push_pull(self, gradient: Array, values: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push this batch's summed gradient, wait for the step of all, and get the new values in place.

        Args: samples: samples of this trainer's batch.  checkpoint: whether this trainer asks for a checkpoint.
        Returns: whether a checkpoint is due: then all trainers call `capture`.
        """
        self.begin_push(gradient, values, samples)
        return self.finish_push(checkpoint=checkpoint)

    def begin_push(self, gradient: Array, values: Array, samples: int) -> None:
        """Begin a `push_pull` whose gradient is not complete yet."""
        self._check(gradient)
        self._check(values)
        self._batch += 1
        self._require_exchange().begin(
            Ask(
                Op.PUSH,
                f"push batch {self._batch} of pass {self._passes}",
                samples=samples,
                pieces=_pieces,
                send=lambda channel, piece: channel.gather(gradient, piece),
                answers=_pieces,
                take=lambda channel, answer, payload: channel.scatter(payload, values, answer.piece),
                into=lambda channel, piece: channel.parts_of(values, piece),
            )
        )

    def push_from(self, start: int) -> None:
        """Push what lies from this element on of the gradient, which is complete there; never waits.

        The new values may be there already when this returns.
        """
        self._require_exchange().send_early(lambda channel, piece: channel.lowest(piece) >= start)

    def finish_push(self, *, checkpoint: bool = False) -> bool:
        """Push the rest, wait for the step of all, and get the new values in place; as `push_pull` in the end."""
        exchange = self._require_exchange()
        exchange.send_rest(Flag.CHECKPOINT if checkpoint else Flag.NONE)
        return bool(exchange.collect() & Flag.CHECKPOINT)

    def push(self, gradient: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push as `push_pull`, and keep the values: the answer says only that the step is done."""
        self._check(gradient)
        self._batch += 1
        flags = self._request(
            Ask(
                Op.PUSH,
                f"push batch {self._batch} of pass {self._passes}",
                samples=samples,
                flags=Flag.KEEP | (Flag.CHECKPOINT if checkpoint else Flag.NONE),
                pieces=_pieces,
                send=lambda channel, piece: channel.gather(gradient, piece),
                answers=_pieces,
            )
        )
        return bool(flags & Flag.CHECKPOINT)

    def fetch_values(self, values: Array) -> None:
        """Get the values as they are after the last step, in place."""
        self._check(values)
        self._fetch(Fetch.CURRENT, "fetch the values", values)

    def finish_pass(self, values: Array, own: Any = None) -> None:
        """Wait for the trainers that still have batches, then get the values after the pass in place.

        Args: own: this trainer's part of the checkpoints that the others may make before they finish.
        """
        self._check(values)
        doing = f"finish pass {self._passes}"
        self._fetch(0, doing, values, op=Op.FINISH_PASS, note={} if own is None else {"own": own})
        self._passes += 1

    def fetch_averages(self, averages: Array) -> None:
        """Get the averages of the last steps' values, as the settings ask for them, in place."""
        self._check(averages)
        self._fetch(Fetch.AVERAGES, "fetch the averages", averages)

    def capture(self, own: Any) -> Captured | None:
        """Give this trainer's part of a checkpoint (JSON-able); trainer 0 gets all parts and the servers' state.

        All trainers call it after the same batch, or after the pass. Only trainer 0 waits for the others.
        """
        notes: dict[int, Mapping[str, Any]] = {}

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            notes[self._channels.index(channel)] = answer.note

        first = self._channels[0]
        ask = Ask(
            Op.CAPTURE, "capture the state", note=lambda channel, _: {"own": own} if channel is first else {}, take=take
        )
        self._request(ask)
        if self._trainer != 0:
            return None
        parts = [_make_part(notes[number]) for number in range(len(self._channels))]
        for number in range(max(len(part.arrays) for part in parts)):
            self._fetch_state(number, parts)
        return Captured(parts, list(notes[0]["trainers"]))

    def deposit(self, data: memoryview) -> None:
        """Leave bytes for the checkpoints to come, as a part of what this trainer says of itself."""
        own = self._channels[self._trainer % len(self._channels)]

        def count(channel: Channel) -> int:
            return protocol.count_pieces(len(data)) if channel is own else 1

        def send(channel: Channel, piece: int) -> memoryview:
            return protocol.cut(data, piece) if channel is own else data[:0]

        def note(channel: Channel, piece: int) -> Mapping[str, Any]:
            return {} if piece else {"bytes": len(data) if channel is own else 0}

        self._request(Ask(Op.DEPOSIT, "leave its state", note=note, pieces=count, send=send, answers=count))

    def fetch_deposit(self, size: int) -> memoryview:
        """Get the bytes that this trainer had left for the checkpoint that the job goes on from."""
        own, data = self._channels[self._trainer % len(self._channels)], memoryview(bytearray(size))

        def count(channel: Channel) -> int:
            return protocol.count_pieces(size) if channel is own else 1

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            if channel is own:
                protocol.cut(data, answer.piece)[:] = payload

        self._request(Ask(Op.FETCH, "fetch what it had left", Fetch.DEPOSIT, answers=count, take=take))
        return data

    def goodbye(self) -> None:
        """Tell every server that this trainer is done, and close; a server that does not hear it is only logged."""
        try:
            self._request(Ask(Op.GOODBYE, "say goodbye"), GOODBYE_TIMEOUT)
        except PaddleError as exc:
            glog.warning(f"goodbye was not heard by all: {exc}")
        self.close()

    def abort(self, reason: str) -> None:
        """Tell every server why this trainer gives up, so that the others can name it, and close; never raises."""
        if self._exchange:
            self._exchange.abort(reason)
            close_all([channel.link for channel in self._channels], LINGER)
        self.close()

    def close(self) -> None:
        """Close every connection without a word; may be called again."""
        if self._heartbeat:
            self._heartbeat.stop()
            self._heartbeat = None
        for channel in self._channels:
            channel.close()
        self._channels, self._exchange = [], None

    # ----- Joining -----

    def lay_out(self) -> list[list[blocks.Run]]:
        """Return for each service what of the flat vector lies there."""
        ranges = blocks.layout(self._parameters, len(self._services))
        return [blocks.find_runs(self._parameters, one) for one in ranges]

    def describe_setup(self) -> dict[str, Any]:
        """Return the note of INITIALISE: everything that a server must know of the model."""
        return describe_setup(self._parameters, self._optimization)

    def _connect(self, host: str, port: int, runs: Sequence[blocks.Run]) -> Channel:
        link = Link(host, port, self._token + DATA, max_payload=protocol.MAX_PAYLOAD_BYTES)
        return Channel(link, runs)

    def _hello(self, channel: Channel, **more: object) -> Mapping[str, Any]:
        return protocol.describe_hello(
            self._job,
            self._attempt,
            self._secret,
            channel.nonce,
            self._trainer,
            self._token + DATA,
            channel.server_nonce,
            num_trainers=self._num_trainers,
            **more,
        )

    def _describe_join(self) -> Callable[[Channel, int], Mapping[str, Any]]:
        """Return what makes the two hellos to a service: its answer to the first is in the proof of the second."""
        shape = [sum(not parameter.is_static for parameter in self._parameters), self._elements]
        digest = blocks.digest(self._parameters)
        setup = json.dumps(self.describe_setup(), sort_keys=True)
        settings = hashlib.sha256(setup.encode()).hexdigest()[:16]

        def hello(channel: Channel, piece: int) -> Mapping[str, Any]:
            if piece == _GREETING:
                return self._hello(channel, role="probe")
            service = self._channels.index(channel)
            if self._services[service][0] in self._own_addresses and channel.size:
                channel.memory = SharedMemory.make(4 * channel.size)
            return self._hello(
                channel,
                role="join",
                dtype=protocol.DTYPE,
                parameters=digest,
                shape=shape,
                settings=settings,
                service=service,
                services=len(self._channels),
                memory=channel.memory.offer if channel.memory else None,
            )

        return hello

    def _take_welcome(self, channel: Channel, answer: Message, payload: memoryview) -> None:
        """Check that a server is of this job; join it, or note that it has admitted this trainer."""
        fault = protocol.find_fault(answer, self._job, self._attempt, self._secret, channel.nonce)
        if fault:
            fault = glog.clean(fault, 1000)
            raise PeerUnreachableError(f"{channel.name} is not a server of trainer {self._trainer}'s job: {fault}")
        if answer.piece == _GREETING:
            channel.server_nonce = str(answer.note.get("nonce"))
            self._require_exchange().send(channel, _JOIN)
            return
        channel.key = protocol.key_of(self._secret, channel.nonce, channel.server_nonce)
        if channel.memory is not None and not answer.note.get("shares_memory"):
            channel.memory = None

    # ----- Requests -----

    def _request(self, ask: Ask, timeout: float | None = None) -> int:
        return self._require_exchange().request(ask, timeout)

    def _require_exchange(self) -> Exchange:
        if self._exchange is None:
            raise BugError("the client has not joined, or is closed")
        return self._exchange

    def _fetch(
        self, kind: int, doing: str, values: Array, op: Op = Op.FETCH, note: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Get arrays of the values' size in place; returns the note of the first service's answer."""
        found: dict[str, Any] = {}

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            if channel is self._channels[0]:
                found.update(answer.note)
            channel.scatter(payload, values, answer.piece)

        self._request(Ask(op, doing, kind, note=lambda *_: note or {}, answers=_pieces, take=take))
        return found

    def _fetch_restored(self, values: Array) -> None:
        self._fetch(Fetch.CURRENT, "fetch the restored values", values)

    def _send_array(self, op: Op, doing: str, flat: Array, **more: Any) -> None:
        self._request(
            Ask(
                op,
                doing,
                pieces=_pieces,
                send=lambda channel, piece: channel.gather(flat, piece),
                answers=_pieces,
                **more,
            )
        )

    def _restore(self, number: int, restored: Captured) -> None:
        """Send the array of this number of every service's state."""
        arrays = [_bytes_of(part, sorted(part.arrays), number) for part in restored.services]

        def count(channel: Channel) -> int:
            return protocol.count_pieces(len(arrays[self._channels.index(channel)]))

        def send(channel: Channel, piece: int) -> memoryview:
            return protocol.cut(arrays[self._channels.index(channel)], piece)

        self._request(
            Ask(Op.RESTORE, "send the state of the checkpoint", number, pieces=count, send=send, answers=count)
        )

    def _fetch_state(self, number: int, parts: Sequence[Part]) -> None:
        """Get the array of this number of every service's state in place."""
        arrays = [_bytes_of(part, list(part.arrays), number) for part in parts]

        def count(channel: Channel) -> int:
            return protocol.count_pieces(len(arrays[self._channels.index(channel)]))

        def take(channel: Channel, answer: Message, payload: memoryview) -> None:
            protocol.cut(arrays[self._channels.index(channel)], answer.piece)[:] = payload

        self._request(Ask(Op.FETCH, "fetch the state", Fetch.STATE + number, answers=count, take=take))

    def _check(self, array: Array) -> None:
        if array.shape != (self._elements,) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise BugError(
                f"needs a contiguous float32 array of {self._elements} elements, "
                f"not {array.dtype} of shape {array.shape}"
            )


def _pieces(channel: Channel) -> int:
    return channel.pieces


def _two(channel: Channel) -> int:
    return 2


def _bytes_of(part: Part, names: Sequence[str], number: int) -> memoryview:
    """Return the array of a number as bytes; a state with fewer arrays has an empty one there."""
    return as_bytes(part.arrays[names[number]]) if number < len(names) else memoryview(bytearray())


def _make_part(note: Mapping[str, Any]) -> Part:
    """Return the part that a service announced, its arrays still empty."""
    arrays = {name: np.empty(size // np.dtype(kind).itemsize, kind) for name, kind, size in note["arrays"]}
    return Part(note["counters"], arrays)
