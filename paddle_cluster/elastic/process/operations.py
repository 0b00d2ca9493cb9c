"""The collectives that a training script calls; names and meaning are those of Horovod's `hvd`.

Arrays are numpy arrays. Every rank calls the same operations. An operation without a name gets the next number as its
name, so all ranks must call such operations in the same order. Each operation raises HorovodInternalError when a rank
is lost, CollectiveMismatchError when the ranks call different operations, and ConfigError before `init`.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import operator
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.collectives.requests import DTYPES, REDUCED_DTYPES, CollectiveKind, Reduction, check_name
from paddle_cluster.elastic.collectives.waiting import CollectiveHandle
from paddle_cluster.elastic.process.membership import WORKER, ProcessPlacement
from paddle_cluster.elastic.process.objects import dump_object, load_object

Average, Sum, Min, Max = Reduction.AVERAGE, Reduction.SUM, Reduction.MIN, Reduction.MAX
AnyArray = npt.NDArray[Any]
NONCE_BYTES, SIGNATURE_BYTES = 16, 32


class PendingResult:
    """A collective that `synchronize` waits for.

    Attributes: target: the array of the script that receives the result, or None.
    """

    def __init__(self, handle: CollectiveHandle, target: AnyArray | None = None, scale: float = 1.0) -> None:
        self.handle, self.target, self.scale = handle, target, scale
        self.group = WORKER.group


# ----- This worker -----


def init() -> None:
    """Join the job; in a process without a launcher, begin a job with a single worker."""
    WORKER.init()


def shutdown() -> None:
    """Leave the group of workers."""
    WORKER.shutdown()


def is_initialized() -> bool:
    """Return whether this process is in a group."""
    return WORKER.is_initialised


def rank() -> int:
    """Return this worker's number in the job, from 0."""
    return WORKER.group.rank


def size() -> int:
    """Return the number of workers."""
    return WORKER.group.size


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
    _ = WORKER.group
    return False


def _placement() -> ProcessPlacement:
    _ = WORKER.group  # raises ConfigError before `init`
    return WORKER.placement


# ----- All-reduce -----


def allreduce(
    tensor: npt.ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AnyArray:
    """Return the average, or another reduction, of the arrays of all ranks.

    Shapes: the array has the same shape on all ranks.
    Args: average: older form of `op`; True means Average, and False means Sum.  op: one of Average, Sum, Min and Max.
        prescale_factor: number by which the arrays are multiplied.  postscale_factor: number by which the result is
        multiplied.
    """
    return synchronize(allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor))


