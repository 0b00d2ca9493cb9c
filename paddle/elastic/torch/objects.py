"""Objects of plain data that ranks exchange."""

from __future__ import annotations

from typing import Any

from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    unsafe_pickle: bool = False,
) -> Any:
    """Send an object from the root to all ranks of the set; return the object.

    Args: obj: only the object of the root counts.  unsafe_pickle: send any object by pickle; the root can then run any
        code on every rank.
    Raises: TypeError: the object has a part that cannot be sent without pickle; the message names the part.
    """
    return operations.broadcast_object(obj, root_rank, name, process_set=process_set, unsafe_pickle=unsafe_pickle)


def allgather_object(obj: object, name: str | None = None, *, unsafe_pickle: bool = False) -> list[Any]:
    """Return the objects of all ranks, by rank; see `broadcast_object`."""
    return operations.allgather_object(obj, name, unsafe_pickle=unsafe_pickle)
