"""Divide the state of a job's services among a different number of services, in memory.

The partition of the parameters depends on the number of services. The state of each old service is restored into a
shard of the old layout; the restoration checks the whole state. Then all lazy rows are brought up to date, because the
set of lazy rows also depends on the partition. The elements are then copied to their new shards, bit for bit. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DamagedError
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, snapshot
from pserver.store.model_setup import SETUP_ERRORS
from pserver.store.shard import Shard
from pserver.store.shard_loader import make_dense_shard, make_sparse_shard
from pserver.store.snapshot import CLOCKS, STATE, VALUES, Counters, Part
from pserver.store.sparse_partition import SparseTable
from pserver.wire.checkpoint_blobs import PREFIX

SHARED = ("samples", "steps", "passes", "batch", "rate", "schedule", "averaging")  # counters that all services share
ROW_CLOCKS = tuple(f"{CLOCKS}{purpose}" for purpose in ("step", "decay", "average"))

AnyArray = npt.NDArray[Any]


def reshard(
    parts: Sequence[Part],
    parameters: Sequence[ParameterSpec],
    optimization: Optimization,
    services: int,
    *,
    by_rows: bool,
    origins: Sequence[int],
    begins_pass: bool,
) -> list[Part]:
    """Return the state of each new service; the new services together resume from `parts`.

    Args:
        parts: the state of each old service. The arrays of `parts` are released during the work to save memory.
        parameters, optimization: the settings of the model, in the form that the services receive.
        services: number of new services. by_rows: whether the services are sparse.
        origins: for each trainer id, the old id of the trainer whose binary data (`checkpoint_blobs`) are used.
        begins_pass: whether the pass of the checkpoint restarts with its first batch.
    Raises: ConfigError: the state does not fit the parameters or the optimization.  DamagedError: the state is invalid.
    """
    old, new = (_Layout(parameters, optimization, number, by_rows=by_rows) for number in (len(parts), services))
    try:
        whole = _gather(parts, old)
        cut = [_cut(whole, new, service, begins_pass=begins_pass) for service in range(services)]
    except SETUP_ERRORS as error:
        raise DamagedError(
            f"the state of the checkpoint cannot be divided anew ({type(error).__name__}: {glog.clean(error, 200)}); "
            "resume from another checkpoint"
        ) from error
    for trainer, origin in enumerate(origins):
        if origin in whole.blobs:
            cut[trainer % services].arrays[f"{PREFIX}{trainer}"] = whole.blobs[origin]
    return cut


@dataclass(frozen=True)
class _Piece:
    """Rows of one parameter on one service.

    The elements [start, stop) of the flat vector of all services form rows. `rows` selects the rows of the service, and
    `local` is the range of these rows in the service's arrays. For dense pieces a row has one element.
    """

    parameter: int
    start: int
    stop: int
    local: slice
    width: int = 1
    rows: slice = field(default_factory=lambda: slice(None))

    def of_whole(self, array: AnyArray) -> AnyArray:
        """Return a view of these rows in an array of all elements. Shapes: (rows, width)."""
        return array[self.start : self.stop].reshape(-1, self.width)[self.rows]

    def of_service(self, array: AnyArray) -> AnyArray:
        """Return a view of these rows in an array of the service. Shapes: (rows, width)."""
        return array[self.local].reshape(-1, self.width)


class _Layout:
    """The division of the elements of all parameters among a number of services."""

    def __init__(
        self, parameters: Sequence[ParameterSpec], optimization: Optimization, services: int, *, by_rows: bool
    ) -> None:
        self._parameters, self._optimization, self._services = parameters, optimization, services
        self._tables = [SparseTable.of(spec, services) for spec in parameters] if by_rows else None
        self._ranges = [] if by_rows else partition.layout(parameters, services)
        self.elements = sum(spec.size for spec in parameters) if by_rows else partition.count_elements(parameters)
        self.rows = sum(table.rows for table in self._tables or ())

    def make_shard(self, service: int) -> Shard:
        """Return the empty shard of a service."""
        if self._tables is not None:
            return make_sparse_shard(self._parameters, self._optimization, service, self._services)
        return make_dense_shard(self._parameters, self._optimization, self._ranges[service])

    def pieces(self, service: int) -> list[_Piece]:
        """Return the pieces that contain all elements of a service."""
        if self._tables is not None:
            return self._list_rows(self._tables, service, is_clock=False)
        starts = np.cumsum([0, *(0 if spec.is_static else spec.size for spec in self._parameters)]).tolist()
        found, at = [], 0
        for index, start, stop in self._ranges[service]:
            local = slice(at, at + stop - start)
            found.append(_Piece(index, starts[index] + start, starts[index] + stop, local))
            at = local.stop
        return found

    def clock_pieces(self, service: int) -> list[_Piece]:
        """Return the pieces of a service's row clocks; dense services need no row clocks after `catch_up`."""
        return self._list_rows(self._tables or (), service, is_clock=True)

    @staticmethod
    def _list_rows(tables: Sequence[SparseTable], service: int, *, is_clock: bool) -> list[_Piece]:
        found, at, local = [], 0, 0
        for index, table in enumerate(tables):
            width = 1 if is_clock else table.width
            size, count = table.rows * width, table.count(service) * width
            found.append(_Piece(index, at, at + size, slice(local, local + count), width, table.part(service)))
            at, local = at + size, local + count
        return found


