"""The directory in which a run saves.

Only one run at a time uses the directory. A run replaces no save of an earlier run: it moves away those whose names it
uses again, which are all saves if it counts its passes from 0.

A run locks the directory (`paddle_base.runtime.directory_lock`).

A job with launchers needs no lock, because its job.json names the attempt that writes. The launcher of such a job
decides which saves move, and leaves a mark (`paddle_base.runtime.saves.PendingMove`).

The trainers of a master's job share a lock on the directory, which excludes other runs. The trainer that sends the
initial values to the parameter servers moves the passes of an earlier run away.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.directory_lock import DirectoryLock
from paddle_base.runtime.durable_files import saving_error, sync_directory
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.saves import (
    FOLDER,
    JOB,
    PENDING,
    TOLD,
    PendingMove,
    find_free_run,
    find_pending_move,
    order_of,
)
from trainer.flags import Values
from trainer.storage.model_files import prepare_save_directory

LOCK = ".lock"
_PASS = re.compile(r"\.?pass-[0-9].*")


class Start(NamedTuple):
    """The pass that a run trains first, and the numbers of saves and checkpoints that it finds inside this pass."""

    number: int
    saves: int = 0
    checkpoints: int = 0


class SaveDirectory:
    """Lock a directory for this process, and release it.

    Attributes: has_earlier: whether the directory has saves of an earlier run, which `begin` must move away.
    """

    def __init__(self, flags: Values, environ: Mapping[str, str]) -> None:
        self._flags = flags
        self._is_owned = bool(environ.get("PADDLE_ATTEMPT"))
        self._lock: DirectoryLock | None = None
        self._path = Path()
        self._shown = ""  # the name of the directory in the flags
        self._start: Start | None = Start(flags.start_pass)
        self._move: PendingMove | None = None  # the decision of the launcher
        self.has_earlier = False

    def prepare(self, directory: str, first_model: str = "") -> None:
        """Create and lock the directory. Look for saves of an earlier run that this run would replace.

        Args: first_model: the init_model_path of the config, or "".
        Raises: VolumeError: the directory cannot be created or written. DirectoryInUseError: another run writes into
            the directory. UsageError: a trainer may still have to read a save that would be moved.
        """
        prepare_save_directory(directory)
        self._path, self._shown = Path(directory).absolute(), directory
        with _naming(directory):
            if self._is_owned:
                self._move = find_pending_move(self._path)
                self.has_earlier = self._move is not None
                return
            refusal = f"--save_dir={directory}: another run writes into it"
            self._lock = DirectoryLock(self._path / LOCK, refusal, is_shared=self._flags.is_task_job)
            if self._flags.resume_from:
                self._start = _read_start(Path(self._flags.resume_from))
            earlier = find_earlier(self._path, self._start) if self._start else []
            self.has_earlier = bool(earlier)
        model = self._flags.init_model_path or first_model
        if not self._flags.local and model and any(_is_within(Path(model), path) for path in earlier):
            number = "" if self._flags.is_task_job else "--start_pass=N, the number of the first pass to train, or "
            raise UsageError(
                f"init_model_path={model} is a save of an earlier run, and this run would move it away from trainers "
                f"that still have to read it: add {number}another --save_dir"
            )

    def begin(self) -> None:
        """Move the passes of an earlier run away.

        The first batch calls this method. A run that fails before the first batch therefore moves nothing.

        Raises: VolumeError: the passes cannot be moved.
        """
        if not self.has_earlier or self._start is None:
            return
        with _naming(self._shown):
            target = move_pending(self._path, self._move) if self._move else move_earlier(self._path, self._start)
        self.has_earlier = False
        if target is None:
            return
        place = f"{self._shown}/{target.name}"
        if self._move:
            glog.info(f"the saves of an earlier job in {self._shown} have moved to {place}")
        elif _is_beginning(self._start):
            glog.info(
                f"the passes of an earlier run in {self._shown} have moved to {place}; "
                f"--init_model_path={place}/pass-NNNNN goes on from one of them"
            )
        else:
            number = self._start.number
            glog.info(
                f"the saves of an earlier run in {self._shown} from pass {number} on have moved to {place}, because "
                "this run makes saves of the same names"
            )

    @property
    def holds_records(self) -> bool:
        """Whether the records of this run wait for the move.

        A launcher has moved those of the earlier run already, and the trainers of a master have directories of their
        own.
        """
        return self.has_earlier and not self._is_owned and not self._flags.is_task_job

    def leave(self) -> None:
        """Release the directory."""
        if self._lock is not None:
            self._lock.release()


@contextlib.contextmanager
def _naming(directory: str) -> Iterator[None]:
    """Turn an OSError into a VolumeError that names the directory."""
    try:
        yield
    except OSError as error:
        raise saving_error(directory, error) from error


def _read_start(checkpoint: Path) -> Start | None:
    """Return where a run goes on from a checkpoint that has been checked; None if an old release wrote no position."""
    place = json.loads((checkpoint / JOB).read_bytes()).get("place")
    counts = [place.get(name) for name in ("number", "saves", "checkpoints")] if isinstance(place, dict) else [None]
    return Start(*counts) if all(isinstance(count, int) for count in counts) else None


def find_earlier(directory: Path, start: Start) -> list[Path]:
    """Return the paths of an earlier run's passes and checkpoints that a run from this position would replace.

    A run from the beginning also gets what is damaged or half written, and the whole directory of the checkpoints.

    Raises: OSError.
    """
    state = directory / FOLDER
    states = list(state.iterdir()) if state.is_dir() else []
    if _is_beginning(start):
        found = [path for path in directory.iterdir() if _PASS.fullmatch(path.name)]
        return [*found, state] if any(_PASS.fullmatch(path.name) for path in states) else found
    passes = [path for path in directory.iterdir() if _is_later(path.name, start.number, start.saves)]
    return passes + [path for path in states if _is_later(path.name, start.number, start.checkpoints)]


def _is_beginning(start: Start) -> bool:
    return start == Start(0)


def _is_later(name: str, number: int, part: int) -> bool:
    """Return whether a save comes after save `part` inside pass `number`."""
    order = order_of(name)
    return order is not None and order > (number, part)


def _is_within(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def move_earlier(directory: Path, start: Start) -> Path | None:
    """Move the saves that `find_earlier` returns to the first free run-<k>/.

    Returns: the path of the new directory, or None if there is nothing to move.
    Raises: OSError.
    """
    found = find_earlier(directory, start)
    if not found:
        return None
    if _is_beginning(start):
        found += [path for name in TOLD if (path := directory / name).exists()]
        (directory / PENDING).unlink(missing_ok=True)  # a job that failed has left it, and it was about these saves
    target = directory / find_free_run([directory])
    target.mkdir()
    for path in sorted(found):
        new = target / path.relative_to(directory)
        new.parent.mkdir(exist_ok=True)
        path.rename(new)
    for changed in {directory, target, *(path.parent for path in found)}:
        sync_directory(changed)
    return target


def move_pending(directory: Path, move: PendingMove) -> Path:
    """Move the saves of an earlier job as its launcher has decided, and return their new directory.

    The mark goes last, so an attempt that is killed here leaves the rest to the next one.

    Raises: OSError.
    """
    target = directory / move.target
    target.mkdir(exist_ok=True)
    found = find_earlier(directory, Start(0))
    for path in sorted(found):
        if move.has_passes or path.name == FOLDER:
            path.rename(target / path.name)
    for changed in (target, directory):
        sync_directory(changed)
    (directory / PENDING).unlink(missing_ok=True)
    sync_directory(directory)
    return target
