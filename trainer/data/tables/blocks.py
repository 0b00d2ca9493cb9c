"""Read blocks of samples from tables: rows of whole columns, encoded as `trainer.data.columns` keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_base.columnar.package import load_pyarrow
from paddle_base.columnar.tables import BATCH_ROWS, Batch, TableFile, open_table
from paddle_base.runtime.errors import DataError, MissingInputError, reading_error
from paddle_base.runtime.regular_files import open_regular
from trainer.data.checks import SampleError
from trainer.data.chunks import CHUNK_BYTES, Chunk
from trainer.data.columns import ColumnSet
from trainer.data.input_types import Slot
from trainer.data.tables.values import ColumnError, make_values

FIRST_ROWS = 1024  # rows of the first block of a file; its bytes determine the number of rows in the next block


@dataclass(frozen=True)
class BlockReader:
    """Reads the files of a list.

    Attributes: slots: of the samples, in the order of the network's inputs.  names: of each slot's columns.  columns:
    encodes the values of the slots.
    """

    slots: Sequence[Slot]
    names: Mapping[str, Sequence[str]]
    columns: ColumnSet

    def read(self, entry: str, most_rows: int = BATCH_ROWS) -> Iterator[Chunk]:
        """Yield the blocks of a file, of about CHUNK_BYTES.

        Raises: MissingInputError: there is no such file.  DataError: the file is no table, or a column does not fit its
        slot; the text names the file, the row group and the column.
        """
        with closing(_open(entry)) as table:
            wanted = list(dict.fromkeys(name for slot in self.slots for name in self.names[slot.name]))
            self._check_types(table)
            rows = min(FIRST_ROWS, most_rows)
            for batch in _read(table, wanted, most_rows):
                first = 0
                while first < batch.rows:
                    block = self._encode(table, wanted, batch, first, min(first + rows, batch.rows))
                    first += block.rows
                    rows = max(1, min(BATCH_ROWS, most_rows, CHUNK_BYTES * block.rows // max(1, block.size)))
                    yield block

    def _check_types(self, table: TableFile) -> None:
        """Check that the columns of a file have types of their slots, before a row is read."""
        arrow = load_pyarrow()
        for slot in self.slots:
            names = self.names[slot.name]
            arrays = [arrow.array([], table.kind(name)) for name in names]
            try:
                make_values(slot.kind, arrays)
            except ColumnError as error:
                raise self._wrong(table.name, slot, error) from error

    def _encode(self, table: TableFile, wanted: Sequence[str], batch: Batch, first: int, last: int) -> Chunk:
        values: list[Any] = []
        for slot in self.slots:
            arrays = [batch.columns[wanted.index(name)].slice(first, last - first) for name in self.names[slot.name]]
            try:
                values.append(make_values(slot.kind, arrays))
            except ColumnError as error:
                row = None if error.row is None else batch.first + first + error.row
                raise self._wrong(table.place(batch.group, row), slot, error) from error
        try:
            return Chunk(last - first, self.columns.encode_slots(values), None)
        except SampleError as error:
            row = None if error.row is None else batch.first + first + error.row
            columns = ", ".join(map(repr, self.names[self.slots[error.slot or 0].name]))
            raise DataError(f"{table.place(batch.group, row)}: column {columns}: {error}") from error

    def _wrong(self, place: str, slot: Slot, error: ColumnError) -> DataError:
        column = self.names[slot.name][error.column]
        return DataError(f"{place}: column {column!r} of slot {slot.name} ({slot.kind}) {error}")


def _open(entry: str) -> TableFile:
    try:
        return open_table(open_regular(Path(entry)), entry)
    except OSError as error:
        raise reading_error(MissingInputError, f"the table {entry!r} of the list cannot be read", error) from error


def _read(table: TableFile, names: Sequence[str], most_rows: int) -> Iterator[Batch]:
    try:
        yield from table.batches(names, most_rows)
    except OSError as error:
        raise reading_error(MissingInputError, f"the table {table.name!r} cannot be read", error) from error
