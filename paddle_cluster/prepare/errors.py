"""Translates errors of the file system into errors of the data job: those of its input, and those of its output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paddle_base.runtime.errors import MissingInputError, VolumeError


@contextmanager
def reading_input() -> Iterator[None]:
    """Translate each OSError inside the block into an MissingInputError, because unreadable input counts as missing.

    Raises: MissingInputError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        raise MissingInputError(f"cannot read {error.filename or 'the input'}: {error.strerror or error}") from error


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Translate each OSError inside the block into an VolumeError that names the owner of the directory.

    Raises: VolumeError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        remedy = "make room, mount the volume read-write, or make this uid the owner of the directory"
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            remedy = "a file has this name, or that of a directory above it: move it away, or name another OUT_DIR"
        raise VolumeError(f"cannot write below {directory}: {reason} ({_access(directory)}); {remedy}") from error


def write_pieces(pieces: Iterable[bytes], output: IO[bytes], path: Path) -> None:
    """Write pieces to an open file, and close the file; errors of the pieces stay as they are.

    Raises: VolumeError: if the file cannot be written.
    """
    with output:
        for piece in pieces:
            with writing_to(path):
                output.write(piece)
        with writing_to(path):
            output.flush()


def _access(directory: Path) -> str:
    """Describe the user of the process, and the owner and mode of the nearest existing directory."""
    nearest = next((path for path in (directory, *directory.parents) if os.path.exists(path)), directory)  # noqa: PTH110
    try:
        status = nearest.stat()
    except OSError as error:
        return f"this process is uid {os.getuid()}; {nearest}: {error.strerror}"
    owner = f"{nearest} belongs to {status.st_uid}:{status.st_gid}, mode {status.st_mode & 0o7777:04o}"
    return f"this process is uid {os.getuid()} gid {os.getgid()}; {owner}"
