"""Names of Horovod that `paddle.elastic` does not have, each with its replacement."""

from __future__ import annotations

_BY_HAND = "call hvd.allreduce with the gradients as numpy arrays before the step of the optimiser"
_ALL_RANKS = "every collective includes all ranks; delete the argument process_set=..."
_STATES = "use hvd.elastic.ArrayState for numpy arrays, or a subclass of hvd.elastic.State"
REPLACEMENTS = {
    "DistributedOptimizer": _BY_HAND,
    "DistributedGradientTape": _BY_HAND,
    "DistributedTrainer": _BY_HAND,
    "Compression": "delete the argument compression=...; for smaller messages convert the arrays, for example to "
    "float16, before the collective",
    "Adasum": "use op=hvd.Average or op=hvd.Sum",
    "broadcast_optimizer_state": "broadcast the state as a dictionary of numpy arrays with hvd.broadcast_parameters",
    "broadcast_variables": "use hvd.broadcast_parameters with a dictionary of numpy arrays",
    "alltoall": "use hvd.allgather, and select the rows of this rank",
    "reducescatter": "use hvd.allreduce, and select the rows of this rank",
    "join": "use hvd.elastic.ElasticSampler, which gives every rank the same number of samples",
    "ProcessSet": _ALL_RANKS,
    "add_process_set": _ALL_RANKS,
    "remove_process_set": _ALL_RANKS,
    "global_process_set": _ALL_RANKS,
    "TorchState": _STATES,
    "TensorFlowState": _STATES,
    "TensorFlowKerasState": _STATES,
    "KerasState": _STATES,
}


def explain_absence(module: str, name: str) -> str:
    """Return the message of the AttributeError for a name that a module does not have."""
    hint = f": {REPLACEMENTS[name]} (docs/worker-script.md)" if name in REPLACEMENTS else ""
    return f"module {module!r} has no attribute {name!r}{hint}"
