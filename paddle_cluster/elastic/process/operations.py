"""The collectives that a training script calls; names and meaning are those of Horovod's `hvd`.

Arrays are numpy arrays. Every rank calls the same operations. An operation without a name gets the next number as its
name, so all ranks must call such operations in the same order. Each operation raises HorovodInternalError when a rank
is lost, CollectiveMismatchError when the ranks call different operations, and ConfigError before `init`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction, check_name
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.memory import allocate
from paddle_cluster.elastic.process.pending import (
    AnyArray,
    PendingResult,
    read_array,
    read_op,
    read_root,
    read_rows,
    read_scatter_op,
    read_splits,
    read_summand,
    submit,
    submit_group,
)
from paddle_cluster.elastic.process.placement import ProcessPlacement
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set
from paddle_cluster.elastic.process.seals import PickleSeal, dump_sealed, load_sealed
from paddle_cluster.elastic.process.set_registry import NOT_INITIALISED

Average, Sum, Min, Max, Product = Reduction.AVERAGE, Reduction.SUM, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT


# ----- This worker -----


def init(process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None) -> None:
    """Join the job; in a process without a launcher, begin a job with a single worker.

    Args: process_sets: see `RankMembership.init`.
    """
    WORKER.init(process_sets)


def shutdown() -> None:
    """Leave the group of workers."""
    WORKER.shutdown()


def is_initialized() -> bool:
    """Return whether this process is in a group."""
    return WORKER.is_initialised


def rank() -> int:
    """Return this worker's number in the job, from 0."""
    return _placement().rank


def size() -> int:
    """Return the number of workers."""
    return _placement().size


def local_rank() -> int:
    """Return this worker's number on its host."""
    return _placement().local_rank


def local_size() -> int:
    """Return the number of workers on this host."""
    return _placement().local_size


def cross_rank() -> int:
    """Return this host's number among the hosts that have a worker with this local rank."""
    return _placement().cross_rank


def cross_size() -> int:
    """Return the number of hosts that have a worker with this local rank."""
    return _placement().cross_size


def mpi_threads_supported() -> bool:
    """Return False, because no job runs by MPI. Raises: ConfigError: this process has not called `init`."""
    _placement()
    return False


def _placement() -> ProcessPlacement:
    """Raises: ConfigError: this process has not called `init`."""
    if not WORKER.is_initialised:
        raise ConfigError(NOT_INITIALISED)
    return WORKER.placement


# ----- Reductions -----


