"""What was built, which scripts for Horovod ask before they use a feature, as in `if hvd.nccl_built(): ...`."""

from __future__ import annotations


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
