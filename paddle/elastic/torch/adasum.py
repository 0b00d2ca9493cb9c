"""Adasum, a sum of gradients that adds parallel gradients as their average, and orthogonal ones as their sum.

Two gradients a and b of one tensor become

    (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b

and those of n ranks are joined in pairs: first the ranks 0 and 1, 2 and 3 and so on, then the results of these pairs.
Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020, which also requires that n is a
power of two. Each rank has a part of the tensors of all ranks, and the ranks add up the products of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle_cluster.elastic.process.operations import Sum, allgather, allreduce, alltoall
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__: list[str] = []

Flat = npt.NDArray[Any]
LEAST = 1.5e-154  # square of a length below which a tensor counts as zero: the root of the smallest float64
BLOCK = 1 << 16  # number of elements of a product that is computed in float64 at a time


def check_size(size: int) -> None:
    """Raises: NotImplementedError: the number of ranks is no power of two."""
    if size & (size - 1):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet; there are {size} ranks"
        )


def reduce_(
    tensors: Sequence[torch.Tensor], process_set: ProcessSet = global_process_set, name: str | None = None
) -> None:
    """Replace contiguous tensors of floating point numbers by the Adasum of all ranks.

    Each tensor is joined by its own products. All ranks have the same bits in the end.

    Args: name: begin of the names of the collectives; None: they are called in the same order on all ranks.
    Raises: NotImplementedError: the number of ranks is no power of two.  TypeError: a tensor has other numbers.
    """
    for one in tensors:
        if not one.is_floating_point():
            raise TypeError(f"Adasum adds tensors of floating point numbers, and not of {one.dtype}")
    size = process_set.size()
    check_size(size)
    if size == 1:
        return
    for dtype in (torch.float32, torch.float64):
        same = [one for one in tensors if (one.dtype == torch.float64) == (dtype == torch.float64) and one.numel()]
        if not same:
            continue
        whole = torch.cat([one.detach().reshape(-1).to("cpu", dtype) for one in same]).numpy()
        ends = np.cumsum([one.numel() for one in same])
        result = torch.from_numpy(_reduce(whole, ends, process_set, name and f"{name}.{dtype}"))
        for one, begin in zip(same, [0, *ends[:-1].tolist()], strict=True):
            one.detach().copy_(result[begin : begin + one.numel()].view(one.shape))


def _reduce(whole: Flat, ends: npt.NDArray[np.int64], process_set: ProcessSet, name: str | None) -> Flat:
    """Return the Adasum of the tensors of all ranks.

    Shapes: whole (n,), the tensors of this rank one after another; ends (number of tensors,).
    """
    size, rank = process_set.size(), process_set.rank()
    assert rank is not None
    width = -(-len(whole) // size)  # elements of the part of a rank
    padded = np.zeros(width * size, whole.dtype)
    padded[: len(whole)] = whole
    parts = list(_exchange(padded, name, process_set).reshape(size, width))
    inside = np.clip(ends - rank * width, 0, width)
    step = 0
    while len(parts) > 1:
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        products = np.array([_multiply(first, second, inside) for first, second in pairs])
        products = allreduce(products, op=Sum, name=name and f"{name}.{step}", process_set=process_set)
        parts = [_join(*pair, own, inside) for pair, own in zip(pairs, products, strict=True)]
        step += 1
    return allgather(parts[0], name=name and f"{name}.result", process_set=process_set)[: len(whole)]


def _exchange(padded: Flat, name: str | None, process_set: ProcessSet) -> Flat:
    """Return this rank's part of the tensors of every rank."""
    return alltoall(padded, name=name and f"{name}.parts", process_set=process_set)


def _multiply(first: Flat, second: Flat, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a.a, b.b and a.b of the part of each tensor. Shapes: first, second (width,); result (tensors, 3)."""
    products = np.zeros((len(ends), 3))
    begin = 0
    for number, end in enumerate(ends.tolist()):
        for start in range(begin, end, BLOCK):
            a, b = (one[start : min(start + BLOCK, end)].astype(np.float64, copy=False) for one in (first, second))
            products[number] += np.dot(a, a), np.dot(b, b), np.dot(a, b)
        begin = end
    return products


def _join(first: Flat, second: Flat, products: npt.NDArray[np.float64], ends: npt.NDArray[np.int64]) -> Flat:
    """Return the Adasum of two parts. Shapes: first, second, result (width,); products (tensors, 3)."""
    lengths, dots = products[:, :2], products[:, 2:]
    shares = 1.0 - np.divide(dots, 2.0 * lengths, out=np.zeros_like(lengths), where=lengths >= LEAST)
    result = np.empty_like(first)
    begin = 0
    for (of_first, of_second), end in zip(shares.tolist(), ends.tolist(), strict=True):
        result[begin:end] = first[begin:end] * of_first
        result[begin:end] += second[begin:end] * of_second
        begin = end
    result[begin:] = 0
    return result
