"""The saves of a job: their names, marks and lists of files, and how they are set aside, moved and cleaned up.

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
import itertools
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from paddle_base.runtime.durable_files import old_of, remove_if_possible, sync_directory, write_mark
from paddle_base.runtime.errors import VolumeError
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.schema import Integer, Named, Such, Text

DONE, JOB, FOLDER = "done", "job.json", "state"
VERSION = 1  # version of job.json
DAMAGED = ".damaged"  # suffix of the name of a damaged save
PENDING = ".set-aside"
TOLD = ("records.jsonl", "progress.json", "report.html")  # files of a run that move with its passes
MOST_DAMAGED = 100  # maximum number of damaged saves kept under one name

_MOST_PENDING_BYTES = 100
_MOST_FILES = 1 << 24
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
