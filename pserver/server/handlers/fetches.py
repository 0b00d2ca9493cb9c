"""Answer FETCH with values, averages, rows, or data of the other handlers. No I/O."""

from __future__ import annotations

from paddle_base.runtime.errors import BugError
from pserver.server.handlers.checkpoints import Checkpoints
from pserver.server.handlers.initial_values import InitialValues
from pserver.server.service_state import ServiceState, length_of
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire.protocol import Fetch, Message, Op


class Fetches:
    """Answers the FETCH requests of one service."""

    def __init__(self, state: ServiceState, initial_values: InitialValues, checkpoints: Checkpoints) -> None:
        self._state, self._initial_values, self._checkpoints = state, initial_values, checkpoints

    def fetch(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Answer with the data that the message's argument names."""
        kind = message.argument
        if kind == Fetch.INITIAL:
            return self._initial_values.fetch(trainer, message)
        self._state.require_rounds()
        if kind >= Fetch.STATE:
            return self._checkpoints.fetch_state(trainer, message)
        if kind == Fetch.CHECKPOINT_BLOB:
            return self._checkpoints.fetch_blob(trainer, message)
        if kind == Fetch.ROWS:
            return self._fetch_rows(trainer, message)
        if kind == Fetch.AVERAGES:
            return self._fetch_averages(trainer, message)
        if kind == Fetch.CURRENT:
            return self._fetch_values(trainer, message)
        raise BugError(f"{trainer} fetches data of kind {kind}, which does not exist")

    def _fetch_rows(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        rows = self._state.require_rounds().look_up(
            trainer.number, message.piece, trainer.payload_of(message), length_of(message)
        )
        batch, number = self._state.batch + 1, trainer.progress.passes
        trainer.take(message, f"asked for the rows of batch {batch} of pass {number}")
        return [] if rows is None else trainer.reply_array(Op.FETCH, rows)

    def _fetch_averages(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        # imported here, because importing numpy would delay the first hello (by 0.15 s in bench/launch.py)
        from pserver.server.arithmetic import average

        # `average` returns a new array, because the values may not have been sent to all trainers yet
        averages = average(self._state.require_rounds().shard)
        trainer.take(message, "asked for the averages")
        return trainer.reply_array(Op.FETCH, averages)

    def _fetch_values(self, trainer: TrainerSession, message: Message) -> list[Outgoing]:
        trainer.take(message, "asked for the values")
        rounds = self._state.require_rounds()
        # inside a pass the values are copied, because other trainers may continue meanwhile
        values = memoryview(bytearray(rounds.values)) if self._state.in_pass else rounds.values
        return trainer.reply_array(Op.FETCH, values)
