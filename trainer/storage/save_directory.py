"""The directory in which a run saves.

Only one run at a time uses the directory. If a run starts from the beginning, it moves the passes of an earlier run
away.

A run locks the directory (`runtime.directory_lock`).

A job with launchers needs no lock, because its job.json names the attempt that writes. The launcher of such a job has
already moved old output away.

The trainers of a master's job share a lock on the directory, which excludes other runs. The trainer that sends the
initial values to the parameter servers moves the passes of an earlier run away.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from runtime import glog
from runtime.directory_lock import DirectoryLock
from runtime.durable_files import REMEDY, sync_directory
from runtime.errors import VolumeError
from trainer.flags import Values
from trainer.storage.model_files import prepare_save_directory

LOCK = ".lock"
_PASS = re.compile(r"\.?pass-[0-9].*")
_TOLD = ("records.jsonl", "progress.json", "report.html")  # files of an earlier run that move with its passes


class SaveDirectory:
    """Lock a directory for this process, and release it.

    Attributes: has_earlier: whether the directory has passes of an earlier run, which `begin` must move away.
    """

    def __init__(self, flags: Values, environ: Mapping[str, str]) -> None:
        self._is_owned = bool(environ.get("PADDLE_ATTEMPT"))
        self._is_shared = flags.is_elastic
        self._goes_on = bool(flags.start_pass > 0 or flags.resume_from or flags.init_model_path)
        self._lock: DirectoryLock | None = None
        self._path = Path()
        self._shown = ""  # the name of the directory in the flags
        self.has_earlier = False

    def prepare(self, directory: str, first_model: str = "") -> None:
        """Create and lock the directory. If this run does not resume from a save, look for passes of an earlier run.

        Args: first_model: the init_model_path of the config, or "".
        Raises: VolumeError: the directory cannot be created or written. DirectoryInUseError: another run writes into
            the directory.
        """
        prepare_save_directory(directory)
        if self._is_owned:
            return
        self._path, self._shown = Path(directory).absolute(), directory
        with _naming(directory):
            refusal = f"--save_dir={directory}: another run writes into it"
            self._lock = DirectoryLock(self._path / LOCK, refusal, is_shared=self._is_shared)
            self.has_earlier = not self._goes_on and not first_model and bool(find_earlier(self._path))

    def begin(self) -> None:
        """Move the passes of an earlier run away.

        The first batch calls this method. A run that fails before the first batch therefore moves nothing.

        Raises: VolumeError: the passes cannot be moved.
        """
        if not self.has_earlier:
            return
        with _naming(self._shown):
            target = move_earlier(self._path)
        self.has_earlier = False
        if target is not None:
            glog.info(
                f"the passes of an earlier run in {self._shown} have moved to {self._shown}/{target.name}; "
                f"--init_model_path={self._shown}/{target.name}/pass-NNNNN goes on from one of them"
            )

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
        raise VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename}); {REMEDY}") from error


def find_earlier(directory: Path) -> list[Path]:
    """Return the paths of an earlier run's passes, and of the directory of its checkpoints.

    Raises: OSError.
    """
    found = [path for path in directory.iterdir() if _PASS.fullmatch(path.name)]
    state = directory / "state"
    if state.is_dir() and any(_PASS.fullmatch(path.name) for path in state.iterdir()):
        found.append(state)
    return found


def move_earlier(directory: Path) -> Path | None:
    """Move the passes and checkpoints of an earlier run to the first free run-<k>/.

    Returns: the path of the new directory, or None if there is nothing to move.
    Raises: OSError.
    """
    found = find_earlier(directory)
    if not found:
        return None
    found += [path for name in _TOLD if (path := directory / name).exists()]
    target = next(free for free in (directory / f"run-{k}" for k in itertools.count(1)) if not os.path.lexists(free))
    target.mkdir()
    for path in sorted(found):
        path.rename(target / path.name)
    sync_directory(target)
    sync_directory(directory)
    return target
