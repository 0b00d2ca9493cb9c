"""SAVE and LOAD: a service writes its values to a file, or reads them from a file, in a background thread. No I/O."""

from __future__ import annotations

from functools import partial

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError
from paddle_base.runtime.schema import Text
from pserver.server.handlers.background_task import BackgroundTask
from pserver.server.service_state import ServiceState
from pserver.server.session_table import SessionTable
from pserver.server.trainer_session import Outgoing, TrainerSession
from pserver.wire import notes
from pserver.wire.protocol import Message, Op

_DIRECTORY = Text(notes.MAX_TEXT)


class ValueFileRequests:
    """Write or read the file of a service's values; a service handles one request at a time."""

    def __init__(self, sessions: SessionTable, state: ServiceState) -> None:
        self._sessions, self._state = sessions, state
        self._task: BackgroundTask | None = None
        self._asked_by: tuple[TrainerSession, Op] | None = None  # the trainer that waits for the task, and its request

    def begin(self, trainer: TrainerSession, message: Message, now: float) -> list[Outgoing]:
        """Start to write the values to a file, or to read the values from a file.

        If the config enables averaging, the averages are written. Trainer 0 sends the request between two rounds and
        waits for the answer. No step is therefore taken meanwhile, except in asynchronous training, in which a copy of
        the values is written.
        """
        # imported here, because importing numpy would delay the first hello (by 0.15 s in bench/launch.py)
        from pserver.server.arithmetic import values_to_save
        from pserver.store import value_files

        rounds = self._state.require_rounds()
        directory = notes.get(message.note, "directory", _DIRECTORY)
        if trainer.number != 0 or self._task or not directory.startswith("/"):
            raise BugError(
                f"{trainer} cannot save or load values in '{directory}': only trainer 0 may request it, with an "
                "absolute directory, and only one request at a time"
            )
        path = value_files.path_of(directory, int(trainer.hello["service"]))
        if message.op == Op.SAVE:
            trainer.take(message, f"asked to save {path}")
            copies = rounds.is_asynchronous and self._state.in_pass
            call = partial(value_files.save, path, values_to_save(rounds, copies=copies))
        else:
            if self._state.in_pass or rounds.shard.steps:
                raise BugError(f"{trainer} cannot load values after the first step")
            trainer.take(message, f"asked to load {path}")
            call = partial(value_files.load, path, rounds.shard.values)
        glog.info(f"{self._sessions.identity}: {message.op.name.lower()} {path}")
        self._task, self._asked_by = BackgroundTask(call), (trainer, message.op)
        return []

    def check(self) -> list[Outgoing]:
        """Answer the request when the file is written or read; the answer contains the error, if any."""
        if self._task is None or self._asked_by is None or not self._task.is_done:
            return []
        error, (trainer, op) = self._task.error, self._asked_by
        self._task = self._asked_by = None
        if error is None:
            return [trainer.reply(op)]
        return [trainer.send(self._sessions.make_error(trainer.number, trainer.request.sequence, error))]
