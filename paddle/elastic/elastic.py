"""`hvd.elastic`: states, samplers, and the loop that continues after a failure or a change of hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from paddle_cluster.elastic.callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from paddle_cluster.elastic.process.absent import explain_absence
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.sampler import ElasticSampler
from paddle_cluster.elastic.state import ArrayState, ObjectState, State, reset_worker, run_fn

__all__ = [
    "ArrayState",
    "CommitStateCallback",
    "ElasticSampler",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

P = ParamSpec("P")
R = TypeVar("R")


def run(func: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a function `train(state, ...)`; the wrapped function continues after a failure or a change of hosts.

    HorovodInternalError and HostsUpdatedInterrupt restart `func` with the remaining workers. The wrapped function ends
    when `func` returns or raises any other exception. No collective may run before the wrapped function, except those
    of `hvd.init`.

    Raises: RemovedFromJobError: the driver no longer has a slot for this worker; the worker must end.
    """
    return run_fn(func, reset_worker, WORKER.finish)


if not TYPE_CHECKING:  # a type checker must still report an unknown name

    def __getattr__(name: str) -> None:
        """Raise an AttributeError, which names the replacement of a name that only Horovod has."""
        raise AttributeError(explain_absence(__name__, name))
