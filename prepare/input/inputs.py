"""The input of a source: one file or a folder of them, unpacked, counted, and read line by line."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType

from prepare.errors import InputError, InputMissingError
from prepare.input.folder import Folder
from prepare.input.outputs import Outputs
from prepare.input.packed import CHUNK, from_start, unpacked
from prepare.limits import LINE_BYTES, OBJECT_BYTES, Meter
from prepare.settings import MARKER


class Input:
    """Files by name, whatever they were: a file has the one name, a folder the names below it.

    Args: path: for messages.  descriptor: of the file, if it is one.  folder: of the files, if it is one.
        disk: counts all bytes that are read.  memory: for what a source holds.  out_dir: is not read.
    Raises: InputError: if prepare made the folder; besides as `Folder.files`.
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
    ):
        self.path = path
        self.disk = disk
        self.memory = memory
        self._descriptor = descriptor
        self._folder = folder
        self.names = [path.name] if folder is None else _files(path, folder, out_dir)

    def __enter__(self) -> Input:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder is not None:
            self._folder.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def is_file(self) -> bool:
        """Whether it is one file and no folder."""
        return self._folder is None

    def nearest(self, name: str) -> PurePosixPath | None:
        """Return the folder, the nearest to the top, that holds a file of this name; None for none, and for a file."""
        if self.is_file:
            return None
        found = [PurePosixPath(file) for file in self.names if PurePosixPath(file).name == name]
        return min(found, key=lambda file: (len(file.parts), file)).parent if found else None

    def has(self, name: PurePosixPath) -> bool:
        """Tell whether there is a file of this name."""
        return str(name) in self.names

    def open(self, name: str, disk: Meter | None = None) -> io.BufferedReader:
        """Return the unpacked bytes of a file.

        Args: disk: counts them in place of the input's own meter.
        Raises: InputMissingError: if it is a directory.  InputError, OSError: as `Folder.open`.
        """
        meter = self.disk if disk is None else disk
        if self._folder is None:
            return unpacked(from_start(self._descriptor), name, meter, self.memory.limit)
        descriptor = self._folder.open(name)
        try:
            file = open(descriptor, "rb")  # noqa: PTH123, SIM115
        except IsADirectoryError:
            os.close(descriptor)
            raise InputMissingError(f"{self.path / name} is a directory; a file of that name is needed") from None
        return unpacked(file, name, meter, self.memory.limit)

    def read(self, name: str) -> bytes:
        """Return the whole content of a file, which counts as held in memory.

        Raises: as `open`.
        """
        with self.open(name) as file:
            parts = []
            while part := file.read(CHUNK):
                self.memory.take(len(part), name)
                parts.append(part)
        return b"".join(parts)

    def raw_lines(self, name: str, disk: Meter | None = None) -> Iterator[bytes]:
        """Yield the lines of a file with their ends; one is held at a time.

        Raises: InputError: for one that is longer than LINE_BYTES; besides as `open`.
        """
        with self.open(name, disk) as file:
            number = 0
            while line := file.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    raise InputError(f"{name} line {number}: it is longer than {LINE_BYTES} bytes; cut it into several")
                yield line

    def lines(self, name: str, encoding: str) -> Iterator[str]:
        """Yield the lines of a text file without their ends.

        Args: encoding: `auto` is UTF-8 where the whole file is that, else Latin-1.
        Raises: InputError: if the bytes are not of the encoding; besides as `raw_lines`.
        """
        codec = self.find_encoding(name) if encoding == "auto" else encoding
        for number, line in enumerate(self.raw_lines(name), start=1):
            yield decode(line, codec, name, number).removesuffix("\n").removesuffix("\r")

    def find_encoding(self, name: str) -> str:
        """Return `utf-8` if the whole file is that, else `latin-1`; reads it once more, piece by piece."""
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
        """Count a line that a source keeps.

        Raises: InputError: if DATA_MAX_MEMORY is not enough.
        """
        self.memory.take(len(line) + OBJECT_BYTES, name)


def _files(path: Path, folder: Folder, out_dir: Path | None) -> list[str]:
    """Return the names of the files of a folder, without what prepare made."""
    outputs = Outputs(out_dir)
    names = folder.files(leave_out=outputs.take)
    if MARKER in names:
        raise InputError(
            f"{path} has a {MARKER}, so prepare made it; name the data that it was made of, or one shard's data "
            "directory in it"
        )
    outputs.tell(path)
    return names


def decode(line: bytes, encoding: str, name: str, number: int) -> str:
    """Return a line of a file as text; the first one without its byte order mark.

    Raises: InputError: if it is not of the encoding.
    """
    try:
        return line.decode("utf-8-sig" if encoding == "utf-8" and number == 1 else encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not {encoding} in line {number}: {error}; set DATA_ENCODING") from error
