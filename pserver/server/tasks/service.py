"""One independent parameter server of a task job, which continues while trainers join and leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, PaddleError
from pserver.aggregate.sync_dense import SynchronousRounds
from pserver.aggregate.sync_sparse import SparseRounds
from pserver.aggregate.task_rounds import TwoPhaseRounds
from pserver.server import arithmetic
from pserver.server.admission import Identity
from pserver.server.handlers.passes import MAX_REASON
from pserver.server.service import Handler, Service
from pserver.server.service_state import STALL_PERIOD
from pserver.server.tasks.async_pushes import AsyncPushes
from pserver.server.tasks.round_requests import RoundRequests
from pserver.server.tasks.service_snapshot import ServiceSnapshot, TaskRecord, make_snapshot, read_snapshot
from pserver.server.tasks.sessions import TaskSessions
from pserver.server.tasks.values import TaskValues, Writing
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.store.shard import DenseShard
from pserver.store.sparse_shard import SparseShard
from pserver.wire import views
from pserver.wire.protocol import Message, Op
from pserver.wire.views import EpochChangedError


class TaskService(Service):
    """The parameter server of one port, with any number of trainers.

    Attributes: on_values: a function that is called with the service when all initial values have arrived, before they
    are acknowledged. If it returns a snapshot, the service waits until the snapshot is written. The values do not
    change during this wait, so `take_snapshot` needs no copies. If the snapshot fails, the service ends with the error.
    """

    is_task_job = True
    sessions: TaskSessions
    on_values: Callable[[TaskService], Writing | None] | None = None

    def _make_sessions(self, identity: Identity) -> TaskSessions:
        self._record: TaskRecord | None = None
        self._pushes: AsyncPushes | RoundRequests | None = None  # set when the service has values
        return TaskSessions(identity, self.options.peer_timeout, self._follow)

    def _make_handlers(self) -> dict[Op, Handler]:
        self._values = TaskValues(self.sessions, self.state, self.options, self._begin_first)
        return {
            Op.INITIALISE: self._values.initialise,
            Op.FETCH: self._values.fetch,
            Op.PUSH: self._push,
            Op.ENTER: lambda *request: self._require_rounds(*request).enter(*request),
            Op.COMMIT: lambda *request: self._require_rounds(*request).commit(*request),
            Op.GOODBYE: self._leave,
            Op.ABORT: self._abort,
        }

    # ----- Snapshots -----

    @property
    def steps(self) -> int:
        """The number of steps since the start of the run; 0 if the service has no values yet."""
        return self.state.rounds.shard.steps if self.state.rounds else 0

    def take_snapshot(self, *, copies: bool = True) -> ServiceSnapshot | None:
        """Return the state of the service between two messages, or None if the service has no values.

        Args: copies: whether the arrays are copied. Otherwise they are valid only until the next step.
        """
        if self.state.rounds is None or self._record is None:
            return None
        if isinstance(self._pushes, RoundRequests):
            self._record.done, self._record.own = self._pushes.rounds.done, self._pushes.rounds.own
        return make_snapshot(self.state.rounds.shard, self._record, copies=copies)

    def restore(self, taken: ServiceSnapshot) -> None:
        """Restore a snapshot, before any trainer has joined the service.

        Raises: DamagedError: the parts of the snapshot are inconsistent.
        """
        shard, record = read_snapshot(taken, self.options.threads)
        self.sessions.roster = record.roster
        self._begin(shard, record)

    def _begin_first(
        self, shard: DenseShard | SparseShard, model: Mapping[str, Any], setup: Mapping[str, Any]
    ) -> Writing | None:
        """Start with the initial values; return the snapshot that must be written before the values are sent."""
        self._begin(shard, TaskRecord(model, setup, self.sessions.roster))
        return self.on_values(self) if self.on_values else None

    def _begin(self, shard: DenseShard | SparseShard, record: TaskRecord) -> None:
        """Start to receive gradients."""
        options, state = self.options, self.state
        self._record, self.sessions.model = record, record.model
        rounds = arithmetic.make_rounds(shard, 0, options.staleness_limits)
        if isinstance(rounds, SynchronousRounds | SparseRounds):
            two_phase = TwoPhaseRounds(rounds, record.done, record.own)
            self._pushes = RoundRequests(self.sessions, state, two_phase, options.log_period, self._clock)
        else:
            self._pushes = AsyncPushes(self.sessions, state, rounds, options.log_period, self._clock)
        state.rounds, state.in_pass = rounds, True

    # ----- Messages -----

    def check(self, now: float) -> list[Outgoing]:
        """Perform the work that is due without a message. Call this method only when no message is left to read.

        The method answers requests that waited for the first snapshot, logs the trainers that a long round waits for,
        and removes lost trainers.
        """
        if self.failure:
            return []
        if now > self.state.stall_due:
            self.state.stall_due = now + STALL_PERIOD
            glog.warning(f"{self.identity}: round {self.state.batch + 1} waits for {self._describe_wait()}")
        return [*self._values.check(), *self.sessions.check(now)]

    def _answer(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        if message.sequence > trainer.request.sequence and self._pushes is not None:
            self._pushes.give_up(trainer.number)
        return super()._answer(trainer, message, now)

    def _answer_ping(self, connection: bytes, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        """Answer a heartbeat, which contains its trainer's view."""
        told: list[Outgoing] = []
        epoch = 0
        if isinstance(self._pushes, RoundRequests):
            if message.note:
                told = self._fence(self._pushes, trainer, message)
            epoch = self._pushes.rounds.epoch
        [(name, pong)] = super()._answer_ping(connection, trainer, message)
        return [*told, (name, pong and pong._replace(note={**pong.note, "epoch": epoch}))]

    def _fence(self, rounds: RoundRequests, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        try:
            return rounds.fence(views.read_view(message.note))
        except EpochChangedError:
            return []  # the answer to the trainer's next request informs the trainer of the later epoch
        except PaddleError as exc:
            self.sessions.complaints.count_malformed(trainer.address, f"a PING of {trainer}: {exc}", trainer.heard)
            return []

    def _follows(self, number: int, last: int) -> bool:
        """Return whether a request may follow the last request. The service may have missed requests in between."""
        return number >= last

    def _push(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        if self._pushes is None or not self._values.is_ready:
            raise BugError(f"{trainer} pushes a gradient to {self.identity}, which has no values yet")
        return self._pushes.push(trainer, message, now)

    def _require_rounds(self, trainer: TrainerSession, message: Message, now: float) -> RoundRequests:
        if not isinstance(self._pushes, RoundRequests) or not self._values.is_ready:
            raise BugError(f"{trainer} sends {message.op.name} to {self.identity}, which has no synchronous rounds")
        return self._pushes

    def _leave(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        trainer.take(message, "said goodbye")
        answer = trainer.acknowledge(message)
        glog.info(f"worker begin to finish, peer = {trainer.address}", at="LightNetwork.cpp:339")
        return [answer, *self.sessions.forget(trainer, "has left")]

    def _abort(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        reason = glog.clean(message.note.get("reason", "it did not say why"), MAX_REASON)
        return self.sessions.forget(trainer, f"gave up: {reason}")

    def _follow(self, trainer: TrainerSession, is_there: bool) -> None:
        """Record that a trainer has joined or left."""
        if self._pushes is not None:
            self._pushes.follow(trainer.number, is_there=is_there)
        if not is_there:
            self._values.forget(trainer)

    def _describe_wait(self) -> str:
        """Describe what the service waits for: initial values, its first snapshot, or gradients."""
        if self._pushes is None:
            return "the first values"
        return self._pushes.describe_wait() if self._values.is_ready else "the first snapshot to be written"
