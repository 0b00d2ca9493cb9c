"""The door of one port: who may speak in whose name, who is gone, and how answers are made (no sockets, no clock).

What the requests of a trainer that has joined do is `pserver.service`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pserver import glog, protocol
from pserver.errors import LostPeerError, PaddleError, PeerUnreachableError
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
from pserver.protocol import NOTHING, Buffer, Flag, Message, Op
from pserver.shared_memory import SharedMemory

QUIET_PERIOD = 30.0  # seconds in which COMPLAINTS lines are logged about who calls wrongly
COMPLAINTS = 5
STRANGERS_ANSWERED = 100  # in a second: who sends noise and never reads is not answered for ever

Outgoing = tuple[bytes, list[Buffer]]  # name of the connection, and frames


@dataclass
class Door:
    """Who has joined one port, and what it is sent."""

    identity: Identity
    peer_timeout: float
    join_timeout: float
    failure: PaddleError | None = field(default=None, init=False)  # why the job cannot go on
    malformed: int = field(default=0, init=False)
    trainers: dict[int, Trainer] = field(default_factory=dict, init=False)
    opened: float = field(default=0.0, init=False)  # when the first trainer joined
    _complaints: dict[str, float] = field(default_factory=dict, init=False)  # what was said lately, and when
    _refused: str = field(default="", init=False)  # the last member of the job that could not join, and why
    _answered: tuple[float, int] = field(default=(float("-inf"), 0), init=False)  # since when, how many strangers

    def __post_init__(self) -> None:
        self.session = protocol.session_of(self.identity.job, self.identity.attempt)
        self.nonce = secrets.token_hex(16)

    @property
    def is_used(self) -> bool:
        """Whether any trainer has joined."""
        return bool(self.trainers)

    @property
    def is_done(self) -> bool:
        """Whether all trainers have said goodbye."""
        return len(self.trainers) == self.identity.num_trainers and not self._present()

    # ----- Entrances -----

    def handle(self, connection: bytes, address: str, frames: Sequence[Buffer], now: float) -> list[Outgoing]:
        """Take one message from the wire and return what is to be sent for it; never raises for what was sent."""
        try:
            message = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            return self._drop(connection, address, str(exc), now)
        if message.op == Op.ERROR or message.flags & Flag.ANSWER:
            return []  # an error about an answer of ours; to answer it could go on for ever
        if message.op == Op.HELLO:
            return self._hello(connection, address, message, now)
        trainer = self.trainers.get(message.trainer)
        if message.session != self.session or trainer is None or connection[:TOKEN_BYTES] != trainer.token:
            text = (
                f"{self.identity} does not know you as trainer {message.trainer}; join first "
                "(or was this server restarted?)"
            )
            return self._drop(connection, address, text, now, LostPeerError.exit_code)
        if not protocol.is_signed(frames, trainer.key):
            text = f"a {message.op.name} in the name of {trainer} that does not prove this job's secret"
            return self._drop(connection, address, text, now, PeerUnreachableError.exit_code)
        trainer.heard, trainer.suspected = now, None
        if message.op == Op.PING:
            return [(connection, self._pong(trainer, message))]
        return self._request(trainer, message, now)

    def knows(self, connection: bytes) -> bool:
        """Return whether a connection is one of a trainer that has joined."""
        return any(connection[:TOKEN_BYTES] == trainer.token for trainer in self.trainers.values())

    def refuse(self, connection: bytes, address: str, reason: str, now: float) -> list[Outgoing]:
        """Note that something came which is no message, and return the answer."""
        return self._drop(connection, address, reason, now)

    def suspect(self, connection: bytes, now: float) -> None:
        """Note that a connection closed; its trainer is lost unless it is heard of again soon."""
        for trainer in self.trainers.values():
            if connection[:TOKEN_BYTES] == trainer.token and not trainer.has_left:
                trainer.suspected = now

    def check(self, now: float) -> list[Outgoing]:
        """Look for lost trainers and for those that never came; call it only when nothing is left to read."""
        if self.failure or not self.is_used:
            return []
        if due := self._look(now):
            return due
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
                    f"{self.join_timeout:.0f} s after {self._first()}{self._refused}"
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
            (
                trainer.token + kind,
                protocol.encode(self._error(trainer.number, trainer.sequence, error), trainer.key),
            )
            for trainer in self._present()
            for kind in (DATA, HEARTBEAT)
        ]

    # ----- Hello -----

    def _hello(self, connection: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        hello = dict(message.note)
        who = f"trainer {message.trainer} at {address}" if hello.get("role") == "join" else f"the probe at {address}"
        is_joining = hello.get("role") == "join"
        refusal = refuse_stranger(self.identity, self.nonce if is_joining else "", connection, message, who)
        if refusal is None and is_joining:
            refusal = self.failure or refuse_trainer(self.identity, self.trainers, connection, message, who)
            if refusal:
                self._refused = f"; refused was: {refusal}"
            else:
                self._admit(connection, address, message, now)
        if refusal:
            self._complain(f"refused: {refusal}"[:200], f"refused: {refusal}", now)
            if self._is_of_trainer(connection) and refusal is not self.failure:
                return []
            return [(connection, protocol.encode(self._error(message.trainer, message.sequence, refusal)))]
        one = self.identity
        known = self.trainers.get(message.trainer)
        welcome = {
            "job": one.job,
            "attempt": one.attempt,
            "num_trainers": one.num_trainers,
            "nonce": self.nonce,
            "shares_memory": bool(is_joining and known and known.memory),
            "proof": protocol.prove(one.secret, "welcome", hello.get("nonce"), self.nonce, one.job, one.attempt),
        }
        return [
            (
                connection,
                protocol.encode(
                    Message(
                        Op.HELLO,
                        self.session,
                        message.trainer,
                        message.sequence,
                        flags=Flag.ANSWER,
                        note=welcome,
                        piece=message.piece,
                    )
                ),
            )
        ]

    def _admit(self, connection: bytes, address: str, message: Message, now: float) -> None:
        if message.trainer in self.trainers:
            return  # the same hello again
        if not self.trainers:
            self.opened = now
        hello = dict(message.note)
        trainer = Trainer(
            message.trainer,
            connection[:TOKEN_BYTES],
            address,
            hello,
            now,
            key=protocol.key_of(self.identity.secret, str(hello.get("nonce")), self.nonce),
            sequence=message.sequence,
        )
        if hello.get("memory") is not None:
            trainer.memory = SharedMemory.open(hello["memory"])
        self.trainers[trainer.number] = trainer
        glog.info(f"worker started, peer = {address}", at="LightNetwork.cpp:322")
        glog.info(f"{trainer} joined {self.identity}: {len(self.trainers)} of {self.identity.num_trainers}")

    # ----- Requests and answers -----

    def _repeat(self, trainer: Trainer, piece: int) -> list[Outgoing]:
        """Send the answers to a piece again: it counts once. A request of one piece may have an answer of many."""
        answers = trainer.answers.values() if len(trainer.pieces) == 1 else filter(None, [trainer.answers.get(piece)])
        return [self._to(trainer, answer) for answer in answers]

    def _take(self, trainer: Trainer, message: Message, doing: str) -> None:
        """Note that a piece of a request came; the first one begins the request."""
        if message.sequence != trainer.sequence:
            trainer.sequence, trainer.doing = message.sequence, doing
            trainer.pieces.clear()
            trainer.answers.clear()
        trainer.pieces.add(message.piece)

    def _to(self, trainer: Trainer, message: Message) -> Outgoing:
        return trainer.token + DATA, protocol.encode(message, trainer.key)

    def _answer(self, trainer: Trainer, message: Message) -> Outgoing:
        """Say that a piece of a request is done."""
        return self._reply(trainer, message.op, piece=message.piece)

    def _reply(
        self,
        trainer: Trainer,
        op: Op,
        payload: memoryview | None = None,
        *,
        piece: int = 0,
        flags: int = Flag.NONE,
        note: Mapping[str, Any] = NOTHING,
    ) -> Outgoing:
        """Answer the request in hand, and remember the answer.

        The payload is not copied: the next step comes only after every trainer has these values and pushed.
        """
        flags |= Flag.ANSWER
        parts: tuple[memoryview, ...] = () if payload is None else (payload,)
        shared = protocol.cut(trainer.memory.inbox, piece) if trainer.memory is not None else memoryview(b"")
        if payload is not None and payload.nbytes == len(shared) > 0:
            shared[:] = payload
            flags, parts = flags | Flag.LOCAL, ()
        answer = Message(
            op, self.session, trainer.number, trainer.sequence, flags=flags, note=note, payload=parts, piece=piece
        )
        trainer.answers[piece] = answer
        return self._to(trainer, answer)

    def _answer_array(
        self, trainer: Trainer, op: Op, array: memoryview, note: Mapping[str, Any] = NOTHING
    ) -> list[Outgoing]:
        """Answer with an array of bytes, piece by piece; the note goes with the first."""
        return [
            self._reply(trainer, op, protocol.cut(array, piece), piece=piece, note=NOTHING if piece else note)
            for piece in range(protocol.count_pieces(len(array)))
        ]

    def _payload_of(self, trainer: Trainer, message: Message, length: int | None = None) -> memoryview:
        """Return the one array that a message brings, or that lies in the memory that the two share.

        Args: length: in bytes, of one in shared memory.
        """
        if message.flags & Flag.LOCAL and trainer.memory is not None and length is not None:
            return protocol.cut(trainer.memory.outbox, message.piece)[: max(length, 0)]
        return memoryview(message.payload[0] if message.payload else b"")

    def _pong(self, trainer: Trainer, message: Message) -> list[Buffer]:
        note = {
            "received": trainer.sequence,
            "pieces": len(trainer.pieces),
            "answers": len(trainer.answers),
            "waits_for": self._describe_wait(),
        }
        pong = Message(Op.PING, self.session, trainer.number, message.sequence, message.argument, Flag.ANSWER, note)
        return protocol.encode(pong, trainer.key)

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

    def _complain(self, kind: str, text: str, now: float) -> None:
        """Log a kind of complaint once per QUIET_PERIOD, and few kinds: who calls wrongly calls again, and varies."""
        said = {one: when for one, when in self._complaints.items() if now - when < QUIET_PERIOD}
        if kind not in said and len(said) < COMPLAINTS:
            said[kind] = now
            glog.warning(text)
        self._complaints = said

    def _drop(self, connection: bytes, address: str, reason: str, now: float, exit_code: int = 70) -> list[Outgoing]:
        self.malformed += 1
        self._complain(
            "dropped",
            f"{self.identity} dropped a message from {address}: {reason} ({self.malformed} dropped so far)",
            now,
        )
        if self._is_of_trainer(connection):
            return []
        since, count = self._answered
        self._answered = (since, count + 1) if now - since < 1 else (now, 1)
        if self._answered[1] > STRANGERS_ANSWERED:
            return []
        note = {"message": f"{self.identity} dropped a message: {reason}", "exit_code": exit_code}
        return [(connection, protocol.encode(Message(Op.ERROR, self.session, -1, 0, flags=Flag.ANSWER, note=note)))]

    def _is_of_trainer(self, connection: bytes) -> bool:
        """Return whether a connection has the name of a trainer's.

        Noise on it, or an old message again, is from who has taken the name. The connection may be the trainer's own
        by the time an answer leaves, and would make it give up; so there is none.
        """
        return any(trainer.token == connection[:TOKEN_BYTES] for trainer in self.trainers.values())

    # ----- Who is there -----

    def _present(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if not trainer.has_left]

    def _missing(self) -> list[int]:
        return [number for number in range(self.identity.num_trainers) if number not in self.trainers]

    def _first(self) -> str:
        return str(next(iter(self.trainers.values())))

    def _lose(self, trainer: Trainer, why: str) -> list[Outgoing]:
        trainer.has_left = True
        return self.fail(LostPeerError(f"{trainer} is lost: {why}; it had last {trainer.doing}"))

    # ----- What a service does -----

    def _request(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        """Do what a trainer that has joined asks for."""
        raise NotImplementedError

    def _look(self, now: float) -> list[Outgoing]:
        """Look for what is due without any message."""
        raise NotImplementedError

    def _describe_wait(self) -> str:
        """Return whom the service waits for."""
        raise NotImplementedError
