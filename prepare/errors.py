"""What can go wrong in the data job, with the exit codes that `podFailurePolicy` reads.

PrepareError
├── ArgumentsError    64  a flag that does not exist, or without its value
├── InputError        65  the data is not what its source promises, or has another SHA-256
├── InputMissingError 66  a file or address that is not there
├── UnreachableError  69  the server of DATA_URL does not answer until the deadline
├── OutputError       74  OUT_DIR is full, read-only or not writable
├── ForbiddenError    77  the server of DATA_URL refuses us
└── SettingsError     78  settings that are missing, malformed or contradict each other

The codes are those of the whole project; the package repeats them because it imports nothing of ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PrepareError(Exception):
    """A failure that the user can understand and mend: one message, one exit code, no traceback."""

    exit_code = 70


class ArgumentsError(PrepareError):
    """The command line cannot be read."""

    exit_code = 64


class InputError(PrepareError):
    """The input is there, but is not what it should be."""

    exit_code = 65


class InputMissingError(PrepareError):
    """The input is not there."""

    exit_code = 66


class UnreachableError(PrepareError):
    """The input's server does not answer; a later attempt may succeed."""

    exit_code = 69


class OutputError(PrepareError):
    """The output cannot be written; a later attempt may succeed."""

    exit_code = 74


class ForbiddenError(PrepareError):
    """The input's server refuses us."""

    exit_code = 77


class SettingsError(PrepareError):
    """Environment or flags are missing, malformed or contradictory."""

    exit_code = 78


@contextmanager
def reading_input() -> Iterator[None]:
    """Translate every OSError inside the block that is not about writing: what cannot be read is missing.

    Raises: InputMissingError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputMissingError(f"cannot read {error.filename or 'the input'}: {error.strerror or error}") from error


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Translate every OSError inside the block into an OutputError that says whose directory it is.

    Raises: OutputError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"cannot write below {directory}: {reason} ({_access(directory)}); make room, mount it read-write, or "
            "give it to this uid"
        ) from error


def _access(directory: Path) -> str:
    """Describe who we are and who may write to the nearest directory that exists."""
    nearest = next((path for path in (directory, *directory.parents) if path.exists()), directory)
    try:
        status = nearest.stat()
    except OSError as error:
        return f"we are uid {os.getuid()}; {nearest}: {error.strerror}"
    owner = f"{nearest} belongs to {status.st_uid}:{status.st_gid}, mode {status.st_mode & 0o7777:04o}"
    return f"we are uid {os.getuid()} gid {os.getgid()}; {owner}"
