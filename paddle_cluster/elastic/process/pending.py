"""The collectives that have begun and that nobody has waited for yet, and the arguments of collectives."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_cluster.elastic.collectives.dtypes import DTYPES, name_dtype
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction, split_evenly
from paddle_cluster.elastic.collectives.waiting import CollectiveHandle, GroupHandle
from paddle_cluster.elastic.errors import ScalarError
from paddle_cluster.elastic.process.process_sets import ProcessSet

AnyArray = npt.NDArray[Any]
MAX_ROWS = (1 << 31) - 1  # maximum number of rows in an all-to-all, whose numbers of rows have the type int32
_BOOL = np.dtype(np.bool_)


class PendingResult:
    """A collective, or a group of collectives, that `synchronize` waits for.

    Args: targets: for each collective, the array of the script that receives the result, or None.
    Attributes: handle: None for an empty group, which is done.  is_group: whether the result is a list.
    """

    def __init__(
        self,
        group: RankGroup,
        handle: CollectiveHandle | GroupHandle | None,
        targets: Sequence[AnyArray | None],
    ) -> None:
        self.group, self.handle = group, handle
        self.is_group = not isinstance(handle, CollectiveHandle)
        self._targets = list(targets)

    def wait(self) -> Any:
        """Wait for the collectives; return what `synchronize` returns."""
        results = self.wait_for_arrays()
        return results if self.is_group else results[0]

    def wait_for_arrays(self) -> list[Any]:
        """Wait for the collectives; return their results."""
        if isinstance(self.handle, GroupHandle):
            self.group.wait_group(self.handle)
        elif self.handle is not None:
            self.group.wait(self.handle)
        parts = self.handle.parts if self.handle is not None else ()
        return [_take(part, target) for part, target in zip(parts, self._targets, strict=True)]

    def wait_for_array(self) -> AnyArray:
        """Wait for a single collective, which is no all-to-all; return its result."""
        result: AnyArray = self.wait_for_arrays()[0]
        return result

    def poll(self) -> bool:
        """Return at once whether the collectives are done."""
        if self.handle is None or self.handle.is_done:
            return True
        self.group.start()
        return self.handle.is_done


def _take(part: CollectiveHandle, target: AnyArray | None) -> Any:
    if target is not None and part.output is not target:
        assert part.output is not None
        target[...] = part.output.reshape(target.shape)
        part.output = target  # a further call must not change the array of the script once more
    if part.request.kind == CollectiveKind.ALLTOALL:
        return part.output, np.array(part.received_splits, np.int32)
    return part.output


def submit(
    kind: CollectiveKind,
    tensor: AnyArray,
    process_set: ProcessSet,
    name: str | None,
    *,
    target: AnyArray | None = None,
    **options: Any,
) -> PendingResult:
    """Begin a collective.

    Args: target: the array that receives the result; None: a new array.  options: see `RankGroup.submit`.
    """
    output = _check_target(target)
    group = process_set.group
    return PendingResult(group, group.submit(kind, tensor, name=name, output=output, **options), [target])


def submit_group(
    kind: CollectiveKind,
    tensors: Sequence[AnyArray],
    process_set: ProcessSet,
    name: str | None,
    *,
    targets: Sequence[AnyArray] | None = None,
    **options: Any,
) -> PendingResult:
    """Begin collectives of one kind, which run together; every error comes before any of them is requested.

    Args: targets: for each array, the array that receives the result; None: the results are new arrays.  options: see
        `RankGroup.submit_group`.
    Raises: ValueError: two targets have the same memory.
    """
    receivers: Sequence[AnyArray | None] = [None] * len(tensors) if targets is None else targets
    outputs = [_check_target(target) for target in receivers]
    _check_apart([output for output in outputs if output is not None])
    group = process_set.group
    if not tensors:  # all ranks know
        return PendingResult(group, None, ())
    handle = group.submit_group(kind, tensors, name=name, outputs=outputs, **options)
    return PendingResult(group, handle, receivers)


def _check_target(target: Any) -> AnyArray | None:
    """Return the array that a collective may write in place, or None if its result is copied afterwards."""
    if target is None:
        return None
    if not isinstance(target, np.ndarray):
        raise TypeError(f"a {type(target).__name__} cannot be changed in place; give a numpy array")
    if not target.flags.writeable:
        raise ValueError("the array is read-only, and cannot be changed in place; give a copy")
    return target if target.flags.c_contiguous else None


def _check_apart(outputs: Sequence[AnyArray]) -> None:
    """Refuse an array that stands twice in a group, also as a view: it would get two results, one from the other."""
    places = [output.__array_interface__["data"][0] for output in outputs if output.nbytes]
    if len(set(places)) < len(places):
        number = next(number for number, place in enumerate(places) if place in places[:number])
        raise ValueError(
            f"the arrays {places.index(places[number])} and {number} of a group in place have the same memory; name "
            "each of them once"
        )


def read_array(tensor: npt.ArrayLike) -> AnyArray:
    """Return the argument of a collective as an array.

    Raises: TypeError: no collective takes arrays of this type.
    """
    array = np.asarray(tensor)
    if array.dtype not in DTYPES:
        names = ", ".join(map(name_dtype, DTYPES))
        raise TypeError(f"an array of {array.dtype} cannot take part in this collective; these types can: {names}")
    return array


def read_summand(tensor: npt.ArrayLike, argument: int, prescale: float, postscale: float) -> AnyArray:
    """Return the argument of a reduction as an array.

    Args: argument, prescale, postscale: see `Request`.
    Raises: TypeError: no collective takes arrays of this type, or truth values have no such reduction.
    """
    array = read_array(tensor)
    if array.dtype == _BOOL and (argument == Reduction.AVERAGE or not prescale == postscale == 1.0):
        raise TypeError("truth values have no average and no scale factor; use op=hvd.Max for or, op=hvd.Min for and")
    return array


def read_rows(tensor: npt.ArrayLike, what: str) -> AnyArray:
    """Return the argument of a collective that distributes the rows of an array.

    Raises: TypeError: see `read_array`.  ScalarError: the array has no dimension.
    """
    array = read_array(tensor)
    if not array.shape:
        raise ScalarError(f"{what} needs an array with at least one dimension, whose rows are distributed")
    return array


def read_op(average: bool | None, op: int | None, stacklevel: int = 3) -> Reduction:
    """Return the reduction of an all-reduce from its two arguments.

    Args: stacklevel: place of the script among the callers, for the warning about `average`.
    Raises: ValueError: both arguments are given, or there is no such reduction.
    """
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn("average is deprecated; use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel)
        return Reduction.AVERAGE if average else Reduction.SUM
    try:
        return Reduction.AVERAGE if op is None else Reduction(op)
    except ValueError:
        raise ValueError(f"op is {op!r}; use hvd.Average, hvd.Sum, hvd.Min, hvd.Max or hvd.Product") from None


def read_scatter_op(op: int) -> Reduction:
    """Return the reduction of a reduce-scatter.

    Raises: ValueError: it is neither an average nor a sum.
    """
    if op not in (Reduction.AVERAGE, Reduction.SUM):
        raise ValueError("Reducescatter currently only supports AVERAGE and SUM.")
    return Reduction(op)


def read_root(root_rank: int, process_set: ProcessSet) -> int:
    """Return the number of the root in its set; `root_rank` is its number in the job.

    Raises: TypeError: the number is not whole.  ValueError: the root is not in the set.
    """
    root_rank, ranks = operator.index(root_rank), process_set.ranks
    if root_rank not in ranks:
        shown = ", ".join(map(str, ranks[:16])) + (" ..." if len(ranks) > 16 else "")
        raise ValueError(
            f"broadcast received invalid root rank {root_rank} for provided process set, whose ranks are {shown}"
        )
    return ranks.index(root_rank)


def read_splits(splits: npt.ArrayLike | None, rows: int, size: int) -> list[int]:
    """Return the number of rows for each rank in an all-to-all.

    Raises: ValueError: the numbers do not fit to the number of rows or of ranks.  TypeError: they are not whole.
    """
    if rows > MAX_ROWS:
        raise ValueError(f"the array of an all-to-all has {rows} rows; at most {MAX_ROWS} rows can be distributed")
    if splits is None:
        if rows % size:
            raise ValueError(
                "splits not provided, but first dimension of tensor is not an even multiple of the number of workers: "
                f"{rows} rows, {size} workers"
            )
        return split_evenly(rows, size)
    numbers = np.asarray(splits)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"splits are {numbers.dtype}; they have to be whole numbers")
    if numbers.shape != (size,):
        raise ValueError(f"splits has the shape {numbers.shape}; it needs one number for each of {size} workers")
    counts = [int(one) for one in numbers]
    if min(counts) < 0 or sum(counts) > rows:
        raise ValueError(f"splits is {counts[:16]}; numbers of rows are not negative, and their sum is at most {rows}")
    return counts
