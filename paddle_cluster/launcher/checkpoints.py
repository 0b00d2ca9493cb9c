"""Find saved passes and checkpoints in the save directory, rename damaged saves, and remove unfinished saves."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import shutil
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from paddle_base.runtime.durable_files import PendingMove, find_pending_move, read_text_file, retry_stale
from paddle_cluster.launcher.attempts import pass_name
from paddle_cluster.launcher.resume import Saved, position
from paddle_cluster.launcher.text import say

STATE_VERSION = 1  # the newest checkpoint version whose files this module can check (trainer/storage)
MARK_LIMIT = 128  # maximum bytes of a checkpoint's marker file, which contains a SHA-256 in 64 hexadecimal digits
MOST_DAMAGED = 100  # maximum number of damaged saves kept under one name


def find_saved(save_dir: Path) -> Saved:
    """Return the complete passes and checkpoints. A complete save has a marker file `done`, which is written last.

    Saves that still have to move, because an earlier job has made them, are not counted.
    """
    pending = retry_stale(lambda: find_pending_move(save_dir))
    if pending and pending.has_passes:
        return Saved()
    passes = retry_stale(lambda: list(save_dir.glob("pass-[0-9][0-9][0-9][0-9][0-9]/done")))
    states = [] if pending else retry_stale(lambda: list(save_dir.glob("state/pass-*/done")))
    names = [marker.parent.name for marker in states if position(marker.parent.name) >= (0, 0.0)]
    numbers = sorted(position(marker.parent.name)[0] for marker in passes)
    return Saved(tuple(numbers), tuple(sorted(names, key=position)))


def set_aside_damaged(save_dir: Path) -> Saved:
    """Rename the newest checkpoint and the newest pass while they are damaged, and return the saves that remain.

    The check compares the names and sizes of files, and the checksum of job.json. Trainer 0 also compares the checksums
    of the other files, and renames damaged saves in the same way.
    Raises: OSError: a save cannot be renamed.
    """
    while True:
        saved = find_saved(save_dir)
        flaws: list[tuple[Path, str]] = []
        if saved.states and (flaw := find_state_flaw(state := save_dir / "state" / saved.state)):
            flaws.append((state, flaw))
        if saved.passes and (flaw := find_pass_flaw(directory := save_dir / pass_name(saved.passes[-1]))):
            flaws.append((directory, flaw))
        if not flaws:
            return saved
        for save, flaw in flaws:
            suffixes = (".damaged", *(f".damaged.{number}" for number in range(2, MOST_DAMAGED)))
            names = (save.with_name(f"{save.name}{suffix}") for suffix in suffixes)
            target = next((name for name in names if not name.exists()), None)
            if target is None:
                raise OSError(errno.EEXIST, "too many damaged saves of this name", str(save))
            save.rename(target)
            say(
                f"{save.relative_to(save_dir)} is damaged: {flaw}. The new name of the damaged save is {target.name}, "
                "and an older save is used"
            )


def find_state_flaw(state: Path) -> str:
    """Return why a checkpoint is damaged, or "" if no damage is found or the checkpoint cannot be read now."""
    try:
        mark, text = read_text_file(state / "done", MARK_LIMIT), read_text_file(state / "job.json")
        if hashlib.sha256(text).hexdigest().encode() != mark:
            return "job.json does not match its checksum in 'done'"
        job = json.loads(text)
        if isinstance(job["version"], int) and job["version"] > STATE_VERSION:
            return ""  # only a newer version can determine which files belong to the checkpoint
        for name, size in job["files"].items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                return f"job.json names a file outside the checkpoint, {name[:100]!r}"
            found = (state / name).stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return f"{name} has {found.st_size} bytes, not {size}"
    except OSError as problem:
        return describe_flaw(problem)
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
    wrong = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EFBIG, errno.ENAMETOOLONG)
    return f"{Path(problem.filename).name[:100]}: {problem.strerror}" if problem.errno in wrong else ""


def is_set_aside(save_dir: Path, origin: str) -> bool:
    """Return whether the save from which an attempt should resume has been renamed as damaged."""
    if not origin:
        return False
    places = (save_dir / "state", save_dir)
    return any(list(place.glob(f"{origin}.damaged*")) and not (place / origin).exists() for place in places)


def earlier_output(output: Path, save_dir: Path) -> list[Path]:
    """Return the files and directories that an earlier attempt or Job left: pass-*, state, node_* and so on."""
    found = {*save_dir.glob("pass-[0-9]*"), *save_dir.glob("state"), *output.glob("node_[0-9]*")}
    told = {output / name for name in ("records.jsonl", "progress.json", "report.html")} if found else set()
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
    names = (f"run-{number}" for number in itertools.count(1))
    name = next(name for name in names if not any((place / name).exists() for place in places))
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
    return path.name == "state" or path.name.startswith("pass-")


def clear_unfinished(save_dir: Path) -> None:
    """Remove partly written and partly removed saves. Restore a save if the save that replaces it is incomplete."""
    state = save_dir / "state"
    with contextlib.suppress(OSError):  # an error is harmless, because the remaining files only occupy space
        for path in [*save_dir.glob(".pass-*"), *state.glob(".pass-*"), *state.glob("pass-*")]:
            name = path.name.removeprefix(".").removesuffix(".writing").removesuffix(".old")
            if position(name) < (0, 0.0) or (path.name == name and (path / "done").exists()):
                continue
            whole = path.parent / name / "done"
            if path.name == f".{name}.old" and (path / "done").exists() and not whole.exists():
                shutil.rmtree(whole.parent, ignore_errors=True)
                path.rename(whole.parent)
            else:
                shutil.rmtree(path, ignore_errors=True)
