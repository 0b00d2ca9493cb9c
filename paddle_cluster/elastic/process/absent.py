"""Names of Horovod that `paddle.elastic` does not have, each with its replacement."""

from __future__ import annotations

_TORCH = "with PyTorch, `import paddle.elastic.torch as hvd`; otherwise "
_BY_HAND = "call hvd.allreduce with the gradients as numpy arrays before the step of the optimiser"
_STATES = "use hvd.elastic.ArrayState for numpy arrays, or a subclass of hvd.elastic.State"
REPLACEMENTS = {
    "DistributedOptimizer": _TORCH + _BY_HAND,
    "DistributedGradientTape": _BY_HAND,
    "DistributedTrainer": _BY_HAND,
    "Compression": f"{_TORCH}delete the argument compression=...; for smaller messages convert the arrays, for example "
    "to float16, before the collective",
    "Adasum": f"{_TORCH}use op=hvd.Average or op=hvd.Sum",
    "SyncBatchNorm": f"{_TORCH}average the sums of the batch with hvd.allreduce",
    "broadcast_optimizer_state": f"{_TORCH}broadcast the state as a dictionary of numpy arrays with "
    "hvd.broadcast_parameters",
    "broadcast_variables": "use hvd.broadcast_parameters with a dictionary of numpy arrays",
    "TorchState": "`import paddle.elastic.torch as hvd` has it",
    "TensorFlowState": _STATES,
    "TensorFlowKerasState": _STATES,
    "KerasState": _STATES,
}


def explain_absence(module: str, name: str) -> str:
    """Return the message of the AttributeError for a name that a module does not have."""
    hint = f": {REPLACEMENTS[name]} (docs/horovod.md)" if name in REPLACEMENTS else ""
    return f"module {module!r} has no attribute {name!r}{hint}"
