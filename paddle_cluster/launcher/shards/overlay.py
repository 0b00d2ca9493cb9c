"""Write files into a directory so that they can be taken out again, whatever their source contains by then."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from pathlib import Path

from paddle_base.runtime.errors import DataError
from paddle_cluster.launcher.shards.division import Portion
from paddle_cluster.launcher.volume import volume_errors

# errors of a path that the user's program has removed, or has replaced by a file or a directory of its own
REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)


class Overlay:
    """The files and directories that the launcher has written into a directory, in their order.

    A file that is in the way, such as one of the config directory, is kept, and comes back when the overlay is cleared.
    Args: target: the directory. kept: a directory beside `target` for the files that were in the way.
    """

    def __init__(self, target: Path, kept: Path) -> None:
        self.target, self._kept = target, kept
        self._written: dict[Path, bool] = {}  # {path below `target`: whether it is a directory}

    @property
    def files(self) -> int:
        """The number of files."""
        return sum(not is_directory for is_directory in self._written.values())

    def has_file(self, name: str) -> bool:
        """Return whether a file is one of the overlay."""
        return self._written.get(Path(name)) is False

    def make_directory(self, path: Path) -> None:
        """Make a directory, and those above it. Raises: DataError: a file has this name. OSError."""
        if path.is_dir():
            return
        if os.path.lexists(path):
            raise DataError(f"{path} is a file, and the shard has a directory of this name; rename one of them")
        if path == self.target:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            self.make_directory(path.parent)
        path.mkdir()
        self._written[path.relative_to(self.target)] = True

    def make_room(self, path: Path) -> None:
        """Record a file that the caller then writes; nothing is at its path any more.

        Raises: DataError: a directory has this name. OSError.
        """
        if path.is_dir():
            raise DataError(f"{path} is a directory, and the shard has a file of this name; rename one of them")
        self.make_directory(path.parent)
        name = path.relative_to(self.target)
        if os.path.lexists(path) and name not in self._written:
            (self._kept / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self._kept / name)
        self._written[name] = False

    def copy(self, source: str, path: str) -> None:
        """Copy a file with its times and mode. Raises: see make_room."""
        self.make_room(Path(path))
        shutil.copy2(source, path)

    def clear(self) -> None:
        """Remove all that was written, and bring back what was in the way. Files of the user's program stay.

        Raises: VolumeError: something cannot be removed; a repeated call continues.
        """
        with volume_errors(self.target):
            for name in [Path(), *(name for name, is_directory in self._written.items() if is_directory)]:
                path = self.target / name
                # a shard's directory may be read-only, and then its copy is, too
                if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
                    path.chmod(path.stat().st_mode | 0o700)
            while self._written:
                name, is_directory = next(reversed(self._written.items()))
                self._remove(name, is_directory)
                del self._written[name]
            shutil.rmtree(self._kept, ignore_errors=True)

    def _remove(self, name: Path, is_directory: bool) -> None:
        path = self.target / name
        try:
            if is_directory:
                path.rmdir()
            else:
                path.unlink()
        except OSError as problem:
            if problem.errno not in REPLACED:
                raise
        if os.path.lexists(self._kept / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            (self._kept / name).replace(path)


@dataclasses.dataclass
class StagedData:
    """The data in ./data: the files of a shard, and over them the files of absent trainers' shards.

    portion: what the files are, or None while they are incomplete.
    """

    shard: Overlay
    pieces: Overlay
    portion: Portion | None = None

    @classmethod
    def below(cls, target: Path) -> StagedData:
        """Return the data of a directory into which nothing is copied yet."""
        shard, pieces = (Overlay(target, target.with_name(f".{target.name}-kept-{layer}")) for layer in (1, 2))
        return cls(shard, pieces)

    def clear(self) -> None:
        """Remove all files. Raises: VolumeError: see Overlay.clear."""
        self.pieces.clear()
        self.shard.clear()
