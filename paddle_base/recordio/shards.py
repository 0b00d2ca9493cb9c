"""Write records to several files, `PREFIX-00000` and so on, and then the list of these files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from paddle_base.recordio.layout import Compression
from paddle_base.recordio.writing import CHUNK_BYTES, RecordIOWriter
from paddle_base.runtime.durable_files import (
    remove_if_possible,
    staging_of,
    sync_directory,
    write_durably,
    write_mark,
)
from paddle_base.runtime.errors import DataError, UsageError

_DIGITS = re.compile(r"-\d{5,}")  # the part of a shard's name after the prefix


@dataclass(frozen=True)
class ShardPlan:
    """The paths and sizes of shards."""

    directory: Path
    prefix: str
    records: int  # number of records of a shard; the last shard may have fewer
    compression: Compression = Compression.SNAPPY
    max_chunk_bytes: int = CHUNK_BYTES
    overwrite: bool = False

    @property
    def list_file(self) -> Path:
        """The path of the file list for a config, which has a line for each shard."""
        return self.directory / f"{self.prefix}.list"


def write_shards(records: Iterable[bytes], plan: ShardPlan) -> tuple[list[Path], int]:
    """Write all shards to temporary files, rename these files, and write the list of the shards last.

    Returns: the paths of the shards, and the number of records.
    Raises: UsageError: the prefix is not a file name, or shards with this prefix exist and `overwrite` is false.
        DataError: there is no record.  VolumeError: the shards or the list cannot be written.  If `records` raises an
        error, this function raises the same error and leaves existing shards unchanged.
    """
    if not re.fullmatch(r"[^/.\0][^/\0]*", plan.prefix):
        raise UsageError(
            f"--name_prefix={plan.prefix} cannot begin a file name; give a prefix without '/' and without a first dot"
        )
    old = list(find_shards(plan)) if plan.directory.is_dir() else []
    if old and not plan.overwrite:
        raise UsageError(f"{old[0]} exists already; give another --name_prefix, or replace the shards with --overwrite")
    for path in old:
        if not path.is_file():
            raise UsageError(f"{path} is no regular file and is not replaced; give another --name_prefix")
    staging = staging_of(plan.directory / plan.prefix)
    remove_if_possible(staging)
    write_durably(plan.directory, lambda: staging.mkdir(parents=True))
    try:
        names, count = _fill(staging, iter(records), plan)
        write_durably(plan.directory, lambda: _publish(staging, names, plan))
    finally:
        remove_if_possible(staging)
    for path in old:
        if path.name not in names:  # after the new list, which names none of them
            remove_if_possible(path)
    return [plan.directory / name for name in names], count


def find_shards(plan: ShardPlan) -> Iterator[Path]:
    """Yield the existing shards with the prefix, in the order of their names."""
    for path in sorted(plan.directory.iterdir()):
        if path.name.startswith(plan.prefix) and _DIGITS.fullmatch(path.name.removeprefix(plan.prefix)):
            yield path


def _fill(staging: Path, records: Iterator[bytes], plan: ShardPlan) -> tuple[list[str], int]:
    names: list[str] = []
    count = 0
    for first in records:
        names.append(f"{plan.prefix}-{len(names):05d}")
        with RecordIOWriter(staging / names[-1], plan.compression, plan.max_chunk_bytes) as writer:
            for record in chain([first], islice(records, plan.records - 1)):
                writer.write(record)
                count += 1
    if not names:
        raise DataError("there is no record to convert; name files that contain records")
    return names, count


def _publish(staging: Path, names: list[str], plan: ShardPlan) -> None:
    plan.list_file.unlink(missing_ok=True)  # no list exists while the directory has old and new shards
    for name in names:
        # This function is repeated after a temporary error. A file that is absent was renamed before the error.
        if (staging / name).exists():
            (staging / name).replace(plan.directory / name)
    sync_directory(plan.directory)
    write_mark(plan.list_file, ["".join(f"{plan.directory / name}\n" for name in names).encode()])
