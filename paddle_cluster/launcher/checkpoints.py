"""Find saved passes and checkpoints in the save directory, rename damaged saves, and remove unfinished saves."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from paddle_base.runtime.durable_files import read_text_file, retry_stale, tells_nothing
from paddle_base.runtime.errors import VolumeError
from paddle_base.runtime.saves import (
    DONE,
    FILES,
    FOLDER,
    JOB,
    TOLD,
    VERSION,
    PendingMove,
    clean,
    find_free_run,
    find_pending_move,
    list_saves,
    pass_name,
    set_aside,
)
from paddle_base.runtime.schema import SchemaError
from paddle_cluster.launcher.resume import Saved, position
from paddle_cluster.launcher.text import say

MARK_LIMIT = 128  # maximum bytes of a checkpoint's marker file, which contains a SHA-256 in 64 hexadecimal digits


def find_saved(save_dir: Path) -> Saved:
    """Return the complete passes and checkpoints.

    Saves that still have to move, because an earlier job has made them, are not counted.
    """
    pending = retry_stale(lambda: find_pending_move(save_dir))
    if pending and pending.has_passes:
        return Saved()
    orders = [position(name) for name in retry_stale(lambda: list_saves(save_dir))]
    states = [] if pending else retry_stale(lambda: list_saves(save_dir / FOLDER))
    return Saved(tuple(number for number, part in orders if part == math.inf), tuple(states))


def set_aside_damaged(save_dir: Path) -> Saved:
    """Rename the newest checkpoint and the newest pass while they are damaged, and return the saves that remain.

    The check compares the names and sizes of files, and the checksum of job.json. Trainer 0 also compares the checksums
    of the other files, and renames damaged saves in the same way.
    Raises: OSError: a save cannot be renamed.
    """
    while True:
        saved = find_saved(save_dir)
        flaws: list[tuple[Path, str]] = []
        if saved.states and (flaw := find_state_flaw(state := save_dir / FOLDER / saved.state)):
            flaws.append((state, flaw))
        if saved.passes and (flaw := find_pass_flaw(directory := save_dir / pass_name(saved.passes[-1]))):
            flaws.append((directory, flaw))
        if not flaws:
            return saved
        for save, flaw in flaws:
            target = set_aside(save)
            say(
                f"{save.relative_to(save_dir)} is damaged: {flaw}. The new name of the damaged save is {target.name}, "
                "and an older save is used"
            )


def find_state_flaw(state: Path) -> str:
    """Return why a checkpoint is damaged, or "" if no damage is found or the checkpoint cannot be read now."""
    try:
        mark, text = read_text_file(state / DONE, MARK_LIMIT), read_text_file(state / JOB)
        if hashlib.sha256(text).hexdigest().encode() != mark:
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
        return describe_flaw(problem)
    except SchemaError as problem:
        return str(problem)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        return f"job.json does not describe a checkpoint: {type(problem).__name__}"
    return ""


def find_pass_flaw(directory: Path) -> str:
    """Return a text about a truncated parameter file, or "" if no file is truncated or the pass cannot be read now.

    A parameter file begins with the format version (0), the number of bytes of a value and the number of values.
    Source: v0.10, paddle/parameter/Parameter.h, struct Header.
    """
    try:
        for path in directory.iterdir():
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or path.name.startswith("."):
                continue
            with path.open("rb") as file:
                # a marker file may be shorter than the header of a parameter file
                version, width, count = struct.unpack("<iIQ", file.read(16).ljust(16, b"?"))
            if version == 0 and width in (4, 8) and found.st_size < 16 + width * count:
                return f"{path.name} has {found.st_size} bytes, too few for {count} values"
    except OSError as problem:
        return describe_flaw(problem)
    return ""


def describe_flaw(problem: OSError) -> str:
    """Return the damage that an error proves, or "" for an error that may be temporary, such as a lost volume."""
    if problem.errno == errno.ENOENT:
        return f"{Path(problem.filename).name} is missing"
    return f"{Path(problem.filename).name[:100]}: {problem.strerror}" if tells_nothing(problem) else ""


def earlier_output(output: Path, save_dir: Path) -> list[Path]:
    """Return the files and directories that an earlier attempt or Job left: pass-*, state, node_* and so on."""
    found = {*save_dir.glob("pass-[0-9]*"), *save_dir.glob(FOLDER), *output.glob("node_[0-9]*")}
    told = {output / name for name in TOLD} if found else set()
    return sorted({*found, *filter(Path.exists, told)})


def archive(found: Iterable[Path], save_dir: Path, *, has_passes: bool = True) -> str:
    """Move what an earlier job left to the first unused directory run-<k>/, and return the paths of this directory.

    The logs and records move at once, because this job writes files of the same names. Saves stay until trainer 0 has
    read its first batch, so a job with a fault in its config or data moves no save. A mark in `save_dir` says so.

    Args: found: what earlier_output has found. has_passes: whether passes move, and not only state/.
    """
    told = [path for path in found if has_passes and not (path.parent == save_dir and _is_save(path))]
    saves = [path for path in found if path not in told]
    places = {path.parent for path in found}
    name = find_free_run(places)
    earlier = find_pending_move(save_dir)
    move = PendingMove(earlier.target if earlier else name, has_passes or bool(earlier and earlier.has_passes))
    if saves and move != earlier:
        move.write(save_dir)
    for path in told:
        (path.parent / name).mkdir(exist_ok=True)
        path.rename(path.parent / name / path.name)
    targets = {path.parent / name for path in told} | {save_dir / move.target for _ in saves}
    return " and ".join(sorted(map(str, targets)))


def _is_save(path: Path) -> bool:
    return path.name == FOLDER or path.name.startswith("pass-")


def clear_unfinished(save_dir: Path) -> None:
    """Remove partly written and partly removed saves. Restore a save if the save that replaces it is incomplete."""
    for folder in (save_dir, save_dir / FOLDER):
        with contextlib.suppress(VolumeError):  # an error is harmless, because the remaining files only occupy space
            clean(folder, is_state=folder != save_dir)
