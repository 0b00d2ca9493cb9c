"""Handles PUSH: one step applies the gradients of all trainers, or a separate step the gradient of each trainer.

No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError
from pserver.server.handlers.checkpoints import Checkpoints
from pserver.server.service_state import STALL_PERIOD, ServiceState, length_of
from pserver.server.session_table import SessionTable
from pserver.server.trainer_session import Outgoing, TrainerSession, reply_values
from pserver.wire import protocol
from pserver.wire.protocol import Message, MessageFlag, Op

if TYPE_CHECKING:
    from pserver.server.arithmetic import Rounds, Steps
    from pserver.server.foreseen_push import ForeseenPush


class Gradients:
    """Receive the gradients of one service.

    Args: log_period: number of batches between two log lines; 0: no log lines.  clock: a clock in seconds, which
        measures the duration of steps for the metrics.
    """

    def __init__(
        self,
        sessions: SessionTable,
        state: ServiceState,
        checkpoints: Checkpoints,
        log_period: int,
        clock: Callable[[], float],
    ) -> None:
        self._sessions, self._state, self._checkpoints = sessions, state, checkpoints
        self._log_period, self._clock = log_period, clock
        self._round_began = 0.0

    def push(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of a trainer's gradient. If all gradients of a step are now complete, apply them."""
        state, progress = self._state, trainer.progress
        rounds = state.rounds
        if rounds is None or not state.in_pass or progress.has_finished_pass:
            raise BugError(f"{trainer} pushes a gradient outside of a pass")
        gradient = trainer.payload_of(message)
        if not rounds.is_open:
            self._begin_round(now)
        # only an array of rows needs its whole length
        length = 0 if rounds.answers_with_values else length_of(message)
        rounds.add(trainer.number, message.piece, gradient, message.samples, message.flags, length)
        trainer.take_push(message.sequence, message.flags, now, message.piece)
        if not rounds.is_asynchronous:
            # most pushes find that others are missing, and a list of all trainers would cost more than the push
            if rounds.waits(message.piece, len(state.active)):
                return []
            return self.step_together(rounds, [message.piece], now)
        return self._take_alone(trainer, rounds, message.flags, now)

    def push_alone(self, push: ForeseenPush, now: float) -> list[Outgoing] | None:
        """Receive a gradient and apply it, in asynchronous training. Return None if this must be done by `push`, after
        all checks of a request.
        """
        rounds, trainer = self._state.rounds, push.trainer
        if rounds is None or not rounds.is_asynchronous or not rounds.answers_with_values or not self._is_due(push):
            return None
        if not rounds.add_whole(trainer.number, push.gradient, push.samples):
            return None
        trainer.take_push(push.sequence, push.flags, now)
        return self._take_alone(trainer, rounds, push.flags, now)

    def _take_alone(self, trainer: TrainerSession, rounds: Steps, flags: int, now: float) -> list[Outgoing]:
        """Apply a gradient whose last piece may have arrived; `flags` are those of this piece."""
        if flags & MessageFlag.CHECKPOINT:
            self._checkpoints.barrier.ask(trainer.number, self._sessions.list_in_pass())
        answers = self._step_alone(trainer, rounds, now)
        # The first push of trainer 0 after a checkpoint shows that trainer 0 has written the checkpoint. If other
        # trainers leave, trainer 0 gets no answer and waits until the attempt ends.
        leaving = self._checkpoints.let_leave() if answers and trainer.number == 0 else []
        return leaving or answers

    def take_together(self, pushes: Sequence[ForeseenPush], now: float) -> list[ForeseenPush]:
        """Receive the gradients of different trainers; return the pushes that must be handled one by one."""
        rounds, others = self._state.rounds, []
        if rounds is None or rounds.is_asynchronous or not rounds.answers_with_values:
            return list(pushes)
        if not rounds.is_open:
            self._begin_round(now)
        for push in pushes:
            trainer = push.trainer
            if self._is_due(push) and rounds.add_whole(trainer.number, push.gradient, push.samples, push.flags):
                trainer.take_push(push.sequence, push.flags, now)
            else:
                others.append(push)
        return others

    def _is_due(self, push: ForeseenPush) -> bool:
        """Return whether a push is still the next request of its trainer, and part of a pass."""
        state, trainer = self._state, push.trainer
        if push.rounds is not state.rounds or not state.in_pass or trainer.progress.has_finished_pass:
            return False
        return trainer.request.sequence + 1 == push.sequence

    def step_if_complete(self, now: float) -> list[Outgoing]:
        """Apply the gradients of a round of one piece, if all have arrived, and answer the pushes."""
        rounds = self._state.rounds
        if rounds is None or rounds.is_asynchronous or rounds.waits(0, len(self._state.active)):
            return []
        return self.step_together(rounds, [0], now)

    def _begin_round(self, now: float) -> None:
        self._state.stall_due = now + STALL_PERIOD
        self._round_began = now

    def step_together(self, rounds: Rounds, pieces: Iterable[int], now: float) -> list[Outgoing]:
        """Apply the gradients of each given piece that all trainers of the round have sent, and answer these pieces."""
        active = self._state.active
        began = self._clock()
        done = rounds.step(list(pieces), [trainer.number for trainer in active])
        if not done:
            return []
        self._state.counters.step_seconds += self._clock() - began
        asked = rounds.finish()
        flags = MessageFlag.NONE
        if asked is not None:
            self._finish_batch(active, now)
            # trainer 0 writes the checkpoint, so no checkpoint is made after trainer 0 has finished the pass
            flags = asked if active[0].number == 0 else MessageFlag.NONE
        if not rounds.answers_with_values:
            return [
                out
                for trainer in active
                for out in _reply_rows(trainer, rounds.take_wanted(trainer.number, trainer.inbox), flags)
            ]
        out = []
        for piece in done:
            values = protocol.cut(rounds.values, piece)
            more = flags if piece == done[-1] else MessageFlag.NONE
            out += reply_values(active, values, piece, more)
        return out

    def report_staleness(self, rounds: Steps, now: float) -> None:
        """Log discarded gradients and the age of each trainer's last gradient; then reset the counts, as v0.10 did."""
        identity, trainers = self._sessions.identity, self._sessions.trainers
        for line in rounds.staleness.describe():
            glog.info(f"{identity}: {line}")
        rounds.staleness.reset()
        ages = [
            f"{number}: batch {trainers[number].progress.batch}, {now - trainers[number].progress.pushed:.1f} s"
            for number in self._sessions.list_in_pass()
        ]
        if ages:
            glog.info(f"{identity}: batch of each trainer and the age of its last gradient: {'; '.join(ages)}")

    def _step_alone(self, trainer: TrainerSession, rounds: Steps, now: float) -> list[Outgoing]:
        """Apply a trainer's gradient and answer the push, if the gradient is complete."""
        state, progress = self._state, trainer.progress
        began = self._clock()
        values = rounds.apply(trainer.number)
        if values is None:
            return []
        state.counters.step_seconds += self._clock() - began
        progress.batch += 1
        # as ParameterServer2.cpp: the log counts the batches of trainer 0, because trainers are not in step
        if trainer.number == 0:
            state.batch += 1
            if self._log_period and state.batch % self._log_period == 0:
                glog.bind(progress.passes, state.batch)
                glog.info(f"======== Batch={state.batch}=======", at="ParameterServer2.cpp:1568")
                self.report_staleness(rounds, now)
        due = MessageFlag.CHECKPOINT if self._checkpoints.barrier.tell(trainer.number) else MessageFlag.NONE
        return [
            trainer.reply(
                Op.PUSH,
                None if progress.keeps_values else protocol.cut(values, piece),
                piece=piece,
                flags=due if piece == rounds.pieces - 1 else MessageFlag.NONE,
            )
            for piece in range(rounds.pieces)
        ]

    def _finish_batch(self, active: Sequence[TrainerSession], now: float) -> None:
        state = self._state
        state.stall_due = float("inf")
        state.batch += 1
        pushed = {}
        for trainer in active:
            progress = trainer.progress
            progress.batch += 1
            pushed[trainer.number] = progress.pushed
        state.counters.rounds += 1
        state.counters.round_seconds += now - self._round_began
        state.stragglers.add(pushed)
        if self._log_period and state.batch % self._log_period == 0:
            glog.bind(active[0].progress.passes, state.batch)
            glog.info(f"======== Batch={state.batch}=======", at="ParameterServer2.cpp:1568")
            names = self._sessions.trainers
            pushed = {number: trainer.progress.pushed for number, trainer in names.items()}
            glog.info(f"{self._sessions.identity}: {state.stragglers.describe(names, pushed, now)}")
            state.stragglers.begin_period()


def _reply_rows(trainer: TrainerSession, rows: memoryview | None, flags: int) -> list[Outgoing]:
    """Answer a push to a sparse service, with the rows that it asks for, if any."""
    if rows is None:
        return [trainer.reply(Op.PUSH, flags=flags)]
    return trainer.reply_array(Op.PUSH, rows, flags=flags)
