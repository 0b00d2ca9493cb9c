"""Readers of arrays, text files, RecordIO files, tables in Parquet, and of the tasks of a master."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from paddle.v2.reader.decorator import Reader, buffered
from paddle_base.columnar.tables import Batch, TableFile, open_table
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_base.runtime.regular_files import open_regular
from trainer.data.plain_pickle import PlainPickleError, load_sample
from trainer.v2.errors import advising


@advising
def np_array(x: Any) -> Reader:
    """Return a reader of the rows `x[0]`, `x[1]`, ... of an array; a number is the only sample of its reader."""

    def reader() -> Iterator[Any]:
        if np.ndim(x) == 0:
            yield x
            return
        yield from x

    return reader


@advising
def text_file(path: str | Path) -> Reader:
    """Return a reader of the lines (str) of a text file, without their line breaks."""

    def reader() -> Iterator[str]:
        with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                yield line.rstrip("\n")

    return reader


def _load_records(path: str, records: Iterable[bytes]) -> Iterator[Any]:
    for number, record in enumerate(records):
        try:
            sample = load_sample(record)
        except PlainPickleError as error:
            raise DataError(f"record {number} of {path} is no pickled sample: {error}") from error
        yield sample


@advising
def recordio(paths: str | Sequence[str], buf_size: int = 100) -> Reader:
    """Return a reader of RecordIO files whose records are pickles of samples, as `dataset.common.convert` writes them.

    Args: paths: names of files, one or a list; each may be a pattern (`*`), and a text may join several by commas.
        buf_size: number of samples that are read ahead.
    Raises (of the reader): MissingInputError: a name or pattern has no file.  DamagedChunkError.  DataError: a
        record is no pickle of plain values and arrays.
    """

    def reader() -> Iterator[Any]:
        for path in _find_files(paths, "RecordIO file", "write it by paddle.dataset.common.convert"):
            with RecordIOReader(path) as records:
                yield from _load_records(path, records)

    return buffered(reader, buf_size)


def _find_files(paths: str | Sequence[str], kind: str, advice: str) -> Iterator[str]:
    """Yield the files of names or patterns; a text may join several by commas."""
    for name in paths.split(",") if isinstance(paths, str) else paths:
        found = sorted(glob.glob(name))  # noqa: PTH207 - a pattern may be absolute
        if not found:
            raise MissingInputError(f"there is no {kind} {name}; {advice}")
        yield from found


@advising
def parquet(paths: str | Sequence[str], columns: Sequence[str], buf_size: int = 1000) -> Reader:
    """Return a reader of the rows of Parquet or Arrow files: tuples with the values of these columns.

    Args: paths: as in `recordio`.  columns: their names.  buf_size: number of samples that are read ahead.
    Raises (of the reader): MissingInputError: a name or pattern has no file.  DataError: a file is no table, a column
        is absent, or a value is null.  ConfigError: pyarrow is not installed.
    """
    names = [columns] if isinstance(columns, str) else list(columns)

    def reader() -> Iterator[Any]:
        for path in _find_files(paths, "table", "correct the name"):
            with closing(open_table(open_regular(Path(path)), path)) as table:
                for batch in table.batches(list(dict.fromkeys(map(table.require, names)))):
                    yield from _list_rows(table, batch, names)

    return buffered(reader, buf_size)


def _list_rows(table: TableFile, batch: Batch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    lists = {}
    for name, array in zip(dict.fromkeys(names), batch.columns, strict=True):
        lists[name] = array.to_pylist()
        if array.null_count:
            row = batch.first + lists[name].index(None)
            raise DataError(f"{table.place(batch.group, row)}: column {name!r} is null; fill the nulls")
    return zip(*(lists[name] for name in names), strict=True)


@advising
def cloud_reader(paths: str | Sequence[str], etcd_endpoints: str, timeout_sec: float = 5, buf_size: int = 64) -> Reader:
    """Join the job of a master, and return a reader of the samples of its tasks; each call reads a pass.

    Inside `SGD.train`, a task is finished when its samples are trained; in another loop, when the sample after its last
    one is requested. In `SGD.train` the reader is called again for each task of a pass.

    Args: paths: names or patterns (`*`) of RecordIO files of pickled samples, the same in all trainers.
        etcd_endpoints: "http://host:port,..." of etcd, or the path of the master's --store_dir.  timeout_sec, buf_size:
        without effect; the flag `wait` of `paddle.init` limits the waits.
    Raises: MissingInputError: a pattern has no file.  ConfigError: the job has other files.  PeerUnreachableError: no
        master has answered in time.
    """
    from trainer.v2.jobs.membership import join_store
    from trainer.v2.jobs.parts import CloudReader

    member = join_store(etcd_endpoints)
    member.set_dataset(paths)
    return CloudReader(member, load_sample)
