"""Unpacks tar and zip archives inside one folder: plain files only, no links, no devices, a limit on size."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from prepare.errors import DataError, writing_to

CHUNK = 1 << 20
MAX_BYTES = 64 << 30
MAX_FILES = 1_000_000
DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)


def is_archive(path: Path) -> bool:
    """Tell whether a file is a tar (compressed or not) or a zip archive."""
    return tarfile.is_tarfile(path) or zipfile.is_zipfile(path)


def unpack(path: Path, folder: Path) -> None:
    """Write the plain files of an archive below a new folder.

    Raises: DataError: for a damaged archive, or a member that is a link, a device or outside the folder.
    VolumeError: if they cannot be written.
    """
    if tarfile.is_tarfile(path):
        with _reading(path), tarfile.open(path) as archive:
            _unpack_tar(archive, folder)
    else:
        with _reading(path), zipfile.ZipFile(path) as archive:
            _unpack_zip(archive, folder)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGES as error:
        raise DataError(f"archive {path.name} is damaged: {error}") from error


def _unpack_tar(archive: tarfile.TarFile, folder: Path) -> None:
    room = _Room()
    for member in archive:
        if member.isdir():
            continue
        if not member.isfile():
            raise DataError(f"archive member {member.name!r} is a link or a device; only plain files are unpacked")
        target = _target(folder, member.name)
        room.take(member.name, member.size)
        content = archive.extractfile(member)
        if content is not None:
            _write(content, target)


def _unpack_zip(archive: zipfile.ZipFile, folder: Path) -> None:
    room = _Room()
    for member in archive.infolist():
        if member.is_dir():
            continue
        file_type = (member.external_attr >> 16) & 0o170000
        if file_type not in (0, 0o100000):
            raise DataError(f"archive member {member.filename!r} is a link or a device; only plain files are unpacked")
        target = _target(folder, member.filename)
        room.take(member.filename, member.file_size)
        with archive.open(member) as content:
            _write(content, target)


def _target(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise DataError(f"archive member {name!r} lies outside the archive's folder")
    return folder.joinpath(*parts)


def _write(content: IO[bytes], target: Path) -> None:
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        output = target.open("wb")
    with output:
        _copy(content, output, target)


def _copy(content: IO[bytes], output: IO[bytes], target: Path) -> None:
    while chunk := content.read(CHUNK):
        with writing_to(target):
            output.write(chunk)
    with writing_to(target):
        output.flush()


class _Room:
    """Counts what an archive wants to write; refuses one that was made to fill the volume."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0

    def take(self, name: str, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self.files > MAX_FILES or self.bytes > MAX_BYTES:
            raise DataError(f"archive is too large at member {name!r}: {self.files} files, {self.bytes} bytes")