@dataclass
class _Whole:
    """The state of all services together.

    - `arrays`: the values and the optimiser's arrays of all elements.
    - `clocks`: the clocks of all rows of tables.
    - `groups`: for each parameter number, the counters of the parameter's group.
    - `counters`: the counters that all services share.
    - `blobs`: for each trainer id, the trainer's binary data.
    """

    arrays: dict[str, AnyArray] = field(default_factory=dict)
    clocks: dict[str, AnyArray] = field(default_factory=dict)
    groups: dict[int, dict[str, Any]] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    blobs: dict[int, AnyArray] = field(default_factory=dict)

    def note_groups(self, shard: Shard, pieces: Sequence[_Piece], described: Sequence[dict[str, Any]]) -> None:
        """For each parameter in the groups of a shard, store the counters of the parameter's group."""
        for group, one in zip(shard.groups, described, strict=True):
            is_settled = group.settled == shard.steps
            for piece in pieces:
                if piece.parameter == group.parameter or group.start <= piece.local.start < group.stop:
                    self.groups.setdefault(piece.parameter, {**one, "is_settled": is_settled})


def _gather(parts: Sequence[Part], layout: _Layout) -> _Whole:
    """Return the state of all services together, brought up to date."""
    whole = _Whole()
    for service, part in enumerate(parts):
        shard, pieces = layout.make_shard(service), layout.pieces(service)
        blobs = {name: array for name, array in part.arrays.items() if name.startswith(PREFIX)}
        own = {name: array for name, array in part.arrays.items() if name not in blobs}
        snapshot.put_back(shard, Part(part.counters, own))
        part.arrays.clear()  # the shard has copies, and two states may not fit into memory
        shard.catch_up()
        taken = snapshot.take(shard)
        if not whole.counters or taken.counters["steps"] > whole.counters["steps"]:
            # in asynchronous training some services may have taken more steps than others
            whole.counters = {name: taken.counters[name] for name in SHARED}
        whole.note_groups(shard, pieces, taken.counters["segments"])
        whole.blobs |= {int(name.removeprefix(PREFIX)): array for name, array in blobs.items()}
        for name, array in taken.arrays.items():
            if name == VALUES or name.startswith(STATE):
                target = whole.arrays.setdefault(name, np.zeros(layout.elements, array.dtype))
                _copy([(piece.of_whole(target), piece.of_service(array)) for piece in pieces])
            elif name in ROW_CLOCKS:
                target = whole.clocks.setdefault(name, np.zeros(layout.rows, array.dtype))
                clocks = layout.clock_pieces(service)
                _copy([(piece.of_whole(target), piece.of_service(array)) for piece in clocks])
    return whole


def _cut(whole: _Whole, layout: _Layout, service: int, *, begins_pass: bool) -> Part:
    """Return the state of one new service."""
    shard = layout.make_shard(service)
    part = snapshot.take(shard)
    for name, array in part.arrays.items():
        if name in whole.arrays:
            pieces = layout.pieces(service)
            _copy([(piece.of_service(array), piece.of_whole(whole.arrays[name])) for piece in pieces])
        elif name in whole.clocks:
            pieces = layout.clock_pieces(service)
            _copy([(piece.of_service(array), piece.of_whole(whole.clocks[name])) for piece in pieces])
    groups = []
    for group, fresh in zip(shard.groups, part.counters["segments"], strict=True):
        found = whole.groups.get(group.parameter, {**fresh, "is_settled": True})
        settled = whole.counters["steps"] if found["is_settled"] else found["settled"]
        decayed = 0 if begins_pass else found["decayed"]
        groups.append({"decayed": decayed, "settled": settled, "scalars": found["scalars"]})
    counters = {**part.counters, **whole.counters, "segments": groups}
    if begins_pass:
        counters["batch"] = 0
    return Part(counters, part.arrays)


def _copy(pairs: Sequence[tuple[AnyArray, AnyArray]]) -> None:
    for target, source in pairs:
        np.copyto(target, source)
