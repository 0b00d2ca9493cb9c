"""The partition of the rows of a table among sparse services, as the legacy placed them. Pure.

Row r of a parameter belongs to service |(r + hash(name)) rem S|. A service's rows are therefore S apart, and row r is
its (r // S)-th row, for any first row: no list of rows is needed. A service stores its rows one after the other.

Source: spec/distributed.md 3.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernels.tables import RowIds, deal_rows
from pserver.optim.settings import ParameterSpec
from pserver.store.partition import hash_name, place_block
from runtime.errors import BugError, ConfigError

MOST_ROWS = 1 << 32  # row numbers are transferred as uint32
_HALF = 1 << 63


@dataclasses.dataclass(frozen=True)
class Dealt:
    """Rows by service: service k has [starts[k], starts[k + 1]) of `local`, which are its own row numbers.

    `order` is the position of each in the divided array.
    """

    order: RowIds
    local: RowIds
    starts: list[int]


@dataclasses.dataclass(frozen=True)
class SparseTable:
    """The rows of one parameter, divided among some services."""

    name: str
    rows: int
    width: int
    services: int

    @classmethod
    def of(cls, spec: ParameterSpec, services: int) -> SparseTable:
        """Return the table of a parameter.

        Raises: ConfigError: if it has more rows than can be numbered.  BugError: if rows do not fill it.
        """
        if spec.row_width < 1 or spec.size % spec.row_width or services < 1:
            raise BugError(
                f"parameter {spec.name}: rows of {spec.row_width} elements of {spec.size} over {services} services"
            )
        rows = spec.size // spec.row_width
        if rows > MOST_ROWS:
            raise ConfigError(
                f"parameter {spec.name} has {rows} rows; a table with sparse_update has at most {MOST_ROWS}, so cut "
                "it into several"
            )
        return cls(spec.name, rows, spec.row_width, services)

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """The service of the rows with each remainder by the number of services."""
        start = hash_name(self.name)
        # near a hash of 2^63 or 2^64 the sum changes its sign, and with it the direction; no name is
        # known for which it does, so the legacy is not followed there
        start = 0 if start // _HALF != (start + self.rows) // _HALF else start
        places = [place_block(remainder, start, self.services) for remainder in range(self.services)]
        return np.array(places, np.int64)

    def first(self, service: int) -> int:
        """Return the first row of a service; a short table may not contain it."""
        return int(np.flatnonzero(self.places == service)[0])

    def count(self, service: int) -> int:
        """Return how many rows lie on a service."""
        return max(0, -(-(self.rows - self.first(service)) // self.services))

    def part(self, service: int) -> slice:
        """Return the rows of a service, in its order."""
        return slice(self.first(service), self.rows, self.services)

    def deal(self, ids: RowIds) -> Dealt:
        """Divide rows among their services, each service's rows in the given order."""
        order, local, starts = deal_rows(ids, self.places)
        return Dealt(order, local, starts.tolist())


def local_specs(specs: Sequence[ParameterSpec], services: int, service: int) -> list[ParameterSpec]:
    """Return the parameters as a service has them: the same number of parameters, with only its rows."""
    tables = [SparseTable.of(spec, services) for spec in specs]
    return [
        dataclasses.replace(spec, size=table.count(service) * table.width)
        for spec, table in zip(specs, tables, strict=True)
    ]