def allreduce_(
    tensor: AnyArray,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AnyArray:
    """Replace the array by the reduction of all ranks; see `allreduce`."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor))


def allreduce_async(
    tensor: npt.ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> PendingResult:
    """Begin an all-reduce; the array must not change before `synchronize` returns the result."""
    array = _scale(_read_array(tensor, REDUCED_DTYPES), prescale_factor)
    handle = WORKER.group.submit(CollectiveKind.ALLREDUCE, array, name=name, argument=_read_op(average, op))
    return PendingResult(handle, scale=postscale_factor)


def allreduce_async_(
    tensor: AnyArray,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> PendingResult:
    """Begin an all-reduce in place; the array has the result when `synchronize` returns."""
    array = _scale(_read_array(tensor, REDUCED_DTYPES), prescale_factor)
    output = tensor if tensor.flags.c_contiguous and tensor.flags.writeable else None
    handle = WORKER.group.submit(
        CollectiveKind.ALLREDUCE, array, name=name, argument=_read_op(average, op), output=output
    )
    return PendingResult(handle, tensor, postscale_factor)


def grouped_allreduce(
    tensors: Sequence[npt.ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[AnyArray]:
    """Return the reductions of several arrays, which are sent together."""
    # check all arrays before the first request, because an error must leave no waiting request
    arrays = [_read_array(tensor, REDUCED_DTYPES) for tensor in tensors]
    names = [name and f"{name}.{number}" for number in range(len(arrays))]
    _check_names(names)
    handles = [
        allreduce_async(array, average, one, op, prescale_factor, postscale_factor)
        for array, one in zip(arrays, names, strict=True)
    ]
    return [synchronize(handle) for handle in handles]


# ----- Others -----


def allgather(tensor: npt.ArrayLike, name: str | None = None) -> AnyArray:
    """Return the arrays of all ranks, concatenated by rank. Shapes: only the first dimension may differ among ranks."""
    return synchronize(allgather_async(tensor, name))


def allgather_async(tensor: npt.ArrayLike, name: str | None = None) -> PendingResult:
    """Begin an all-gather."""
    array = _read_array(tensor, DTYPES)
    return PendingResult(WORKER.group.submit(CollectiveKind.ALLGATHER, array.reshape(array.shape or (1,)), name=name))


def broadcast(tensor: npt.ArrayLike, root_rank: int, name: str | None = None) -> AnyArray:
    """Return the array of the root on every rank. Shapes: the array has the same shape on all ranks."""
    return synchronize(broadcast_async(tensor, root_rank, name))


def broadcast_(tensor: AnyArray, root_rank: int, name: str | None = None) -> AnyArray:
    """Replace the array by the array of the root; see `broadcast`."""
    return synchronize(broadcast_async_(tensor, root_rank, name))


def broadcast_async(tensor: npt.ArrayLike, root_rank: int, name: str | None = None) -> PendingResult:
    """Begin a broadcast."""
    array = _read_array(tensor, DTYPES)
    return PendingResult(
        WORKER.group.submit(CollectiveKind.BROADCAST, array, name=name, argument=_read_root(root_rank))
    )


def broadcast_async_(tensor: AnyArray, root_rank: int, name: str | None = None) -> PendingResult:
    """Begin a broadcast in place."""
    pending = broadcast_async(tensor, root_rank, name)
    pending.target = tensor
    return pending


def broadcast_parameters(params: Mapping[str, AnyArray], root_rank: int = 0) -> None:
    """Write the arrays of the root into the arrays of every rank."""
    _check_names([f"broadcast.{name}" for name in params])  # before the first request, as in `grouped_allreduce`
    handles = [broadcast_async_(params[name], root_rank, f"broadcast.{name}") for name in sorted(params)]
    for handle in handles:
        synchronize(handle)


def broadcast_object(
    obj: object = None, root_rank: int = 0, name: str | None = None, *, unsafe_pickle: bool = False
) -> Any:
    """Send an object of plain data and numpy arrays from the root to all ranks; return the object.

    Args: obj: only the object of the root counts.  unsafe_pickle: send any object by pickle; the root can then run any
        code on every rank. All ranks pass the same value. The pickle is signed, so that nobody else can.
    Raises: TypeError: the object has a part that cannot be sent.  DataError: the received bytes are no object.
        ConfigError: unsafe_pickle in a job without a secret.
    """
    seal = PickleSeal.agree(f"broadcast from {root_rank}", name) if unsafe_pickle else None
    data = _dump(obj, seal) if rank() == root_rank else b""
    length = broadcast(np.array([len(data)], np.int64), root_rank, name and f"{name}.length")
    content = np.frombuffer(data, np.uint8) if rank() == root_rank else _allocate(int(length[0]), root_rank)
    content = broadcast(content, root_rank, name and f"{name}.content")
    return obj if rank() == root_rank else _load(content.tobytes(), root_rank, seal)


def allgather_object(obj: object, name: str | None = None, *, unsafe_pickle: bool = False) -> list[Any]:
    """Return the objects of all ranks by rank; see `broadcast_object`."""
    seal = PickleSeal.agree("gather", name) if unsafe_pickle else None
    data = np.frombuffer(_dump(obj, seal), np.uint8)
    lengths = allgather(np.array([len(data)], np.int64), name and f"{name}.length").tolist()
    content = allgather(data, name and f"{name}.content").tobytes()
    if min(lengths) < 0 or sum(lengths) != len(content):
        raise DataError(f"the ranks sent {len(content)} bytes, and the lengths {lengths[:16]} of their objects")
    ends = itertools.accumulate(lengths)
    return [
        _load(content[end - length : end], sender, seal)
        for sender, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]


class PickleSeal(NamedTuple):
    """Signs the pickles of one operation, because the payloads of the ranks' connections are not signed.

    A signature covers the operation and the rank of the sender. So a program that can change packets can neither write
    a pickle of its own nor pass on one of another operation or job. It also covers a nonce of every rank, but the
    nonces are payloads, too, and such a program can bring those of one operation into another one.

    Attributes: operation: kind and name of the operation, and the place of the collective that exchanges the nonces.
        The ranks agree on the place by signed announcements.
    """

    secret: bytes
    operation: bytes
    nonces: bytes

    @classmethod
    def agree(cls, kind: str, name: str | None) -> PickleSeal:
        """Exchange the nonces with the other ranks, if there are any.

        Raises: ConfigError: the job has no secret.
        """
        if size() == 1:
            return cls(b"", b"", b"")
        secret = WORKER.secret.encode()
        if not secret:
            raise ConfigError(
                "unsafe_pickle=True needs a secret of the job, because any program that can send packets could run "
                "code on this rank: set PADDLE_SECRET_FILE, or send plain data and arrays without unsafe_pickle"
            )
        own = secrets.token_bytes(NONCE_BYTES)
        pending = allgather_async(np.frombuffer(own, np.uint8), name and f"{name}.nonces")
        every = bytearray(synchronize(pending).tobytes())
        every[rank() * NONCE_BYTES : (rank() + 1) * NONCE_BYTES] = own  # not what came back
        operation = json.dumps([size(), kind, name, *pending.handle.place])
        return cls(secret, operation.encode(), bytes(every))

    def sign(self, sender: int, data: bytes) -> bytes:
        """Return the signature of a pickle that a rank sends."""
        return hmac.digest(self.secret, b"pickle %d\n%b\n" % (sender, self.operation) + self.nonces + data, "sha256")


def _allocate(length: int, sender: int) -> AnyArray:
    """Return memory for an object, whose length nobody has signed; the system gives the memory when it is written.

    Raises: DataError: this machine has no memory of this length.
    """
    if 0 <= length <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        with contextlib.suppress(MemoryError):
            return np.empty(length, np.uint8)
    raise DataError(f"rank {sender} sent the length {length} of an object, for which this machine has no memory")


def _dump(obj: object, seal: PickleSeal | None) -> bytes:
    if seal is None:
        return dump_object(obj)
    data = dump_object(obj, unsafe_pickle=True)
    return seal.sign(rank(), data) + data


def _load(data: bytes, sender: int, seal: PickleSeal | None) -> Any:
    if seal is None:
        return load_object(data)
    signature, data = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, seal.sign(sender, data)):
        raise DataError(
            f"the pickle of rank {sender} is not the one that it has signed: it was changed on the way; encrypt the "
            "network of the pods"
        )
    return load_object(data, unsafe_pickle=True)


def barrier() -> None:
    """Wait until all ranks have called `barrier`."""
    group = WORKER.group
    group.wait(group.submit(CollectiveKind.BARRIER, np.empty(0, np.uint8)))


def synchronize(handle: PendingResult) -> AnyArray:
    """Wait for a collective and return its result; a further call returns the same result."""
    result = _scale(handle.group.wait(handle.handle), handle.scale)
    if handle.target is not None and handle.target is not result:
        handle.target[...] = result
        result = handle.target
    handle.handle.output, handle.scale = result, 1.0
    return result


def poll(handle: PendingResult) -> bool:
    """Return at once whether a collective is done."""
    if not handle.handle.is_done:
        handle.group.start()
    return handle.handle.is_done


def _check_names(names: Sequence[str | None]) -> None:
    for name in names:
        check_name(name or "")


def _read_array(tensor: npt.ArrayLike, dtypes: Sequence[np.dtype[Any]]) -> AnyArray:
    array = np.asarray(tensor)
    if array.dtype not in dtypes:
        names = ", ".join(dtype.name for dtype in dtypes)
        raise TypeError(f"an array of {array.dtype} cannot take part in this collective; these types can: {names}")
    return array


def _scale(array: AnyArray, factor: float) -> AnyArray:
    return array if factor == 1.0 else np.asarray(array * factor).astype(array.dtype)


def _read_op(average: bool | None, op: Reduction | None) -> int:
    if average is not None and op is not None:
        raise ValueError("average and op are two names of one argument; leave average out")
    if op is not None:
        return Reduction(op)
    return Sum if average is False else Average


def _read_root(root_rank: int) -> int:
    root_rank = operator.index(root_rank)  # TypeError for a number that is not whole
    if not 0 <= root_rank < size():
        raise ValueError(f"root_rank is {root_rank}; the ranks are 0 to {size() - 1}")
    return root_rank
