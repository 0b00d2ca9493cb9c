"""Collectives on tensors that begin at once; `synchronize` waits for their results.

A CPU tensor is sent from its own memory, so it must not change before `synchronize`. Functions with the suffix `_`
write the result into the tensor. No function of this module takes part in autograd; those of `mpi_ops` do.

Every function raises ValueError for a tensor that is not contiguous or has no values, for a type that no collective
takes, and for a name that waits already. `synchronize` raises HorovodInternalError when a rank is lost, and
CollectiveMismatchError when the ranks disagree about shape, type or operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from paddle.elastic.torch.adasum import PendingAdasum
from paddle.elastic.torch.handles import HANDLES
from paddle.elastic.torch.tensors import AnyArray, check_tensor, make_tensor, read_tensor, write_tensor
from paddle_cluster.elastic.collectives.requests import Reduction
from paddle_cluster.elastic.errors import HorovodInternalError
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.operations import Average, Max, Min, Product, Sum
from paddle_cluster.elastic.process.pending import PendingResult, read_op, read_scatter_op
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather_async",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather_async",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_broadcast_async",
    "grouped_broadcast_async_",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]

Adasum = 2  # Horovod's number; `adasum` builds it from other collectives


def read_op_or_adasum(average: bool | None, op: int | None) -> int:
    """Return the reduction of an all-reduce of tensors, which may be Adasum; see `read_op`."""
    return Adasum if average is None and op == Adasum else read_op(average, op, stacklevel=4)


# ----- All-reduce -----


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an all-reduce; see `mpi_ops.allreduce`."""
    factors, chosen = (prescale_factor, postscale_factor), read_op_or_adasum(average, op)
    return _begin_allreduce([tensor], chosen, name, factors, process_set, in_place=False, is_group=False)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an all-reduce in place; see `mpi_ops.allreduce`."""
    factors, chosen = (prescale_factor, postscale_factor), read_op_or_adasum(average, op)
    return _begin_allreduce([tensor], chosen, name, factors, process_set, in_place=True, is_group=False)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an all-reduce of several tensors; the handle gives a list."""
    factors, chosen = (prescale_factor, postscale_factor), read_op_or_adasum(average, op)
    return _begin_allreduce(tensors, chosen, name, factors, process_set, in_place=False, is_group=True)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an all-reduce of several tensors in place; the handle gives the list of them.

    Raises: ValueError: two tensors of the list have the same memory, which would get two results.
    """
    factors, chosen = (prescale_factor, postscale_factor), read_op_or_adasum(average, op)
    return _begin_allreduce(tensors, chosen, name, factors, process_set, in_place=True, is_group=True)


def _begin_allreduce(
    tensors: Sequence[torch.Tensor],
    op: int,
    name: str | None,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
    is_group: bool,
) -> int:
    if op == Adasum:
        return _begin_adasum(tensors, name, factors, process_set, in_place=in_place, is_group=is_group)
    arrays = [read_tensor(tensor) for tensor in tensors]
    arguments = (None, name, op, *factors, process_set)
    if is_group:
        begin = operations.grouped_allreduce_async_ if in_place else operations.grouped_allreduce_async
        return _add_group(begin(arrays, *arguments), tensors, in_place=in_place)
    begin_one = operations.allreduce_async_ if in_place else operations.allreduce_async
    return _add(begin_one(arrays[0], *arguments), tensors[0], in_place=in_place)


def _begin_adasum(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
    is_group: bool,
) -> int:
    for tensor in tensors:
        check_tensor(tensor)  # the errors of every all-reduce

    def finish(results: list[torch.Tensor]) -> Any:
        if in_place:
            results = [tensor.detach().copy_(one) for tensor, one in zip(tensors, results, strict=True)]
        return results if is_group else results[0]

    return HANDLES.add(PendingAdasum(tensors, name, *factors, process_set), finish)


def _add(pending: PendingResult, tensor: torch.Tensor, *, in_place: bool = False) -> int:
    """Return the handle of a collective on a tensor, which receives the result if `in_place` is true."""
    finish = write_tensor if in_place else make_tensor
    return HANDLES.add(pending, lambda array: finish(array, tensor))


def _add_group(pending: PendingResult, tensors: Sequence[torch.Tensor], *, in_place: bool = False) -> int:
    """Return the handle of a group of collectives; see `_add`."""
    finish, kept = write_tensor if in_place else make_tensor, list(tensors)
    return HANDLES.add(pending, lambda arrays: [finish(*pair) for pair in zip(arrays, kept, strict=True)])


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Begin an all-reduce of a sparse tensor by two all-gathers; return the function that waits for the result.

    Shapes: the tensor has the same shape on all ranks, with any number of values.
    Args: op: Average or Sum.
    Raises: ValueError: another reduction.
    """
    if op not in (Average, Sum):
        raise ValueError(f"op is {op!r}; a sparse tensor can be reduced by hvd.Average or hvd.Sum")
    indices, values = tensor._indices().t().contiguous(), tensor._values().contiguous()
    handles = (
        allgather_async(indices, name and f"{name}.indices", process_set),
        allgather_async(values, name and f"{name}.values", process_set),
    )

    def finish() -> torch.Tensor:
        """Return the reduction of all ranks, in which an index may stand more than once."""
        all_indices, all_values = (synchronize(handle) for handle in handles)
        if op == Average:
            rounding = None if all_values.dtype.is_floating_point else "trunc"
            all_values = torch.div(all_values, process_set.size(), rounding_mode=rounding)
        # the check is for indices of other ranks, which would be written to anywhere in memory
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.size(), check_invariants=True)

    return finish


