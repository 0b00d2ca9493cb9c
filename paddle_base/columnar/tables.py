"""Read a table in a Parquet or Arrow file in batches of rows, some of its columns at a time.

Memory is bounded by `most_bytes` for the parts that a decoder holds at a time: a page of each column with its
dictionary, or a record batch. A batch has about BATCH_BYTES. Texts of Parquet are read as dictionaries, because a
dictionary is not repeated for each row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from paddle_base.columnar.footer import Chunk, DamagedFooterError, Footer, RowGroup, read_footer
from paddle_base.columnar.messages import DICTIONARY, MAGIC, RECORDS, Message, MessageError, measure_messages
from paddle_base.columnar.package import load_pyarrow
from paddle_base.columnar.pages import ChunkSize, measure_chunk
from paddle_base.runtime.errors import DataError

MOST_BYTES = 512 << 20  # default of the bytes that a decoder holds at a time
MOST_FOOTER = 64 << 20  # maximum bytes of the metadata at the end of a file
BATCH_BYTES, BATCH_ROWS = 4 << 20, 1 << 16  # of a batch, at most one more row or page
MOST_GAIN = 256  # a column of lists has at most this many times the bytes that the file has for it, beyond most_bytes
TEXT_BYTES = 16  # of a text in a list, beside its content
COLUMNS = 16_384  # maximum number of columns, as in spreadsheets
SUFFIXES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc")  # of files that these functions read
LISTED = 400  # maximum number of characters of the names of columns in a message
PARQUET, ENCRYPTED, OLD_FEATHER, STREAM = b"PAR1", b"PARE", b"FEA1", b"\xff\xff\xff\xff"  # the first bytes of files


@dataclass(frozen=True)
class Batch:
    """Rows of a table.

    Attributes: columns: the arrays of pyarrow, checked in full, in the order in which the columns were asked for.
    rows: their length.  group: the number of their row group or record batch, from 0.  first: the number of the first
    row in its group, from 0.
    """

    columns: Sequence[Any]
    rows: int
    group: int
    first: int


class TableFile:
    """A table in a file.

    Attributes: name: of the file, for messages.  names: those of its columns.  rows: their number.  part: the word for
    a part of the file that is decoded by itself.
    """

    part = "row group"

    def __init__(self, file: IO[bytes], name: str, most_bytes: int) -> None:
        self.name = name
        self.rows = 0
        self._file, self._most_bytes = file, most_bytes
        self._schema: Any = None

        self.names: list[str] = []

    def _take_schema(self, schema: Any) -> None:
        self._schema = schema
        with self._decoding(f"{self.name} has names of columns that are no text"):
            self.names = list(schema.names)
        if len(self.names) > COLUMNS:
            raise DataError(f"{self.name} has {len(self.names)} columns; at most {COLUMNS} are read")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def place(self, group: int, row: int | None = None) -> str:
        """Return the words for a row group or a row of it, for messages."""
        return f"{self.name} {self.part} {group}" + ("" if row is None else f" row {row}")

    def kind(self, name: str) -> Any:
        """Return the type of a column, one of pyarrow's.

        Raises: DataError: see `require`.
        """
        return self._schema.field(self.names.index(self.require(name))).type

    def require(self, name: str) -> str:
        """Return the name of a column.

        Raises: DataError: there is no such column, or there are several.
        """
        count = self.names.count(name)
        if count == 1:
            return name
        if count:
            raise DataError(f"{self.name} has {count} columns {name!r}; give each column a name of its own")
        raise DataError(f"{self.name} has no column {name!r}; its columns are {', '.join(self.names)[:LISTED]}")

    def batches(self, names: Sequence[str], most_rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield the rows of some columns, in the order of the file.

        Args: names: different names of columns.  most_rows: of a batch.
        Raises: DataError: a part of the file is damaged or too large.
        """
        raise NotImplementedError

    def _check(self, arrays: Sequence[Any], names: Sequence[str], group: int) -> None:
        """Check offsets, indices and texts, which the decoder may have taken from the file as they are."""
        for name, array in zip(names, arrays, strict=True):
            with self._decoding(f"{self.place(group)}: column {name!r} is damaged"):
                array.validate(full=True)

    @contextlib.contextmanager
    def _decoding(self, what: str) -> Iterator[None]:
        """Turn errors of pyarrow into DataError. An error of the file system has a number, and stays as it is."""
        arrow = load_pyarrow()
        try:
            yield
        except (arrow.ArrowException, OSError, OverflowError, MemoryError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            text = " ".join(str(error).split())[:LISTED]
            raise DataError(f"{what}: {text}; write the file again") from error


class ParquetTable(TableFile):
    """A table in a Parquet file."""

    def __init__(self, file: IO[bytes], name: str, most_bytes: int) -> None:
        super().__init__(file, name, most_bytes)
        self._footer = _read_footer(file, name)
        reader = self._open()
        self._metadata = reader.metadata
        self.rows = self._metadata.num_rows
        self._take_schema(reader.schema_arrow)
        self._readers = {frozenset[str](): reader}  # by the columns that are read as dictionaries

    def _open(self, **options: Any) -> Any:
        parquet = load_pyarrow("parquet")
        with self._decoding(f"{self.name} is no Parquet file that can be read"):
            self._file.seek(0)
            return parquet.ParquetFile(self._file, pre_buffer=False, buffer_size=1 << 20, **options)

    def batches(self, names: Sequence[str], most_rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield the rows of some columns (see TableFile)."""
        leaves = self._find_leaves(names)
        types = load_pyarrow("types")
        texts = {name for name in names if types.is_string(self.kind(name)) or types.is_large_string(self.kind(name))}
        for group, about in enumerate(self._footer.groups):
            rows, of_dictionary = self._measure(group, about, leaves, texts)
            reader = self._reader_of(of_dictionary)
            first = 0
            with self._decoding(f"{self.place(group)} is damaged"):
                found = reader.iter_batches(min(rows, most_rows), [group], list(names), use_threads=False)
            while True:
                with self._decoding(f"{self.place(group)} is damaged"):
                    batch = next(found, None)
                if batch is None:
                    break
                arrays = [batch.column(name) for name in names]
                self._check(arrays, names, group)
                yield Batch(arrays, batch.num_rows, group, first)
                first += batch.num_rows
            if first != about.rows:
                raise DataError(f"{self.place(group)} has {first} rows instead of {about.rows}; write the file again")

    def _reader_of(self, texts: frozenset[str]) -> Any:
        if texts not in self._readers:
            self._readers[texts] = self._open(metadata=self._metadata, read_dictionary=list(texts))
        return self._readers[texts]

    def _find_leaves(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the numbers of the columns of Parquet that a column with lists or structures consists of."""
        found, first = {}, 0
        for field in self._schema:
            count = _count_leaves(field.type)
            if field.name in names:
                found[field.name] = list(range(first, first + count))
            first += count
        if first != len(self._footer.leaves):
            raise DataError(f"{self.name} has columns of a form that is not read; write it with flat columns")
        return {name: found[name] for name in names}

    def _measure(
        self, group: int, about: RowGroup, leaves: dict[str, list[int]], texts: set[str]
    ) -> tuple[int, frozenset[str]]:
        """Return the number of rows of a batch in a row group, and the texts that can be read as dictionaries.

        Raises: DataError: the row group is damaged or too large.
        """
        held, row_bytes, of_dictionary = 0, 0.0, set(texts)
        for name, numbers in leaves.items():
            for number in numbers:
                chunk, what = about.chunks[number], f"{self.place(group)}: column {name!r}"
                try:
                    size = measure_chunk(self._file, chunk)
                except DamagedFooterError as error:
                    raise DataError(f"{what} is damaged: {error}; write the file again") from error
                held += size.largest + size.dictionary
                if size.repeats:  # pyarrow makes no dictionary of such texts
                    of_dictionary.discard(name)
                of_value = chunk.value_bytes or self._measure_text(size, name in of_dictionary)
                row_bytes += max(8.0, of_value * size.values / max(1, about.rows))
                if self._footer.leaves[number].is_repeated:
                    self._require_lists(size, chunk, what)
                elif size.values != about.rows:
                    raise DataError(f"{what} has {size.values} values instead of {about.rows}; write the file again")
        if held > self._most_bytes:
            raise DataError(
                f"{self.place(group)}: the largest pages of its columns have {held} bytes together, and at most "
                f"{self._most_bytes} are held in memory; write the file with smaller pages (data_page_size)"
            )
        return int(max(1, min(BATCH_ROWS, BATCH_BYTES / max(1.0, row_bytes)))), frozenset(of_dictionary)

    def _measure_text(self, size: ChunkSize, is_dictionary: bool) -> float:
        """Return the bytes for each text: a mean, or the longest text that is possible if each row may have it.

        Texts that repeat one another may take `most_bytes` in a batch, because their longest one is unlikely.
        """
        if is_dictionary:
            return size.mean
        longest = size.total * BATCH_BYTES / self._most_bytes if size.repeats else 0
        return max(size.mean, size.dictionary, longest)

    def _require_lists(self, size: ChunkSize, chunk: Chunk, what: str) -> None:
        """Check the size of lists, of which one row may have all."""
        plain = size.values * (chunk.value_bytes or TEXT_BYTES)
        if plain > max(self._most_bytes, MOST_GAIN * chunk.length):
            raise DataError(
                f"{what} has lists of {size.values} values, which are {plain} bytes in memory and {chunk.length} in "
                "the file; write smaller row groups"
            )


class ArrowTable(TableFile):
    """A table in a file or stream of Arrow's IPC format, which is also that of Feather."""

    part = "record batch"

    def __init__(self, file: IO[bytes], name: str, most_bytes: int) -> None:
        super().__init__(file, name, most_bytes)
        file.seek(0)
        self._begin = 8 if file.read(len(MAGIC)) == MAGIC else 0
        end = _find_footer(file, name) if self._begin else file.seek(0, 2)
        self._groups = [one.rows for one in self._measure(end)]
        self.rows = sum(self._groups)
        self._take_schema(self._open().schema)

    def _measure(self, end: int) -> Iterator[Message]:
        """Yield the record batches.

        Raises: DataError: the file is damaged, or a part of it is too large.
        """
        held = 0
        try:
            for message in measure_messages(self._file, self._begin, end):
                held += message.size if message.kind == DICTIONARY else 0
                if message.size + held > self._most_bytes:
                    raise DataError(
                        f"{self.name}: a record batch with its dictionaries has {message.size + held} bytes, and at "
                        f"most {self._most_bytes} are held in memory; write the file with fewer rows in a batch"
                    )
                if message.kind == RECORDS:
                    yield message
        except MessageError as error:
            raise DataError(f"{self.name} is damaged: {error}; write the file again") from error

    def _open(self, places: Sequence[int] | None = None) -> Any:
        ipc = load_pyarrow("ipc")
        self._file.seek(self._begin)
        options = ipc.IpcReadOptions(use_threads=False, included_fields=places)
        with self._decoding(f"{self.name} is no Arrow file that can be read"):
            return ipc.open_stream(self._file, options=options)

    def batches(self, names: Sequence[str], most_rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield the rows of some columns (see TableFile)."""
        places = [self.names.index(name) for name in names]
        reader = self._open(sorted(places))
        for group, wanted in enumerate(self._groups):
            with self._decoding(f"{self.place(group)} is damaged"):
                batch = reader.read_next_batch()
            arrays = [batch.column(name) for name in names]
            self._check(arrays, names, group)
            if batch.num_rows != wanted:
                raise DataError(f"{self.place(group)} has {batch.num_rows} rows instead of {wanted}")
            rows = max(1, min(most_rows, BATCH_ROWS, BATCH_BYTES * wanted // max(1, batch.nbytes)))
            for first in range(0, wanted, rows):
                parts = [array.slice(first, rows) for array in arrays]
                yield Batch(parts, len(parts[0]) if parts else 0, group, first)


def open_table(file: IO[bytes], name: str, most_bytes: int = MOST_BYTES) -> TableFile:
    """Open a table of either format, which the first bytes of the file tell.

    Args: file: at any position, seekable; the table closes it.  name: of the file, for messages.  most_bytes: the most
    that a decoder may hold at a time.
    Raises: DataError: the file is neither, or it is damaged.  ConfigError: pyarrow is not installed.
    """
    try:
        file.seek(0)
        begin = file.read(8)
        if begin.startswith((MAGIC, STREAM)):
            return ArrowTable(file, name, most_bytes)
        if begin.startswith(PARQUET):
            return ParquetTable(file, name, most_bytes)
        found = f"begins with {begin!r}" if begin else "is empty"
        if begin.startswith(ENCRYPTED):
            found = "is encrypted"
        elif begin.startswith(OLD_FEATHER):
            found = "is a Feather file of version 1"
        raise DataError(f"{name} {found}, which is no Parquet or Arrow file; remove it, or write it as one of these")
    except BaseException:
        file.close()
        raise


def is_table(file: IO[bytes]) -> bool:
    """Return whether a file begins as a Parquet or Arrow file; its position becomes the start."""
    file.seek(0)
    begin = file.read(8)
    file.seek(0)
    return begin.startswith((PARQUET, ENCRYPTED, OLD_FEATHER, MAGIC, STREAM))


def _count_leaves(kind: Any) -> int:
    types = load_pyarrow("types")
    if types.is_map(kind):
        return _count_leaves(kind.key_type) + _count_leaves(kind.item_type)
    if types.is_struct(kind):
        return sum(_count_leaves(kind.field(number).type) for number in range(kind.num_fields))
    return _count_leaves(kind.value_type) if hasattr(kind, "value_field") else 1


def _read_footer_size(file: IO[bytes], name: str, magic: bytes) -> tuple[int, int]:
    """Return (the position, the number of bytes) of the metadata at the end of a file.

    Raises: DataError: the file does not end as such a file does.
    """
    end = file.seek(0, 2)
    tail = 4 + len(magic)
    file.seek(max(0, end - tail))
    last = file.read(tail)
    if len(last) < tail or not last.endswith(magic):
        raise DataError(f"{name} does not end with {magic.decode()}, so it is cut off; copy or write it again")
    size = int.from_bytes(last[:4], "little")
    if size > min(MOST_FOOTER, end - tail - len(magic)):
        raise DataError(f"{name} is damaged: its metadata should have {size} bytes; write the file again")
    return end - tail - size, size


def _read_footer(file: IO[bytes], name: str) -> Footer:
    place, size = _read_footer_size(file, name, PARQUET)
    file.seek(place)
    try:
        return read_footer(file.read(size))
    except DamagedFooterError as error:
        raise DataError(f"{name} is damaged: {error}; write the file again") from error


def _find_footer(file: IO[bytes], name: str) -> int:
    return _read_footer_size(file, name, MAGIC)[0]
