"""PUSH in a task job with asynchronous training: every gradient counts once, even if it is sent repeatedly."""

from __future__ import annotations

from collections.abc import Callable

from paddle_base.runtime import glog
from paddle_base.runtime.schema import Integer
from pserver.aggregate.staleness import TaskStaleness
from pserver.server.arithmetic import Steps, advance_pass
from pserver.server.service_state import ServiceState, length_of
from pserver.server.tasks.roster import MAX_PUSH
from pserver.server.tasks.sessions import TaskSessions
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire import notes, protocol, views
from pserver.wire.protocol import Message, MessageFlag, Op

_NEW_PUSH = Integer(1, MAX_PUSH)


class AsyncPushes:
    """Receive the gradients of one service.

    Args: steps: the object that applies the gradients. clock: a clock in seconds, which measures the duration of steps
        for the metrics. log_period: number of gradients between two log lines; 0: no log lines.
    """

    def __init__(
        self,
        sessions: TaskSessions,
        state: ServiceState,
        steps: Steps,
        log_period: int,
        clock: Callable[[], float],
    ) -> None:
        self._sessions, self._state, self._steps = sessions, state, steps
        self._log_period, self._clock = log_period, clock
        for number in sessions.trainers:
            self.follow(number, is_there=True)

    def follow(self, number: int, *, is_there: bool) -> None:
        """Record that a trainer has joined or left, because the age limit depends on the number of trainers."""
        staleness = self._steps.staleness
        if isinstance(staleness, TaskStaleness):
            (staleness.admit if is_there else staleness.dismiss)(number)
        if not is_there:
            self._steps.drop(number)
            self._steps.free(number)

    def push(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Receive a piece of a gradient. After the last piece, apply the gradient, unless the push is repeated."""
        number, steps, progress = trainer.number, self._steps, trainer.progress
        push = notes.get(message.note, "push", _NEW_PUSH)
        pass_number = views.read_pass(message.note)
        is_new = push > self._sessions.roster.last_push(number)
        if is_new:
            gradient = trainer.payload_of(message)
            steps.add(number, message.piece, gradient, message.samples, message.flags, length_of(message))
        trainer.take(message, f"pushed batch {push} in pass {pass_number}")
        progress.pushed, progress.keeps_values = now, bool(message.flags & MessageFlag.KEEP)
        progress.has_finished_pass = False
        if is_new:
            return self._apply(trainer, push, pass_number, now)
        if len(trainer.request.pieces) != steps.pieces:  # the payload of a repeated piece is ignored
            return []
        return self._answer(trainer, steps.copy_values(number))

    def give_up(self, number: int) -> None:
        """Drop an incomplete push, because its trainer has begun another request."""
        self._steps.drop(number)

    def describe_wait(self) -> str:
        """Return "": no trainer waits for another trainer."""
        return ""

    def _apply(self, trainer: TrainerSession, push: int, pass_number: int, now: float) -> list[Outgoing]:
        """Apply a trainer's gradient and answer the push, if the gradient is complete."""
        state, steps = self._state, self._steps
        began = self._clock()
        if steps.counts_passes:
            advance_pass(steps.shard, pass_number)
        values = steps.apply(trainer.number)
        if values is None:
            return []
        state.counters.step_seconds += self._clock() - began
        self._sessions.roster.count_push(trainer.number, push)
        trainer.progress.batch = push
        trainer.progress.passes = pass_number
        state.batch += 1
        if self._log_period and state.batch % self._log_period == 0:
            glog.bind(pass_number, state.batch)
            glog.info(f"======== Batch={state.batch}=======", at="ParameterServer2.cpp:1568")
            self._report_staleness(now)
        return self._answer(trainer, values)

    def _answer(self, trainer: TrainerSession, values: memoryview) -> list[Outgoing]:
        keeps_values = trainer.progress.keeps_values
        return [
            trainer.reply(Op.PUSH, None if keeps_values else protocol.cut(values, piece), piece=piece)
            for piece in range(self._steps.pieces)
        ]

    def _report_staleness(self, now: float) -> None:
        """Log discarded gradients and the age of each trainer's last gradient; then reset the counts, as v0.10 did."""
        identity = self._sessions.identity
        for line in self._steps.staleness.describe():
            glog.info(f"{identity}: {line}")
        self._steps.staleness.reset()
        ages = [
            f"{one.number}: batch {one.progress.batch}, {now - one.progress.pushed:.1f} s"
            for one in self._sessions.list_present()
            if not one.progress.has_finished_pass
        ]
        if ages:
            glog.info(f"{identity}: batch of each trainer and the age of its last gradient: {'; '.join(ages)}")
