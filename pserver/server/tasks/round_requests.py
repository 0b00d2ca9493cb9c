"""Answer ENTER, PUSH and COMMIT in the synchronous rounds of a task job, which count on all services or on none.

`pserver.aggregate.round_agreement` describes how a trainer uses the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from paddle_base.runtime import glog
from pserver.aggregate.task_rounds import GradientPiece, TwoPhaseRounds
from pserver.server.service_state import STALL_PERIOD, ServiceState, length_of
from pserver.server.tasks.sessions import TaskSessions
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire import notes, protocol, views
from pserver.wire.protocol import Message, MessageFlag, Op
from pserver.wire.views import EpochChangedError, MembershipView, RoundKey


class RoundRequests:
    """The requests of trainers for the rounds of one service.

    Args: rounds: the object that stores and applies the gradients.  clock: a clock in seconds, which measures
        the duration of steps for the metrics. log_period: number of rounds between two log lines; 0: no log lines.
    """

    def __init__(
        self,
        sessions: TaskSessions,
        state: ServiceState,
        rounds: TwoPhaseRounds,
        log_period: int,
        clock: Callable[[], float],
    ) -> None:
        self.rounds = rounds
        self._sessions, self._state = sessions, state
        self._log_period, self._clock = log_period, clock
        self._began = 0.0  # time at which the first piece of the round arrived
        self._waiting: set[int] = set()  # the trainers with unanswered pushes
        # for each trainer, its last completed round at its last ENTER or COMMIT, so far as it has sent one
        self._told: dict[int, RoundKey | None] = {}
        self._pushed: dict[int, float] = {}  # for each trainer of the round, the time at which its last piece arrived

    @property
    def epoch(self) -> int:
        """The epoch that was entered last; 0 if no epoch was entered."""
        return self.rounds.epoch

    def follow(self, number: int, *, is_there: bool) -> None:
        """Record that a trainer has joined or left."""
        if not is_there:
            self._told.pop(number, None)
            self.give_up(number)
            self.rounds.rounds.free(number)

    def give_up(self, number: int) -> None:
        """Drop an unanswered push, because its trainer has left or has begun another request."""
        if number in self._waiting:
            self._waiting.discard(number)
            self.rounds.drop(number)

    # ----- Requests -----

    def enter(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Answer a trainer that enters a view. Trainers that wait in an earlier view receive an error."""
        view = views.read_view(message.note)
        told = self.fence(view)
        trainer.take(message, f"entered epoch {view.epoch}")
        answer = self.rounds.describe(trainer.number)
        self._told[trainer.number] = answer.own
        return [*told, trainer.reply(Op.ENTER, note=views.write_answer(answer))]

    def push(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of a trainer's gradient. When the round has all gradients, answer all its trainers.

        Raises: EpochChangedError: since the trainer's ENTER, the COMMIT of another trainer has counted its gradient,
            which may be the same that it pushes now; see `TwoPhaseRounds.add` for other errors.
        """
        rounds, progress, number = self.rounds, trainer.progress, trainer.number
        key, pass_number = views.read_key(message.note), views.read_pass(message.note)
        own = rounds.own.get(number)
        if own != self._told.get(number):
            raise EpochChangedError(f"a push is for {key}, but a push for {own} has counted meanwhile", rounds.epoch)
        told = self._refuse_waiting(f"goes on to {key}", key.epoch) if rounds.skip(number, key) else []
        gradient = trainer.payload_of(message)
        is_first, is_repeated = rounds.open is None, key == rounds.prepared
        one = GradientPiece(message.piece, gradient, message.samples, length_of(message))
        is_prepared = rounds.add(number, key, one, pass_number)
        if is_first and not is_repeated:
            self._state.stall_due, self._began = now + STALL_PERIOD, now
        trainer.take(message, f"pushed {key} in pass {pass_number}")
        progress.pushed, progress.has_finished_pass, progress.passes = now, False, pass_number
        if is_repeated:
            if message.piece >= rounds.rounds.pieces:
                return told
            return [*told, trainer.reply(Op.PUSH, piece=message.piece, flags=MessageFlag.PREPARED)]
        self._waiting.add(number)
        return [*told, *self._tell_prepared()] if is_prepared else told

    def commit(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Apply the gradients of the prepared round unless an earlier request has done so; answer with the values."""
        key, view = views.read_key(message.note), notes.get(message.note, "view", views.EPOCH)
        began = self._clock()
        if self.rounds.commit(key, view):
            self._state.counters.step_seconds += self._clock() - began
            self._finish_round(trainer, now)
        trainer.take(message, f"committed {key}")
        self._told[trainer.number] = self.rounds.own.get(trainer.number)
        rounds = self.rounds.rounds
        keeps_values = bool(message.flags & MessageFlag.KEEP) or not rounds.answers_with_values
        # the values are not copied, because every member receives them and pushes before the next step changes them
        return [
            trainer.reply(Op.COMMIT, None if keeps_values else protocol.cut(rounds.values, piece), piece=piece)
            for piece in range(rounds.pieces)
        ]

    def fence(self, view: MembershipView) -> list[Outgoing]:
        """Enter the view of a trainer; return the errors for trainers whose pushes are dropped.

        Raises: EpochChangedError: this service has already entered a later view. BugError: this service has already
            entered the same epoch with other members.
        """
        if not self.rounds.enter(view):
            return []
        self._state.stall_due = float("inf")
        return self._refuse_waiting(f"begins epoch {view.epoch}", view.epoch)

    def describe_wait(self) -> str:
        """Describe the members that the open round waits for."""
        trainers = self._sessions.trainers
        slow = [
            f"{trainers[number]}, which last {trainers[number].request.doing}"
            if number in trainers
            else f"trainer {number}, which is not connected"
            for number in self.rounds.list_missing()[:4]
        ]
        return "; ".join(slow)

    # ----- Answers -----

    def _refuse_waiting(self, what: str, epoch: int) -> list[Outgoing]:
        """Return errors for the trainers whose pushes were dropped, which must enter the view again."""
        error = EpochChangedError(f"{self._sessions.identity} {what}", epoch)
        trainers = self._sessions.trainers
        waiting, self._waiting = sorted(self._waiting), set()
        return [trainers[number].refuse(error) for number in waiting if number in trainers]

    def _tell_prepared(self) -> list[Outgoing]:
        """Answer every push of the prepared round."""
        self._state.stall_due = float("inf")
        trainers = self._sessions.trainers
        waiting, self._waiting = sorted(self._waiting), set()
        present = [trainers[number] for number in waiting if number in trainers]
        self._pushed |= {trainer.number: trainer.progress.pushed for trainer in present}
        return [
            trainer.reply(Op.PUSH, piece=piece, flags=MessageFlag.PREPARED)
            for trainer in present
            for piece in range(self.rounds.rounds.pieces)
        ]

    def _finish_round(self, trainer: TrainerSession, now: float) -> None:
        state, pushed = self._state, self._pushed
        self._pushed = {}
        state.batch += 1
        state.counters.rounds += 1
        state.counters.round_seconds += now - self._began
        for number in pushed:
            if number in self._sessions.trainers:
                self._sessions.trainers[number].progress.batch += 1
        if pushed:
            state.stragglers.add(pushed)
        if self._log_period and state.batch % self._log_period == 0:
            glog.bind(trainer.progress.passes, state.batch)
            glog.info(f"======== Batch={state.batch}=======", at="ParameterServer2.cpp:1568")
            late = state.stragglers.late
            names = {number: self._sessions.trainers.get(number, f"trainer {number}") for number in late}
            last = {number: pushed.get(number, now) for number in late}
            glog.info(f"{self._sessions.identity}: {state.stragglers.describe(names, last, now)}")
            state.stragglers.begin_period()
