"""The shard of a service, made from trainer 0's setup and filled piece by piece. No I/O."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, ConfigError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool, start_thread_pool
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, snapshot
from pserver.store.model_setup import SETUP_ERRORS, as_bytes, read_setup
from pserver.store.shard import DenseShard
from pserver.store.sparse_partition import local_specs
from pserver.store.sparse_shard import SparseShard
from pserver.wire import checkpoint_blobs, protocol
from pserver.wire.notes import show

MAX_SERVICES = 1 << 16


@functools.cache
def _find_thread_pool(threads: int) -> ThreadPool:
    """Return the thread pool of this size; the services of a process run in turn and share it."""
    return start_thread_pool(threads)


class ShardLoader:
    """A shard whose initial values arrive piece by piece.

    If the job resumes, the state of a checkpoint also arrives.

    Args: hello: trainer 0's hello to this service, with the service's number and the number of services.
        setup: the note of INITIALISE, which contains the result of `describe_setup` and, for a checkpoint, the
        counters, the names of the arrays, and the trainers' parts. threads: number of threads that take a step
        together.
    Raises: BugError: the setup does not fit the hello, or is inconsistent. ConfigError: the setup is not supported.
    """

    def __init__(self, hello: Mapping[str, Any], setup: Mapping[str, Any], threads: int = 1) -> None:
        try:
            parameters, optimization = read_setup(setup)
            self._shard, slots = _make_shard(parameters, optimization, hello, setup, threads)
            self.trainers = list(setup.get("trainers") or ())  # the trainers' parts of the checkpoint
        # OverflowError: JSON bounds no integer, and numpy takes 64 bits
        except (MemoryError, OverflowError) as exc:
            raise ConfigError(
                f"this service's part of the parameters does not fit into its memory ({glog.clean(exc)}); "
                "use more hosts"
            ) from exc
        except SETUP_ERRORS as exc:
            raise BugError(
                f"the setup of the parameters cannot be parsed ({type(exc).__name__}: {glog.clean(exc)})"
            ) from exc
        elements = partition.count_elements(parameters)
        self.blobs = checkpoint_blobs.CheckpointBlobs(elements)
        self._part = snapshot.take(self._shard)
        self._counters = setup.get("counters")
        self._restored_blobs = checkpoint_blobs.restore(setup.get("blobs"), elements)
        has_state = self._counters is not None
        self._names: list[str] = sorted([*self._part.arrays, *self._restored_blobs]) if has_state else []
        if setup.get("arrays", self._names) != self._names:
            raise BugError(f"the state has the arrays {show(setup.get('arrays'))}, but this service has {self._names}")
        if slots:
            glog.info(f"pserver: new cpuvector: size={slots}", at="ParameterServer2.cpp:306")
        self._targets = self._list_targets()
        self._awaited = {
            (name, piece)
            for name, target in self._targets.items()
            if len(target) or name == "values"  # an empty array of the state has no pieces to wait for
            for piece in range(protocol.count_pieces(len(target)))
        }

    def _list_targets(self) -> dict[str, memoryview]:
        """Return the memory of every awaited array, by the name under which its pieces are added."""
        targets = {"values": self._shard.values.view("B").data}
        for name, array in self._part.arrays.items():
            if name in self._names:
                targets[f"state {name}"] = as_bytes(array)
        return targets | {f"state {name}": memoryview(data) for name, data in self._restored_blobs.items()}

    @property
    def is_complete(self) -> bool:
        """Whether every piece has arrived."""
        return not self._awaited

    def name_of(self, number: int) -> str:
        """Return the name that `add` needs for an array of the state.

        Raises: BugError: the state has no array with this number.
        """
        if not 0 <= number < len(self._names):
            raise BugError(f"the state has {len(self._names)} arrays, and none has the number {number}")
        return f"state {self._names[number]}"

    def add(self, name: str, piece: int, payload: memoryview) -> None:
        """Copy a piece into its array.

        Raises: BugError: the array has no such piece, or the piece is sent twice.
        """
        target = protocol.cut(self._targets[name], piece)
        if (name, piece) not in self._awaited or len(target) != payload.nbytes:
            raise BugError(
                f"piece {piece} of the {name} is sent twice, or has {payload.nbytes} bytes instead of {len(target)}"
            )
        target[:] = payload
        self._awaited.discard((name, piece))

    def finish(self) -> DenseShard | SparseShard:
        """Return the shard, with its values and its state.

        Raises: BugError, ConfigError: the state of the checkpoint does not fit this shard.
        """
        for name, data in self._restored_blobs.items():
            self.blobs.whole[int(name.removeprefix(checkpoint_blobs.PREFIX))] = data
        if self._counters is not None:
            try:
                snapshot.put_back(self._shard, snapshot.Part(self._counters, self._part.arrays))
            except SETUP_ERRORS as exc:
                raise BugError(
                    f"the counters of the checkpoint cannot be parsed ({type(exc).__name__}: {glog.clean(exc)})"
                ) from exc
        glog.info("pserver: setParameter", at="ParameterServer2.cpp:260")
        return self._shard


def restore_shard(
    hello: Mapping[str, Any], setup: Mapping[str, Any], part: snapshot.Part, threads: int = 1
) -> DenseShard | SparseShard:
    """Return the shard of a snapshot.

    Args: hello, setup, threads: see `ShardLoader`.
    Raises: BugError: the setup does not fit the hello, or is invalid.  ConfigError: the state does not fit the setup or
        the memory.
    """
    try:
        parameters, optimization = read_setup(setup)
        shard, _ = _make_shard(parameters, optimization, hello, setup, threads)
        snapshot.put_back(shard, part)
    except (MemoryError, OverflowError) as exc:
        raise ConfigError(f"the state of this service does not fit into its memory ({glog.clean(exc)})") from exc
    except SETUP_ERRORS as exc:
        raise BugError(f"the state cannot be parsed ({type(exc).__name__}: {glog.clean(exc)})") from exc
    return shard


def _make_shard(
    parameters: Sequence[ParameterSpec],
    optimization: Optimization,
    hello: Mapping[str, Any],
    setup: Mapping[str, Any],
    threads: int,
) -> tuple[DenseShard | SparseShard, int]:
    """Return the empty shard of a service, and its size in elements as v0.10 logged it.

    Raises: BugError: the setup does not fit the hello.  SETUP_ERRORS: hello or setup cannot be parsed.
    """
    service, services = int(hello["service"]), int(hello["services"])
    if not 0 <= service < services <= MAX_SERVICES:
        raise BugError(
            f"the hello names service {service} of {services} services; the services are numbered from 0, "
            f"and at most {MAX_SERVICES} services are possible"
        )
    if partition.digest(parameters) != hello.get("parameters"):
        raise BugError(
            f"the setup has other parameters (digest {partition.digest(parameters)}) than the hello "
            f"(digest {show(hello.get('parameters'))})"
        )
    pool = _find_thread_pool(threads)
    if setup.get("by_rows"):
        shard = make_sparse_shard(parameters, optimization, service, services, pool)
        return shard, shard.size
    _refuse_tables(parameters)
    ranges = partition.layout(parameters, services)[service]
    slots = partition.count_slots(ranges, partition.block_size(partition.count_elements(parameters), services))
    return make_dense_shard(parameters, optimization, ranges, pool), slots


def make_sparse_shard(
    tables: Sequence[ParameterSpec],
    optimization: Optimization,
    service: int,
    services: int,
    pool: ThreadPool = SINGLE_THREAD,
) -> SparseShard:
    """Return the empty shard of a sparse service. Args: tables: the tables with the rows of all services."""
    local = local_specs(tables, services, service)
    return SparseShard(local, optimization, is_asynchronous=optimization.is_asynchronous, pool=pool)


def make_dense_shard(
    parameters: Sequence[ParameterSpec],
    optimization: Optimization,
    ranges: Sequence[partition.Range],
    pool: ThreadPool = SINGLE_THREAD,
) -> DenseShard:
    """Return the empty shard of a dense service. Args: ranges: the ranges of the service, from `partition.layout`."""
    return DenseShard(parameters, ranges, optimization, per_parameter=True, pool=pool)


def _refuse_tables(parameters: Sequence[ParameterSpec]) -> None:
    for p in parameters:
        if p.sparse_update and not p.is_static:
            raise BugError(f"parameter {p.name} has sparse_update; only a sparse service can store its rows")
