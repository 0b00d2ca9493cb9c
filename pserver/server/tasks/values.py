"""INITIALISE and FETCH in a task job: any trainer may send the initial values, and only the first values count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from paddle_base.runtime.errors import BugError, LostPeerError, PaddleError
from pserver.server import arithmetic
from pserver.server.service_state import ServiceOptions, ServiceState, length_of
from pserver.server.tasks.sessions import TaskSessions
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.store.shard import DenseShard
from pserver.store.shard_loader import ShardLoader
from pserver.store.sparse_shard import SparseShard
from pserver.wire import views
from pserver.wire.protocol import Fetch, Message, Op

# fields of the note of INITIALISE; in a task job INITIALISE restores no checkpoint
SETUP_KEYS = {"optimization", "fields", "parameters", "by_rows"}


class Writing(Protocol):
    """A snapshot that is being written, such as a `BackgroundTask`."""

    error: PaddleError | None

    @property
    def is_done(self) -> bool:
        """Whether the snapshot is written, or has failed with `error`."""


class TaskValues:
    """Receive the initial values of a service, and answer the requests for values.

    Args: begin: a function that is called when all initial values have arrived, with the shard, the hello of the
        trainer that sent them, and the note of INITIALISE. It returns the snapshot that is being written, or None.

    The initial values are acknowledged, and values are sent, only after the snapshot is written.
    """

    def __init__(
        self,
        sessions: TaskSessions,
        state: ServiceState,
        options: ServiceOptions,
        begin: Callable[[DenseShard | SparseShard, Mapping[str, Any], Mapping[str, Any]], Writing | None],
    ) -> None:
        self._sessions, self._state, self._options = sessions, state, options
        self._begin = begin
        self._loader: ShardLoader | None = None
        self._sender: TrainerSession | None = None  # the trainer whose values are arriving
        self._setup: dict[str, Any] = {}  # the note of the first piece of the arriving values
        self._writing: Writing | None = None
        self._held: list[tuple[TrainerSession, Message]] = []  # requests that wait until values can be sent

    @property
    def is_ready(self) -> bool:
        """Whether the values have arrived and are stored in a snapshot."""
        return self._state.rounds is not None and self._writing is None and self._sessions.failure is None

    def initialise(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of the initial values, unless the service has values; the first piece contains the setup."""
        if self._state.rounds is not None:
            trainer.take(message, "sent initial values after another trainer had sent them")
            return self._answer_later(trainer, message)
        if message.piece == 0:
            more = message.note.keys() - SETUP_KEYS
            if more:
                raise BugError(f"the initial values of a task job must not contain {', '.join(sorted(more)[:4])}")
            self._loader, self._sender = ShardLoader(trainer.hello, message.note, self._options.threads), trainer
            self._setup = dict(message.note)
        if self._loader is None or self._sender is not trainer:
            sender = self._sender or "another trainer"
            raise LostPeerError(f"{sender} has begun to send the initial values; {trainer} must join again to get them")
        self._loader.add("values", message.piece, trainer.payload_of(message))
        trainer.take(message, "sent the initial values")
        if not self._loader.is_complete:
            return [trainer.acknowledge(message)]
        shard, self._loader, self._sender = self._loader.finish(), None, None
        self._writing = self._begin(shard, trainer.hello, self._setup)
        return [*self.check(), *self._answer_later(trainer, message)]

    def fetch(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Answer with the data that the message's argument names, as soon as the service has values."""
        kind = message.argument
        if kind == Fetch.ROWS:
            return self._fetch_rows(trainer, message)
        if kind not in (Fetch.INITIAL, Fetch.CURRENT, Fetch.AVERAGES):
            raise BugError(f"{trainer} fetches data of kind {kind}, which does not exist in a task job")
        if "pass" in message.note:
            views.read_pass(message.note)
        trainer.take(message, "asked for the values")
        return self._answer_later(trainer, message)

    def check(self) -> list[Outgoing]:
        """Answer the requests that wait for the first snapshot, as soon as the snapshot is written.

        A failed first snapshot ends the service.
        """
        if self._writing is not None and self._writing.is_done:
            error, self._writing = self._writing.error, None
            if error is not None:
                return self._sessions.fail(error)
        if not self._held or not self.is_ready:
            return []
        held, self._held = self._held, []
        return [
            out
            for trainer, message in held
            if trainer.request.sequence == message.sequence
            for out in self._answer(trainer, message)
        ]

    def forget(self, trainer: TrainerSession) -> None:
        """Drop the data and requests of a trainer that has left."""
        if self._sender is trainer:
            self._sender = self._loader = None
        self._held = [one for one in self._held if one[0] is not trainer]

    # ----- Answers -----

    def _answer_later(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        """Answer a request now, or when values can be sent."""
        if self.is_ready:
            return self._answer(trainer, message)
        self._held.append((trainer, message._replace(payload=())))
        return []

    def _answer(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        if message.op == Op.INITIALISE:
            return [trainer.acknowledge(message)]
        rounds = self._state.require_rounds()
        if rounds.counts_passes and "pass" in message.note:
            arithmetic.advance_pass(rounds.shard, views.read_pass(message.note))
        if message.argument == Fetch.INITIAL and not rounds.answers_with_values:
            return [trainer.reply(Op.FETCH)]
        if message.argument == Fetch.AVERAGES:
            return trainer.reply_array(Op.FETCH, arithmetic.average(rounds.shard))
        # the values are copied, because the other trainers continue meanwhile
        return trainer.reply_array(Op.FETCH, memoryview(bytearray(rounds.values)))

    def _fetch_rows(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        if not self.is_ready:
            raise BugError(f"{self._sessions.identity} has no values yet")
        rounds = self._state.require_rounds()
        rows = rounds.look_up(trainer.number, message.piece, trainer.payload_of(message), length_of(message))
        trainer.take(message, "asked for rows")
        return [] if rows is None else trainer.reply_array(Op.FETCH, rows)
