"""The file of a snapshot: the states of all services of one server, between two messages.

8 bytes "PDLPSNAP"    u32 version 1    u32 number of services
for each service: u32 bytes of a note, the note (JSON: the service's record, and name, dtype and shape of each
    array), the arrays
u32 CRC-32 of all previous bytes

Integers are little-endian, and arrays have the form that they have in the memory of x86-64 and arm64. A file gets its
final name only when it is complete.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from paddle_base.runtime.bounded_json import dump_bounded
from paddle_base.runtime.durable_files import remove_if_possible, staging_of, write_mark
from paddle_base.runtime.errors import DamagedError, LostFileError, VolumeError, reading_error
from paddle_base.runtime.number_types import number_type
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.schema import Integer, Items, Record, Row, SchemaError, Text, parse_object
from pserver.store.model_setup import as_bytes
from pserver.wire.protocol import MAX_NOTE_BYTES

MAGIC, VERSION = b"PDLPSNAP", 1
MOST_SERVICES, MOST_ARRAYS, MOST_DIMENSIONS = 4096, 4096, 4
# maximum bytes of a service's note; its largest part, the setup, has at most MAX_NOTE_BYTES
MOST_NOTE = 2 * MAX_NOTE_BYTES
NOTE_DEPTH, NOTE_VALUES = 16, 4 << 20

Content = tuple[dict[str, Any], dict[str, np.ndarray[Any, np.dtype[Any]]]]  # the JSON of a service, and its arrays

_HEAD, _LENGTH = struct.Struct("<8sII"), struct.Struct("<I")
_PREFIX = "server-"
_NOTE = Record(
    service=Record(),
    arrays=Items(Row((Text(MOST_NOTE), Text(20), Items(Integer(), MOST_DIMENSIONS))), MOST_ARRAYS),
)


def path_of_new(directory: Path, index: int) -> tuple[str, Path]:
    """Return the name and the path of a new snapshot of a server; the name is a new UUID."""
    name = str(uuid.uuid4())
    return name, directory / f"{_PREFIX}{index:04d}-{name}"


def write_snapshot(path: Path, services: Sequence[Content]) -> int:
    """Write and sync a file atomically; return its CRC-32.

    Raises: VolumeError: the directory cannot be made, is full or is not writable.
    """
    crc = 0

    def parts() -> Iterator[bytes | memoryview]:
        nonlocal crc
        for part in _encode(services):
            crc = zlib.crc32(part, crc)
            yield part
        yield _LENGTH.pack(crc)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_mark(path, parts())
    except OSError as error:
        raise _writing_error(path, error) from error
    return crc


def check_directory(directory: Path) -> None:
    """Check that a server can write snapshots into a directory, which is made if it does not exist.

    Raises: VolumeError: see `write_snapshot`.
    """
    _, path = path_of_new(directory, 0)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        staging_of(path).touch(exist_ok=False)
        staging_of(path).unlink()
    except OSError as error:
        raise _writing_error(path, error) from error


def _writing_error(path: Path, error: OSError) -> VolumeError:
    return VolumeError(
        f"a pserver cannot write its snapshot {path}: {error.strerror}; --checkpoint_path must be a directory that "
        "the pserver may write to, and that still exists when the pserver restarts"
    )


def read_snapshot(path: Path, crc: int) -> list[Content]:
    """Return the content of a snapshot file.

    Args: crc: the expected CRC-32 of the file.
    Raises: DamagedError: the file is damaged. LostFileError: the file does not exist. VolumeError: the file cannot be
        read now.
    """
    try:
        with open_regular(path) as file:
            reader = SnapshotReader(file, os.fstat(file.fileno()).st_size)
            found = _decode(reader)
            own = reader.crc
            if _LENGTH.unpack(reader.take(_LENGTH.size))[0] != own or reader.left or own != crc:
                raise DamagedError("its CRC-32 is wrong")
            return found
    except OSError as error:
        is_gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)
        kind = LostFileError if is_gone else VolumeError
        raise reading_error(kind, f"the snapshot {path} of this server cannot be read", error) from error
    except DamagedError as error:
        raise describe_damage(path, error) from error


def describe_damage(path: Path, error: DamagedError) -> DamagedError:
    """Return the error for a damaged snapshot."""
    return DamagedError(
        f"the snapshot {path} of this server is damaged: {error}; restore it from a backup, or begin the job anew "
        "under another --job"
    )


def remove_others(directory: Path, index: int, kept: Path | None) -> None:
    """Remove a server's snapshot files except `kept`: replaced files, and half-written files of a server that has
    ended.

    Files that cannot be removed stay.
    """
    for path in directory.glob(f"{_PREFIX}{index:04d}-*"):
        if path != kept:
            remove_if_possible(path)
    for path in directory.glob(f".{_PREFIX}{index:04d}-*.writing"):
        remove_if_possible(path)


# ----- Parts of a file


def _encode(services: Sequence[Content]) -> Iterator[bytes | memoryview]:
    yield _HEAD.pack(MAGIC, VERSION, len(services))
    for said, given in services:
        table = [[name, array.dtype.str, list(array.shape)] for name, array in given.items()]
        note = dump_bounded({"service": said, "arrays": table}, depth=NOTE_DEPTH, values=NOTE_VALUES)
        yield _LENGTH.pack(len(note))
        yield note
        yield from (as_bytes(np.ascontiguousarray(array)) for array in given.values())


def _decode(reader: SnapshotReader) -> list[Content]:
    magic, version, services = _HEAD.unpack(reader.take(_HEAD.size))
    if magic != MAGIC or version != VERSION or services > MOST_SERVICES:
        raise DamagedError("it does not begin with the header of a snapshot")
    return [_decode_service(reader) for _ in range(services)]


def _decode_service(reader: SnapshotReader) -> Content:
    length = _LENGTH.unpack(reader.take(_LENGTH.size))[0]
    if length > MOST_NOTE:
        raise DamagedError(f"it has a note of {length} bytes, which is over the limit of {MOST_NOTE}")
    try:
        note = parse_object(reader.take(length), _NOTE, "a note", depth=NOTE_DEPTH, values=NOTE_VALUES)
    except SchemaError as error:
        raise DamagedError(f"it has a service of which {error}") from error
    return note["service"], dict(_decode_array(reader, *one) for one in note["arrays"])


def _decode_array(
    reader: SnapshotReader, name: str, text: str, shape: list[int]
) -> tuple[str, np.ndarray[Any, np.dtype[Any]]]:
    try:
        kind = number_type(text)
    except (TypeError, ValueError) as error:
        raise DamagedError("it has an invalid description of an array") from error
    if max(shape, default=0) > reader.left or math.prod(shape) * kind.itemsize > reader.left:
        raise DamagedError("it ends too early")
    array = np.empty(shape, kind)
    reader.fill(as_bytes(array))
    return name, array


class SnapshotReader:
    """A reader that allocates at most as much memory as the size of its file.

    `left`: number of unread bytes.  `crc`: the CRC-32 of the bytes read so far.
    """

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self.left, self.crc = file, left, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises: DamagedError: the file has fewer bytes.
        """
        data = bytearray(min(size, self.left))
        self.fill(memoryview(data))
        if len(data) < size:
            raise DamagedError("it ends too early")
        return bytes(data)

    def fill(self, target: memoryview) -> None:
        """Fill memory with the next bytes of the file."""
        self.left -= len(target)
        at = 0
        while at < len(target):
            read = self._file.readinto(target[at:])  # type: ignore[attr-defined]
            if not read:
                raise DamagedError("it ends too early")
            at += read
        self.crc = zlib.crc32(target, self.crc)
