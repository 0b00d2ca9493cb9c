"""The content of the snapshot of a task job's service, and the functions that restore a service from it.

The module reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from paddle_base.runtime.errors import BugError, ConfigError, DamagedError
from paddle_base.runtime.schema import Items, Row, SchemaError
from pserver.server.tasks.roster import ROSTER, Roster
from pserver.store import snapshot
from pserver.store.shard import DenseShard, Shard
from pserver.store.shard_loader import restore_shard
from pserver.store.sparse_shard import SparseShard
from pserver.wire import notes, views
from pserver.wire.notes import show
from pserver.wire.views import NO_ROUND, RoundKey

# fields of a hello that must be equal in all trainers
MODEL_KEYS = ("dtype", "parameters", "service", "services", "settings", "shape")
_OWN = Items(Row((views.NUMBER, *views.ROUND.shapes)), notes.MAX_VALUES)


@dataclass(frozen=True)
class ServiceSnapshot:
    """The state of a service between two messages. `note` is JSON-compatible; `arrays` maps names to arrays."""

    note: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


@dataclass
class TaskRecord:
    """The state of a service without its shard.

    - `model`: the fields MODEL_KEYS in the hello of the trainer that sent the initial values.
    - `setup`: the note of this trainer's INITIALISE.
    - `roster`: the stored data of each trainer.
    - `done`, `own`: the last completed round, and each trainer's last completed round; see `TwoPhaseRounds`.
    """

    model: Mapping[str, Any]
    setup: Mapping[str, Any]
    roster: Roster
    done: RoundKey = NO_ROUND
    own: Mapping[int, RoundKey] = field(default_factory=dict)

    def write(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "setup": dict(self.setup),
            "model": {key: self.model[key] for key in MODEL_KEYS},
            "trainers": self.roster.write(),
            "done": list(self.done),
            "own": [[number, *key] for number, key in self.own.items()],
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> TaskRecord:
        """Return the record from the JSON that `write` has returned.

        Raises: DamagedError: the JSON is not a record of a service.
        """
        try:
            model, setup = (notes.get(record, name, notes.OBJECT) for name in ("model", "setup"))
            if model.keys() != set(MODEL_KEYS):
                raise BugError(f"its model is invalid: {show(model)}")
            own = {number: RoundKey(*key) for number, *key in notes.get(record, "own", _OWN)}
            roster = Roster.read(notes.get(record, "trainers", ROSTER))
            return cls(model, setup, roster, RoundKey(*notes.get(record, "done", views.ROUND)), own)
        except BugError as exc:
            raise DamagedError(f"it is not the record of a service: {exc}") from exc


def make_snapshot(shard: Shard, record: TaskRecord, *, copies: bool) -> ServiceSnapshot:
    """Return the state of a service.

    Args: copies: whether the arrays are copied. Otherwise they are the shard's own arrays, which its next step changes.
    """
    part = snapshot.take(shard)
    arrays = {name: array.copy() if copies else array for name, array in part.arrays.items()}
    return ServiceSnapshot({**record.write(), "counters": part.counters}, arrays)


def read_snapshot(taken: ServiceSnapshot, threads: int) -> tuple[DenseShard | SparseShard, TaskRecord]:
    """Return the shard of a snapshot, and the service's record.

    Args: threads: number of threads that take a step together.
    Raises: DamagedError: the parts of the snapshot are inconsistent.
    """
    record = TaskRecord.read(taken.note)
    if snapshot.VALUES not in taken.arrays:
        raise DamagedError("it has no values")
    try:
        snapshot.COUNTERS.check(taken.note.get("counters"), "counters")
        part = snapshot.Part(taken.note["counters"], taken.arrays)
        return restore_shard(record.model, record.setup, part, threads), record
    except (BugError, ConfigError, SchemaError) as exc:
        raise DamagedError(f"its parts do not fit each other: {exc}") from exc
