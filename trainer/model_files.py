"""Parameter files and pass directories as they are written to the volume, in the legacy's format.

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
from pserver.errors import VolumeError
from trainer.legacy import AT, DONE_TEXT
from trainer.parameters import Parameter, ParameterTable

HEADER = struct.Struct("<iIQ")  # format version 0, bytes of a value, number of values
VALUE_BYTES = 4
DONE, PATH_FILE = "done", "path.txt"
STALE_ATTEMPTS = 3  # a directory handle of NFS may go stale when the server restarts; the next attempt opens it anew


def pass_name(number: int, part: int = 0) -> str:
    """Return the name of a pass's directory, or of the part-th save inside it."""
    return f"pass-{number:05d}-{part:03d}" if part else f"pass-{number:05d}"


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
        _remove_if_possible(staging)
        staging.mkdir(parents=True)
        for name, content in files:
            _write_file(staging / name, content)
        _sync_directory(staging)
        _replace(staging, directory)
        _sync_directory(directory.parent)
    except BaseException:  # a signal ends us here, too
        _remove_if_possible(staging)
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
    _remove_if_possible(old)
    try:
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        staging.rename(directory)
    except BaseException:
        if old.is_dir() and not directory.exists():
            old.rename(directory)
        raise
    _remove_if_possible(old)


def _remove_if_possible(path: Path) -> None:
    """Remove a directory with all that is in it, or a file; of a link the link, and not what it leads to."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def remove_pass(directory: Path) -> None:
    """Remove a pass directory if it exists; it is renamed first, so that no half of it is ever seen.

    Raises: VolumeError: if it cannot be removed.
    """
    if not directory.is_dir():
        return
    glog.info(f"delete dir {directory}", at=AT["delete"])
    old = directory.with_name(f".{directory.name}.old")
    try:
        _remove_if_possible(old)
        directory.rename(old)
        if old.is_symlink():  # somebody moved the pass elsewhere
            old.unlink()
        else:
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
