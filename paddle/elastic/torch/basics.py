"""The functions of `hvd` that take no tensor: this worker, its job, and what this build has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from paddle_cluster.elastic.process.features import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    nccl_built,
    rocm_built,
)
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.operations import (
    barrier,
    cross_rank,
    cross_size,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from paddle_cluster.elastic.process.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "ProcessSet",
    "add_process_set",
    "barrier",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def init(comm: None = None, process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None) -> None:
    """Join the job; in a process without a launcher, begin a job with a single worker.

    Args: process_sets: the sets of ranks of the job, or "dynamic" to add and remove sets later.
    Raises: ValueError: `comm` is given, which selects the ranks of a job by MPI.
    """
    if comm is not None:
        raise ValueError("hvd.init(comm=...): no job runs by MPI; give process_sets=[hvd.ProcessSet(ranks)]")
    WORKER.init(process_sets)


def mpi_threads_supported() -> bool:
    """Raise ValueError as Horovod does without MPI, because no job runs by MPI."""
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Do nothing: there is no timeline of Horovod. The report of a job shows its times."""


def stop_timeline() -> None:
    """Do nothing; see `start_timeline`."""
