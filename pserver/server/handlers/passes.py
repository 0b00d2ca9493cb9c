"""START_PASS, FINISH_PASS, GOODBYE and ABORT.

At START_PASS and FINISH_PASS, all trainers wait for each other. A trainer leaves with GOODBYE or ABORT. No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, ConfigError, LostPeerError
from pserver.server.handlers.checkpoints import Checkpoints
from pserver.server.handlers.gradients import Gradients
from pserver.server.service_state import ServiceState
from pserver.server.session_table import SessionTable
from pserver.server.stragglers import BarrierLog
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire.protocol import Message, Op

if TYPE_CHECKING:
    from pserver.server.arithmetic import Mode, Rounds

MAX_BATCHES = 1 << 40  # maximum number of batches in a pass
MAX_REASON = 3000  # maximum characters of the reason that a trainer gives when it gives up


class Passes:
    """The passes of one service."""

    def __init__(
        self,
        sessions: SessionTable,
        state: ServiceState,
        checkpoints: Checkpoints,
        gradients: Gradients,
        barrier_log: BarrierLog,
    ) -> None:
        self._sessions, self._state, self._checkpoints, self._gradients = sessions, state, checkpoints, gradients
        self._barrier_log = barrier_log

    def start(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Begin a pass when every trainer has requested it."""
        state = self._state
        if state.rounds is None or state.in_pass:
            raise BugError(f"{trainer} starts a pass {'inside a pass' if state.in_pass else 'without initial values'}")
        if not 0 <= message.argument < MAX_BATCHES:
            raise BugError(f"{trainer} starts a pass at the invalid batch {message.argument}")
        trainer.take(message, "asked for the start of a pass")
        trainer.progress.is_waiting, trainer.progress.starts_at = True, message.argument
        # a trainer that has left starts no further pass, and the others would wait for it without end
        left = [other for other in self._sessions.trainers.values() if other.has_left]
        if left:
            return self._fail_early_leave(left[0], trainer)
        waiting = [other for other in self._sessions.list_present() if other.progress.is_waiting]
        if len(waiting) < self._sessions.identity.num_trainers:
            return []
        state.in_pass, state.batch = True, self._sessions.trainers[0].progress.starts_at
        glog.bind(trainer.progress.passes, state.batch)
        for other in waiting:
            progress = other.progress
            progress.is_waiting = progress.has_finished_pass = False
            progress.batch = progress.starts_at
            progress.pushed = now
        state.active = sorted(waiting, key=lambda other: other.number)
        state.stragglers.begin_pass()
        if not state.counters.passes and not state.rounds.is_asynchronous:
            rate = self._barrier_log.warning_rate(self._sessions.identity.num_trainers)
            glog.info(
                f" create barrierEndStat: {_name_barrier(state.rounds)} endBarrier warning rate: {rate:g}",
                at="BarrierStat.cpp:65",
            )
        return [other.reply(Op.START_PASS) for other in waiting]

    def finish(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Remove a trainer from the rounds of a pass. The pass ends when all trainers have finished it."""
        state = self._state
        if not state.in_pass or trainer.progress.has_finished_pass:
            raise BugError(f"{trainer} finishes a pass in which it takes no part")
        own = message.note.get("own")
        trainer.take(message, f"finished pass {trainer.progress.passes}")
        trainer.progress.has_finished_pass = True
        state.active = [other for other in state.active if other is not trainer]
        trainer.checkpoint_part = own
        trainer.progress.passes += 1
        rounds = state.require_rounds()
        answers = self._checkpoints.finish()
        if trainer.number == 0:
            answers += self._checkpoints.let_leave() + self._checkpoints.drop()
        if not all(other.progress.has_finished_pass for other in self._sessions.list_present()):
            if rounds.is_asynchronous:
                return answers
            return self._gradients.step_together(rounds, range(rounds.pieces), now)
        return self._end(now)

    def _end(self, now: float) -> list[Outgoing]:
        """End the pass, and answer all trainers."""
        state = self._state
        rounds = state.require_rounds()
        state.in_pass = False
        state.counters.passes += 1
        self._checkpoints.barrier.clear()
        glog.info(f"======== Batch={state.batch} pass END=======", at="ParameterServer2.cpp:1588")
        if rounds.is_asynchronous:
            self._gradients.report_staleness(rounds, now)
        else:
            self._report_barriers(rounds)
        if rounds.counts_passes:
            rounds.shard.finish_pass()
        present = self._sessions.list_present()
        if not rounds.answers_with_values:
            return [other.reply(Op.FINISH_PASS) for other in present]
        return [out for other in present for out in state.reply_values(other, Op.FINISH_PASS)]

    def _report_barriers(self, rounds: Rounds) -> None:
        """Log the trainers for which other trainers waited in this pass, between the log lines of v0.10."""
        glog.info("======= BarrierStatSet status ======", at="Stat.cpp:144")
        found = self._state.stragglers.describe_pass(self._barrier_log, self._sessions.identity.num_trainers)
        glog.info(found and f"{_name_barrier(rounds)} endBarrier: {found}", at="Stat.cpp:147")
        glog.info("-" * 50, at="Stat.cpp:157")

    def leave(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Handle GOODBYE of a trainer, which must come between two passes."""
        sessions = self._sessions
        trainer.take(message, f"said goodbye after {trainer.progress.passes} passes")
        trainer.has_left = True
        glog.info(f"worker begin to finish, peer = {trainer.address}", at="LightNetwork.cpp:339")
        glog.info(
            f"{trainer} said goodbye to {sessions.identity}: "
            f"{sum(other.has_left for other in sessions.trainers.values())} of {sessions.identity.num_trainers} "
            "trainers have left"
        )
        answer = [trainer.acknowledge(message)]
        if not trainer.progress.has_finished_pass:
            where = f"in the middle of pass {trainer.progress.passes}"
            return answer + sessions.fail(LostPeerError(f"{trainer} said goodbye {where}"))
        stuck = [other for other in sessions.list_present() if other.progress.is_waiting]
        return answer + (self._fail_early_leave(trainer, stuck[0]) if stuck else [])

    def abort(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Inform all trainers that a trainer gives up."""
        trainer.has_left = True
        reason = glog.clean(message.note.get("reason", "it did not say why"), MAX_REASON)
        error = LostPeerError(f"{trainer} gave up: {reason} (it last {trainer.request.doing})")
        return self._sessions.fail(error)

    def _fail_early_leave(self, left: TrainerSession, stuck: TrainerSession) -> list[Outgoing]:
        return self._sessions.fail(
            ConfigError(
                f"{left} {left.request.doing}, but {stuck} {stuck.request.doing}: "
                "all trainers of a job must have the same num_passes and start_pass"
            )
        )


def _name_barrier(rounds: Mode) -> str:
    return f"SLOW_NODES_{'dense' if rounds.answers_with_values else 'sparse'}Updater"
