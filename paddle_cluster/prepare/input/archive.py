"""Unpacks tar and zip archives into a directory, within limits; links and devices in an archive are errors."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paddle_base.runtime.errors import DataError
from paddle_base.runtime.member_paths import IMPOSSIBLE, place_below
from paddle_cluster.prepare.errors import write_pieces, writing_to
from paddle_cluster.prepare.input import tar
from paddle_cluster.prepare.input.packed import from_start, unpacked
from paddle_cluster.prepare.limits import FILES, Meter

CHUNK = 1 << 20
STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)

Members = Iterator[tuple[str, Iterator[bytes]]]
"""The files of an archive: (name, pieces of the content)."""


def unpack_if_archive(descriptor: int, name: str, folder: Path, disk: Meter, memory: Meter) -> bool:
    """Unpack a zip archive or a tar archive (packed or not) into a new directory; return False for any other file.

    Args: descriptor, name: the file, and its name for messages.  folder: the new directory.
    Raises: DataError: if the archive is damaged, if a member is a link or a device or lies outside the directory, or
    if the number of files or bytes exceeds a limit.  VolumeError: if the files cannot be written.
    """
    with unpacked(from_start(descriptor), name, disk.fresh(), memory.limit) as content:
        is_tar = tar.is_tar(content.read(tar.BLOCK))
    if not is_tar:
        with from_start(descriptor) as source:
            if not zipfile.is_zipfile(source):
                return False
    with writing_to(folder):
        folder.mkdir()
    if is_tar:
        with unpacked(from_start(descriptor), name, disk, memory.limit) as content:
            _write_all(tar.members(content, name), folder)
    else:
        with from_start(descriptor) as source:
            _write_all(_members_of_zip(source, name, disk, memory), folder)
    return True


def _members_of_zip(source: IO[bytes], name: str, disk: Meter, memory: Meter) -> Members:
    with _reading(name):
        archive = zipfile.ZipFile(_Directory(source, name, memory))  # type: ignore[arg-type]
    if len(archive.filelist) > FILES:
        raise DataError(f"archive {name} has more than {FILES} members; give it in parts")
    for member in archive.filelist:
        if member.is_dir():
            continue
        _require_plain(member)
        yield member.filename, _pieces(archive, member, name, disk)


def _require_plain(member: zipfile.ZipInfo) -> None:
    file_type = (member.external_attr >> 16) & 0o170000
    if file_type not in (0, 0o100000):
        raise DataError(f"archive member {member.filename!r} is a link or a device; only plain files are unpacked")
    if member.flag_bits & ENCRYPTED:
        raise DataError(f"archive member {member.filename!r} is encrypted; make the archive without a password")
    if member.compress_type not in STORED_OR_DEFLATED:
        raise DataError(
            f"archive member {member.filename!r} is packed by method {member.compress_type}, which cannot be unpacked "
            "piece by piece; make the archive with deflate, or as a tar"
        )


def _pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, disk: Meter) -> Iterator[bytes]:
    with _reading(name):
        content = archive.open(member)
    while True:
        with _reading(name):
            piece = content.read(CHUNK)
        if not piece:
            return
        disk.take(len(piece), f"{name}, member {member.filename!r}")
        yield piece


class _Directory:
    """The file of a zip archive. A long list of members is an error, because zipfile reads the whole list at once."""

    def __init__(self, source: IO[bytes], name: str, memory: Meter) -> None:
        self._source = source
        self._name = name
        self._memory = memory
        self._most = max(CHUNK, memory.limit // 16)  # zipfile needs about 700 bytes of memory for an entry of 46 bytes
        self.seek, self.tell, self.close = source.seek, source.tell, source.close

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = os.fstat(self._source.fileno()).st_size - self._source.tell()
        if size > self._most:
            raise DataError(
                f"archive {self._name}: its list of members has {size} bytes, and must fit into memory; set "
                f"{self._memory.variable} to 16 times that number, or give the archive in parts"
            )
        return self._source.read(size)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except DAMAGES as error:
        raise DataError(f"archive {name} is damaged: {error}; give another copy of it") from error


def _target(folder: Path, name: str) -> Path:
    try:
        return place_below(folder, name)
    except ValueError as problem:
        shown = repr(name) if len(name) <= 100 else f"{name[:100]!r}..."
        raise DataError(f"archive member {shown} {problem} of the archive; rename it") from None


def _write_all(members: Members, folder: Path) -> None:
    for name, pieces in members:
        target = _target(folder, name)
        with writing_to(target):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                output = target.open("wb")
            except OSError as error:
                if error.errno not in IMPOSSIBLE:
                    raise
                raise DataError(f"archive member {name!r} cannot be a file: {error.strerror}; rename it") from error
        write_pieces(pieces, output, target)
