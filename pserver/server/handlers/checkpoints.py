"""CHECKPOINT and CHECKPOINT_BLOB: trainers send their parts of a checkpoint, and trainer 0 fetches the state.

No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from pserver.server.handlers.checkpoint_barrier import CheckpointBarrier
from pserver.server.service_state import ServiceState
from pserver.server.session_table import SessionTable
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire.checkpoint_blobs import LEAVES, CheckpointBlobs
from pserver.wire.protocol import Fetch, Message, Op


class Checkpoints:
    """The checkpoints of one service.

    Attributes: barrier: which trainers have sent their parts.  blobs: the trainers' binary data for checkpoints.
    """

    def __init__(self, sessions: SessionTable, state: ServiceState) -> None:
        self.barrier = CheckpointBarrier()
        self.blobs = CheckpointBlobs(0)
        self._sessions, self._state = sessions, state
        self._arrays: Sequence[memoryview] = ()  # the arrays of the state in the last checkpoint
        self._held: list[TrainerSession] = []  # trainers, without trainer 0, whose parts are not answered yet
        self._is_last = False  # whether a trainer waits to leave until trainer 0 has written the checkpoint

    def take_part(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Store a trainer's part of a checkpoint; trainer 0 receives all parts, and a list of the state's arrays.

        The first service receives the parts. In asynchronous training, it answers the other trainers only after trainer
        0 has sent its part. If a trainer leaves after the checkpoint, the first service answers only after trainer 0
        has written the checkpoint (`let_leave`). After an earlier answer, trainers would train batches that are lost.
        """
        rounds, in_pass = self._state.require_rounds(), self._sessions.list_in_pass()
        own = message.note.get("own")
        trainer.take(message, "gave its part of a checkpoint")
        trainer.checkpoint_part = own
        self.barrier.give(trainer.number, in_pass)
        self.barrier.is_last |= leaves(trainer)
        if trainer.number:
            self._held.append(trainer)
        may_wait = rounds.is_asynchronous and own is not None and 0 in in_pass
        answers = [] if may_wait and (self.barrier.is_last or 0 not in self.barrier.given) else self.release()
        return answers + self.finish()

    def release(self) -> list[Outgoing]:
        """Answer all trainers that have sent their parts and wait for an answer."""
        held, self._held, self._is_last = self._held, [], False
        return [trainer.reply(Op.CHECKPOINT) for trainer in held]

    def let_leave(self) -> list[Outgoing]:
        """Answer the trainers that leave, because trainer 0 has written the checkpoint; [] if no trainer leaves.

        The trainers that do not leave wait until the attempt ends.
        """
        if not self._is_last:
            return []
        leaving = [trainer for trainer in self._held if leaves(trainer)]
        if not leaving:
            return self.release()
        self._held = [trainer for trainer in self._held if trainer not in leaving]
        return [trainer.reply(Op.CHECKPOINT) for trainer in leaving]

    def drop(self) -> list[Outgoing]:
        """Give up an incomplete checkpoint at the end of trainer 0's pass."""
        self.barrier.clear()
        return [] if self._is_last else self.release()

    def keep_blob(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Store a piece of a trainer's binary data for the next checkpoint."""
        self._state.require_rounds()
        payload = trainer.payload_of(message)
        self.blobs.add(trainer.number, message.piece, message.note.get("bytes"), payload)
        trainer.take(message, "sent its checkpoint blob")
        return [trainer.acknowledge(message)]

    def finish(self) -> list[Outgoing]:
        """Answer trainer 0 when all parts have arrived. A trainer that has ended the pass has sent its part with
        FINISH_PASS.
        """
        present = [other.number for other in self._sessions.list_present()]
        awaited = self._sessions.list_in_pass() if self._state.in_pass else present
        is_last = self.barrier.is_last
        if not self.barrier.finish(awaited):
            return []
        self._is_last = is_last and bool(self._held)
        # imported here, because importing numpy would delay the first hello (by 0.15 s in bench/launch.py)
        from pserver.server.arithmetic import list_state

        rounds = self._state.require_rounds()
        # In asynchronous training the other trainers continue while trainer 0 fetches the state. On a sparse service, a
        # request for rows changes these rows.
        changes = rounds.is_asynchronous or not rounds.answers_with_values
        counters, arrays = list_state(rounds.shard, copies=changes and self._state.in_pass)
        arrays += self.blobs.list_arrays()
        self._arrays = [view for _, _, view in arrays]
        trainers = self._sessions.trainers
        note = {
            "trainers": [trainers[number].checkpoint_part for number in range(self._sessions.identity.num_trainers)],
            "counters": counters,
            "arrays": [[name, dtype, len(view)] for name, dtype, view in arrays],
        }
        return [trainers[0].reply(Op.CHECKPOINT, note=note)]

    def fetch_state(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        """Answer with an array of the checkpoint's state."""
        trainer.take(message, "asked for the state")
        # the request goes to all services, including those whose state has fewer arrays
        number = message.argument - Fetch.STATE
        array = self._arrays[number : number + 1]
        return trainer.reply_array(Op.FETCH, array[0] if array else memoryview(b""))

    def fetch_blob(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        """Answer with a trainer's stored binary data."""
        trainer.take(message, "asked for its checkpoint blob")
        return trainer.reply_array(Op.FETCH, memoryview(self.blobs.whole.get(trainer.number, b"")))


def leaves(trainer: TrainerSession) -> bool:
    """Return whether a trainer's part of the checkpoint announces that the trainer leaves afterwards."""
    part = trainer.checkpoint_part
    return isinstance(part, dict) and part.get(LEAVES) is True
