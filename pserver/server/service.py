"""One independent parameter server: it receives messages and the time, and returns the messages to send.

The server uses no sockets; the listener calls it. `SessionTable` decides which connection belongs to which trainer. The
handlers of requests are in `pserver.server.handlers` and share a `ServiceState`. This module contains the sequence of
checks for every message. `failure` is the error that ends the job; every trainer receives this error. No decision
depends on a metric.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, LostPeerError, PaddleError
from pserver.server.admission import Identity
from pserver.server.handlers.checkpoints import Checkpoints
from pserver.server.handlers.fetches import Fetches
from pserver.server.handlers.gradients import Gradients
from pserver.server.handlers.initial_values import InitialValues
from pserver.server.handlers.passes import MAX_REASON, Passes
from pserver.server.handlers.value_file_requests import ValueFileRequests
from pserver.server.service_state import STALL_PERIOD, ServiceOptions, ServiceState
from pserver.server.session_table import SessionTable
from pserver.server.trainer_session import Outgoing, PushForm, TrainerSession
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, Message, MessageFlag, Op
from pserver.wire.views import EpochChangedError

if TYPE_CHECKING:
    from pserver.server.foreseen_push import ForeseenPush

Handler = Callable[[TrainerSession, Message, float], list[Outgoing]]


class Service:
    """The parameter server of one port.

    Args: clock: a clock in seconds, which measures the duration of steps for the metrics.

    Attributes: sessions: the trainers of the service. state: the values of the service and the state of its pass.
    """

    is_task_job = False  # the job has a fixed set of trainers

    def __init__(
        self,
        identity: Identity,
        options: ServiceOptions | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.options, self._clock = options or ServiceOptions(), clock
        self.state = ServiceState(identity)
        self.sessions = self._make_sessions(identity)
        self._handlers = self._make_handlers()

    def _make_sessions(self, identity: Identity) -> SessionTable:
        return SessionTable(identity, self.options.peer_timeout, self.options.join_timeout)

    def _make_handlers(self) -> dict[Op, Handler]:
        sessions, state, options = self.sessions, self.state, self.options
        checkpoints = Checkpoints(sessions, state)
        gradients = self._gradients = Gradients(sessions, state, checkpoints, options.log_period, self._clock)
        initial_values = InitialValues(sessions, state, checkpoints, options)
        passes = Passes(sessions, state, checkpoints, gradients, options.barrier_log)
        self._files = ValueFileRequests(sessions, state)
        return {
            Op.INITIALISE: initial_values.initialise,
            Op.RESTORE: initial_values.restore,
            Op.FETCH: Fetches(state, initial_values, checkpoints).fetch,
            Op.START_PASS: passes.start,
            Op.PUSH: gradients.push,
            Op.FINISH_PASS: passes.finish,
            Op.CHECKPOINT: checkpoints.take_part,
            Op.CHECKPOINT_BLOB: checkpoints.keep_blob,
            Op.SAVE: self._files.begin,
            Op.LOAD: self._files.begin,
            Op.GOODBYE: passes.leave,
            Op.ABORT: passes.abort,
        }

    @property
    def identity(self) -> Identity:
        """The job of the service, and its name in messages."""
        return self.sessions.identity

    @property
    def failure(self) -> PaddleError | None:
        """The reason why the job cannot continue, or None."""
        return self.sessions.failure

    def handle(
        self, connection: bytes, address: str, frames: Sequence[Buffer], now: float, key: bytes = b""
    ) -> list[Outgoing]:
        """Handle one message and return the messages to send. The method raises no exception.

        Args: connection: authenticated name of the connection. key: the key that signs the connection's messages.
        """
        message = None
        try:
            if not protocol.is_signed(frames, key):
                reason = "a message without the signature of its connection"
                return [*self.sessions.drop(connection, address, reason, now), (connection, None)]
            message = protocol.decode(frames)
            return self._decide(connection, address, message, now)
        except Exception as exc:  # an unexpected error ends the connection but not the server
            return self._refuse_message(connection, address, message, exc, now)

    def foresee_push(self, connection: bytes, number: int) -> PushForm | None:
        """Return what is known of the PUSH that a trainer sends next if all goes well, or None if this cannot be
        foreseen.

        Args: connection: authenticated name of the connection. number: the trainer.
        """
        trainer, rounds = self.sessions.trainers.get(number), self.state.rounds
        # in a task job a push has a note
        if trainer is None or trainer.names[0] != connection or rounds is None or self.is_task_job:
            return None
        length = rounds.push_bytes
        return None if length is None else PushForm(trainer, rounds, trainer.request.sequence + 1, length)

    def handle_pushes(self, pushes: Sequence[ForeseenPush], now: float) -> list[Outgoing]:
        """Handle pushes of different trainers that are as `foresee_push` has foreseen. The method raises no exception.

        The signatures of the pushes are valid.
        """
        answers: list[Outgoing] = []
        others: Sequence[ForeseenPush] = () if self.failure is None else pushes
        try:
            if self.failure is None:
                others = self._gradients.take_together(pushes, now)
                answers = self._gradients.step_if_complete(now) if len(others) < len(pushes) else []
        except PaddleError as exc:
            last = pushes[-1]
            answers = self._refuse_request(last.trainer, Op.PUSH, last.sequence, exc, now)
        except Exception as exc:  # an unexpected error ends the connection but not the server
            answers = self._refuse_push(pushes[-1], exc, now)
        for push in others:
            try:
                answers += self._handle_push(push, now)
            except Exception as exc:
                answers += self._refuse_push(push, exc, now)
        return answers

    def _handle_push(self, push: ForeseenPush, now: float) -> list[Outgoing]:
        """Handle one push of `handle_pushes`."""
        try:
            if self.failure is None and (answers := self._gradients.push_alone(push, now)) is not None:
                return answers
        except PaddleError as exc:
            return self._refuse_request(push.trainer, Op.PUSH, push.sequence, exc, now)
        return self._decide(push.peer.name, push.peer.address, push.read(), now)

    def _refuse_push(self, push: ForeseenPush, exc: Exception, now: float) -> list[Outgoing]:
        return self._refuse_message(push.peer.name, push.peer.address, push.read(), exc, now)

    def _refuse_message(
        self, connection: bytes, address: str, message: Message | None, exc: Exception, now: float
    ) -> list[Outgoing]:
        """Count a message that cannot be handled; answer with the reason, and close the connection."""
        if isinstance(exc, protocol.ProtocolError):
            self.sessions.drop(connection, address, str(exc), now)
            error: PaddleError = BugError(f"{self.identity} dropped a message: {exc}")
        else:
            what = message.op.name if message else "message"
            error = self.sessions.complaints.count_failure(address, what, exc, now)
        sequence = message.sequence if message else 0
        return [(connection, self.sessions.make_error(-1, sequence, error)), (connection, None)]

    def check(self, now: float) -> list[Outgoing]:
        """Perform the work that is due without a message. Call this method only when no message is left to read.

        The method answers the requests whose files are now written or read. The method also logs the trainers that a
        long round waits for. If a trainer is lost or has not joined in time, the method fails the job.
        """
        if self.failure or not self.sessions.is_used:
            return []
        if done := self._files.check():
            return done
        if now > self.state.stall_due:
            self.state.stall_due = now + STALL_PERIOD
            batch = self.state.batch + 1
            glog.warning(f"{self.identity}: batch {batch} of the pass waits for {self._describe_wait()}")
        return self.sessions.check(now)

    def _decide(self, connection: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        if message.op == Op.ERROR or message.flags & MessageFlag.ANSWER:
            # the message is an error or an answer; a reply to it could cause an endless exchange of messages
            return []
        if message.op == Op.HELLO:
            return self.sessions.answer_hello(connection, address, message, now)
        trainer = self.sessions.find(connection, message)
        if trainer is None:
            text = (
                f"{self.identity} has no joined trainer {message.trainer} on this connection; join first "
                "(this server may have been restarted)"
            )
            dropped = self.sessions.drop(connection, address, text, now, LostPeerError.exit_code)
            return dropped if self.sessions.knows(connection) else [*dropped, (connection, None)]
        trainer.heard, trainer.suspected = now, None
        if message.op == Op.PING:
            return self._answer_ping(connection, trainer, message)
        return self._answer(trainer, message, now)

    def _answer_ping(self, connection: bytes, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        return [(connection, trainer.answer_ping(message, self._describe_wait()))]

    def _answer(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Handle a request of a joined trainer."""
        make_error = self.sessions.make_error
        if self.failure:
            return [trainer.send(make_error(trainer.number, message.sequence, self.failure))]
        if message.op != Op.ABORT:  # ABORT may have any sequence number, because it may follow a failed request
            if trainer.has_taken(message):
                return trainer.repeat(message.piece)
            sequence = trainer.request.sequence
            if not self._follows(message.sequence, sequence):
                reason = f"{trainer} sent request {message.sequence} after request {sequence}"
                return self.sessions.drop(trainer.names[0], trainer.address, reason, now)
        handler = self._handlers.get(message.op)
        try:
            if handler is None:
                raise BugError(f"{self.identity} does not support the request {message.op.name}")
            return handler(trainer, message, now)
        except PaddleError as exc:
            return self._refuse_request(trainer, message.op, message.sequence, exc, now)

    def _refuse_request(
        self, trainer: TrainerSession, op: Op, sequence: int, exc: PaddleError, now: float
    ) -> list[Outgoing]:
        """Answer a request of a joined trainer with an error."""
        if not isinstance(exc, EpochChangedError):  # a trainer normally gets this error when the view has changed
            text = f"{self.identity} refused {op.name} of {trainer}: {glog.clean(exc, MAX_REASON)}"
            self.sessions.complaints.warn(text[:200], text, now)
        return [trainer.send(self.sessions.make_error(trainer.number, sequence, exc))]

    def _follows(self, number: int, last: int) -> bool:
        """Return whether a request repeats its trainer's last request, or is the next request."""
        return number in (last, last + 1)

    def _describe_wait(self) -> str:
        """Describe what the service waits for: trainers to join, initial values, or gradients."""
        missing = self.sessions.describe_missing()
        if missing:
            return missing
        rounds = self.state.rounds
        if rounds is None:
            return "the initial values of trainer 0"
        trainers = self.sessions.trainers
        slow = (
            (
                trainer
                for trainer in map(trainers.__getitem__, rounds.list_missing(trainers.keys()))
                if not (trainer.has_left or trainer.progress.has_finished_pass)
            )
            if self.state.in_pass
            else (t for t in trainers.values() if not (t.has_left or t.progress.is_waiting))
        )
        # every ping of every trainer asks, so the search ends at the last trainer that is named
        return "; ".join(f"{trainer}, which last {trainer.request.doing}" for trainer in itertools.islice(slow, 4))
