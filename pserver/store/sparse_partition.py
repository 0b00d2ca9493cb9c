"""The partition of the rows of a table among sparse services, as in the legacy program.

Row r of a parameter is stored on service |(r + hash(name)) rem S|, where S is the number of services (see
`pserver.store.partition`). Every S-th row of the table is therefore on the same service, and row r of the table is row
r // S of its service. No list of rows is needed. A service stores its rows one after the other.

Source: spec/distributed.md 3.2. No I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.tables import Places, RowIds, deal_rows
from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim.settings import ParameterSpec
from pserver.store.partition import hash_name, place_block

MOST_ROWS = 1 << 32  # maximum number of rows of a table, because row numbers are transferred as uint32
_HALF = 1 << 63


@dataclasses.dataclass(frozen=True)
class Dealt:
    """Some rows, divided among the services.

    The elements [starts[k], starts[k + 1]) of `local` are the numbers of the rows of service k, as service k counts
    them. The same elements of `order` are the positions of these rows in the array that was divided.
    """

    order: RowIds
    local: RowIds
    starts: Places


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

        Raises: ConfigError: the table has more rows than can be numbered.  BugError: the parameter's size is not a
            multiple of its row width.
        """
        if spec.row_width < 1 or spec.size % spec.row_width or services < 1:
            raise BugError(
                f"parameter {spec.name} of {spec.size} elements cannot be divided into rows of {spec.row_width} "
                f"elements for {services} services"
            )
        rows = spec.size // spec.row_width
        if rows > MOST_ROWS:
            raise ConfigError(
                f"parameter {spec.name} has {rows} rows, but a table with sparse_update has at most {MOST_ROWS}; "
                "divide it into several tables"
            )
        return cls(spec.name, rows, spec.row_width, services)

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """The services of the rows: row r is stored on service places[r modulo services]."""
        start = hash_name(self.name)
        # If the hash is just below 2^63 or 2^64, the sum of row and hash changes its sign inside the table. In v0.10,
        # the order of the services changes with the sign. No name with such a hash is known, so this code does not
        # follow v0.10 in this case.
        start = 0 if start // _HALF != (start + self.rows) // _HALF else start
        places = [place_block(remainder, start, self.services) for remainder in range(self.services)]
        return np.array(places, np.int64)

    def first(self, service: int) -> int:
        """Return the number of a service's first row; a short table may not contain this row."""
        return int(np.flatnonzero(self.places == service)[0])

    def count(self, service: int) -> int:
        """Return the number of rows of a service."""
        return max(0, -(-(self.rows - self.first(service)) // self.services))

    def part(self, service: int) -> slice:
        """Return the row numbers of a service, in the service's order."""
        return slice(self.first(service), self.rows, self.services)

    def deal(self, ids: RowIds) -> Dealt:
        """Divide rows among their services. The rows of each service keep the given order."""
        return Dealt(*deal_rows(ids, self.places))


def local_specs(specs: Sequence[ParameterSpec], services: int, service: int) -> list[ParameterSpec]:
    """Return the parameters that a service stores: all parameters, each with only the rows of this service."""
    tables = [SparseTable.of(spec, services) for spec in specs]
    return [
        dataclasses.replace(spec, size=table.count(service) * table.width)
        for spec, table in zip(specs, tables, strict=True)
    ]
