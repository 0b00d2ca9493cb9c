"""A worker for a test with three ranks: it checks what needs processes, and returns "checked"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import paddle.elastic.torch as hvd
from paddle.elastic.torch.compression import Compression
from paddle.elastic.torch.mpi_ops import allreduce_async_, synchronize
from paddle.elastic.torch.sync_batch_norm import SyncBatchNorm


def refuses(kind: type[Exception], text: str, call: Callable[..., Any], *arguments: Any, **more: Any) -> None:
    try:
        call(*arguments, **more)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{call} has not raised {kind}")


def check_before() -> None:
    """Nothing runs before `init`."""
    assert not hvd.is_initialized()
    assert hvd.global_process_set.rank() is None
    refuses(Exception, "hvd.init() has not been called", hvd.allreduce, torch.ones(1))
    refuses(ValueError, "no job runs by MPI", hvd.init, comm=[0, 1])


def check_world() -> None:
    assert hvd.is_initialized()
    assert hvd.size() == hvd.local_size() == 3 and hvd.cross_size() == 1
    assert hvd.rank() == hvd.local_rank() and hvd.cross_rank() == 0
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_enabled() and not hvd.nccl_built()
    assert not any((hvd.mpi_built(), hvd.cuda_built(), hvd.rocm_built(), hvd.ddl_built(), hvd.ccl_built()))
    refuses(ValueError, "Horovod MPI is not enabled; Please make sure it's installed", hvd.mpi_threads_supported)
    hvd.start_timeline("/nowhere/timeline.json", mark_cycles=True)
    hvd.stop_timeline()
    assert [int(op) for op in (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)] == list(range(6))
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert Compression is hvd.Compression and SyncBatchNorm is hvd.SyncBatchNorm
    tensor = torch.full((3,), float(hvd.rank()))
    assert synchronize(allreduce_async_(tensor, op=hvd.Sum)) is tensor and tensor.tolist() == [3.0] * 3


def check_sets(even: hvd.ProcessSet) -> None:
    """A set of the ranks 0 and 2, in which the ranks have the numbers 0 and 1."""
    rank = hvd.rank()
    assert hvd.global_process_set.ranks == [0, 1, 2] and hvd.global_process_set.process_set_id == 0
    assert even.size() == 2 and even.included() == (rank != 1) and even.rank() == {0: 0, 1: None, 2: 1}[rank]
    if rank == 1:
        refuses(ValueError, "not a member", hvd.allreduce, torch.ones(1), process_set=even)
    else:
        ones = torch.full((2,), float(rank), requires_grad=True)
        result = hvd.allreduce(ones, op=hvd.Average, process_set=even)
        (result * (rank + 1)).sum().backward()
        assert result.tolist() == [1.0, 1.0] and ones.grad.tolist() == [2.0, 2.0]
        assert hvd.allgather(torch.tensor([rank]), process_set=even).tolist() == [0, 2]
        assert hvd.broadcast(torch.tensor([rank]), 2, process_set=even).tolist() == [2]
        refuses(
            ValueError, "broadcast received invalid root rank 1 for provided process set",
            hvd.broadcast, torch.ones(1), 1, process_set=even,
        )  # fmt: skip
        assert hvd.alltoall(torch.tensor([rank, rank]), process_set=even).tolist() == [0, 2]
        assert hvd.reducescatter(torch.ones(3), op=hvd.Sum, process_set=even).tolist() == [[2, 2], [], [2]][rank]
        assert [one.item() for one in hvd.grouped_allreduce([torch.ones(1)], op=hvd.Sum, process_set=even)] == [2]
        assert hvd.broadcast_object({"of": rank} if rank == 2 else None, 2, process_set=even) == {"of": 2}
        sparse = hvd.sparse_allreduce_async(torch.eye(3)[rank : rank + 1].to_sparse(), "sparse", hvd.Average, even)()
        assert sparse.to_dense().tolist() == [[0.5, 0.0, 0.5]]
        hvd.barrier(process_set=even)
    hvd.barrier()


def check_join() -> None:
    """Ranks 1 and 2 have fewer batches than rank 0."""
    rank = hvd.rank()
    for batch in range(3 - rank):
        there = 3 - batch
        assert hvd.allreduce(torch.ones(2), op=hvd.Average).tolist() == [torch.tensor(there / 3).item()] * 2
    if rank == 0:
        refuses(RuntimeError, "", hvd.allgather, torch.ones(1))
    assert hvd.join() == 0
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 3


def main() -> str:
    torch.set_num_threads(1)
    check_before()
    hvd.init(process_sets="dynamic")
    check_world()
    even = hvd.add_process_set([2, 0])
    check_sets(even)
    refuses(ValueError, "Attempted to add a duplicate process set", hvd.add_process_set, hvd.ProcessSet([0, 2]))
    assert hvd.remove_process_set(even) and not hvd.remove_process_set(hvd.global_process_set)
    check_join()
    hvd.shutdown()
    assert not hvd.is_initialized()
    return "checked"
