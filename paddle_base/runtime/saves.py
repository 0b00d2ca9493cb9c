"""The saves of a job: their names, marks and lists of files, their damage, and how they are moved and cleaned up.

<save_dir>/pass-00003/          a pass: the files of its parameters; pass-00003-002 is save 2 inside this pass
<save_dir>/state/pass-00003/    a checkpoint; its job.json lists its other files
<save>/done                     the mark of a complete save, which is written last; that of a checkpoint contains
                                the checksum of job.json
<save>.damaged, .damaged.2      damaged saves, which no program uses
<save_dir>/run-1/               saves of an earlier job
<save_dir>/.set-aside           the mark of a PendingMove
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import re
import stat
import struct
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from paddle_base.runtime.durable_files import (
    old_of,
    read_text_file,
    remove_if_possible,
    sync_directory,
    tells_nothing,
    write_mark,
)
from paddle_base.runtime.errors import VolumeError
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.schema import Integer, Named, SchemaError, Such, Text

DONE, JOB, FOLDER = "done", "job.json", "state"
VERSION = 1  # version of job.json
# the header of a parameter file: format version 0, number of bytes of a value, number of values
# source: v0.10, paddle/parameter/Parameter.h, struct Header
HEADER = struct.Struct("<iIQ")
VALUE_BYTES = 4  # number of bytes of a value; programs of v0.10 with double precision wrote eight
DAMAGED = ".damaged"  # suffix of the name of a damaged save
PENDING = ".set-aside"
TOLD = ("records.jsonl", "progress.json", "report.html")  # files of a run that move with its passes
MOST_DAMAGED = 100  # maximum number of damaged saves kept under one name

_MOST_PENDING_BYTES = 100
_MOST_FILES = 1 << 24
_MOST_MARK_BYTES = 128
_SAVE = re.compile(r"pass-([0-9]{5,})(?:-([0-9]{3,}))?")


def pass_name(number: int, part: int = 0) -> str:
    """Return the name of the directory of a pass, or of save number `part` inside the pass."""
    return f"pass-{number:05d}-{part:03d}" if part else f"pass-{number:05d}"


def order_of(name: str) -> tuple[int, float] | None:
    """Return the position in training of a save of this name: its pass, and its number in the pass; None: no save.

    pass-00003 is the end of pass 3, and comes after every pass-00003-<k>: its number is infinite.
    """
    found = _SAVE.fullmatch(name)
    return None if found is None else (int(found[1]), float(found[2] or math.inf))


def list_saves(folder: Path) -> list[str]:
    """Return the names of the complete saves in a directory, in the order of their positions. Raises: OSError."""
    if not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir() if order_of(path.name) and (path / DONE).is_file()]
    return sorted(names, key=lambda name: order_of(name) or (0, 0.0))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


FILES = Named(Such(Text(4096), _is_inside, "a file in the checkpoint"), Integer(), _MOST_FILES)
"""The shape of the field `files` of job.json: the number of bytes of each other file of the checkpoint."""


def mark_of(job: bytes | bytearray) -> bytes:
    """Return the content of the mark of a checkpoint: the SHA-256 of its job.json, in hexadecimal digits."""
    return hashlib.sha256(job).hexdigest().encode()


# ----- Damaged saves


def find_state_flaw(state: Path) -> str:
    """Return why a checkpoint is damaged, or "" if no damage is found or the checkpoint cannot be read now."""
    try:
        mark, text = read_text_file(state / DONE, _MOST_MARK_BYTES), read_text_file(state / JOB)
        if mark_of(text) != mark:
            return "job.json does not match its checksum in 'done'"
        job = json.loads(text)
        if isinstance(job["version"], int) and job["version"] > VERSION:
            return ""  # only a newer version can determine which files belong to the checkpoint
        FILES.check(job["files"], f"{JOB}.files")
        for name, size in job["files"].items():
            found = (state / name).stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return f"{name} has {found.st_size} bytes, not {size}"
    except OSError as problem:
        return _describe_flaw(problem)
    except SchemaError as problem:
        return str(problem)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        return f"job.json does not describe a checkpoint: {type(problem).__name__}"
    return ""


def find_pass_flaw(directory: Path) -> str:
    """Return a text about a truncated parameter file, or "" if no file is truncated or the pass cannot be read now.

    A marker file may be shorter than the header of a parameter file.
    """
    try:
        for path in directory.iterdir():
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or path.name.startswith("."):
                continue
            with path.open("rb") as file:
                version, width, count = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"?"))
            if version == 0 and width in (4, 8) and found.st_size < HEADER.size + width * count:
                return f"{path.name} has {found.st_size} bytes, too few for {count} values"
    except OSError as problem:
        return _describe_flaw(problem)
    return ""


def _describe_flaw(problem: OSError) -> str:
    """Return the damage that an error proves, or "" for an error that may be temporary, such as a lost volume."""
    if problem.errno == errno.ENOENT:
        return f"{Path(problem.filename).name} is missing"
    return f"{Path(problem.filename).name[:100]}: {problem.strerror}" if tells_nothing(problem) else ""


def set_aside(save: Path) -> Path:
    """Rename a damaged save, and return its new path. No program uses a save of this name.

    Raises: OSError: the save cannot be renamed.
    """
    suffixes = (DAMAGED, *(f"{DAMAGED}.{number}" for number in range(2, MOST_DAMAGED)))
    names = (save.with_name(f"{save.name}{suffix}") for suffix in suffixes)
    target = next((name for name in names if not name.exists()), None)
    if target is None:
        raise OSError(errno.EEXIST, "too many damaged saves of this name", str(save))
    try:
        save.rename(target)
    except FileNotFoundError:  # another program has already renamed the save
        return target
    sync_directory(save.parent)
    return target


def is_set_aside(save: Path) -> bool:
    """Return whether a save was renamed because it was damaged."""
    try:
        return not save.exists() and any(save.parent.glob(f"{save.name}{DAMAGED}*"))
    except OSError:
        return False


# ----- Unfinished saves


def clean(folder: Path, *, is_state: bool = True) -> None:
    """Remove the saves of an earlier attempt that are half written or half removed. Ignore what cannot be removed.

    If the replacement of a save was interrupted, the old save is restored.

    Args: is_state: whether saves without a mark are removed too; a pass of v0.10 may have none.
    Raises: VolumeError: a save cannot be restored.
    """
    try:
        _clean(folder, is_state=is_state)
    except OSError as error:
        raise VolumeError(f"cannot clean up {folder}: {error.strerror} ({error.filename})") from error


def _clean(folder: Path, *, is_state: bool) -> None:
    if not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        name = path.name.removeprefix(".").removesuffix(".writing").removesuffix(".old")
        if order_of(name) is None or (path.name == name and (not is_state or (path / DONE).is_file())):
            continue
        if path == old_of(folder / name) and (path / DONE).is_file() and not (folder / name / DONE).is_file():
            remove_if_possible(folder / name)
            path.rename(folder / name)
        else:
            remove_if_possible(path)


# ----- The saves of an earlier job


def find_free_run(places: Iterable[Path]) -> str:
    """Return the first name run-<k> that none of the directories contains."""
    places = list(places)
    names = (f"run-{number}" for number in itertools.count(1))
    return next(name for name in names if not any(os.path.lexists(place / name) for place in places))


class PendingMove(NamedTuple):
    """Saves of an earlier job that move to the subdirectory `target` when the new job has read its first batch.

    The launcher decides it, and trainer 0 moves them. Until then no save in the directory is the new job's.

    Attributes: has_passes: whether the passes move, and not only state/.
    """

    target: str
    has_passes: bool = True

    def write(self, save_dir: Path) -> None:
        """Write the mark of this move into the directory of the saves. Raises: OSError."""
        write_mark(save_dir / PENDING, [f"{self.target}\n{'all' if self.has_passes else 'state'}\n".encode()])


def find_pending_move(save_dir: Path) -> PendingMove | None:
    """Return the move that a directory of saves still has to see, or None. Raises: OSError."""
    try:
        with open_regular(save_dir / PENDING) as file:
            target, what = [*file.read(_MOST_PENDING_BYTES).decode("utf-8", "replace").split("\n"), "", ""][:2]
    except FileNotFoundError:
        return None
    return PendingMove(target, what != "state") if re.fullmatch(r"run-[0-9]+", target) else None
