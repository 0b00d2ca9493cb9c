"""The trainers that have joined one service, the lost trainers, and the reason why a job ends. No I/O."""

from __future__ import annotations

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError, PaddleError, PeerUnreachableError
from pserver.server.admission import Identity, list_trainers, refuse_kind, refuse_other_job, refuse_trainer
from pserver.server.complaints import Complaints
from pserver.server.trainer_session import Outgoing, TrainerSession, make_error
from pserver.wire import protocol
from pserver.wire.authentication import PROBE, TOKEN_BYTES
from pserver.wire.protocol import Message, MessageFlag, Op
from pserver.wire.shared_memory import SharedMemory


class SessionTable:
    """The trainers of one service.

    Args: identity: identity of the service. peer_timeout: seconds without a message after which a trainer is lost.
        join_timeout: seconds from the first trainer's hello until all trainers must have joined.

    Attributes: failure: the reason why the job cannot continue. trainers: the trainers by number. complaints: counters
    and log lines about dropped messages.
    """

    def __init__(self, identity: Identity, peer_timeout: float, join_timeout: float) -> None:
        self.identity = identity
        self.session = protocol.session_of(identity.job, identity.attempt)
        self.trainers: dict[int, TrainerSession] = {}
        self.failure: PaddleError | None = None
        self.complaints = Complaints(identity)
        self._peer_timeout, self._join_timeout = peer_timeout, join_timeout
        self._opened = 0.0  # time at which the first trainer joined
        self._last_refusal = ""  # text about the last process of the job that could not join, with the reason

    @property
    def is_used(self) -> bool:
        """Whether any trainer has joined."""
        return bool(self.trainers)

    @property
    def is_done(self) -> bool:
        """Whether all trainers have joined and left."""
        if len(self.trainers) != self.identity.num_trainers:
            return False
        return all(trainer.has_left for trainer in self.trainers.values())  # in every turn of the loop: mostly one look

    def list_present(self) -> list[TrainerSession]:
        """Return the trainers that have joined and not left."""
        return [trainer for trainer in self.trainers.values() if not trainer.has_left]

    def list_in_pass(self) -> list[int]:
        """Return the numbers of the trainers that still have batches in this pass."""
        return [trainer.number for trainer in self.list_present() if not trainer.progress.has_finished_pass]

    def describe_missing(self) -> str:
        """Describe which trainers have not joined, and the last reason for a refusal; "" if all have joined."""
        missing = self._list_missing()
        if not missing:
            return ""
        return f"{list_trainers(missing)} of {self.identity.num_trainers} to join{self._last_refusal}"

    # ----- Connections -----

    def find(self, connection: bytes, message: Message) -> TrainerSession | None:
        """Return the trainer for which a connection may send this message, or None."""
        trainer = self.trainers.get(message.trainer)
        if message.session != self.session or trainer is None or connection not in trainer.names:
            return None
        return trainer

    def knows(self, connection: bytes) -> bool:
        """Return whether a connection is one of the two connections of a joined trainer."""
        return any(connection in trainer.names for trainer in self.trainers.values())

    def suspect(self, connection: bytes, now: float) -> None:
        """Record that a connection closed. Its trainer is lost if no message arrives within RECONNECT_GRACE seconds."""
        for trainer in self.trainers.values():
            if connection in trainer.names and not trainer.has_left:
                trainer.suspected = now

    def drop(self, connection: bytes, address: str, reason: str, now: float, exit_code: int = 70) -> list[Outgoing]:
        """Count a dropped message; return the answer to the message, or [].

        A message on a connection with a trainer's name gets no answer. In a job without a secret any program may use
        the name, and the answer could reach the trainer's own connection and make the trainer give up.
        """
        self.complaints.count_malformed(address, reason, now)
        if self.knows(connection):
            return []
        note = {"message": f"{self.identity} dropped a message: {reason}", "exit_code": exit_code}
        return [(connection, Message(Op.ERROR, self.session, -1, 0, flags=MessageFlag.ANSWER, note=note))]

    # ----- Hello -----

    def answer_hello(self, connection: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        """Admit a trainer or answer a probe. If the hello is refused, its sender receives the reason, and the
        connection is closed.
        """
        is_joining = connection[TOKEN_BYTES:] != PROBE
        # a trainer without --num_gradient_servers asks for the number on such a connection, before it joins
        caller = f"the probe at {address}" if message.trainer < 0 else f"trainer {message.trainer} at {address}"
        refusal = refuse_kind(self.identity, message.note, caller) if is_joining else None
        refusal = refusal or refuse_other_job(self.identity, message.note, caller)
        if refusal is None and is_joining:
            refusal = self.failure or self._refuse(connection, message, caller)
            if refusal:
                self._last_refusal = f"; the last refusal: {refusal}"
            else:
                self._admit(connection, address, message, now)
        if refusal:
            self.complaints.warn(f"refused: {refusal}"[:200], f"refused: {refusal}", now)
            if self.knows(connection) and refusal is not self.failure:
                return []
            return [(connection, self.make_error(message.trainer, message.sequence, refusal)), (connection, None)]
        return [(connection, self._welcome(message, is_joining=is_joining))]

    def _refuse(self, connection: bytes, message: Message, caller: str) -> PaddleError | None:
        """Return why a process of the job cannot join, or None."""
        return refuse_trainer(self.identity, self.trainers, connection, message, caller)

    def _admit(self, connection: bytes, address: str, message: Message, now: float) -> None:
        if message.trainer in self.trainers:
            return  # a repeated hello
        if not self.trainers:
            self._opened = now
        hello = dict(message.note)
        trainer = TrainerSession(
            message.trainer,
            connection[:TOKEN_BYTES],
            address,
            hello,
            session=self.session,
            heard=now,
            sequence=message.sequence,
        )
        if hello.get("memory") is not None:
            trainer.memory = SharedMemory.open(hello["memory"])
        self.trainers[trainer.number] = trainer
        glog.info(f"worker started, peer = {address}", at="LightNetwork.cpp:322")
        wanted = f" of {self.identity.num_trainers}" if self.identity.num_trainers else ""
        glog.info(f"{trainer} joined {self.identity}; joined trainers: {len(self.trainers)}{wanted}")

    def _welcome(self, message: Message, *, is_joining: bool) -> Message:
        known = self.trainers.get(message.trainer)
        note = {
            "job": self.identity.job,
            "attempt": self.identity.attempt,
            "num_trainers": self.identity.num_trainers,
            "shares_memory": bool(is_joining and known and known.memory),
        }
        trainer, sequence = message.trainer, message.sequence
        return Message(
            Op.HELLO, self.session, trainer, sequence, flags=MessageFlag.ANSWER, note=note, piece=message.piece
        )

    # ----- Ending -----

    def check(self, now: float) -> list[Outgoing]:
        """Fail the job if a trainer is lost, or has not joined in time."""
        for trainer in self.list_present():
            silence = now - trainer.heard
            if trainer.suspected is not None and now - trainer.suspected > protocol.RECONNECT_GRACE:
                return self._lose(trainer, "it closed its connection without a goodbye")
            if silence > self._peer_timeout:
                return self._lose(trainer, f"it sent nothing for {silence:.1f} s")
        missing = self._list_missing()
        if missing and now - self._opened > self._join_timeout:
            first = next(iter(self.trainers.values()))
            return self.fail(
                PeerUnreachableError(
                    f"{list_trainers(missing)} of {self.identity.num_trainers} did not join {self.identity} within "
                    f"{self._join_timeout:.0f} s after {first}{self._last_refusal}; see the logs of these trainers"
                )
            )
        return []

    def fail(self, error: PaddleError) -> list[Outgoing]:
        """End the job: store the first error, and send it to every present trainer."""
        if self.failure:
            return []
        self.failure = error
        if self.is_used:
            glog.error(f"{self.identity}: {error}")
        return [
            (name, self.make_error(trainer.number, trainer.request.sequence, error))
            for trainer in self.list_present()
            for name in trainer.names
        ]

    def make_error(self, trainer: int, sequence: int, error: PaddleError) -> Message:
        """Return the message for an error; the message is fatal if the error has ended the job."""
        return make_error(self.session, trainer, sequence, error, is_fatal=error is self.failure)

    def _lose(self, trainer: TrainerSession, why: str) -> list[Outgoing]:
        trainer.has_left = True
        return self.fail(LostPeerError(f"{trainer} is lost: {why}; it last {trainer.request.doing}"))

    def _list_missing(self) -> list[int]:
        if len(self.trainers) == self.identity.num_trainers:  # no other number can join
            return []
        return [number for number in range(self.identity.num_trainers) if number not in self.trainers]
