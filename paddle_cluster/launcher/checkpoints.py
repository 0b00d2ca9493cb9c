"""Find saved passes and checkpoints in the save directory, rename damaged saves, and remove unfinished saves."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from pathlib import Path

from paddle_base.runtime.durable_files import read_text_file, retry_stale
from paddle_base.runtime.errors import VolumeError
from paddle_base.runtime.saves import (
    DONE,
    FOLDER,
    JOB,
    PENDING,
    TOLD,
    PendingMove,
    clean,
    find_free_run,
    find_pass_flaw,
    find_pending_move,
    find_state_flaw,
    list_saves,
    pass_name,
    set_aside,
)
from paddle_cluster.launcher.resume import Saved, position
from paddle_cluster.launcher.text import say

CHECKSUM_BYTES = 64  # a SHA-256 in hexadecimal digits
MARK_LIMIT = 128  # maximum bytes of the mark of a save


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


def set_aside_damaged(save_dir: Path, *, of_program: bool = False) -> Saved:
    """Rename the newest checkpoint and the newest pass while they are damaged, and return the saves that remain.

    The check compares the names and sizes of files, and the checksum of job.json. Trainer 0 also compares the checksums
    of the other files, and renames damaged saves in the same way.

    Args: of_program: the job runs a program of ENTRY. Of the files that such a program writes itself, only the mark is
        known: a checkpoint with an empty mark and without job.json is complete.
    Raises: OSError: a save cannot be renamed.
    """
    while True:
        saved = find_saved(save_dir)
        flaws: list[tuple[Path, str]] = []
        state = save_dir / FOLDER / saved.state
        if saved.states and not (of_program and is_marked_alone(state)) and (flaw := find_state_flaw(state)):
            flaws.append((state, flaw))
        if (
            saved.passes
            and not of_program
            and (flaw := find_pass_flaw(directory := save_dir / pass_name(saved.passes[-1])))
        ):
            flaws.append((directory, flaw))
        if not flaws:
            return saved
        for save, flaw in flaws:
            target = set_aside(save)
            say(
                f"{save.relative_to(save_dir)} is damaged: {flaw}. The new name of the damaged save is {target.name}, "
                "and an older save is used"
            )


def is_marked_alone(state: Path) -> bool:
    """Return whether a checkpoint has no job.json, and a mark that gives no checksum of it."""
    try:
        return not (state / JOB).exists() and len(read_text_file(state / DONE, MARK_LIMIT)) < CHECKSUM_BYTES
    except OSError:
        return False


def earlier_output(output: Path, save_dir: Path) -> list[Path]:
    """Return the files and directories that an earlier attempt or Job left: pass-*, state, node_* and so on."""
    found = {*save_dir.glob("pass-[0-9]*"), *save_dir.glob(FOLDER), *output.glob("node_[0-9]*")}
    told = {output / name for name in TOLD} if found else set()
    return sorted({*found, *filter(Path.exists, told)})


def archive(found: Iterable[Path], save_dir: Path, *, has_passes: bool = True, at_once: bool = False) -> str:
    """Move what an earlier job left to the first unused directory run-<k>/, and return the paths of this directory.

    The logs and records move at once, because this job writes files of the same names. Saves stay until trainer 0 has
    read its first batch, so a job with a fault in its config or data moves no save. A mark in `save_dir` says so.

    Args: found: what earlier_output has found. has_passes: whether passes move, and not only state/. at_once: the saves
        move at once, too, because a program of ENTRY does not move them.
    """
    found = list(found)
    told = [path for path in found if has_passes and (at_once or not (path.parent == save_dir and _is_save(path)))]
    saves = [path for path in found if path not in told]
    places = {path.parent for path in found}
    name = find_free_run(places)
    earlier = find_pending_move(save_dir)
    move = PendingMove(earlier.target if earlier else name, has_passes or bool(earlier and earlier.has_passes))
    if saves and move != earlier:
        move.write(save_dir)
    if at_once:
        (save_dir / PENDING).unlink(missing_ok=True)  # it was about the same saves
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
