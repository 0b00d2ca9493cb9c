"""The collectives as functions of autograd, whose gradients are collectives, too.

The meaning of the gradients is Horovod's: every rank differentiates its own loss, and gradients are averaged, so each
`backward` runs on all ranks of the set. Source: spec/elastic.md, 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from paddle.elastic.torch.asynchronous import (
    Average,
    Sum,
    allgather_async,
    allreduce_async,
    alltoall_async,
    broadcast_async,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_broadcast_async,
    grouped_reducescatter_async,
    reducescatter_async,
    synchronize,
)
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.process_sets import ProcessSet

Gradients = tuple[torch.Tensor | None, ...]


class AllreduceFunction(torch.autograd.Function):
    """Of several tensors, and alike of one: the gradient is the same all-reduce of the gradients."""

    @staticmethod
    def forward(ctx: Any, name: str | None, arguments: tuple[Any, ...], *tensors: torch.Tensor) -> Any:
        """Return the reductions. Args: arguments: op, the two factors and the set of ranks."""
        ctx.arguments = arguments
        return _reduce_all(tensors, name, arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the tensors."""
        return None, None, *_reduce_all([one.contiguous() for one in gradients], None, ctx.arguments)


class AllgatherFunction(torch.autograd.Function):
    """The gradient is the average of all ranks' gradients, of which a rank takes the rows that it has sent."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        """Return the rows of all ranks."""
        if len(tensors) == 1:
            gathered = [synchronize(allgather_async(tensors[0], name, process_set))]
        else:
            gathered = synchronize(grouped_allgather_async(tensors, name, process_set))
        ctx.shapes, ctx.process_set = [tensor.shape for tensor in tensors], process_set
        return tuple(gathered)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the tensors."""
        process_set = ctx.process_set
        averages = _reduce_all([one.contiguous() for one in gradients], None, (Average, 1.0, 1.0, process_set))
        own = [shape[0] if shape else 1 for shape in ctx.shapes]
        rows = synchronize(allgather_async(torch.tensor([own]), None, process_set))
        starts = rows[: process_set.rank()].sum(0).tolist()
        return (
            None,
            None,
            *(
                average.narrow(0, start, count).reshape(shape)
                for average, start, count, shape in zip(averages, starts, own, ctx.shapes, strict=True)
            ),
        )


class BroadcastFunction(torch.autograd.Function):
    """The gradient of the root is the average of all ranks' gradients; that of the others is zero."""

    @staticmethod
    def forward(ctx: Any, root_rank: int, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        """Return the tensors of the root."""
        ctx.root_rank, ctx.process_set = root_rank, process_set
        if len(tensors) == 1:
            return (synchronize(broadcast_async(tensors[0], root_rank, name, process_set)),)
        return tuple(synchronize(grouped_broadcast_async(tensors, root_rank, name, process_set)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the tensors."""
        arguments = (Average, 1.0, 1.0, ctx.process_set)
        averages = _reduce_all([one.contiguous() for one in gradients], None, arguments)
        is_root = operations.rank() == ctx.root_rank
        return None, None, None, *(one if is_root else torch.zeros_like(one) for one in averages)


class AlltoallFunction(torch.autograd.Function):
    """The gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        """Return the received rows, and their number by rank."""
        received, rows = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.rows, ctx.shape, ctx.process_set = rows, tensor.shape, process_set
        ctx.mark_non_differentiable(rows)
        return received, rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> Gradients:
        """Return the gradient of the tensor; that of rows that were not sent is zero."""
        back, _ = synchronize(alltoall_async(gradient.contiguous(), ctx.rows, None, ctx.process_set))
        if back.shape != ctx.shape:
            back = torch.cat((back, back.new_zeros(ctx.shape[0] - back.shape[0], *ctx.shape[1:])))
        return back, None, None, None


class ReducescatterFunction(torch.autograd.Function):
    """The gradient is the all-gather of the ranks' gradients, times their number for Sum, and times the factors."""

    @staticmethod
    def forward(ctx: Any, name: str | None, arguments: tuple[Any, ...], *tensors: torch.Tensor) -> Any:
        """Return this rank's rows of the reductions. Args: arguments: op, the set of ranks and the two factors."""
        if len(tensors) == 1:
            scattered = [synchronize(reducescatter_async(tensors[0], name, *arguments))]
        else:
            scattered = synchronize(grouped_reducescatter_async(tensors, name, *arguments))
        op, ctx.process_set, before, after = arguments
        ctx.factor = before * after * (ctx.process_set.size() if op == Sum else 1)
        return tuple(scattered)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the tensors."""
        scaled = [(one if ctx.factor == 1 else one * ctx.factor).contiguous() for one in gradients]
        handle = grouped_allgather_async(scaled, None, ctx.process_set)
        return None, None, *synchronize(handle)


def _reduce_all(tensors: Sequence[torch.Tensor], name: str | None, arguments: tuple[Any, ...]) -> Any:
    op, before, after, process_set = arguments
    if len(tensors) == 1:  # its name has no number
        return (synchronize(allreduce_async(tensors[0], None, name, op, before, after, process_set)),)
    return tuple(synchronize(grouped_allreduce_async(tensors, None, name, op, before, after, process_set)))
