"""The input of a source: one file or a directory of files. The input counts the unpacked bytes, and reads lines."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO

from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_cluster.prepare.input.folder import Folder
from paddle_cluster.prepare.input.packed import CHUNK, from_start, unpacked
from paddle_cluster.prepare.limits import LINE_BYTES, OBJECT_BYTES, Meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.values import MARKER

NAMED = 5  # maximum number of directories that a log line names


class Input:
    """One file or a directory of files; `names` has the file's name, or the names relative to the directory.

    Args: path: the path of the input, for messages.  disk: counts all unpacked bytes that are read.  memory: counts the
    bytes that a source holds in memory.  descriptor: the descriptor of the one file.  folder: the directory; None for
    one file.  out_dir: a directory to skip.  keep: whether a file of this name belongs to the input.
    Raises: DataError: if prepare has created the directory, or for the reasons of `Folder.files`.
    """

    def __init__(
        self,
        path: Path,
        disk: Meter,
        memory: Meter,
        *,
        descriptor: int = -1,
        folder: Folder | None = None,
        out_dir: Path | None = None,
        keep: Callable[[str], bool] = lambda _: True,
    ):
        self.path = path
        self.disk = disk
        self.memory = memory
        self._descriptor = descriptor
        self._folder = folder
        self.names = [path.name] if folder is None else list(filter(keep, _files(path, folder, out_dir)))

    def __enter__(self) -> Input:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder is not None:
            self._folder.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def is_file(self) -> bool:
        """Whether the input is a single file."""
        return self._folder is None

    def nearest(self, name: str) -> PurePosixPath | None:
        """Return the topmost directory that contains a file of this name, or None. For a single file, return None."""
        if self.is_file:
            return None
        found = [PurePosixPath(file) for file in self.names if PurePosixPath(file).name == name]
        return min(found, key=lambda file: (len(file.parts), file)).parent if found else None

    def has(self, name: PurePosixPath) -> bool:
        """Return whether the input has a file with this name."""
        return str(name) in self.names

    def open(self, name: str, disk: Meter | None = None) -> io.BufferedReader:
        """Return a reader of the unpacked bytes of a file.

        Args: disk: the meter that counts the bytes; None: the input's own meter.
        Raises: MissingInputError: if the name is a directory.  DataError, OSError: for the reasons of `Folder.open`.
        """
        meter = self.disk if disk is None else disk
        return unpacked(self.open_packed(name), name, meter, self.memory.limit)

    def open_packed(self, name: str) -> IO[bytes]:
        """Return a reader of the bytes of a file as they are, which can seek and counts nothing.

        Raises: MissingInputError, DataError, OSError: see `open`.
        """
        if self._folder is None:
            return from_start(self._descriptor)
        descriptor = self._folder.open(name)
        try:
            return open(descriptor, "rb")  # noqa: PTH123
        except IsADirectoryError:
            os.close(descriptor)
            raise MissingInputError(f"{self.path / name} is a directory; a file of that name is needed") from None

    def read(self, name: str) -> bytes:
        """Return the whole content of a file, and count its bytes as held in memory.

        Raises: MissingInputError, DataError, OSError: for the reasons of `open`.
        """
        with self.open(name) as file:
            parts = []
            while part := file.read(CHUNK):
                self.memory.take(len(part), name)
                parts.append(part)
        return b"".join(parts)

    def raw_lines(self, name: str, disk: Meter | None = None) -> Iterator[bytes]:
        """Yield the lines of a file including line ends; only one line is held in memory.

        Raises: DataError: if a line is longer than LINE_BYTES, or for the reasons of `open`.
        """
        with self.open(name, disk) as file:
            number = 0
            while line := file.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    raise DataError(f"{name} line {number}: it is longer than {LINE_BYTES} bytes; cut it into several")
                yield line

    def lines(self, name: str, encoding: str) -> Iterator[str]:
        """Yield the lines of a text file without line ends.

        Args: encoding: `auto` means UTF-8 if the whole file is valid UTF-8, else Latin-1.
        Raises: DataError: if the bytes are not valid in the encoding, or for the reasons of `raw_lines`.
        """
        codec = self.find_encoding(name) if encoding == "auto" else encoding
        for number, line in enumerate(self.raw_lines(name), start=1):
            yield decode(line, codec, name, number).removesuffix("\n").removesuffix("\r")

    def find_encoding(self, name: str) -> str:
        """Read the whole file in pieces; return `utf-8` if it is valid UTF-8, else `latin-1`."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self.open(name, self.disk.fresh()) as file:
            try:
                while part := file.read(CHUNK):
                    decoder.decode(part)
                decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                return "latin-1"
        return "utf-8"

    def hold(self, line: str, name: str) -> None:
        """Count a line that a source keeps in memory.

        Raises: DataError: if all counted lines together exceed DATA_MAX_MEMORY.
        """
        self.memory.take(len(line) + OBJECT_BYTES, name)


def _files(path: Path, folder: Folder, out_dir: Path | None) -> list[str]:
    """Return the names of the files below a directory, except files that prepare has written.

    A second run must not read the shards of the first run. Directories that are left out are named in the log.
    """
    found: list[str] = []
    try:
        own = out_dir.stat() if out_dir is not None else None
    except OSError:  # OUT_DIR need not exist
        own = None

    def is_output(directory: int, name: PurePosixPath) -> bool:
        if own is not None and os.path.samestat(os.fstat(directory), own):
            found.append(f"{name} (OUT_DIR)")
            return True
        with contextlib.suppress(FileNotFoundError):
            os.stat(MARKER, dir_fd=directory, follow_symlinks=False)
            found.append(f"{name} (it has a {MARKER})")
            return True
        return False

    names = folder.files(leave_out=is_output)
    if MARKER in names:
        raise DataError(
            f"{path} has a {MARKER}, so prepare made this directory; name the original data, or the data directory of "
            "one shard"
        )
    if found:
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        say(f"{path}: directories that prepare made are not read: {', '.join(sorted(found)[:NAMED])}{more}")
    return names


def decode(line: bytes, encoding: str, name: str, number: int) -> str:
    """Return a line of a file as text, without a byte order mark in the first line.

    Raises: DataError: if the line is not valid in the encoding.
    """
    try:
        return line.decode("utf-8-sig" if encoding == "utf-8" and number == 1 else encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{name} line {number}: the text is not {encoding}: {error}; set DATA_ENCODING") from error