# ----- Others -----


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Begin an all-gather; see `mpi_ops.allgather`."""
    pending = operations.allgather_async(read_tensor(tensor), name, process_set=process_set)
    return _add(pending, tensor)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin an all-gather of several tensors; the handle gives a list."""
    arrays = [read_tensor(tensor) for tensor in tensors]
    pending = operations.grouped_allgather_async(arrays, name, process_set=process_set)
    return _add_group(pending, tensors)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin a broadcast; see `mpi_ops.broadcast`."""
    pending = operations.broadcast_async(read_tensor(tensor), root_rank, name, process_set=process_set)
    return _add(pending, tensor)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin a broadcast in place; see `mpi_ops.broadcast`."""
    pending = operations.broadcast_async_(read_tensor(tensor), root_rank, name, process_set=process_set)
    return _add(pending, tensor, in_place=True)


def grouped_broadcast_async(
    tensors: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast of several tensors; the handle gives a list."""
    arrays = [read_tensor(tensor) for tensor in tensors]
    pending = operations.grouped_broadcast_async(arrays, root_rank, name, process_set)
    return _add_group(pending, tensors)


def grouped_broadcast_async_(
    tensors: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast of several tensors in place; the handle gives the list of them."""
    arrays = [read_tensor(tensor) for tensor in tensors]
    pending = operations.grouped_broadcast_async_(arrays, root_rank, name, process_set)
    return _add_group(pending, tensors, in_place=True)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an all-to-all; the handle gives the received tensor and, as int32, the rows from each rank.

    See `mpi_ops.alltoall`.
    """
    rows = splits
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"splits has the type {splits.dtype}; it has to be a tensor of int32")
        rows = read_tensor(splits.contiguous())
    pending = operations.alltoall_async(read_tensor(tensor), rows, name, process_set=process_set)

    def finish(result: tuple[AnyArray, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        received, received_splits = result
        return make_tensor(received, tensor), torch.as_tensor(received_splits, dtype=torch.int32)

    return HANDLES.add(pending, finish)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reduce-scatter; see `mpi_ops.reducescatter`."""
    pending = operations.reducescatter_async(
        read_tensor(tensor), name, _read_scatter_op(op), process_set=process_set,
        prescale_factor=prescale_factor, postscale_factor=postscale_factor,
    )  # fmt: skip
    return _add(pending, tensor)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reduce-scatter of several tensors; the handle gives a list."""
    arrays = [read_tensor(tensor) for tensor in tensors]
    pending = operations.grouped_reducescatter_async(
        arrays, name, _read_scatter_op(op), process_set=process_set,
        prescale_factor=prescale_factor, postscale_factor=postscale_factor,
    )  # fmt: skip
    return _add_group(pending, tensors)


def _read_scatter_op(op: int) -> Reduction:
    try:
        return read_scatter_op(op)
    except ValueError as exc:  # with tensors Horovod raises this error, which its users catch
        raise HorovodInternalError(str(exc)) from exc


def poll(handle: int) -> bool:
    """Return at once whether a collective is done.

    Raises: ValueError: the handle is unknown, or `synchronize` has used it.
    """
    return HANDLES.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for a collective and return its result; None if the handle is unknown, or was used before."""
    return HANDLES.synchronize(handle)
