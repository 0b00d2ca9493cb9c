"""The errors of the data job, with the exit codes that `podFailurePolicy` reads.

PrepareError
├── ArgumentsError    64  an unknown flag, or a flag without its value
├── InputError        65  the data does not have the source's format, or has another SHA-256
├── InputMissingError 66  a file or an address that does not exist
├── UnreachableError  69  the server of DATA_URL does not answer before the deadline
├── OutputError       74  OUT_DIR is full, read-only or not writable
├── ForbiddenError    77  the server of DATA_URL denies access
└── SettingsError     78  missing, malformed or contradictory settings

All programs of the project use these exit codes. The package `prepare` has its own copy of the exit codes, because it
imports no other package of the project.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PrepareError(Exception):
    """An error that the user can understand and correct. The program prints one message without a traceback."""

    exit_code = 70


class ArgumentsError(PrepareError):
    """The command line is invalid."""

    exit_code = 64


class InputError(PrepareError):
    """The input exists, but has the wrong format or content."""

    exit_code = 65


class InputMissingError(PrepareError):
    """The input does not exist."""

    exit_code = 66


class UnreachableError(PrepareError):
    """The input's server does not answer; a later attempt may succeed."""

    exit_code = 69


class OutputError(PrepareError):
    """The output cannot be written; a later attempt may succeed."""

    exit_code = 74


class ForbiddenError(PrepareError):
    """The input's server denies access."""

    exit_code = 77


class SettingsError(PrepareError):
    """Environment or flags are missing, malformed or contradictory."""

    exit_code = 78


@contextmanager
def reading_input() -> Iterator[None]:
    """Translate each OSError inside the block into an InputMissingError, because unreadable input counts as missing.

    Raises: InputMissingError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputMissingError(f"cannot read {error.filename or 'the input'}: {error.strerror or error}") from error


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Translate each OSError inside the block into an OutputError that names the owner of the directory.

    Raises: OutputError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        remedy = "make room, mount the volume read-write, or make this uid the owner of the directory"
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            remedy = "a file has this name, or that of a directory above it: move it away, or name another OUT_DIR"
        raise OutputError(f"cannot write below {directory}: {reason} ({_access(directory)}); {remedy}") from error


def _access(directory: Path) -> str:
    """Describe the user of the process, and the owner and mode of the nearest existing directory."""
    nearest = next((path for path in (directory, *directory.parents) if os.path.exists(path)), directory)  # noqa: PTH110
    try:
        status = nearest.stat()
    except OSError as error:
        return f"this process is uid {os.getuid()}; {nearest}: {error.strerror}"
    owner = f"{nearest} belongs to {status.st_uid}:{status.st_gid}, mode {status.st_mode & 0o7777:04o}"
    return f"this process is uid {os.getuid()} gid {os.getgid()}; {owner}"
