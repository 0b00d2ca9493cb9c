"""One independent parameter server: who has joined, what each waits for, and the shard (no sockets, no clock).

The server hands in messages with the time and sends what comes back. A round ends when every trainer that still has
batches in this pass has pushed; the gradients are kept per trainer and added in trainer-id order, so the bits do not
depend on who came first. Whatever ends the job is kept in `failure` and told to every trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pserver import glog, protocol
from pserver.errors import BugError, ConfigError, LostPeerError, PaddleError, PeerUnreachableError
from pserver.membership import (
    DATA,
    HEARTBEAT,
    RECONNECT_GRACE,
    TOKEN_BYTES,
    Identity,
    Trainer,
    list_trainers,
    refuse_stranger,
    refuse_trainer,
)
from pserver.protocol import Buffer, Flag, Message, Op

if TYPE_CHECKING:
    from pserver.shard import Shard

QUIET_PERIOD = 30.0  # seconds between two log lines about messages that are dropped

Outgoing = tuple[bytes, list[Buffer]]  # routing id and frames


@dataclass
class Service:
    """The state of one port."""

    identity: Identity
    peer_timeout: float
    join_timeout: float
    log_period: int = 500
    failure: PaddleError | None = None
    malformed: int = 0
    trainers: dict[int, Trainer] = field(default_factory=dict)
    shard: Shard | None = None
    in_pass: bool = False
    batch: int = 0  # rounds of this pass
    opened: float = 0.0  # when the first trainer joined
    _complaint: str = ""
    _complained: float = float("-inf")

    def __post_init__(self) -> None:
        self.session = protocol.session_of(self.identity.job, self.identity.attempt)
        self._handlers: dict[Op, Callable[[Trainer, Message], list[Outgoing]]] = {
            Op.INITIALISE: self._initialise,
            Op.FETCH: self._fetch,
            Op.START_PASS: self._start_pass,
            Op.PUSH: self._push,
            Op.FINISH_PASS: self._finish_pass,
            Op.GOODBYE: self._goodbye,
        }

    @property
    def is_used(self) -> bool:
        """Whether any trainer has joined."""
        return bool(self.trainers)

    @property
    def is_done(self) -> bool:
        """Whether all trainers have said goodbye."""
        return len(self.trainers) == self.identity.num_trainers and not self._present()

    # ----- Entrances -----

    def handle(self, routing_id: bytes, address: str, frames: Sequence[Buffer], now: float) -> list[Outgoing]:
        """Take one message from the wire and return what is to be sent for it; never raises for what was sent."""
        try:
            message = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            return self._drop(routing_id, address, str(exc), now)
        if message.op == Op.ERROR or message.flags & Flag.ANSWER:
            return []  # an error about an answer of ours; to answer it could go on for ever
        if message.op == Op.HELLO:
            return self._hello(routing_id, address, message, now)
        trainer = self.trainers.get(message.trainer)
        if message.session != self.session or trainer is None or routing_id[:TOKEN_BYTES] != trainer.token:
            text = (
                f"{self.identity} does not know you as trainer {message.trainer}; join first "
                "(or was this server restarted?)"
            )
            return self._drop(routing_id, address, text, now, LostPeerError.exit_code)
        trainer.heard, trainer.suspected = now, None
        if message.op == Op.PING:
            return [(routing_id, self._pong(trainer, message))]
        return self._request(trainer, message, now)

    def suspect(self, routing_id: bytes, now: float) -> None:
        """Note that a connection closed; its trainer is lost unless it is heard of again soon."""
        for trainer in self.trainers.values():
            if routing_id[:TOKEN_BYTES] == trainer.token and not trainer.has_left:
                trainer.suspected = now

    def check(self, now: float) -> list[Outgoing]:
        """Look for lost trainers and for those that never came; call it only when nothing is left to read."""
        if self.failure or not self.is_used:
            return []
        for trainer in self._present():
            silence = now - trainer.heard
            if trainer.suspected is not None and now - trainer.suspected > RECONNECT_GRACE:
                return self._lose(trainer, "it closed its connection without a goodbye")
            if silence > self.peer_timeout:
                return self._lose(trainer, f"not heard of for {silence:.1f} s")
        missing = self._missing()
        if missing and now - self.opened > self.join_timeout:
            return self.fail(
                PeerUnreachableError(
                    f"{list_trainers(missing)} of {self.identity.num_trainers} did not join {self.identity} within "
                    f"{self.join_timeout:.0f} s after {self._first()}"
                )
            )
        return []

    def fail(self, error: PaddleError) -> list[Outgoing]:
        """End the job: remember the first reason, and tell it to every trainer that is still there."""
        if self.failure:
            return []
        self.failure = error
        if self.is_used:
            glog.error(f"{self.identity}: {error}")
        return [
            (trainer.token + connection, protocol.encode(self._error(trainer.number, trainer.sequence, error)))
            for trainer in self._present()
            for connection in (DATA, HEARTBEAT)
        ]

    # ----- Hello -----

    def _hello(self, routing_id: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        hello = dict(message.note)
        who = f"trainer {message.trainer} at {address}" if hello.get("role") == "join" else f"the probe at {address}"
        refusal = refuse_stranger(self.identity, routing_id, message, who)
        if refusal is None and hello.get("role") == "join":
            refusal = self.failure or refuse_trainer(self.identity, self.trainers, routing_id, message, who)
            if refusal is None:
                self._admit(routing_id, address, message, now)
        if refusal:
            self._complain(f"refused: {refusal}", now)
            return [(routing_id, protocol.encode(self._error(message.trainer, message.sequence, refusal)))]
        one = self.identity
        welcome = {
            "job": one.job,
            "attempt": one.attempt,
            "num_trainers": one.num_trainers,
            "proof": protocol.prove(one.secret, "welcome", hello.get("nonce"), one.job, one.attempt),
        }
        return [
            (
                routing_id,
                protocol.encode(
                    Message(Op.HELLO, self.session, message.trainer, message.sequence, flags=Flag.ANSWER, note=welcome)
                ),
            )
        ]

    def _admit(self, routing_id: bytes, address: str, message: Message, now: float) -> None:
        if message.trainer in self.trainers:
            return  # the same hello again
        if not self.trainers:
            self.opened = now
        trainer = Trainer(
            message.trainer, routing_id[:TOKEN_BYTES], address, dict(message.note), now, sequence=message.sequence
        )
        self.trainers[trainer.number] = trainer
        glog.info(f"worker started, peer = {address}", at="LightNetwork.cpp:322")
        glog.info(f"{trainer} joined {self.identity}: {len(self.trainers)} of {self.identity.num_trainers}")

    # ----- Requests of joined trainers -----

    def _request(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        if self.failure:
            return [self._to(trainer, self._error(trainer.number, message.sequence, self.failure))]
        if message.op == Op.ABORT:  # whatever request went wrong before
            return self._abort(trainer, message)
        if message.sequence == trainer.sequence:  # repeated: it counts once, its answer goes out again
            return [self._to(trainer, trainer.answer)] if trainer.answer else []
        if message.sequence != trainer.sequence + 1:  # late, or from nowhere
            return self._drop(
                trainer.token + DATA,
                trainer.address,
                f"request {message.sequence} of {trainer} after its request {trainer.sequence}",
                now,
            )
        try:
            return self._handlers[message.op](trainer, message)
        except PaddleError as exc:
            glog.warning(f"{self.identity} refused {message.op.name} of {trainer}: {exc}")
            return [self._to(trainer, self._error(trainer.number, message.sequence, exc))]

    def _take(self, trainer: Trainer, message: Message, doing: str) -> None:
        trainer.sequence, trainer.answer, trainer.doing = message.sequence, None, doing

    def _initialise(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        # numpy is imported when there is arithmetic to do, so that the server answers its first hello soon
        from pserver.arithmetic import build_shard

        if trainer.number != 0 or self.shard is not None:
            raise BugError(f"initial values come once, from trainer 0, not from {trainer}")
        shard = build_shard(trainer.hello, message)
        self._take(trainer, message, "sent the initial values")
        self.shard = shard
        return [self._answer(trainer, Op.INITIALISE)] + [
            out for other in self._present() if other.is_waiting for out in self._send_values(other, Op.FETCH)
        ]

    def _fetch(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        if message.argument == protocol.AVERAGES:
            return self._fetch_averages(trainer, message)
        self._take(trainer, message, "asked for the initial values")
        trainer.is_waiting = True
        return self._send_values(trainer, Op.FETCH) if self.shard else []

    def _fetch_averages(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        from pserver.arithmetic import average

        # a copy: answers to others, with the values themselves, may still be on their way
        averages = average(self._require_shard())
        self._take(trainer, message, "asked for the averages")
        return [self._answer(trainer, Op.FETCH, averages)]

    def _send_values(self, trainer: Trainer, op: Op) -> list[Outgoing]:
        trainer.is_waiting = False
        glog.info("pserver: getParameter", at="ParameterServer2.cpp:707")
        return [self._answer(trainer, op, with_values=True)]

    def _start_pass(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        if self.shard is None or self.in_pass:
            raise BugError(f"{trainer} starts a pass {'inside a pass' if self.in_pass else 'without initial values'}")
        self._take(trainer, message, f"asked for the start of pass {trainer.passes}")
        trainer.is_waiting = True
        left = [other for other in self.trainers.values() if other.has_left]
        if left:
            return self._part_early(left[0], trainer)
        waiting = [other for other in self._present() if other.is_waiting]
        if len(waiting) < self.identity.num_trainers:
            return []
        self.in_pass, self.batch = True, 0
        for other in waiting:
            other.is_waiting = other.has_finished_pass = False
        return [self._answer(other, Op.START_PASS) for other in waiting]

    def _push(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        if self.shard is None or not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} pushes a gradient outside of a pass")
        sizes = [memoryview(part).nbytes for part in message.payload]
        if sizes != [self.shard.values.nbytes] or message.argument < 0:
            raise BugError(
                f"{trainer} pushes {message.argument} samples and arrays of {sizes} bytes; "
                f"this service has {self.shard.values.nbytes} bytes of values"
            )
        self._take(trainer, message, f"pushed batch {self.batch + 1} of pass {trainer.passes}")
        trainer.gradient, trainer.samples = message.payload[0], message.argument
        return self._step_when_complete()

    def _step_when_complete(self) -> list[Outgoing]:
        from pserver.arithmetic import step

        rest = [trainer for _, trainer in sorted(self.trainers.items()) if not trainer.has_finished_pass]
        if not rest or any(trainer.gradient is None for trainer in rest):
            return []
        step(
            self._require_shard(),
            [trainer.gradient for trainer in rest if trainer.gradient is not None],
            sum(trainer.samples for trainer in rest),
        )
        self.batch += 1
        if self.log_period and self.batch % self.log_period == 0:
            glog.info(f"======== Batch={self.batch}=======", at="ParameterServer2.cpp:1568")
        for trainer in rest:
            trainer.gradient = None
        return [self._answer(trainer, Op.PUSH, with_values=True) for trainer in rest]

    def _finish_pass(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        if not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} finishes a pass that it is not in")
        self._take(trainer, message, f"finished pass {trainer.passes}")
        trainer.has_finished_pass = True
        trainer.passes += 1
        if not all(other.has_finished_pass for other in self._present()):
            return self._step_when_complete()
        self._require_shard().finish_pass()
        self.in_pass = False
        glog.info(f"======== Batch={self.batch} pass END=======", at="ParameterServer2.cpp:1588")
        return [out for other in self._present() for out in self._send_values(other, Op.FINISH_PASS)]

    def _goodbye(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        self._take(trainer, message, f"said goodbye after {trainer.passes} passes")
        trainer.has_left = True
        glog.info(f"worker begin to finish, peer = {trainer.address}", at="LightNetwork.cpp:339")
        glog.info(
            f"{trainer} said goodbye to {self.identity}: "
            f"{sum(other.has_left for other in self.trainers.values())} of {self.identity.num_trainers}"
        )
        answer = [self._answer(trainer, Op.GOODBYE)]
        if not trainer.has_finished_pass:
            return answer + self.fail(LostPeerError(f"{trainer} said goodbye in the middle of pass {trainer.passes}"))
        stuck = [other for other in self._present() if other.is_waiting]
        return answer + (self._part_early(trainer, stuck[0]) if stuck else [])

    def _part_early(self, left: Trainer, stuck: Trainer) -> list[Outgoing]:
        return self.fail(
            ConfigError(
                f"{left} {left.doing}, but {stuck} {stuck.doing}: "
                "all trainers of a job must have the same num_passes and start_pass"
            )
        )

    def _abort(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        trainer.has_left = True
        reason = str(message.note.get("reason", "it did not say why"))
        return self.fail(LostPeerError(f"{trainer} gave up: {reason} (it had last {trainer.doing})"))

    # ----- Answers -----

    def _to(self, trainer: Trainer, message: Message) -> Outgoing:
        return trainer.token + DATA, protocol.encode(message)

    def _answer(self, trainer: Trainer, op: Op, *payload: Buffer, with_values: bool = False) -> Outgoing:
        if with_values:
            # without a copy: the next step comes only after every trainer has these values and pushed
            payload = (self._require_shard().values.view("B").data,)
        trainer.answer = Message(op, self.session, trainer.number, trainer.sequence, flags=Flag.ANSWER, payload=payload)
        return self._to(trainer, trainer.answer)

    def _pong(self, trainer: Trainer, message: Message) -> list[Buffer]:
        note = {
            "received": trainer.sequence,
            "answered": trainer.answer is not None,
            "waits_for": self._describe_wait(),
        }
        return protocol.encode(
            Message(Op.PING, self.session, trainer.number, message.sequence, message.argument, Flag.ANSWER, note)
        )

    def _error(self, trainer: int, sequence: int, error: PaddleError) -> Message:
        flags = Flag.ANSWER | (Flag.FATAL if error is self.failure else Flag.NONE)
        return Message(
            Op.ERROR,
            self.session,
            trainer,
            sequence,
            flags=flags,
            note={"message": str(error), "exit_code": error.exit_code},
        )

    def _complain(self, text: str, now: float) -> None:
        """Log once per change or QUIET_PERIOD: who calls wrongly mostly calls again."""
        if text != self._complaint or now - self._complained > QUIET_PERIOD:
            self._complaint, self._complained = text, now
            glog.warning(text)

    def _drop(self, routing_id: bytes, address: str, reason: str, now: float, exit_code: int = 70) -> list[Outgoing]:
        self.malformed += 1
        if now - self._complained > QUIET_PERIOD:
            self._complain(
                f"{self.identity} dropped a message from {address}: {reason} ({self.malformed} dropped so far)", now
            )
        note = {"message": f"{self.identity} dropped a message: {reason}", "exit_code": exit_code}
        return [(routing_id, protocol.encode(Message(Op.ERROR, self.session, -1, 0, flags=Flag.ANSWER, note=note)))]

    # ----- Words -----

    def _require_shard(self) -> Shard:
        if self.shard is None:
            raise BugError(f"{self.identity} has no values yet")
        return self.shard

    def _present(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if not trainer.has_left]

    def _missing(self) -> list[int]:
        return [number for number in range(self.identity.num_trainers) if number not in self.trainers]

    def _first(self) -> str:
        return str(next(iter(self.trainers.values())))

    def _lose(self, trainer: Trainer, why: str) -> list[Outgoing]:
        trainer.has_left = True
        return self.fail(LostPeerError(f"{trainer} is lost: {why}; it had last {trainer.doing}"))

    def _describe_wait(self) -> str:
        missing = self._missing()
        if missing:
            return f"{list_trainers(missing)} of {self.identity.num_trainers} to join"
        if self.shard is None:
            return "the initial values of trainer 0"
        slow = (
            [t for t in self._present() if not t.has_finished_pass and t.gradient is None]
            if self.in_pass
            else [t for t in self._present() if not t.is_waiting]
        )
        return "; ".join(f"{trainer}, which last {trainer.doing}" for trainer in slow[:4])
