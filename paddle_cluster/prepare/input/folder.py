"""Reads files below a directory; a link that leads out of the directory is an error.

The module follows links that stay inside the directory, because the files of mounted ConfigMaps and Secrets are links.
It first finds the path without links to which a name leads. It then opens this path component by component, and follows
no link, so another process that replaces a component meanwhile only causes an error. The module opens only regular
files, because opening a FIFO would block.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from paddle_base.runtime.errors import DataError
from paddle_base.runtime.member_paths import DEPTH
from paddle_cluster.prepare.limits import FILES

LINKS = 40  # maximum number of links that are followed for one name; Linux has the same limit
# with O_PATH a directory can be opened without the permission to list it
PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LeaveOut = Callable[[int, PurePosixPath], bool]
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Folder:
    """A directory that is read through descriptors. Call `close` after use, or use a `with` statement.

    Args: path: the directory, or a link to it.  descriptor: the directory's descriptor, if it is open already.
    Raises: OSError: if the directory cannot be opened.
    """

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self.path = path
        self._root = os.open(path, PLACE) if descriptor is None else descriptor

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._root)

    def open(self, name: str) -> int:
        """Return the descriptor of a regular file or a directory, for reading.

        Args: name: relative to this directory, with `/` between components.
        Raises: DataError: if a link leads out of the directory or is circular, or if the name belongs to a special
        file, such as a device.  OSError: if the name does not exist or is not readable.
        """
        try:
            parts, mode = self._resolve(name)
            return self._open_directory(parts) if stat.S_ISDIR(mode) else self._open_file(parts, name)
        except OSError as error:
            error.filename = str(self.path / name)
            raise

    def files(
        self, *, linked: bool = False, hidden: bool = False, leave_out: LeaveOut = lambda _, __: False
    ) -> list[str]:
        """Return the sorted names of all files below the directory, including links to files.

        Args: linked: whether to enter links to directories.  hidden: whether to include names that begin with a dot.
        leave_out: called with the descriptor of each directory and its name relative to this directory; returns whether
        to skip the directory.
        Raises: DataError: if there are too many entries or levels, or a link is circular, or leads to nothing or out
        of the directory.
        """
        root = os.open(".", DIRECTORY, dir_fd=self._root)
        try:
            return sorted(_Walk(self, linked, hidden, leave_out).files(root, PurePosixPath(), ()))
        finally:
            os.close(root)

    def kind(self, name: str) -> int:
        """Return the mode of the file that a name leads to, without opening it.

        Raises: DataError, OSError: for the same reasons as `open`.
        """
        return self._resolve(name)[1]

    def _resolve(self, name: str) -> tuple[list[str], int]:
        """Return the components of the path to which a name leads, without links, and the mode of the file there."""
        found: list[str] = []
        left = list(reversed(PurePosixPath(name).parts))
        links = 0
        while left:
            part = left.pop()
            if part == "..":
                if not found:
                    raise self._leaves(name)
                found.pop()
                continue
            place = "/".join((*found, part))
            mode = self._mode_of(place, name, by_link=links > 0)
            if stat.S_ISLNK(mode):
                links += 1
                if links > LINKS:
                    raise DataError(f"{self.path / name} is a link that forms a loop; remove it")
                target = PurePosixPath(os.readlink(place, dir_fd=self._root))
                if target.is_absolute():
                    target, found = self._from_root(target, name), []
                left += reversed(target.parts)
            elif not stat.S_ISDIR(mode):
                if left:
                    raise NotADirectoryError(20, "Not a directory")
                return [*found, part], mode
            elif len(found) >= DEPTH:
                raise DataError(f"{self.path / name}: directories are more than {DEPTH} deep; name a smaller folder")
            else:
                found.append(part)
        return found, stat.S_IFDIR

    def _mode_of(self, place: str, name: str, *, by_link: bool) -> int:
        try:
            return os.stat(place, dir_fd=self._root, follow_symlinks=False).st_mode
        except FileNotFoundError as error:
            if not by_link:
                raise
            raise DataError(
                f"{self.path / name} is a link to a path that does not exist; remove the link, or create the file or "
                "folder that the link points to"
            ) from error

    def _from_root(self, target: PurePosixPath, name: str) -> PurePosixPath:
        """Return an absolute link's target relative to the folder; `_resolve` checks each `..` in the result."""
        for root in (self.path.absolute(), self.path.resolve()):
            if target.is_relative_to(root):
                return target.relative_to(root)
        raise self._leaves(name)

    def _leaves(self, name: str) -> DataError:
        return DataError(
            f"{self.path / name} is a link that leads out of {self.path}; replace the link by the file itself, or "
            "name the place that the link leads to"
        )

    def _open_directory(self, parts: Sequence[str], flags: int = DIRECTORY) -> int:
        here = os.dup(self._root)
        try:
            for part in parts:
                above, here = here, os.open(part, PLACE | os.O_NOFOLLOW, dir_fd=here)
                os.close(above)
            return os.open(".", flags, dir_fd=here)
        finally:
            os.close(here)

    def _open_file(self, parts: Sequence[str], name: str) -> int:
        here = self._open_directory(parts[:-1], PLACE)
        try:
            # check the type before the file is opened, because opening a device can start an action
            self._require_file(os.stat(parts[-1], dir_fd=here, follow_symlinks=False).st_mode, name)
            descriptor = os.open(parts[-1], FILE, dir_fd=here)
        finally:
            os.close(here)
        try:
            self._require_file(os.fstat(descriptor).st_mode, name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _require_file(self, mode: int, name: str) -> None:
        if not stat.S_ISREG(mode):
            kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link by now"))
            kind = next((kind for fits, kind in kinds if fits(mode)), "a device")
            raise DataError(f"{self.path / name} is {kind}; only regular files are read, so remove it from the folder")


class _Walk:
    """One walk through all files below a directory. The walk counts the entries, because their number is limited."""

    def __init__(self, folder: Folder, linked: bool, hidden: bool, leave_out: LeaveOut) -> None:
        self._folder = folder
        self._linked = linked
        self._hidden = hidden
        self._leave_out = leave_out
        self._passed = 0

    def files(self, directory: int, place: PurePosixPath, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
        """Yield the names of the files below a directory. `above` has (device, inode) of the directories above."""
        facts = os.fstat(directory)
        here = (facts.st_dev, facts.st_ino)
        shown = self._folder.path / place
        if here in above:
            raise DataError(f"{shown} is a link that forms a loop; remove it")
        if len(above) > DEPTH:
            raise DataError(f"{shown}: directories are more than {DEPTH} deep; name a smaller folder")
        for name, kind in self._entries(directory, place):
            if stat.S_ISDIR(kind):
                below = self._folder.open(name)
                try:
                    if self._leave_out(below, PurePosixPath(name)):
                        continue
                    yield from self.files(below, PurePosixPath(name), (*above, here))
                finally:
                    os.close(below)
            else:
                yield name

    def _entries(self, directory: int, place: PurePosixPath) -> Iterator[tuple[str, int]]:
        """Yield (name, mode) of each entry. The name is relative to the folder, and a link has its target's mode."""
        with os.scandir(directory) as entries:
            for entry in entries:
                self._passed += 1
                if self._passed > FILES:
                    raise DataError(f"{self._folder.path} has more than {FILES} files; name a smaller folder")
                name = str(place / entry.name)
                if entry.name.startswith(".") and not self._hidden:
                    continue
                kind = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISLNK(kind):
                    kind = self._folder.kind(name)
                    if stat.S_ISDIR(kind) and not self._linked:
                        continue
                yield name, kind
