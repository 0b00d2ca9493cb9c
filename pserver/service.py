"""One independent parameter server: who has joined, what each waits for, and the shard (no sockets, no clock).

The server hands in messages with the time and sends what comes back. What becomes of the gradients is the rounds' part;
here is who may speak, in which order, and what each is answered. Whatever ends the job is kept in `failure` and told to
every trainer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pserver import glog, protocol
from pserver.captures import Captures
from pserver.errors import BugError, ConfigError, LostPeerError, PaddleError, PeerUnreachableError
from pserver.lag import LagLimits
from pserver.membership import (
    DATA,
    HEARTBEAT,
    RECONNECT_GRACE,
    TOKEN_BYTES,
    Identity,
    Trainer,
    list_trainers,
    refuse_stranger,
    refuse_trainer,
)
from pserver.protocol import Buffer, Fetch, Flag, Message, Op
from pserver.shared_memory import SharedMemory
from pserver.stragglers import Stragglers
from pserver.task import Task

if TYPE_CHECKING:
    from pserver.arithmetic import Arrival, Mode, Rounds, Steps
    from pserver.shard import Shard

STALL_PERIOD = 60.0  # seconds that a round may take before those who have not pushed are named, and again
QUIET_PERIOD = 30.0  # seconds in which COMPLAINTS lines are logged about who calls wrongly
COMPLAINTS = 5
MAX_REASON = 3000  # characters of why a trainer gave up
STRANGERS_ANSWERED = 100  # in a second: who sends noise and never reads is not answered for ever

NOTHING: Mapping[str, Any] = {}

Outgoing = tuple[bytes, list[Buffer]]  # routing id and frames


@dataclass
class Service:
    """The state of one port."""

    identity: Identity
    peer_timeout: float
    join_timeout: float
    log_period: int = 500
    lag_limits: LagLimits = field(default_factory=LagLimits)
    failure: PaddleError | None = None
    malformed: int = 0
    trainers: dict[int, Trainer] = field(default_factory=dict)
    rounds: Mode | None = None  # from when all first values are here
    in_pass: bool = False
    batch: int = 0  # rounds of this pass; in asynchronous training, trainer 0's batches
    opened: float = 0.0  # when the first trainer joined
    _complaints: dict[str, float] = field(default_factory=dict)  # what was said lately, and when
    _answered: tuple[float, int] = (float("-inf"), 0)  # since when, how many strangers

    def __post_init__(self) -> None:
        self.session = protocol.session_of(self.identity.job, self.identity.attempt)
        self.nonce = secrets.token_hex(16)
        self._arrival: Arrival | None = None
        self._captures = Captures()
        self._file_task: tuple[Task, Trainer, Op] | None = None
        self._captured: Sequence[memoryview] = ()
        self._owns: Sequence[Any] = ()  # the trainers' parts of the checkpoint that this attempt goes on from
        self._stragglers = Stragglers()
        self._stall_due = float("inf")
        self._handlers: dict[Op, Callable[[Trainer, Message, float], list[Outgoing]]] = {
            Op.INITIALISE: self._initialise,
            Op.RESTORE: self._restore,
            Op.FETCH: self._fetch,
            Op.START_PASS: self._start_pass,
            Op.PUSH: self._push,
            Op.FINISH_PASS: self._finish_pass,
            Op.CAPTURE: self._capture,
            Op.SAVE: self._save_or_load,
            Op.LOAD: self._save_or_load,
            Op.GOODBYE: self._goodbye,
        }

    @property
    def shard(self) -> Shard | None:
        """The values and the optimiser, from when they are here."""
        return self.rounds.shard if self.rounds else None

    @property
    def is_used(self) -> bool:
        """Whether any trainer has joined."""
        return bool(self.trainers)

    @property
    def is_done(self) -> bool:
        """Whether all trainers have said goodbye."""
        return len(self.trainers) == self.identity.num_trainers and not self._present()

    # ----- Entrances -----

    def handle(self, routing_id: bytes, address: str, frames: Sequence[Buffer], now: float) -> list[Outgoing]:
        """Take one message from the wire and return what is to be sent for it; never raises for what was sent."""
        try:
            message = protocol.decode(frames)
        except protocol.ProtocolError as exc:
            return self._drop(routing_id, address, str(exc), now)
        if message.op == Op.ERROR or message.flags & Flag.ANSWER:
            return []  # an error about an answer of ours; to answer it could go on for ever
        if message.op == Op.HELLO:
            return self._hello(routing_id, address, message, now)
        trainer = self.trainers.get(message.trainer)
        if message.session != self.session or trainer is None or routing_id[:TOKEN_BYTES] != trainer.token:
            text = (
                f"{self.identity} does not know you as trainer {message.trainer}; join first "
                "(or was this server restarted?)"
            )
            return self._drop(routing_id, address, text, now, LostPeerError.exit_code)
        if not protocol.is_signed(frames, trainer.key):
            text = f"a {message.op.name} in the name of {trainer} that does not prove this job's secret"
            return self._drop(routing_id, address, text, now, PeerUnreachableError.exit_code)
        trainer.heard, trainer.suspected = now, None
        if message.op == Op.PING:
            return [(routing_id, self._pong(trainer, message))]
        return self._request(trainer, message, now)

    def knows(self, routing_id: bytes) -> bool:
        """Return whether a connection is one of a trainer that has joined."""
        return any(routing_id[:TOKEN_BYTES] == trainer.token for trainer in self.trainers.values())

    def refuse(self, routing_id: bytes, address: str, reason: str, now: float) -> list[Outgoing]:
        """Note that something came which is no message, and return the answer."""
        return self._drop(routing_id, address, reason, now)

    def suspect(self, routing_id: bytes, now: float) -> None:
        """Note that a connection closed; its trainer is lost unless it is heard of again soon."""
        for trainer in self.trainers.values():
            if routing_id[:TOKEN_BYTES] == trainer.token and not trainer.has_left:
                trainer.suspected = now

    def check(self, now: float) -> list[Outgoing]:
        """Look for lost trainers and for those that never came; call it only when nothing is left to read."""
        if self.failure or not self.is_used:
            return []
        if self._file_task is not None and self._file_task[0].is_done:
            return self._finish_file()
        for trainer in self._present():
            silence = now - trainer.heard
            if trainer.suspected is not None and now - trainer.suspected > RECONNECT_GRACE:
                return self._lose(trainer, "it closed its connection without a goodbye")
            if silence > self.peer_timeout:
                return self._lose(trainer, f"not heard of for {silence:.1f} s")
        if now > self._stall_due:
            self._stall_due = now + STALL_PERIOD
            glog.warning(f"{self.identity}: batch {self.batch + 1} of the pass waits for {self._describe_wait()}")
        missing = self._missing()
        if missing and now - self.opened > self.join_timeout:
            return self.fail(
                PeerUnreachableError(
                    f"{list_trainers(missing)} of {self.identity.num_trainers} did not join {self.identity} within "
                    f"{self.join_timeout:.0f} s after {self._first()}"
                )
            )
        return []

    def fail(self, error: PaddleError) -> list[Outgoing]:
        """End the job: remember the first reason, and tell it to every trainer that is still there."""
        if self.failure:
            return []
        self.failure = error
        if self.is_used:
            glog.error(f"{self.identity}: {error}")
        return [
            (
                trainer.token + connection,
                protocol.encode(self._error(trainer.number, trainer.sequence, error), trainer.key),
            )
            for trainer in self._present()
            for connection in (DATA, HEARTBEAT)
        ]

    # ----- Hello -----

    def _hello(self, routing_id: bytes, address: str, message: Message, now: float) -> list[Outgoing]:
        hello = dict(message.note)
        who = f"trainer {message.trainer} at {address}" if hello.get("role") == "join" else f"the probe at {address}"
        is_joining = hello.get("role") == "join"
        refusal = refuse_stranger(self.identity, self.nonce if is_joining else "", routing_id, message, who)
        if refusal is None and is_joining:
            refusal = self.failure or refuse_trainer(self.identity, self.trainers, routing_id, message, who)
            if refusal is None:
                self._admit(routing_id, address, message, now)
        if refusal:
            self._complain(f"refused: {refusal}"[:200], f"refused: {refusal}", now)
            if self._is_of_trainer(routing_id) and refusal is not self.failure:
                return []
            return [(routing_id, protocol.encode(self._error(message.trainer, message.sequence, refusal)))]
        one = self.identity
        known = self.trainers.get(message.trainer)
        welcome = {
            "job": one.job,
            "attempt": one.attempt,
            "num_trainers": one.num_trainers,
            "nonce": self.nonce,
            "shares_memory": bool(is_joining and known and known.memory),
            "proof": protocol.prove(one.secret, "welcome", hello.get("nonce"), self.nonce, one.job, one.attempt),
        }
        return [
            (
                routing_id,
                protocol.encode(
                    Message(
                        Op.HELLO,
                        self.session,
                        message.trainer,
                        message.sequence,
                        flags=Flag.ANSWER,
                        note=welcome,
                        piece=message.piece,
                    )
                ),
            )
        ]

    def _admit(self, routing_id: bytes, address: str, message: Message, now: float) -> None:
        if message.trainer in self.trainers:
            return  # the same hello again
        if not self.trainers:
            self.opened = now
        hello = dict(message.note)
        trainer = Trainer(
            message.trainer,
            routing_id[:TOKEN_BYTES],
            address,
            hello,
            now,
            key=protocol.key_of(self.identity.secret, str(hello.get("nonce")), self.nonce),
            sequence=message.sequence,
        )
        if hello.get("memory") is not None:
            trainer.memory = SharedMemory.open(hello["memory"])
        self.trainers[trainer.number] = trainer
        glog.info(f"worker started, peer = {address}", at="LightNetwork.cpp:322")
        glog.info(f"{trainer} joined {self.identity}: {len(self.trainers)} of {self.identity.num_trainers}")

    # ----- Requests of joined trainers -----

    def _request(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        if self.failure:
            return [self._to(trainer, self._error(trainer.number, message.sequence, self.failure))]
        if message.op == Op.ABORT:  # whatever request went wrong before
            return self._abort(trainer, message)
        if message.sequence == trainer.sequence and message.piece in trainer.pieces:
            return self._repeat(trainer, message.piece)
        if message.sequence not in (trainer.sequence, trainer.sequence + 1):  # late, or from nowhere
            return self._drop(
                trainer.token + DATA,
                trainer.address,
                f"request {message.sequence} of {trainer} after its request {trainer.sequence}",
                now,
            )
        handler = self._handlers.get(message.op)
        try:
            if handler is None:
                raise BugError(f"{self.identity} knows no request {message.op.name}")
            return handler(trainer, message, now)
        except PaddleError as exc:
            glog.warning(f"{self.identity} refused {message.op.name} of {trainer}: {exc}")
            return [self._to(trainer, self._error(trainer.number, message.sequence, exc))]

    def _repeat(self, trainer: Trainer, piece: int) -> list[Outgoing]:
        """Send the answers to a piece again: it counts once. A request of one piece may have an answer of many."""
        answers = trainer.answers.values() if len(trainer.pieces) == 1 else filter(None, [trainer.answers.get(piece)])
        return [self._to(trainer, answer) for answer in answers]

    def _take(self, trainer: Trainer, message: Message, doing: str) -> None:
        """Note that a piece of a request came; the first one begins the request."""
        if message.sequence != trainer.sequence:
            trainer.sequence, trainer.doing = message.sequence, doing
            trainer.pieces.clear()
            trainer.answers.clear()
        trainer.pieces.add(message.piece)

    def _initialise(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        # numpy is imported when there is arithmetic to do, so that the server answers its first hello soon
        from pserver.arithmetic import Arrival

        if trainer.number != 0 or self.rounds is not None:
            raise BugError(f"initial values come once, from trainer 0, not from {trainer}")
        if message.piece == 0:
            self._arrival = Arrival(trainer.hello, message.note, self.lag_limits)
        if self._arrival is None:
            raise BugError(f"the initial values begin with piece 0, not {message.piece}")
        self._arrival.add("values", message.piece, self._payload_of(trainer, message))
        self._take(trainer, message, "sent the initial values")
        return [self._answer(trainer, message), *self._finish_arrival()]

    def _restore(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        """Take a piece of an array of the state that INITIALISE announced."""
        payload = self._payload_of(trainer, message)
        if payload.nbytes:  # the request goes to all services, also to those whose state has fewer arrays
            if trainer.number != 0 or self._arrival is None:
                raise BugError(f"{trainer} restores a state that was not announced")
            self._arrival.add(self._arrival.name_of(message.argument), message.piece, payload)
        self._take(trainer, message, "sent the state of a checkpoint")
        return [self._answer(trainer, message), *self._finish_arrival()]

    def _finish_arrival(self) -> list[Outgoing]:
        arrival = self._arrival
        if arrival is None or not arrival.is_complete:
            return []
        self._arrival = None
        self.rounds = arrival.finish()
        self._owns = arrival.trainers
        return [out for other in self._present() if other.is_waiting for out in self._send_first(other)]

    def _fetch(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        kind = message.argument
        if kind == Fetch.INITIAL:
            self._take(trainer, message, "asked for the initial values")
            trainer.is_waiting = True
            return self._send_first(trainer) if self.rounds else []
        rounds = self._require_rounds()
        if kind >= Fetch.STATE:
            self._take(trainer, message, "asked for the state")
            # the request goes to all services, also to those whose state has fewer arrays
            array = self._captured[kind - Fetch.STATE : kind - Fetch.STATE + 1]
            return self._answer_array(trainer, Op.FETCH, array[0] if array else memoryview(b""))
        if kind == Fetch.ROWS:
            return self._fetch_rows(trainer, message)
        if kind == Fetch.AVERAGES:
            from pserver.arithmetic import average

            # a copy: answers to others, with the values themselves, may still be on their way
            averages = average(rounds.shard)
            self._take(trainer, message, "asked for the averages")
            return self._answer_array(trainer, Op.FETCH, averages)
        self._take(trainer, message, "asked for the values")
        # inside a pass a copy: others may go on meanwhile
        values = memoryview(bytearray(rounds.values)) if self.in_pass else rounds.values
        return self._answer_array(trainer, Op.FETCH, values)

    def _fetch_rows(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        rows = self._require_rounds().look_up(
            trainer.number, message.piece, self._payload_of(trainer, message), _length_of(message)
        )
        self._take(trainer, message, f"asked for the rows of batch {self.batch + 1} of pass {trainer.passes}")
        return [] if rows is None else self._answer_array(trainer, Op.FETCH, rows)

    def _send_first(self, trainer: Trainer) -> list[Outgoing]:
        trainer.is_waiting = False
        owns = self._owns
        note = {"own": owns[trainer.number]} if trainer.number < len(owns) else {}
        if not self._require_rounds().answers_with_values:
            return [self._reply(trainer, Op.FETCH, note=note)]
        return self._send_values(trainer, Op.FETCH, note)

    def _send_values(self, trainer: Trainer, op: Op, note: Mapping[str, Any] = NOTHING) -> list[Outgoing]:
        glog.info("pserver: getParameter", at="ParameterServer2.cpp:707")
        return self._answer_array(trainer, op, self._require_rounds().values, note)

    def _start_pass(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        if self.rounds is None or self.in_pass:
            raise BugError(f"{trainer} starts a pass {'inside a pass' if self.in_pass else 'without initial values'}")
        self._take(trainer, message, f"asked for the start of pass {trainer.passes}")
        trainer.is_waiting, trainer.starts_at = True, message.argument
        left = [other for other in self.trainers.values() if other.has_left]
        if left:
            return self._part_early(left[0], trainer)
        waiting = [other for other in self._present() if other.is_waiting]
        if len(waiting) < self.identity.num_trainers:
            return []
        self.in_pass, self.batch = True, self.trainers[0].starts_at
        for other in waiting:
            other.is_waiting = other.has_finished_pass = False
            other.batch = other.starts_at
            other.pushed = now
        return [self._reply(other, Op.START_PASS) for other in waiting]

    def _push(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        rounds = self.rounds
        if rounds is None or not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} pushes a gradient outside of a pass")
        gradient = self._payload_of(trainer, message, rounds.piece_bytes(message.piece))
        if not rounds.is_open:
            self._stall_due = now + STALL_PERIOD
        rounds.add(trainer.number, message.piece, gradient, message.samples, message.flags, _length_of(message))
        self._take(trainer, message, f"pushed batch {trainer.batch + 1} of pass {trainer.passes}")
        trainer.pushed, trainer.keeps_values = now, bool(message.flags & Flag.KEEP)
        if not rounds.is_asynchronous:
            return self._step(rounds, [message.piece], now)
        if message.flags & Flag.CHECKPOINT:
            self._captures.ask(trainer.number, self._in_pass())
        return self._step_alone(trainer, rounds, now)

    def _step_alone(self, trainer: Trainer, rounds: Steps, now: float) -> list[Outgoing]:
        """Step a trainer's gradient if all of it is here, and answer it."""
        values = rounds.apply(trainer.number)
        if values is None:
            return []
        trainer.batch += 1
        if trainer.number == 0:
            self.batch += 1
            if self.log_period and self.batch % self.log_period == 0:
                glog.info(f"======== Batch={self.batch}=======", at="ParameterServer2.cpp:1568")
                self._report_lag(rounds, now)
        due = Flag.CHECKPOINT if self._captures.tell(trainer.number) else Flag.NONE
        return [
            self._reply(
                trainer,
                Op.PUSH,
                None if trainer.keeps_values else protocol.cut(values, piece),
                piece=piece,
                flags=due if piece == rounds.pieces - 1 else Flag.NONE,
            )
            for piece in range(rounds.pieces)
        ]

    def _report_lag(self, rounds: Steps, now: float) -> None:
        """Log what was discarded, and how long ago each trainer was heard; then count anew, as v0.10 did."""
        for line in rounds.lag.describe():
            glog.info(f"{self.identity}: {line}")
        rounds.lag.reset()
        ages = [
            f"{number}: batch {self.trainers[number].batch}, {now - self.trainers[number].pushed:.1f} s"
            for number in self._in_pass()
        ]
        if ages:
            glog.info(f"{self.identity}: batch of each trainer and the age of its last gradient: {'; '.join(ages)}")

    def _step(self, rounds: Rounds, pieces: Iterable[int], now: float) -> list[Outgoing]:
        """Step what is complete of these pieces, and answer it to all trainers of the round."""
        active = [self.trainers[number] for number in sorted(self.trainers)]
        active = [trainer for trainer in active if not trainer.has_finished_pass]
        done = rounds.step(list(pieces), [trainer.number for trainer in active])
        if not done:
            return []
        asked = rounds.finish()
        flags = Flag.NONE
        if asked is not None:
            self._finish_batch(active, now)
            # trainer 0 writes it, so there is none while it waits for the end of the pass
            flags = asked if active[0].number == 0 else Flag.NONE
        out = []
        for piece in done:
            values = protocol.cut(rounds.values, piece) if rounds.answers_with_values else None
            more = flags if piece == done[-1] else Flag.NONE
            out += [
                self._reply(trainer, Op.PUSH, None if trainer.keeps_values else values, piece=piece, flags=more)
                for trainer in active
            ]
        return out

    def _finish_batch(self, active: Sequence[Trainer], now: float) -> None:
        self._stall_due = float("inf")
        self.batch += 1
        for trainer in active:
            trainer.batch += 1
        self._stragglers.add({trainer.number: trainer.pushed for trainer in active})
        if self.log_period and self.batch % self.log_period == 0:
            glog.info(f"======== Batch={self.batch}=======", at="ParameterServer2.cpp:1568")
            glog.info(f"{self.identity}: {self._stragglers.describe(self.trainers, now)}")
            self._stragglers = Stragglers()

    def _finish_pass(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        if not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} finishes a pass that it is not in")
        self._take(trainer, message, f"finished pass {trainer.passes}")
        trainer.has_finished_pass = True
        trainer.own = message.note.get("own")
        trainer.passes += 1
        rounds = self._require_rounds()
        captured = self._finish_capture()
        if trainer.number == 0:
            self._captures.clear()
        if not all(other.has_finished_pass for other in self._present()):
            return captured if rounds.is_asynchronous else self._step(rounds, range(rounds.pieces), now)
        self.in_pass = False
        self._captures.clear()
        glog.info(f"======== Batch={self.batch} pass END=======", at="ParameterServer2.cpp:1588")
        if rounds.is_asynchronous:
            self._report_lag(rounds, now)
        if rounds.counts_passes:
            rounds.shard.finish_pass()
        if not rounds.answers_with_values:
            return [self._reply(other, Op.FINISH_PASS) for other in self._present()]
        return [out for other in self._present() for out in self._send_values(other, Op.FINISH_PASS)]

    def _capture(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        """Take a trainer's part of a checkpoint; trainer 0 gets everybody's, and what it can fetch of the state."""
        self._require_rounds()
        self._take(trainer, message, "gave its part of a checkpoint")
        trainer.own = message.note.get("own")
        self._captures.give(trainer.number, self._in_pass())
        answers = [] if trainer.number == 0 else [self._reply(trainer, Op.CAPTURE)]
        return answers + self._finish_capture()

    def _finish_capture(self) -> list[Outgoing]:
        """Answer trainer 0 once all have given their parts; who ended the pass gave its part with that."""
        awaited = self._in_pass() if self.in_pass else [other.number for other in self._present()]
        if not self._captures.finish(awaited):
            return []
        from pserver.arithmetic import list_state

        rounds = self._require_rounds()
        # while it is fetched the others go on in asynchronous training, and ask for rows, which brings them up to date
        changes = rounds.is_asynchronous or not rounds.answers_with_values
        counters, arrays = list_state(rounds.shard, copies=changes and self.in_pass)
        self._captured = [view for _, _, view in arrays]
        note = {
            "trainers": [self.trainers[number].own for number in range(self.identity.num_trainers)],
            "counters": counters,
            "arrays": [[name, dtype, len(view)] for name, dtype, view in arrays],
        }
        return [self._reply(self.trainers[0], Op.CAPTURE, note=note)]

    def _save_or_load(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        """Begin to write the values into a file, averaged where the settings say so, or to read them; see `check`.

        Trainer 0 asks, and waits for the answer, between two rounds, so that no step comes meanwhile; in asynchronous
        training it gets a copy.
        """
        from pserver import arithmetic, value_files

        rounds = self._require_rounds()
        directory = str(message.note.get("directory", ""))
        if trainer.number != 0 or self._file_task or not directory.startswith("/"):
            raise BugError(f"{trainer} cannot have files of values in '{directory}' now")
        path = value_files.path_of(directory, int(trainer.hello["service"]))
        if message.op == Op.SAVE:
            self._take(trainer, message, f"asked for {path}")
            copies = rounds.is_asynchronous and self.in_pass
            call = partial(value_files.save, path, arithmetic.values_to_save(rounds, copies=copies))
        else:
            if self.in_pass or rounds.shard.steps:
                raise BugError(f"{trainer} cannot load values after the first step")
            self._take(trainer, message, f"asked to load {path}")
            call = partial(value_files.load, path, rounds.shard.values)
        glog.info(f"{self.identity}: {message.op.name.lower()} {path}")
        self._file_task = (Task(call), trainer, message.op)
        return []

    def _finish_file(self) -> list[Outgoing]:
        """Answer that a file is written or read, or why not."""
        if self._file_task is None:
            return []
        (task, trainer, op), self._file_task = self._file_task, None
        if task.error is None:
            return [self._reply(trainer, op)]
        return [self._to(trainer, self._error(trainer.number, trainer.sequence, task.error))]

    def _goodbye(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        self._take(trainer, message, f"said goodbye after {trainer.passes} passes")
        trainer.has_left = True
        glog.info(f"worker begin to finish, peer = {trainer.address}", at="LightNetwork.cpp:339")
        glog.info(
            f"{trainer} said goodbye to {self.identity}: "
            f"{sum(other.has_left for other in self.trainers.values())} of {self.identity.num_trainers}"
        )
        answer = [self._answer(trainer, message)]
        if not trainer.has_finished_pass:
            return answer + self.fail(LostPeerError(f"{trainer} said goodbye in the middle of pass {trainer.passes}"))
        stuck = [other for other in self._present() if other.is_waiting]
        return answer + (self._part_early(trainer, stuck[0]) if stuck else [])

    def _part_early(self, left: Trainer, stuck: Trainer) -> list[Outgoing]:
        return self.fail(
            ConfigError(
                f"{left} {left.doing}, but {stuck} {stuck.doing}: "
                "all trainers of a job must have the same num_passes and start_pass"
            )
        )

    def _abort(self, trainer: Trainer, message: Message) -> list[Outgoing]:
        trainer.has_left = True
        reason = glog.clean(message.note.get("reason", "it did not say why"), MAX_REASON)
        return self.fail(LostPeerError(f"{trainer} gave up: {reason} (it had last {trainer.doing})"))

    # ----- Answers -----

    def _to(self, trainer: Trainer, message: Message) -> Outgoing:
        return trainer.token + DATA, protocol.encode(message, trainer.key)

    def _answer(self, trainer: Trainer, message: Message) -> Outgoing:
        """Say that a piece of a request is done."""
        return self._reply(trainer, message.op, piece=message.piece)

    def _reply(
        self,
        trainer: Trainer,
        op: Op,
        payload: memoryview | None = None,
        *,
        piece: int = 0,
        flags: Flag = Flag.NONE,
        note: Mapping[str, Any] = NOTHING,
    ) -> Outgoing:
        """Answer the request in hand, and remember the answer.

        The payload is not copied: the next step comes only after every trainer has these values and pushed.
        """
        flags |= Flag.ANSWER
        parts: tuple[memoryview, ...] = () if payload is None else (payload,)
        shared = protocol.cut(trainer.memory.inbox, piece) if trainer.memory is not None else memoryview(b"")
        if payload is not None and payload.nbytes == len(shared) > 0:
            shared[:] = payload
            flags, parts = flags | Flag.LOCAL, ()
        answer = Message(
            op, self.session, trainer.number, trainer.sequence, flags=flags, note=note, payload=parts, piece=piece
        )
        trainer.answers[piece] = answer
        return self._to(trainer, answer)

    def _answer_array(
        self, trainer: Trainer, op: Op, array: memoryview, note: Mapping[str, Any] = NOTHING
    ) -> list[Outgoing]:
        """Answer with an array of bytes, piece by piece; the note goes with the first."""
        return [
            self._reply(trainer, op, protocol.cut(array, piece), piece=piece, note=NOTHING if piece else note)
            for piece in range(protocol.count_pieces(len(array)))
        ]

    def _payload_of(self, trainer: Trainer, message: Message, length: int | None = None) -> memoryview:
        """Return the one array that a message brings, or that lies in the memory that the two share.

        Args: length: in bytes, of one in shared memory.
        """
        if message.flags & Flag.LOCAL and trainer.memory is not None and length is not None:
            return protocol.cut(trainer.memory.outbox, message.piece)[: max(length, 0)]
        return memoryview(message.payload[0] if message.payload else b"")

    def _pong(self, trainer: Trainer, message: Message) -> list[Buffer]:
        note = {
            "received": trainer.sequence,
            "pieces": len(trainer.pieces),
            "answers": len(trainer.answers),
            "waits_for": self._describe_wait(),
        }
        pong = Message(Op.PING, self.session, trainer.number, message.sequence, message.argument, Flag.ANSWER, note)
        return protocol.encode(pong, trainer.key)

    def _error(self, trainer: int, sequence: int, error: PaddleError) -> Message:
        flags = Flag.ANSWER | (Flag.FATAL if error is self.failure else Flag.NONE)
        return Message(
            Op.ERROR,
            self.session,
            trainer,
            sequence,
            flags=flags,
            note={"message": str(error), "exit_code": error.exit_code},
        )

    def _complain(self, kind: str, text: str, now: float) -> None:
        """Log a kind of complaint once per QUIET_PERIOD, and few kinds: who calls wrongly calls again, and varies."""
        said = {one: when for one, when in self._complaints.items() if now - when < QUIET_PERIOD}
        if kind not in said and len(said) < COMPLAINTS:
            said[kind] = now
            glog.warning(text)
        self._complaints = said

    def _drop(self, routing_id: bytes, address: str, reason: str, now: float, exit_code: int = 70) -> list[Outgoing]:
        self.malformed += 1
        self._complain(
            "dropped",
            f"{self.identity} dropped a message from {address}: {reason} ({self.malformed} dropped so far)",
            now,
        )
        if self._is_of_trainer(routing_id):
            return []
        since, count = self._answered
        self._answered = (since, count + 1) if now - since < 1 else (now, 1)
        if self._answered[1] > STRANGERS_ANSWERED:
            return []
        note = {"message": f"{self.identity} dropped a message: {reason}", "exit_code": exit_code}
        return [(routing_id, protocol.encode(Message(Op.ERROR, self.session, -1, 0, flags=Flag.ANSWER, note=note)))]

    def _is_of_trainer(self, routing_id: bytes) -> bool:
        """Return whether a connection has the name of a trainer's.

        Noise on it, or an old message again, is from who has taken the name. The connection may be the trainer's own
        by the time an answer leaves, and would make it give up; so there is none.
        """
        return any(trainer.token == routing_id[:TOKEN_BYTES] for trainer in self.trainers.values())

    # ----- Words -----

    def _require_rounds(self) -> Mode:
        if self.rounds is None:
            raise BugError(f"{self.identity} has no values yet")
        return self.rounds

    def _present(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if not trainer.has_left]

    def _in_pass(self) -> list[int]:
        """Return the numbers of the trainers that still have batches in this pass."""
        return [other.number for other in self._present() if not other.has_finished_pass]

    def _missing(self) -> list[int]:
        return [number for number in range(self.identity.num_trainers) if number not in self.trainers]

    def _first(self) -> str:
        return str(next(iter(self.trainers.values())))

    def _lose(self, trainer: Trainer, why: str) -> list[Outgoing]:
        trainer.has_left = True
        return self.fail(LostPeerError(f"{trainer} is lost: {why}; it had last {trainer.doing}"))

    def _describe_wait(self) -> str:
        missing = self._missing()
        if missing:
            return f"{list_trainers(missing)} of {self.identity.num_trainers} to join"
        rounds = self.rounds
        if rounds is None:
            return "the initial values of trainer 0"
        slow = (
            [t for t in self._present() if not t.has_finished_pass and not rounds.has_all_of(t.number)]
            if self.in_pass
            else [t for t in self._present() if not t.is_waiting]
        )
        return "; ".join(f"{trainer}, which last {trainer.doing}" for trainer in slow[:4])


def _length_of(message: Message) -> int:
    """Return the length in bytes of an array of rows: as the message says it, or that of its payload."""
    length = message.note.get("bytes", sum(memoryview(part).nbytes for part in message.payload))
    return length if isinstance(length, int) else -1
