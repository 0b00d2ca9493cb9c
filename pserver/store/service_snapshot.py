"""What a service of an elastic job goes on from: its values and optimiser, and what it knows of trainers.

It is taken between two messages and stored by `pserver.store.snapshot_files`; a `SnapshotQueue` says what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pserver.store import snapshot
from pserver.store.model_setup import as_bytes
from pserver.store.shard import DenseShard, Shard
from pserver.store.shard_loader import ShardLoader
from pserver.store.sparse_shard import SparseShard
from pserver.wire import protocol
from runtime.errors import BugError, ConfigError, DamagedError

HELLO_KEYS = ("service", "services", "parameters")  # of a hello, which the shard depends on


@dataclass(frozen=True)
class ServiceSnapshot:
    """The state of one service.

    hello: HELLO_KEYS of the trainer that gave the first values.  setup: the note of its INITIALISE.
    counters, arrays: as of `snapshot.Part`; the arrays are nobody else's.  elastic: JSON of the service itself: what it
    knows of the trainers' pushes.
    """

    hello: dict[str, Any]
    setup: dict[str, Any]
    counters: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    elastic: dict[str, Any]


class SnapshotQueue:
    """Which snapshots are wanted and stored; they are numbered from 1. The event loop's thread alone uses it."""

    def __init__(self) -> None:
        self.taken = 0  # number of the last one whose state was copied
        self.stored = 0  # number of the last one that outlasts this process
        self.wanted = 0

    def ask(self) -> int:
        """Return the number of the next snapshot, which is taken soon and has the state as it is now."""
        self.wanted = self.taken + 1
        return self.wanted


def take_service(
    shard: Shard, hello: Mapping[str, Any], setup: Mapping[str, Any], elastic: Mapping[str, Any]
) -> ServiceSnapshot:
    """Return the state of a service with copies of its arrays. Arguments as of `ServiceSnapshot`."""
    part = snapshot.take(shard)
    arrays = {name: array.copy() for name, array in part.arrays.items()}
    return ServiceSnapshot({key: hello[key] for key in HELLO_KEYS}, dict(setup), part.counters, arrays, dict(elastic))


def make_shard(found: ServiceSnapshot, threads: int = 1) -> DenseShard | SparseShard:
    """Return the shard of a service, with its values and the state of its optimiser.

    Args: threads: number of threads that take a step together.
    Raises: DamagedError: the parts of the snapshot do not fit each other.  ConfigError: it does not fit into memory.
    """
    flaw = snapshot.find_flaw(found.counters)
    if flaw or snapshot.VALUES not in found.arrays:
        raise DamagedError(f"it has {flaw or 'no values'}")
    names = sorted(found.arrays)
    try:
        loader = ShardLoader(found.hello, {**found.setup, "counters": found.counters, "arrays": names}, threads)
        _add(loader, snapshot.VALUES, found.arrays[snapshot.VALUES])
        for number, name in enumerate(names):
            if found.arrays[name].size:
                _add(loader, loader.name_of(number), found.arrays[name])
        if not loader.is_complete:
            raise BugError("an array is shorter than here")
    except BugError as exc:
        raise DamagedError(f"its parts do not fit each other: {exc}") from exc
    try:
        return loader.finish()
    except (BugError, ConfigError) as exc:
        raise DamagedError(f"its parts do not fit each other: {exc}") from exc


def _add(loader: ShardLoader, name: str, array: npt.NDArray[Any]) -> None:
    data = as_bytes(np.ascontiguousarray(array))
    for piece in range(protocol.count_pieces(len(data))):
        loader.add(name, piece, protocol.cut(data, piece))
