"""Functions for a service's shard and gradients; this is the only module through which the service uses numpy.

The service imports this module when it computes for the first time, because without numpy a server answers its first
hello 0.15 s earlier. No I/O.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pserver.aggregate.async_dense import AsynchronousSteps
from pserver.aggregate.async_sparse import SparseSteps
from pserver.aggregate.staleness import StalenessLimits
from pserver.aggregate.sync_dense import SynchronousRounds
from pserver.aggregate.sync_sparse import SparseRounds
from pserver.aggregate.task_rounds import advance_pass
from pserver.store import snapshot
from pserver.store.model_setup import as_bytes
from pserver.store.shard import DenseShard, Shard
from pserver.store.shard_loader import ShardLoader
from pserver.store.sparse_shard import SparseShard

__all__ = [
    "Mode", "Rounds", "ShardLoader", "Steps", "advance_pass", "average", "list_state", "make_rounds", "values_to_save",
]  # fmt: skip

Rounds = SynchronousRounds | SparseRounds
Steps = AsynchronousSteps | SparseSteps
Mode = Rounds | Steps  # the object that receives the gradients


def make_rounds(shard: DenseShard | SparseShard, trainers: int, limits: StalenessLimits) -> Mode:
    """Return the object that receives the gradients of a shard.

    Args: trainers: number of trainers, or 0 if trainers join and leave.
        limits: limits of the age of gradients in asynchronous training.
    """
    is_asynchronous = shard.optimization.is_asynchronous
    if isinstance(shard, SparseShard) and is_asynchronous:
        return SparseSteps(shard, trainers, limits)
    if isinstance(shard, SparseShard):
        return SparseRounds(shard)
    if is_asynchronous:
        return AsynchronousSteps(shard, trainers, limits)
    return SynchronousRounds(shard)


def list_state(shard: Shard, *, copies: bool = False) -> tuple[dict[str, Any], list[tuple[str, str, memoryview]]]:
    """Return the state of a shard for the wire: its counters, and name, dtype and bytes of each array.

    Args: copies: whether the arrays are copied, which is necessary if the shard changes before they are read.
    """
    part = snapshot.take(shard)
    arrays = {name: array.copy() if copies else array for name, array in part.arrays.items()}
    return part.counters, [(name, array.dtype.str, as_bytes(array)) for name, array in arrays.items()]


def values_to_save(rounds: Mode, *, copies: bool) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the averages of recent values if the settings request them, otherwise the values.

    Args: copies: whether the values are copied, which is necessary if the shard changes before they are written.
    """
    if rounds.shard.is_averaged:
        return rounds.shard.averages()
    values = np.frombuffer(rounds.values, np.float32)
    return values.copy() if copies else values


def average(shard: Shard) -> memoryview:
    """Return the averages of recent values as bytes."""
    return as_bytes(shard.averages())
