"""Parameter files and pass directories on the volume, in the legacy's format.

A pass directory is written beside its place, synced, and renamed into it, with `done` as the last file: whatever
happens, a directory pass-* has all its files. Only renames and syncs are used, so that it holds on NFS.

Source: spec/trainer.md section 3.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pserver import glog
from pserver.errors import DataError, MissingInputError, VolumeError
from trainer.legacy import AT, DONE_TEXT
from trainer.parameters import Parameter, ParameterTable
from trainer.rng import Stream

HEADER = struct.Struct("<iIQ")  # format version 0, bytes of a value, number of values
VALUE_BYTES = 4
DONE, PATH_FILE = "done", "path.txt"
STALE_ATTEMPTS = 3  # a directory handle of NFS may go stale when the server restarts; the next attempt opens it anew


def pass_name(number: int, part: int = 0) -> str:
    """Return the name of a pass's directory, or of the part-th save inside it."""
    return f"pass-{number:05d}-{part:03d}" if part else f"pass-{number:05d}"


# ----- Saving -----


def encode_parameter(parameter: Parameter) -> bytes:
    """Return a parameter as its file holds it."""
    values = np.ascontiguousarray(parameter.value, "<f4")
    return HEADER.pack(0, VALUE_BYTES, values.size) + values.tobytes()


def save_pass(directory: Path, table: ParameterTable, configs: Mapping[str, bytes]) -> None:
    """Write a pass directory, complete or not at all; one of that name is replaced.

    Args: configs: file name -> content of the config (first) and of those it imported; may be empty.
    Raises: VolumeError: if the volume is full, read-only or not writable.
    """
    for attempt in range(1, STALE_ATTEMPTS + 1):
        try:
            return _write_directory(directory, _list_files(table, configs))
        except OSError as error:
            if error.errno == errno.ESTALE and attempt < STALE_ATTEMPTS:
                continue
            raise VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename})") from error


def prepare_save_directory(directory: str) -> None:
    """Create the directory that pass directories will go to, before hours are spent on what cannot be saved.

    Raises: VolumeError: if it cannot be created or written to.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename})") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise VolumeError(f"cannot save to {directory}: it is not writable for uid {os.geteuid()}")


def _list_files(table: ParameterTable, configs: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file of a pass directory, the mark last."""
    for parameter in table:
        yield parameter.name, encode_parameter(parameter)
    yield from configs.items()
    if configs:
        yield PATH_FILE, next(iter(configs)).encode()
    yield DONE, DONE_TEXT.encode()


def _write_directory(directory: Path, files: Iterable[tuple[str, bytes]]) -> None:
    staging = directory.with_name(f".{directory.name}.writing")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        for name, content in files:
            _write_file(staging / name, content)
        _sync_directory(staging)
        _replace(staging, directory)
        _sync_directory(directory.parent)
    except BaseException:  # a signal ends us here, too
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _write_file(path: Path, content: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(path)  # a write that fails does not say where
        raise


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot; their renames are durable anyhow
            raise
    finally:
        os.close(handle)


def _replace(staging: Path, directory: Path) -> None:
    """Rename a directory into its place; an old one there is moved away first, since a rename needs an empty one."""
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        staging.rename(directory)
    except BaseException:
        if old.is_dir() and not directory.exists():
            old.rename(directory)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove_pass(directory: Path) -> None:
    """Remove a pass directory if it exists; it is renamed first, so that no half of it is ever seen.

    Raises: VolumeError: if it cannot be removed.
    """
    if not directory.is_dir():
        return
    glog.info(f"delete dir {directory}", at=AT["delete"])
    old = directory.with_name(f".{directory.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
        shutil.rmtree(old)
    except OSError as error:
        raise VolumeError(f"cannot delete {directory}: {error.strerror}") from error


def write_whole_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file, complete or not at all; one of that name is replaced.

    Raises: VolumeError: if the volume is full, read-only or not writable.
    """
    staging = path.with_name(f".{path.name}.writing")
    try:
        _write_file(staging, b"".join(parts))
        staging.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staging.unlink(missing_ok=True)
        raise VolumeError(f"cannot write {path}: {error.strerror}") from error


# ----- Loading -----


def is_complete(directory: str | Path) -> bool:
    """Return whether a pass directory is there and was written to its end."""
    return (Path(directory) / DONE).exists()


def load_pass(
    directory: str | Path, table: ParameterTable, strategy: str, stream: Stream, *, needs_done: bool = False
) -> None:
    """Fill the table from a directory.

    Args: strategy: for a parameter without file: fail, rand (drawn from `stream`) or zero.
        needs_done: whether the directory must have the mark of a complete one.
    Raises: MissingInputError: if the directory, the mark, or (with fail) a file is missing.
        DataError: if a file has another format or size.
    """
    path = Path(directory)
    if not path.is_dir():
        raise MissingInputError(f"there is no model directory {directory}")
    if needs_done and not is_complete(directory):
        raise MissingInputError(f"the model directory {directory} has no file '{DONE}': it was not written to its end")
    glog.info(f"Loading parameters from {directory}", at=AT["load"])
    for parameter in table:
        file = path / parameter.name
        if file.exists():
            parameter.value[:] = read_parameter(file, parameter.name, parameter.size)
        else:
            _make_up(parameter, f"{directory}/{parameter.name}", strategy, stream)


def read_parameter(file: Path, name: str, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return the values of a parameter file.

    Raises: DataError: if it is no such file, or has not `size` values.  MissingInputError: if it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(HEADER.size + size * VALUE_BYTES)
    except OSError as error:
        raise MissingInputError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) < HEADER.size:
        raise DataError(f"{file} is no parameter file: it has {len(data)} bytes, the header alone {HEADER.size}")
    version, value_bytes, count = HEADER.unpack_from(data)
    if (version, value_bytes) != (0, VALUE_BYTES):
        raise DataError(
            f"{file} is no parameter file of float32: its header says version {version}, {value_bytes} bytes a value"
        )
    if count != size:
        raise DataError(f"The size ({count}) in the file does not match the size ({size}) of the parameter: {name}")
    if len(data) < HEADER.size + count * VALUE_BYTES:
        raise DataError(f"{file} is cut off: {len(data)} bytes for {count} values")
    return np.frombuffer(data, "<f4", count, HEADER.size)


def _make_up(parameter: Parameter, path: str, strategy: str, stream: Stream) -> None:
    glog.info(f"missing parameters [{path}] while loading model.", at=AT["missing"])
    if strategy == "rand":
        glog.info(f"{parameter.name} missing, set to random.", at=AT["missing strategy"])
        parameter.randomize(stream)
    elif strategy == "zero":
        glog.info(f"{parameter.name} missing, set to zero.", at=AT["missing strategy"])
        parameter.value.fill(0)
        glog.info(f"{parameter.name} set to 0", at=AT["missing strategy"])
    else:
        raise MissingInputError(f"{parameter.name} missing, not allowed.")


# ----- Which config belongs to a model -----


def find_config(config: str, model_directory: str) -> str:
    """Return the config script to use: the one named, else the one that the model directory names.

    Raises: MissingInputError: if there is none.
    """
    if config:
        return config
    mark = Path(model_directory) / PATH_FILE
    if not model_directory or not mark.exists():
        raise MissingInputError("no valid config: give --config=..., or --init_model_path of a directory with path.txt")
    return str(Path(model_directory) / mark.read_text().strip())
