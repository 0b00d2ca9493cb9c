"""INITIALISE, RESTORE and the first FETCH: trainer 0 sends the initial values, and all other trainers fetch them.

No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paddle_base.runtime.errors import BugError
from pserver.server.handlers.checkpoints import Checkpoints
from pserver.server.service_state import ServiceOptions, ServiceState
from pserver.server.session_table import SessionTable
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire.protocol import Message, Op

if TYPE_CHECKING:
    from pserver.store.shard_loader import ShardLoader


class InitialValues:
    """The initial values of a service, and the state of the checkpoint that the job resumes from, if any."""

    def __init__(
        self, sessions: SessionTable, state: ServiceState, checkpoints: Checkpoints, options: ServiceOptions
    ) -> None:
        self._sessions, self._state, self._checkpoints, self._options = sessions, state, checkpoints, options
        self._loader: ShardLoader | None = None
        self._parts: Sequence[Any] = ()  # the trainers' parts of the checkpoint that this attempt resumes from

    def initialise(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of the initial values; the first piece contains the setup of the model."""
        # imported here, because importing numpy would delay the first hello (by 0.15 s in bench/launch.py)
        from pserver.server.arithmetic import ShardLoader

        if trainer.number != 0 or self._state.rounds is not None:
            raise BugError(f"{trainer} sends initial values; only trainer 0 may send them, and only once")
        if message.piece == 0:
            self._loader = ShardLoader(trainer.hello, message.note, self._options.threads)
        if self._loader is None:
            raise BugError(f"the initial values begin with piece 0, not {message.piece}")
        self._loader.add("values", message.piece, trainer.payload_of(message))
        trainer.take(message, "sent the initial values")
        return [trainer.acknowledge(message), *self._finish_loading()]

    def restore(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of an array of the state that INITIALISE announced."""
        payload = trainer.payload_of(message)
        if payload.nbytes:  # the request goes to all services, including those whose state has fewer arrays
            if trainer.number != 0 or self._loader is None:
                raise BugError(f"{trainer} restores a state that was not announced")
            self._loader.add(self._loader.name_of(message.argument), message.piece, payload)
        trainer.take(message, "sent the state of a checkpoint")
        return [trainer.acknowledge(message), *self._finish_loading()]

    def fetch(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        """Answer with the initial values, when they have arrived."""
        trainer.take(message, "asked for the initial values")
        trainer.progress.is_waiting = True
        return self._send(trainer) if self._state.rounds else []

    def _finish_loading(self) -> list[Outgoing]:
        """When all pieces have arrived, start to receive gradients, and answer the waiting trainers."""
        # imported here for the reason given in `initialise`
        from pserver.server.arithmetic import make_rounds

        loader = self._loader
        if loader is None or not loader.is_complete:
            return []
        self._loader = None
        trainers = self._sessions.identity.num_trainers
        self._state.rounds = make_rounds(loader.finish(), trainers, self._options.staleness_limits)
        self._parts = loader.trainers
        self._checkpoints.blobs = loader.blobs
        waiting = [other for other in self._sessions.list_present() if other.progress.is_waiting]
        return [out for other in waiting for out in self._send(other)]

    def _send(self, trainer: TrainerSession) -> list[Outgoing]:
        trainer.progress.is_waiting = False
        parts = self._parts
        note = {"own": parts[trainer.number]} if trainer.number < len(parts) else {}
        if not self._state.require_rounds().answers_with_values:
            return [trainer.reply(Op.FETCH, note=note)]
        return self._state.reply_values(trainer, Op.FETCH, note)
