"""The functions of `hvd` on tensors; names, arguments and meaning are those of `horovod.torch.mpi_ops`.

Every rank of the process set calls the same operations. An operation without a name gets the next number as its name,
so all ranks must call such operations in the same order. Results of the functions without the suffix `_` take part in
autograd. `asynchronous` says what every operation raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paddle.elastic.torch import asynchronous, basics
from paddle.elastic.torch.asynchronous import *
from paddle.elastic.torch.asynchronous import Average, read_op_or_adasum
from paddle.elastic.torch.autograd import (
    AllgatherFunction,
    AllreduceFunction,
    AlltoallFunction,
    BroadcastFunction,
    ReducescatterFunction,
)
from paddle.elastic.torch.basics import *
from paddle.elastic.torch.compression import Compression, Compressor
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__ = [
    *asynchronous.__all__,
    *basics.__all__,
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_broadcast",
    "grouped_broadcast_",
    "grouped_reducescatter",
    "reducescatter",
]


# ----- All-reduce -----


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the average, or another reduction, of the tensors of all ranks.

    Shapes: the tensor has the same shape on all ranks.
    Args: average: older form of `op`; True means Average, and False means Sum.  op: Average, Sum, Min, Max or Product.
        prescale_factor: number by which the tensors are multiplied.  postscale_factor: number by which the result is
        multiplied.
    """
    compressed, context = compression.compress(tensor)
    chosen = read_op_or_adasum(average, op)
    arguments = (chosen, prescale_factor, postscale_factor, process_set)
    (result,) = AllreduceFunction.apply(name, arguments, compressed)
    return compression.decompress(result, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the tensor by the reduction of all ranks; see `allreduce`."""
    op = read_op_or_adasum(average, op)
    return synchronize(allreduce_async_(tensor, None, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the reductions of several tensors, which are sent together; see `allreduce`."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    chosen = read_op_or_adasum(average, op)
    arguments = (chosen, prescale_factor, postscale_factor, process_set)
    results = AllreduceFunction.apply(name, arguments, *(tensor for tensor, _ in pairs))
    return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Replace several tensors by the reductions of all ranks; see `grouped_allreduce`."""
    op = read_op_or_adasum(average, op)
    return synchronize(
        grouped_allreduce_async_(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
    )


# ----- Others -----


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all ranks, concatenated by rank. Shapes: only the first dimension may differ."""
    return AllgatherFunction.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return what `allgather` returns for each of several tensors, which are sent together."""
    return list(AllgatherFunction.apply(name, process_set, *tensors))


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensor of the root on every rank.

    Shapes: the tensor has the same shape on all ranks.
    Args: root_rank: its rank in the job, also if the process set has other numbers.
    """
    return BroadcastFunction.apply(root_rank, name, process_set, tensor)[0]


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Replace the tensor by the tensor of the root; see `broadcast`."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def grouped_broadcast(
    tensors: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the tensors of the root on every rank, which are sent together; see `broadcast`."""
    return list(BroadcastFunction.apply(root_rank, name, process_set, *tensors))


def grouped_broadcast_(
    tensors: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Replace several tensors by the tensors of the root; see `broadcast`."""
    return synchronize(grouped_broadcast_async_(tensors, root_rank, name, process_set))


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send a part of the tensor to each rank; return the parts from all ranks, concatenated by rank.

    Shapes: parts are rows of the first dimension; the other dimensions are the same on all ranks.
    Args: splits: number of rows for each rank; further rows are not sent. None: equal parts.
    Returns: the received rows; if `splits` is given, also the number of rows from each rank.
    """
    received, rows = AlltoallFunction.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, rows)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this rank's rows of the average or the sum of the tensors of all ranks.

    Shapes: the tensor has the same shape on all ranks, with one dimension or more. The first ranks get one row more if
    the rows cannot be divided.
    """
    compressed, context = compression.compress(tensor)
    arguments = (op, process_set, prescale_factor, postscale_factor)
    (result,) = ReducescatterFunction.apply(name, arguments, compressed)
    return compression.decompress(result, context)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return what `reducescatter` returns for each of several tensors, which are sent together."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    arguments = (op, process_set, prescale_factor, postscale_factor)
    results = ReducescatterFunction.apply(name, arguments, *(tensor for tensor, _ in pairs))
    return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs, strict=True)]
