"""Files of the shared volume: atomic writes, bounded reads, and what is said of a sick volume."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from launcher.errors import LostMountError
from launcher.text import DEPTH_LIMIT, JsonObject, is_shallow, parse_json
from runtime.errors import VolumeError

Answer = TypeVar("Answer")
FILE_LIMIT = 64 << 20  # bytes of a file of the volume that is parsed; job.json has 200 for each pod
MOST_STALE = 9  # answers ESTALE in a row after which the tenth one is an error


def on_volume(action: Callable[[], Answer]) -> Answer:
    """Runs a file operation on the shared volume; ESTALE, which NFS answers after a rename elsewhere, is retried."""
    for _ in range(MOST_STALE):
        try:
            return action()
        except OSError as problem:
            if problem.errno != errno.ESTALE:
                raise
    return action()


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file so that readers see the old or the new text, also after a power cut."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.{socket.gethostname()}")
    try:
        with staging.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_file(path: Path, limit: int = FILE_LIMIT) -> bytes:
    """Returns the content of a file of the volume. A named pipe in its place is refused and not waited for.

    Raises: OSError: it cannot be read, is no plain file, or has more than `limit` bytes.
    """
    descriptor, content = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), bytearray()
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        while len(content) <= limit and (chunk := os.read(descriptor, 1 << 20)):
            content += chunk
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"has more than {limit} bytes", str(path))
    return bytes(content)


def load(path: Path, limit: int = FILE_LIMIT) -> Any:
    """Returns the JSON of a file of the volume, with None for NaN and Infinity.

    Raises: OSError: as of read_file. ValueError: it is no JSON, or too deep to be shown.
    """
    found = parse_json(on_volume(lambda: read_file(path, limit)), lambda _: None)
    if not is_shallow(found):
        raise ValueError(f"{path} is nested more than {DEPTH_LIMIT} deep")
    return found


def check_mount(volume: Path) -> None:
    """Checks that this pod's mount of the volume is alive. Other faults of the volume pass: they can be mended outside.

    Raises: LostMountError.
    """
    try:
        on_volume(volume.stat)
    except OSError as problem:
        if problem.errno == errno.ENOTCONN:
            raise LostMountError(
                f"this pod's mount of the volume, {volume}, is dead: {problem.strerror}. Its client on this node has "
                "ended, and only a new pod gets a new mount; look after the client if that one cannot start"
            ) from problem


@contextlib.contextmanager
def volume_errors(path: Path) -> Iterator[None]:
    """Turns an OSError below `path` into VolumeError that names user, owner and mode."""
    try:
        yield
    except OSError as problem:
        raise VolumeError(describe_volume_error(path, problem)) from problem


def describe_volume_error(path: Path, problem: OSError) -> str:
    """Says what failed on the volume, as which user, to which user the path belongs, and what to do."""
    failed = Path(problem.filename or path)
    existing = next((place for place in (failed, *failed.parents) if os.path.lexists(place)), Path("/"))
    facts = existing.lstat()
    give = f"give it to this user: chown {os.getuid()}:{os.getgid()} {existing}"
    known = {
        errno.EACCES: give,
        errno.EPERM: give,
        errno.ENOSPC: "the volume is full: make room",
        errno.EDQUOT: "the quota is used up: make room",
        errno.EROFS: "the volume is read-only: mount it read-write",
    }
    advice = known.get(problem.errno or 0, "move away what is in the way, or look after the volume")
    return (
        f"cannot write {failed}: {problem.strerror}. This pod runs as uid {os.getuid()}, {existing} "
        f"belongs to uid {facts.st_uid} with mode {facts.st_mode & 0o7777:04o}; {advice}"
    )


def read_json(path: Path) -> JsonObject:
    """Returns the object in a file, {} where there is none."""
    try:
        found = load(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
