"""Reads files below a directory; a link that leads out of the directory is an error.

The module resolves each path itself, component by component, from the descriptor of the directory. The module therefore
opens the file that it has checked, even if another process replaces a component meanwhile. The module follows links
that stay inside the directory, because the files of mounted ConfigMaps and Secrets are links. The module opens only
regular files, because opening a FIFO would block.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import DEPTH, FILES

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
            return _Way(self.path, self._root, name).open()
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
        return _Way(self.path, self._root, name).status().st_mode


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


class _Way:
    """The path from a directory to a name, with a descriptor of each directory on the path, to which `..` returns."""

    def __init__(self, path: Path, root: int, name: str) -> None:
        self._shown = path / name
        self._path = path
        self._passed = [os.dup(root)]
        self._left = list(reversed(PurePosixPath(name).parts))
        self._links = 0

    def open(self) -> int:
        """Return the descriptor of the file or directory to which the path leads."""
        try:
            last = self._go()
            here = self._passed[-1]
            return os.open(".", DIRECTORY, dir_fd=here) if last is None else self._open_file(last)
        finally:
            self._close()

    def status(self) -> os.stat_result:
        """Return the status of the file or directory to which the path leads, without opening it."""
        try:
            last = self._go()
            here = self._passed[-1]
            return os.fstat(here) if last is None else os.stat(last, dir_fd=here, follow_symlinks=False)
        finally:
            self._close()

    def _close(self) -> None:
        while self._passed:
            os.close(self._passed.pop())

    def _go(self) -> str | None:
        """Go through all directories of the path. Return the last component, or None if the path is a directory."""
        while self._left:
            part = self._left.pop()
            if part == "..":
                if len(self._passed) == 1:
                    raise self._leaves()
                os.close(self._passed.pop())
                continue
            mode = self._mode_of(part)
            if stat.S_ISLNK(mode):
                self._follow(part)
            elif stat.S_ISDIR(mode):
                if len(self._passed) > DEPTH:
                    raise DataError(f"{self._shown}: directories are more than {DEPTH} deep; name a smaller folder")
                self._passed.append(os.open(part, PLACE | os.O_NOFOLLOW, dir_fd=self._passed[-1]))
            elif self._left:
                raise NotADirectoryError(20, "Not a directory")
            else:
                return part
        return None

    def _mode_of(self, part: str) -> int:
        try:
            return os.stat(part, dir_fd=self._passed[-1], follow_symlinks=False).st_mode
        except FileNotFoundError as error:
            if not self._links:
                raise
            raise DataError(
                f"{self._shown} is a link to a path that does not exist; remove the link, or create the file or folder "
                "that the link points to"
            ) from error

    def _follow(self, part: str) -> None:
        self._links += 1
        if self._links > LINKS:
            raise DataError(f"{self._shown} is a link that forms a loop; remove it")
        target = os.readlink(part, dir_fd=self._passed[-1])
        if target.startswith("/"):
            target = self._from_root(target)
            while len(self._passed) > 1:
                os.close(self._passed.pop())
        self._left += reversed(PurePosixPath(target).parts)

    def _from_root(self, target: str) -> str:
        """Return an absolute link's target relative to the folder; `_go` checks each `..` in the result."""
        for root in (self._path.absolute(), self._path.resolve()):
            if PurePosixPath(target).is_relative_to(root):
                return str(PurePosixPath(target).relative_to(root))
        raise self._leaves()

    def _leaves(self) -> DataError:
        return DataError(
            f"{self._shown} is a link that leads out of {self._path}; replace the link by the file itself, or "
            "name the place that the link leads to"
        )

    def _open_file(self, name: str) -> int:
        here = self._passed[-1]
        # check the type before the file is opened, because opening a device can start an action
        self._require_file(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
        descriptor = os.open(name, FILE, dir_fd=here)
        try:
            self._require_file(os.fstat(descriptor).st_mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _require_file(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link by now"))
            kind = next((name for fits, name in kinds if fits(mode)), "a device")
            raise DataError(f"{self._shown} is {kind}; only regular files are read, so remove it from the folder")
