"""Pack the rows of one service into an array for the wire, and unpack such an array.

An array for the wire has the numbers of the rows of some tables, then these rows, table by table:

    u32 x tables    the number of rows of each table
    u32 ...         the numbers of these rows on the service
    f32 ...         the rows

Without the compiled module numpy gives bit-equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits
from paddle_base.kernels.tables import Places, RowIds

Array = npt.NDArray[np.floating[Any]]
Buffer = bytes | bytearray | memoryview


class TableRows(NamedTuple):
    """Some rows of a table, divided among services.

    - `order`, `local`, `starts`: see `tables.deal_rows`.
    - `rows`: the matrix with these rows.
    - `width`: number of columns of the matrix.
    - `ids`: the row at position p of the divided rows is row ids[p] of the matrix; None: it is row p.
    """

    order: RowIds
    local: RowIds
    starts: Places
    rows: Array
    width: int
    ids: RowIds | None

    def list_rows(self, service: int) -> RowIds:
        """Return the places in the matrix of a service's rows."""
        order = self.order[self.starts[service] : self.starts[service + 1]]
        return order if self.ids is None else self.ids.take(order)

    def list_numbers(self, service: int) -> RowIds:
        """Return the numbers of a service's rows on the service."""
        return self.local[self.starts[service] : self.starts[service + 1]]


def measure_numbers(tables: Sequence[TableRows], service: int) -> int:
    """Return the length in bytes of the numbers of a service's rows, with the number of rows of each table."""
    count = len(tables)
    for table in tables:
        count += int(table.starts[service + 1] - table.starts[service])
    return 4 * count


def measure_rows(tables: Sequence[TableRows], service: int) -> int:
    """Return the length in bytes of a service's rows."""
    count = 0
    for table in tables:
        count += int(table.starts[service + 1] - table.starts[service]) * table.width
    return 4 * count


def pack_rows(array: memoryview, service: int, tables: Sequence[TableRows], wanted: Sequence[TableRows] = ()) -> None:
    """Write the numbers and the rows of a service to an array, then the numbers of its rows in `wanted`.

    Args: tables, wanted: may be empty; then nothing is written for them.
    Raises: ValueError: the array has another length than all that is written.
    """
    if compiled is not None and _are_fit(tables) and _are_fit(wanted):
        compiled.pack_rows(array, service, tuple(tables), tuple(wanted))
        return
    parts = _list_numbers(tables, service)
    parts += [table.rows.take(table.list_rows(service), axis=0).astype(np.float32, copy=False) for table in tables]
    data = b"".join(part.tobytes() for part in parts + _list_numbers(wanted, service))
    if len(data) != len(array):
        raise ValueError("the array does not fit the rows")
    array[:] = data


def unpack_rows(array: Buffer, service: int, tables: Sequence[TableRows]) -> None:
    """Copy the rows of a service, which are in the array, to their matrices.

    Raises: ValueError: the array has another length than these rows.
    """
    if compiled is not None and _are_fit(tables):
        compiled.unpack_rows(array, service, tuple(tables))
        return
    received, start = np.frombuffer(array, np.float32), 0
    if received.nbytes != measure_rows(tables, service):
        raise ValueError("the array does not fit the rows")
    for table in tables:
        rows = table.list_rows(service)
        end = start + len(rows) * table.width
        table.rows[rows] = received[start:end].reshape(-1, table.width)
        start = end


def _list_numbers(tables: Sequence[TableRows], service: int) -> list[npt.NDArray[Any]]:
    numbers = [table.list_numbers(service) for table in tables]
    return [np.array([len(one) for one in numbers], np.uint32), *numbers]


def _are_fit(tables: Sequence[TableRows]) -> bool:
    return fits(*(table.rows for table in tables)) and 0 not in (table.width for table in tables)
