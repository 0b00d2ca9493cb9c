"""`hvd.elastic`: states, samplers, and the loop that continues after a failure or a change of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle_cluster.elastic.callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from paddle_cluster.elastic.process.absent import explain_absence
from paddle_cluster.elastic.sampler import ElasticSampler
from paddle_cluster.elastic.state import ArrayState, ObjectState, State, run

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

if not TYPE_CHECKING:  # a type checker must still report an unknown name

    def __getattr__(name: str) -> None:
        """Raise an AttributeError, which names the replacement of a name that only Horovod has."""
        raise AttributeError(explain_absence(__name__, name))
