"""Files of the shared volume: atomic writes, bounded reads, and error descriptions."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import MOST_TEXT_BYTES, read_text_file, retry_stale, tells_nothing, write_mark
from paddle_base.runtime.errors import MissingInputError, PaddleError, VolumeError, reading_error
from paddle_cluster.launcher.errors import LostMountError
from paddle_cluster.launcher.text import JsonObject, parse_file


def write_atomically(path: Path, text: str) -> None:
    """Replace a file: readers see the old or the new text, even after a power failure. Another pod may write it too."""
    write_mark(path, [text.encode()], path.with_name(f".{path.name}.{os.getpid()}.{socket.gethostname()}"))


def load(path: Path, limit: int = MOST_TEXT_BYTES) -> Any:
    """Return the JSON of a file of the volume, with None for NaN and Infinity.

    Raises: OSError: see read_text_file. ValueError: the content is not JSON, or is nested too deep.
    """
    return parse_file(retry_stale(lambda: read_text_file(path, limit)), lambda _: None)


def check_mount(volume: Path) -> None:
    """Check that this pod's mount of the volume is alive. Ignore other errors of the volume, which may be temporary.

    Raises: LostMountError.
    """
    try:
        retry_stale(volume.stat)
    except OSError as problem:
        if problem.errno == errno.ENOTCONN:
            raise LostMountError(
                f"this pod's mount of the volume, {volume}, is dead: {problem.strerror}. The mount's client on this "
                "node has ended. Only a new pod gets a new mount; if the new pod cannot start, repair the client on "
                "its node"
            ) from problem


@contextlib.contextmanager
def volume_errors(path: Path) -> Iterator[None]:
    """Convert an OSError inside this block to a VolumeError, whose text contains user, owner and mode.

    Args: path: the path that the text names if the OSError names no file.
    """
    try:
        yield
    except OSError as problem:
        raise VolumeError(describe_volume_error(path, problem)) from problem


def describe_volume_error(path: Path, problem: OSError) -> str:
    """Describe what failed on the volume, the current user, the owner of the path, and what to do."""
    failed = Path(problem.filename or path)
    existing = next((place for place in (failed, *failed.parents) if os.path.lexists(place)), Path("/"))
    give = f"make this user its owner: chown {os.getuid()}:{os.getgid()} {existing}"
    known = {
        errno.EACCES: give,
        errno.EPERM: give,
        errno.ENOSPC: "the volume is full: make room",
        errno.EDQUOT: "the quota is used up: make room",
        errno.EROFS: "the volume is read-only: mount it read-write",
    }
    advice = known.get(problem.errno or 0, "remove the file that is in the way, or repair the volume")
    runs = f"This pod runs as uid {os.getuid()}, {describe_owner(existing)}"
    return f"cannot write {failed}: {problem.strerror}. {runs}; {advice}"


def describe_owner(path: Path) -> str:
    """Describe who owns a path. Raises: OSError."""
    facts = path.lstat()
    return f"{path} belongs to uid {facts.st_uid} with mode {facts.st_mode & 0o7777:04o}"


def read_json(path: Path) -> JsonObject:
    """Return the JSON object in a file, or {} if the file cannot be read or contains something else."""
    try:
        return show_json(path)
    except PaddleError:
        return {}


def show_json(path: Path) -> JsonObject:
    """Return the same as read_json, for a user: a file that exists but cannot be read is an error.

    Raises: MissingInputError, VolumeError: see above.
    """
    try:
        found = load(path)
    except OSError as problem:
        if not tells_nothing(problem):
            raise reading_error(MissingInputError, f"{path} cannot be read", problem) from problem
        return {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
