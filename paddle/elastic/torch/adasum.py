"""Adasum, a sum of gradients that adds parallel gradients as their average, and orthogonal ones as their sum.

Two gradients a and b of one tensor become

    (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b

and those of n ranks are joined in pairs: first the ranks 0 and 1, 2 and 3 and so on, then the results of these pairs.
Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020, which also requires that n is a
power of two. All ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

Flat = npt.NDArray[Any]
Products = npt.NDArray[np.float64]
LEAST = 1.5e-154  # square of a length below which a tensor counts as zero: the root of the smallest float64
BLOCK = 1 << 16  # number of elements of a product that is computed in float64 at a time


class PendingAdasum:
    """The Adasum of tensors that has begun.

    Every rank gets the tensors of all ranks, so that `wait` needs no further exchange, and a script may wait for
    several results in any order. `reduce_` sends less.

    Args: name, prescale, postscale: as of an all-reduce.
    Raises: NotImplementedError: the number of ranks is no power of two.  TypeError: a tensor has no floating point
        numbers.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        name: str | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        _check(tensors, process_set)
        self._tensors, self._postscale = tensors, postscale
        own = [one.detach().to("cpu", _working_type(one)).reshape(1, -1) * prescale for one in tensors]
        self._pending = operations.grouped_allgather_async([one.numpy() for one in own], name, process_set)

    def poll(self) -> bool:
        """Return at once whether all tensors are there."""
        return self._pending.poll()

    def wait(self) -> list[torch.Tensor]:
        """Wait for the tensors of all ranks, and return the results in the types of the tensors, on their devices."""
        results = []
        for tensor, every in zip(self._tensors, self._pending.wait(), strict=True):
            whole = _join_all(list(every), np.array([every.shape[1]]), lambda products: products)
            result = torch.from_numpy(whole) * self._postscale
            results.append(result.reshape(tensor.shape).to(tensor.device, tensor.dtype))
        return results


def reduce_(tensors: Sequence[torch.Tensor], process_set: ProcessSet = global_process_set) -> None:
    """Replace contiguous tensors of floating point numbers by the Adasum of all ranks; wait for the result.

    Each tensor is joined by its own products. A rank joins its part of the tensors of all ranks, and the ranks add up
    the products of the parts, so that a rank sends about as much as in an all-reduce.

    Raises: see `PendingAdasum`.
    """
    _check(tensors, process_set)
    if process_set.group.size == 1:
        return
    for dtype in (torch.float32, torch.float64):
        same = [one for one in tensors if _working_type(one) == dtype and one.numel()]
        if not same:
            continue
        whole = torch.cat([one.detach().reshape(-1).to("cpu", dtype) for one in same]).numpy()
        ends = np.cumsum([one.numel() for one in same])
        result = torch.from_numpy(_reduce_parts(whole, ends, process_set))
        for one, begin in zip(same, [0, *ends[:-1].tolist()], strict=True):
            one.detach().copy_(result[begin : begin + one.numel()].view(one.shape))


def _check(tensors: Sequence[torch.Tensor], process_set: ProcessSet) -> None:
    for one in tensors:
        if not one.is_floating_point():
            raise TypeError(f"Adasum adds tensors of floating point numbers, and not of {one.dtype}")
    size = process_set.group.size
    if size & (size - 1):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet; there are {size} ranks"
        )


def _working_type(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _reduce_parts(whole: Flat, ends: npt.NDArray[np.int64], process_set: ProcessSet) -> Flat:
    """Return the Adasum of the tensors of all ranks.

    Shapes: whole (n,), the tensors of this rank one after another; ends (number of tensors,).
    """
    size, rank = process_set.group.size, process_set.group.rank
    width = -(-len(whole) // size)  # elements of the part of a rank
    padded = np.zeros(width * size, whole.dtype)
    padded[: len(whole)] = whole
    parts = operations.alltoall(padded, process_set=process_set)

    def add(products: Products) -> Products:
        step = operations.allreduce(products, op=operations.Sum, process_set=process_set)
        return np.asarray(step)

    own = _join_all(list(np.asarray(parts).reshape(size, width)), np.clip(ends - rank * width, 0, width), add)
    result: Flat = operations.allgather(own, process_set=process_set)
    return result[: len(whole)]


def _join_all(parts: list[Flat], ends: npt.NDArray[np.int64], add: Callable[[Products], Products]) -> Flat:
    """Return the Adasum of the parts of all ranks, or of whole tensors.

    Shapes: parts (size of (n,)); ends (number of tensors,).  Args: add: returns the sums of products over all parts of
    the tensors. Shapes: (number of pairs, number of tensors, 3).
    """
    while len(parts) > 1:
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        products = add(np.array([_multiply(first, second, ends) for first, second in pairs]))
        parts = [_join(*pair, own, ends) for pair, own in zip(pairs, products, strict=True)]
    return parts[0]


def _multiply(first: Flat, second: Flat, ends: npt.NDArray[np.int64]) -> Products:
    """Return a.a, b.b and a.b of the part of each tensor. Shapes: first, second (width,); result (tensors, 3)."""
    products = np.zeros((len(ends), 3))
    begin = 0
    for number, end in enumerate(ends.tolist()):
        for start in range(begin, end, BLOCK):
            a, b = (one[start : min(start + BLOCK, end)].astype(np.float64, copy=False) for one in (first, second))
            products[number] += np.dot(a, a), np.dot(b, b), np.dot(a, b)
        begin = end
    return products


def _join(first: Flat, second: Flat, products: Products, ends: npt.NDArray[np.int64]) -> Flat:
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
