"""The trainers of a service of a task job: any number of trainers may join and leave at any time.

The module uses no sockets and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, ConfigError, LostPeerError, PaddleError
from pserver.server.admission import Identity, refuse_difference, refuse_hello
from pserver.server.session_table import SessionTable
from pserver.server.tasks.roster import UID, Roster
from pserver.server.trainer_session import Outgoing, TrainerSession, make_error
from pserver.wire import notes, protocol, views
from pserver.wire.authentication import TOKEN_BYTES
from pserver.wire.protocol import Message


class TaskSessions(SessionTable):
    """The present trainers. A lost trainer is removed, and its loss does not end the job.

    Args: follow: a function that is called with a trainer that has joined or left, and with True if it has joined.

    Attributes: roster: all trainers that have ever joined.
        model: the description of the model, in the form of a hello; None before the initial values arrive.
    """

    def __init__(self, identity: Identity, peer_timeout: float, follow: Callable[[TrainerSession, bool], None]) -> None:
        super().__init__(identity, peer_timeout, float("inf"))
        self.roster = Roster()
        self.model: Mapping[str, Any] | None = None
        self._follow = follow

    @property
    def is_used(self) -> bool:
        """Whether the service has trainers or values."""
        return bool(self.trainers) or self.model is not None

    @property
    def is_done(self) -> bool:
        """Whether the service ends because all trainers have left; always False in a task job."""
        return False

    # ----- Joining -----

    def answer_hello(self, connection: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        """Admit a trainer, or answer a probe; a trainer's new session replaces its earlier session."""
        before = self.trainers.get(message.trainer)
        out = super().answer_hello(connection, address, message, now)
        is_replaced = before is not None and self.trainers.get(message.trainer) is not before
        return out + [(name, None) for name in before.names] if before and is_replaced else out

    def _refuse(self, connection: bytes, message: Message, caller: str) -> PaddleError | None:
        hello, one = message.note, self.identity
        refusal = refuse_hello(one, connection, hello, caller)
        if refusal:
            return refusal
        try:
            if not notes.is_integer(message.trainer, 0, views.MAX_NUMBER):
                raise BugError(f"its number is {message.trainer}")
            uid, incarnation = notes.get(hello, "uid", UID), notes.get(hello, "incarnation", notes.INTEGER)
        except PaddleError as exc:
            return BugError(f"{one}: the hello of {caller} is invalid: {exc}")
        before = self.trainers.get(message.trainer)
        is_connected = before is not None and before.suspected is None
        reason = self.roster.refuse(message.trainer, uid, incarnation, is_connected=is_connected)
        if reason:
            return ConfigError(f"{one} refuses {caller}: {reason}; does it belong to another job, or another master?")
        if self.model is not None:
            return refuse_difference(one, hello, caller, self.model, "the first values")
        others = (trainer for trainer in self.trainers.values() if trainer.number != message.trainer)
        first = next(others, None)
        return refuse_difference(one, hello, caller, first.hello, str(first)) if first else None

    def _admit(self, connection: bytes, address: str, message: Message, now: float) -> None:
        before = self.trainers.get(message.trainer)
        if before is not None and before.token == connection[:TOKEN_BYTES]:
            return  # a repeated hello
        if before is not None:
            glog.info(f"{before} has joined {self.identity} again, from {address}")
            self._remove(before)
        super()._admit(connection, address, message, now)
        self.roster.note(message.trainer, message.note["uid"], message.note["incarnation"], self.trainers)
        self._follow(self.trainers[message.trainer], True)

    # ----- Leaving -----

    def check(self, now: float) -> list[Outgoing]:
        """Remove the trainers that are lost."""
        out: list[Outgoing] = []
        for trainer in self.list_present():
            silence = now - trainer.heard
            if trainer.suspected is not None and now - trainer.suspected > protocol.RECONNECT_GRACE:
                out += self.forget(trainer, "is lost: it closed its connection without a goodbye")
            elif silence > self._peer_timeout:
                out += self.forget(trainer, f"is lost: it sent nothing for {silence:.1f} s")
        return out

    def forget(self, trainer: TrainerSession, why: str) -> list[Outgoing]:
        """Remove a trainer, and close its connections."""
        self._remove(trainer)
        glog.info(
            f"{trainer} {why} ({self.identity}); it last {trainer.request.doing}; "
            f"remaining trainers: {len(self.trainers)}"
        )
        return [(name, None) for name in trainer.names]

    def _remove(self, trainer: TrainerSession) -> None:
        trainer.has_left = True
        del self.trainers[trainer.number]
        self._follow(trainer, False)

    def make_error(self, trainer: int, sequence: int, error: PaddleError) -> Message:
        """Return the message for an error. The end of this server is always reported to trainers as a lost peer.

        The trainers then wait for the server that replaces this server.
        """
        if error is not self.failure:
            return super().make_error(trainer, sequence, error)
        lost = LostPeerError(f"{self.identity} ends: {error}; trainers wait for the next server of its index")
        return make_error(self.session, trainer, sequence, lost, is_fatal=True)
