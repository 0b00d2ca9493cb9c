"""Write parameter files and pass directories to the volume, in the format of v0.10.

A pass directory is written under a temporary name, synced, and then renamed. `done` is the last file to be written. A
directory pass-* therefore always has all its files. Renames and syncs also work on NFS.
Source: spec/trainer.md section 3.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import (
    REMEDY,
    Content,
    old_of,
    remove_if_possible,
    saving_error,
    warn_if_removed,
    write_directory,
    write_durably,
    write_file,
)
from paddle_base.runtime.errors import DataError, VolumeError
from paddle_base.runtime.saves import DONE, HEADER, VALUE_BYTES
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.telemetry.legacy_words import AT, DONE_TEXT

_LAYER = re.compile(r"_(.+)\.(?:w\d+|wbias)")  # the name that v0.10 gives the parameter of a layer
PATH_FILE = "path.txt"


def encode_parameter(parameter: Parameter) -> list[bytes | memoryview]:
    """Return the content of a parameter's file: header, values and, with sparse storage, the values' positions."""
    values = np.ascontiguousarray(parameter.value, "<f4")
    places = [] if parameter.pattern is None else [parameter.pattern.encode()]
    return [HEADER.pack(0, VALUE_BYTES, values.size), values.data, *places]


def decode_parameter(data: bytes, source: str, name: str, size: int) -> npt.NDArray[np.float32]:
    """Return the values of a parameter file.

    Args: source: the path of the file, for messages.
    Raises: DataError: the bytes are not the content of a parameter file with `size` values.
    """
    if len(data) < HEADER.size:
        raise DataError(
            f"{source} is no parameter file: it has {len(data)} bytes, but the header alone has {HEADER.size}"
        )
    version, value_bytes, count = HEADER.unpack_from(data)
    if (version, value_bytes) != (0, VALUE_BYTES):
        raise DataError(
            f"{source} is no parameter file of float32: its header has version {version} and {value_bytes} bytes per "
            "value"
        )
    if count != size:
        layer = _LAYER.fullmatch(name)
        whose = f" of layer {layer[1]}" if layer else ""
        raise DataError(
            f"{source}: The size ({count}) in the file does not match the size ({size}) of the parameter: {name}{whose}"
            "; another config saved this model: take that one, or a model of this config"
        )
    if len(data) < HEADER.size + count * VALUE_BYTES:
        raise DataError(f"{source} is cut off: it has {len(data)} bytes for {count} values")
    return np.frombuffer(data, "<f4", count, HEADER.size)


def count_file_bytes(parameter: Parameter) -> int:
    """Return the number of bytes of a parameter's file."""
    places = 0 if parameter.pattern is None else parameter.pattern.file_bytes
    return HEADER.size + parameter.size * VALUE_BYTES + places


# the type of a function that writes the files of the tables into a directory, whose full path is the argument
SaveTables = Callable[[str], None]


def save_pass(
    directory: Path, table: ParameterTable, configs: Mapping[str, bytes], save_tables: SaveTables | None = None
) -> None:
    """Write a pass directory atomically. It replaces an old pass directory of the same name.

    Args: configs: file name -> content, for the config (first) and the scripts that it imports; may be empty.
        save_tables: a function with which the parameter servers write the tables. If it is None, this program writes
        the tables like all other parameters.
    Raises: VolumeError: the volume is full, read-only or not writable.
    """
    elsewhere = {one.name for one in table.tables()} if save_tables else set()
    write_durably(directory, lambda: _write_directory(directory, list_files(table, configs, elsewhere), save_tables))


def prepare_save_directory(directory: str) -> None:
    """Create the directory for pass directories. Errors are then detected before training begins.

    Raises: VolumeError: the directory cannot be created or written.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise saving_error(directory, error) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise VolumeError(f"cannot save to {directory}: it is not writable for uid {os.geteuid()}; {REMEDY}")


def list_files(
    table: ParameterTable, configs: Mapping[str, bytes], elsewhere: Collection[str] = ()
) -> Iterator[tuple[str, Content]]:
    """Yield the name and content of each file of a pass directory. The mark of a complete pass comes last.

    Args: elsewhere: the names of the parameters whose files the parameter servers write; they are omitted.
    """
    for parameter in table:
        if parameter.name not in elsewhere:
            yield parameter.name, encode_parameter(parameter)
    for name, content in configs.items():
        yield name, [content]
    if configs:
        yield PATH_FILE, [os.fsencode(next(iter(configs)))]
    yield DONE, [DONE_TEXT.encode()]


def _write_directory(
    directory: Path, files: Iterable[tuple[str, Content]], save_tables: SaveTables | None = None
) -> None:
    def fill(staging: Path) -> None:
        if save_tables is not None:
            save_tables(str(staging.resolve()))
        for name, content in files:
            write_file(staging / name, content)

    warn_if_removed(directory.parent)
    write_directory(directory, fill)


def remove_pass(directory: Path) -> None:
    """Remove a pass directory if it exists.

    The directory is renamed first, so no reader finds a pass that lacks some files.

    Raises: VolumeError: the directory cannot be removed.
    """
    if not directory.is_dir():
        return
    glog.info(f"delete dir {directory}", at=AT["delete"])
    old = old_of(directory)
    try:
        remove_if_possible(old)
        directory.rename(old)
        if old.is_symlink():  # a user has replaced the pass directory by a symbolic link
            old.unlink()
        else:
            shutil.rmtree(old)
    except OSError as error:
        raise VolumeError(f"cannot delete {directory}: {error.strerror}") from error
