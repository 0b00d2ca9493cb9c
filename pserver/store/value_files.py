"""The file with all values of one service, `pserver.%04d`, in v0.10's format of --loadsave_parameters_in_pserver.

    i32 version 0    u32 bytes of a value, 4    u64 number of values    the values, little-endian float32

Source: ParameterServer2.cpp of v0.10 (saveValueVector, loadValueVector).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paddle_base.runtime.durable_files import write_mark
from paddle_base.runtime.errors import DataError, MissingInputError, VolumeError, reading_error
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.saves import HEADER, VALUE_BYTES
from pserver.optim.settings import Array


def path_of(directory: str, service: int) -> Path:
    """Return the path of a service's file."""
    return Path(directory) / f"pserver.{service:04d}"


def save(path: Path, values: Array) -> None:
    """Write and sync a file atomically.

    Raises: VolumeError: the directory does not exist, is full or is not writable.
    """
    try:
        write_mark(path, [HEADER.pack(0, VALUE_BYTES, values.size), values.astype("<f4", copy=False).data])
    except OSError as error:
        raise VolumeError(
            f"a pserver cannot write {path}: {error.strerror}; the pserver must mount the trainers' volume"
        ) from error


def load(path: Path, values: Array) -> None:
    """Read the values of a file into an array.

    Raises: MissingInputError: the file cannot be read. DataError: the file is not a file of values, or has another
        number of values.
    """
    try:
        with open_regular(path) as file:
            header = file.read(HEADER.size)
            expected = HEADER.pack(0, VALUE_BYTES, values.size)
            if header != expected or path.stat().st_size != HEADER.size + values.nbytes:
                raise DataError(
                    f"{path} is not the file of the {values.size} values of this service: {_describe(header)}, "
                    f"{path.stat().st_size} bytes; the job needs as many servers and sparse ports as the job that "
                    "wrote the file"
                )
            values[:] = np.fromfile(file, "<f4", values.size)
    except OSError as error:
        raise reading_error(MissingInputError, f"a pserver cannot read {path}", error) from error


def _describe(header: bytes) -> str:
    if len(header) < HEADER.size:
        return "no header"
    version, value_bytes, count = HEADER.unpack(header)
    return f"version {version}, {value_bytes} bytes a value, {count} values"
