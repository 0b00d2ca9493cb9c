"""Handle a save from which the job cannot resume, because the save is damaged or does not fit the job.

If the launcher chose a damaged save, the save is renamed, and the next attempt uses an older save. If a user named the
save by a flag, the save keeps its name. The error then says that the save is damaged, and names the other saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paddle_base.runtime import glog
from paddle_base.runtime.errors import (
    ConfigError,
    DamagedError,
    LostFileError,
    MissingInputError,
    SetAsideError,
    VolumeError,
)
from paddle_base.runtime.saves import is_set_aside, set_aside

# environment variable with which the launcher names the checkpoint or pass from which this attempt resumes
CHOSEN = "PADDLE_CHOSEN_SAVE"


@contextmanager
def judging(save: str | Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Handle the errors of the `with` block, in which a save is read.

    Raises: SetAsideError: the save is damaged, and the launcher chose it. The save has a new name now.
        DamagedError, MissingInputError: the error of the block, if a user named the save.
        VolumeError: the damaged save cannot be renamed.
    """
    is_chosen = _is_chosen(save, environ)
    with advising(save, environ):
        try:
            yield
        except DamagedError as error:
            if not is_chosen:
                raise
            raise _set_aside_error(save, error) from error
        except MissingInputError as error:
            if is_chosen and is_set_aside(Path(save)):
                raise SetAsideError(
                    f"another trainer has found that {save} is damaged and has renamed it; the next attempt goes on "
                    "from an older save"
                ) from error
            if not (is_chosen and isinstance(error, LostFileError)):
                raise
            raise _set_aside_error(save, error) from error


def _set_aside_error(save: str | Path, error: Exception) -> SetAsideError:
    """Rename a damaged save, and return the error that names its new path. Raises: VolumeError."""
    try:
        place = set_aside(Path(save))
    except OSError as problem:
        raise VolumeError(f"{save} is damaged and cannot be renamed: {problem.strerror}; rename it yourself") from error
    glog.warning(f"{save} is damaged: its name is {place} now")
    return SetAsideError(f"{error}. The save is {place} now; the next attempt goes on from an older save")


@contextmanager
def advising(save: str | Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Add advice to the errors of the `with` block, in which a save is restored.

    Raises: ConfigError, MissingInputError: the save does not fit the job. If the launcher chose the save, no flag of
        the user names it. The text then names the variable with which the job starts from the beginning.
    """
    try:
        yield
    except (ConfigError, MissingInputError) as error:
        if not _is_chosen(save, environ):
            raise
        raise type(error)(f"{error}; set RESUME=0 in a new Job to start from the beginning") from error


def _is_chosen(save: str | Path, environ: Mapping[str, str]) -> bool:
    """Return whether the launcher chose the save."""
    chosen = environ.get(CHOSEN, "")
    return bool(chosen) and Path(chosen) == Path(save)
