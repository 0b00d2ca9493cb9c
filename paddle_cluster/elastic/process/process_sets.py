"""The process sets that a training script names; names and meaning are those of Horovod's `hvd`.

`paddle_cluster.elastic.process.set_registry` says how long a set lives.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.set_registry import ProcessSet as ProcessSet

global_process_set: ProcessSet = WORKER.sets.whole


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set of ranks in this generation; every rank of the job calls this function with the same ranks.

    Raises: ValueError: the ranks add different sets, the set is registered already, or the sets are not dynamic.
        ConfigError: `init` was not called.
    """
    return WORKER.sets.add(process_set)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set; every rank of the job calls this function with the same set.

    Returns: False for the set of all ranks, and for a set that is not registered.
    """
    return WORKER.sets.remove(process_set)