def allreduce(
    tensor: npt.ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AnyArray:
    """Return the average, or another reduction, of the arrays of all ranks.

    Shapes: the array has the same shape on all ranks.
    Args: average: older form of `op`; True means Average, and False means Sum.  op: one of Average, Sum, Min, Max and
        Product.  prescale_factor: number by which the arrays are multiplied.  postscale_factor: number by which the
        result is multiplied.  process_set: the ranks that take part.
    """
    pending = allreduce_async(tensor, None, name, read_op(average, op), prescale_factor, postscale_factor, process_set)
    return pending.wait_for_array()


def allreduce_(
    tensor: AnyArray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AnyArray:
    """Replace the array by the reduction of all ranks; see `allreduce`."""
    pending = allreduce_async_(tensor, None, name, read_op(average, op), prescale_factor, postscale_factor, process_set)
    return pending.wait_for_array()


def allreduce_async(
    tensor: npt.ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin an all-reduce; the array must not change before `synchronize` returns the result."""
    options = _reducing(read_op(average, op), prescale_factor, postscale_factor)
    array = read_summand(tensor, **options)
    return submit(CollectiveKind.ALLREDUCE, array, process_set, name, **options)


def allreduce_async_(
    tensor: AnyArray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin an all-reduce in place; the array has the result when `synchronize` returns."""
    options = _reducing(read_op(average, op), prescale_factor, postscale_factor)
    array = read_summand(tensor, **options)
    return submit(CollectiveKind.ALLREDUCE, array, process_set, name, target=tensor, **options)


def grouped_allreduce(
    tensors: Sequence[npt.ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[AnyArray]:
    """Return the reductions of several arrays, which are sent together; see `allreduce`."""
    pending = grouped_allreduce_async(
        tensors, None, name, read_op(average, op), prescale_factor, postscale_factor, process_set
    )
    return pending.wait_for_arrays()


def grouped_allreduce_(
    tensors: Sequence[AnyArray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[AnyArray]:
    """Replace several arrays by their reductions; see `grouped_allreduce`."""
    pending = grouped_allreduce_async_(
        tensors, None, name, read_op(average, op), prescale_factor, postscale_factor, process_set
    )
    return pending.wait_for_arrays()


def grouped_allreduce_async(
    tensors: Sequence[npt.ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin the all-reduce of several arrays; `synchronize` returns a list."""
    options = _reducing(read_op(average, op), prescale_factor, postscale_factor)
    arrays = [read_summand(tensor, **options) for tensor in tensors]
    return submit_group(CollectiveKind.ALLREDUCE, arrays, process_set, name, **options)


def grouped_allreduce_async_(
    tensors: Sequence[AnyArray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin the all-reduce of several arrays in place; `synchronize` returns a list."""
    options = _reducing(read_op(average, op), prescale_factor, postscale_factor)
    arrays = [read_summand(tensor, **options) for tensor in tensors]
    return submit_group(CollectiveKind.ALLREDUCE, arrays, process_set, name, targets=tensors, **options)


def _reducing(op: int, prescale: float, postscale: float) -> dict[str, Any]:
    return {"argument": op, "prescale": prescale, "postscale": postscale}


def reducescatter(
    tensor: npt.ArrayLike,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AnyArray:
    """Return this rank's rows of the average or the sum of the arrays of all ranks.

    In shared memory, and over connections with arrays of up to 64 KiB or a number of rows that the ranks divide, the
    bits are those of `allreduce`. Between hosts with several ranks they may differ from those in the last place.

    Shapes: the array has the same shape (d, ...) on all ranks; of n ranks, each gets d // n rows, and the first d % n
        ranks get one more.
    Args: op: Average or Sum.  Others: see `allreduce`.
    """
    return reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor).wait_for_array()


def reducescatter_async(
    tensor: npt.ArrayLike,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> PendingResult:
    """Begin a reduce-scatter."""
    options = _reducing(read_scatter_op(op), prescale_factor, postscale_factor)
    array = read_rows(read_summand(tensor, **options), "a reduce-scatter")
    return submit(CollectiveKind.REDUCESCATTER, array, process_set, name, **options)


def grouped_reducescatter(
    tensors: Sequence[npt.ArrayLike],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[AnyArray]:
    """Return this rank's rows of the averages or sums of several arrays; see `reducescatter`."""
    return grouped_reducescatter_async(
        tensors, name, op, process_set, prescale_factor, postscale_factor
    ).wait_for_arrays()


def grouped_reducescatter_async(
    tensors: Sequence[npt.ArrayLike],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> PendingResult:
    """Begin the reduce-scatter of several arrays; `synchronize` returns a list."""
    options = _reducing(read_scatter_op(op), prescale_factor, postscale_factor)
    arrays = [read_rows(read_summand(tensor, **options), "a reduce-scatter") for tensor in tensors]
    return submit_group(CollectiveKind.REDUCESCATTER, arrays, process_set, name, **options)


# ----- Others -----


def allgather(tensor: npt.ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set) -> AnyArray:
    """Return the arrays of all ranks, concatenated by rank. Shapes: only the first dimension may differ among ranks."""
    return allgather_async(tensor, name, process_set).wait_for_array()


def allgather_async(
    tensor: npt.ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set
) -> PendingResult:
    """Begin an all-gather."""
    return submit(CollectiveKind.ALLGATHER, _read_gathered(tensor), process_set, name)


def grouped_allgather(
    tensors: Sequence[npt.ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[AnyArray]:
    """Return the concatenated arrays for each of several arrays; see `allgather`."""
    return grouped_allgather_async(tensors, name, process_set).wait_for_arrays()


def grouped_allgather_async(
    tensors: Sequence[npt.ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> PendingResult:
    """Begin the all-gather of several arrays; `synchronize` returns a list."""
    arrays = [_read_gathered(tensor) for tensor in tensors]
    return submit_group(CollectiveKind.ALLGATHER, arrays, process_set, name)


def _read_gathered(tensor: npt.ArrayLike) -> AnyArray:
    array = read_array(tensor)
    return array.reshape(array.shape or (1,))


def alltoall(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AnyArray | tuple[AnyArray, AnyArray]:
    """Send rows to each rank, and return the rows from all ranks, concatenated by rank.

    Shapes: only the first dimension may differ among ranks.
    Args: splits: number of rows for each rank, in the order of the rows; rows after their sum are not sent. Without
        splits every rank gets the same number of rows.
    Returns: the rows; if splits are given, also the numbers of rows from each rank, as int32.
    """
    rows, received = alltoall_async(tensor, splits, name, process_set).wait()
    return rows if splits is None else (rows, received)


def alltoall_async(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin an all-to-all; `synchronize` returns the rows, and the numbers of rows from each rank."""
    array = read_rows(tensor, "an all-to-all")
    counts = read_splits(splits, len(array), process_set.group.size)
    return submit(CollectiveKind.ALLTOALL, array, process_set, name, splits=counts)


def broadcast(
    tensor: npt.ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> AnyArray:
    """Return the array of the root on every rank.

    Shapes: the array has the same shape on all ranks.
    Args: root_rank: number of the root in the job, also if `process_set` has only some of the ranks.
    """
    return broadcast_async(tensor, root_rank, name, process_set).wait_for_array()


def broadcast_(
    tensor: AnyArray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> AnyArray:
    """Replace the array by the array of the root; see `broadcast`."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait_for_array()


def broadcast_async(
    tensor: npt.ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> PendingResult:
    """Begin a broadcast."""
    root = read_root(root_rank, process_set)
    return submit(CollectiveKind.BROADCAST, read_array(tensor), process_set, name, argument=root)


def broadcast_async_(
    tensor: AnyArray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> PendingResult:
    """Begin a broadcast in place."""
    root = read_root(root_rank, process_set)
    return submit(CollectiveKind.BROADCAST, read_array(tensor), process_set, name, target=tensor, argument=root)


def grouped_broadcast(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[AnyArray]:
    """Return several arrays of the root on every rank; see `broadcast`."""
    return grouped_broadcast_async(tensors, root_rank, name, process_set).wait_for_arrays()


def grouped_broadcast_(
    tensors: Sequence[AnyArray],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[AnyArray]:
    """Replace several arrays by the arrays of the root; see `broadcast`."""
    return grouped_broadcast_async_(tensors, root_rank, name, process_set).wait_for_arrays()


def grouped_broadcast_async(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin the broadcast of several arrays; `synchronize` returns a list."""
    root, arrays = read_root(root_rank, process_set), [read_array(tensor) for tensor in tensors]
    return submit_group(CollectiveKind.BROADCAST, arrays, process_set, name, argument=root)


def grouped_broadcast_async_(
    tensors: Sequence[AnyArray],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> PendingResult:
    """Begin the broadcast of several arrays in place; `synchronize` returns a list."""
    root, arrays = read_root(root_rank, process_set), [read_array(tensor) for tensor in tensors]
    return submit_group(CollectiveKind.BROADCAST, arrays, process_set, name, targets=tensors, argument=root)


def broadcast_parameters(
    params: Mapping[str, AnyArray], root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Write the arrays of the root into the arrays of every rank."""
    for name in params:  # before the first request, so that none waits alone
        check_name(f"broadcast.{name}")
    handles = [broadcast_async_(params[name], root_rank, f"broadcast.{name}", process_set) for name in sorted(params)]
    for handle in handles:
        synchronize(handle)


def broadcast_object(
    obj: object = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    unsafe_pickle: bool = False,
) -> Any:
    """Send an object of plain data and numpy arrays from the root to all ranks; return the object.

    Args: obj: only the object of the root counts.  root_rank, process_set: see `broadcast`.  unsafe_pickle: send any
        object by pickle; the root can then run any code on every rank. All ranks pass the same value. The pickle is
        signed, so that nobody else can.
    Raises: TypeError: the object has a part that cannot be sent.  DataError: the received bytes are no object.
        ConfigError: unsafe_pickle in a job without a secret.
    """
    root, is_root = read_root(root_rank, process_set), rank() == root_rank
    seal = (
        PickleSeal.agree(f"broadcast from {root_rank}", name, process_set.group, WORKER.secret)
        if unsafe_pickle
        else None
    )
    data = dump_sealed(obj, root, seal) if is_root else b""
    length = broadcast(np.array([len(data)], np.int64), root_rank, name and f"{name}.length", process_set)
    content = np.frombuffer(data, np.uint8) if is_root else allocate(int(length[0]), root_rank, "an object")
    content = broadcast(content, root_rank, name and f"{name}.content", process_set)
    return obj if is_root else load_sealed(content.tobytes(), root, seal)


def allgather_object(
    obj: object,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    unsafe_pickle: bool = False,
) -> list[Any]:
    """Return the objects of all ranks by rank; see `broadcast_object`."""
    seal = PickleSeal.agree("gather", name, process_set.group, WORKER.secret) if unsafe_pickle else None
    own = process_set.group.rank
    data = np.frombuffer(dump_sealed(obj, own, seal), np.uint8)
    lengths = allgather(np.array([len(data)], np.int64), name and f"{name}.length", process_set).tolist()
    content = allgather(data, name and f"{name}.content", process_set).tobytes()
    if min(lengths) < 0 or sum(lengths) != len(content):
        raise DataError(f"the ranks sent {len(content)} bytes, and the lengths {lengths[:16]} of their objects")
    ends = itertools.accumulate(lengths)
    return [
        load_sealed(content[end - length : end], sender, seal)
        for sender, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks have called `barrier`."""
    submit(CollectiveKind.BARRIER, np.empty(0, np.uint8), process_set, None).wait()


def join(device: int = -1) -> int:
    """Take part with zeros in the all-reduces of the others until all ranks have called `join`.

    Args: device: has no effect; Horovod has this argument for a GPU.
    Returns: the rank that has called `join` last.
    """
    return WORKER.group.join()


def synchronize(handle: PendingResult) -> Any:
    """Wait for a collective and return its result; a further call returns the same result.

    Returns: an array; for an all-to-all, the array and the numbers of rows from each rank; for a group, a list.
    """
    return handle.wait()


def poll(handle: PendingResult) -> bool:
    """Return at once whether a collective is done."""
    return handle.poll()
