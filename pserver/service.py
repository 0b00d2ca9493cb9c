"""One independent parameter server: its trainers' requests, what each waits for, and the shard (no sockets, no clock).

The server hands in messages with the time and sends what comes back. Who may speak is the `Door`'s part, and what
becomes of the gradients the rounds'; here is in which order requests come and what each is answered. Whatever ends the
job is kept in `failure` and told to every trainer. What is counted for the metrics decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pserver import glog, protocol
from pserver.captures import Captures
from pserver.deposits import Deposits
from pserver.door import Door, Outgoing
from pserver.errors import BugError, ConfigError, LostPeerError, PaddleError
from pserver.lag import LagLimits
from pserver.membership import (
    DATA,
    Trainer,
    list_trainers,
)
from pserver.protocol import NOTHING, Fetch, Flag, Message, Op
from pserver.stragglers import Stragglers
from pserver.task import Task

if TYPE_CHECKING:
    from pserver.arithmetic import Arrival, Mode, Rounds, Steps
    from pserver.shard import Shard

STALL_PERIOD = 60.0  # seconds that a round may take before those who have not pushed are named, and again
MAX_REASON = 3000  # characters of why a trainer gave up


class Tally:
    """What a service has done since it began; other threads may read it at any moment."""

    rounds = passes = 0
    step_seconds = 0.0  # in the optimiser
    round_seconds = 0.0  # from the first piece of a round to its end


@dataclass
class Service(Door):
    """The state of one port."""

    log_period: int = 500
    lag_limits: LagLimits = field(default_factory=LagLimits)
    threads: int = 1  # that take a step together
    clock: Callable[[], float] = time.perf_counter  # measures steps, for the metrics alone
    tally: Tally = field(default_factory=Tally, init=False)
    stragglers: Stragglers = field(default_factory=Stragglers, init=False)
    rounds: Mode | None = field(default=None, init=False)  # from when all first values are here
    in_pass: bool = field(default=False, init=False)
    batch: int = field(default=0, init=False)  # rounds of this pass; in asynchronous training, trainer 0's batches

    def __post_init__(self) -> None:
        super().__post_init__()
        self._arrival: Arrival | None = None
        self._active: list[Trainer] = []  # who has not finished the pass, by number
        self._captures = Captures()
        self._deposits = Deposits(0)
        self._file_task: tuple[Task, Trainer, Op] | None = None
        self._captured: Sequence[memoryview] = ()
        self._owns: Sequence[Any] = ()  # the trainers' parts of the checkpoint that this attempt goes on from
        self._stall_due = float("inf")
        self._round_began = 0.0
        self._handlers: dict[Op, Callable[[Trainer, Message, float], list[Outgoing]]] = {
            Op.INITIALISE: self._initialise,
            Op.RESTORE: self._restore,
            Op.FETCH: self._fetch,
            Op.START_PASS: self._start_pass,
            Op.PUSH: self._push,
            Op.FINISH_PASS: self._finish_pass,
            Op.CAPTURE: self._capture,
            Op.DEPOSIT: self._deposit,
            Op.SAVE: self._save_or_load,
            Op.LOAD: self._save_or_load,
            Op.GOODBYE: self._goodbye,
        }

    @property
    def shard(self) -> Shard | None:
        """The values and the optimiser, from when they are here."""
        return self.rounds.shard if self.rounds else None

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

    def _initialise(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        # numpy is imported when there is arithmetic to do, so that the server answers its first hello soon
        from pserver.arithmetic import Arrival

        if trainer.number != 0 or self.rounds is not None:
            raise BugError(f"initial values come once, from trainer 0, not from {trainer}")
        if message.piece == 0:
            self._arrival = Arrival(trainer.hello, message.note, self.lag_limits, self.threads)
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
        self._deposits = arrival.deposits
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
        if kind == Fetch.DEPOSIT:
            self._take(trainer, message, "asked for what it had left")
            return self._answer_array(trainer, Op.FETCH, memoryview(self._deposits.whole.get(trainer.number, b"")))
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
        glog.bind(trainer.passes, self.batch)
        for other in waiting:
            other.is_waiting = other.has_finished_pass = False
            other.batch = other.starts_at
            other.pushed = now
        self._active = sorted(waiting, key=lambda other: other.number)
        return [self._reply(other, Op.START_PASS) for other in waiting]

    def _push(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        rounds = self.rounds
        if rounds is None or not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} pushes a gradient outside of a pass")
        gradient = self._payload_of(trainer, message, rounds.piece_bytes(message.piece))
        if not rounds.is_open:
            self._stall_due = now + STALL_PERIOD
            self._round_began = now
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
        began = self.clock()
        values = rounds.apply(trainer.number)
        if values is None:
            return []
        self.tally.step_seconds += self.clock() - began
        trainer.batch += 1
        if trainer.number == 0:
            self.batch += 1
            if self.log_period and self.batch % self.log_period == 0:
                glog.bind(trainer.passes, self.batch)
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
        active = self._active
        began = self.clock()
        done = rounds.step(list(pieces), [trainer.number for trainer in active])
        if not done:
            return []
        self.tally.step_seconds += self.clock() - began
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
        self.tally.rounds += 1
        self.tally.round_seconds += now - self._round_began
        self.stragglers.add({trainer.number: trainer.pushed for trainer in active})
        if self.log_period and self.batch % self.log_period == 0:
            glog.bind(active[0].passes, self.batch)
            glog.info(f"======== Batch={self.batch}=======", at="ParameterServer2.cpp:1568")
            glog.info(f"{self.identity}: {self.stragglers.describe(self.trainers, now)}")
            self.stragglers.begin_period()

    def _finish_pass(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        if not self.in_pass or trainer.has_finished_pass:
            raise BugError(f"{trainer} finishes a pass that it is not in")
        self._take(trainer, message, f"finished pass {trainer.passes}")
        trainer.has_finished_pass = True
        self._active = [other for other in self._active if other is not trainer]
        trainer.own = message.note.get("own")
        trainer.passes += 1
        rounds = self._require_rounds()
        captured = self._finish_capture()
        if trainer.number == 0:
            self._captures.clear()
        if not all(other.has_finished_pass for other in self._present()):
            return captured if rounds.is_asynchronous else self._step(rounds, range(rounds.pieces), now)
        self.in_pass = False
        self.tally.passes += 1
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

    def _deposit(self, trainer: Trainer, message: Message, now: float) -> list[Outgoing]:
        """Take a piece of what a trainer leaves for the next checkpoint."""
        self._require_rounds()
        payload = self._payload_of(trainer, message)
        self._deposits.add(trainer.number, message.piece, message.note.get("bytes"), payload)
        self._take(trainer, message, "left its state for a checkpoint")
        return [self._answer(trainer, message)]

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
        arrays += self._deposits.list_arrays()
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

    def _look(self, now: float) -> list[Outgoing]:
        """Answer what took long, and name those whom a round waits for."""
        if self._file_task is not None and self._file_task[0].is_done:
            return self._finish_file()
        if now > self._stall_due:
            self._stall_due = now + STALL_PERIOD
            glog.warning(f"{self.identity}: batch {self.batch + 1} of the pass waits for {self._describe_wait()}")
        return []

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

    # ----- Words -----

    def _require_rounds(self) -> Mode:
        if self.rounds is None:
            raise BugError(f"{self.identity} has no values yet")
        return self.rounds

    def _in_pass(self) -> list[int]:
        """Return the numbers of the trainers that still have batches in this pass."""
        return [other.number for other in self._present() if not other.has_finished_pass]

    def _describe_wait(self) -> str:
        missing = self._missing()
        if missing:
            return f"{list_trainers(missing)} of {self.identity.num_trainers} to join{self._refused}"
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
