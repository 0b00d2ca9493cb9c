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
    hint = f": {REPLACEMENTS[name]} (docs/worker-script.md)" if name in REPLACEMENTS else ""
    return f"module {module!r} has no attribute {name!r}{hint}"


# Scripts for Horovod call these functions before they use a feature, for example `if hvd.nccl_built(): ...`.


def gloo_built(verbose: bool = False) -> bool:
    """Return True, because the workers have their own transport in place of Gloo."""
    return True


def mpi_built(verbose: bool = False) -> bool:
    """Return False, because no job can run by MPI."""
    return False


def nccl_built(verbose: bool = False) -> int:
    """Return 0 as the version of NCCL, because no job uses NCCL."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Return False, because no job uses DDL."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return False, because no job uses oneCCL."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """Return False, because collectives take only arrays in the memory of the host."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Return False, because collectives take only arrays in the memory of the host."""
    return False


def gloo_enabled() -> bool:
    """Return True; see `gloo_built`."""
    return gloo_built()


def mpi_enabled() -> bool:
    """Return False; see `mpi_built`."""
    return mpi_built()
