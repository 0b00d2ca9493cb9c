"""Opens the input, which is a file or directory on a mounted volume, or a download from a bucket or a server."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from paddle_base.remote.addresses import FILE, Address, matches
from paddle_base.remote.patience import Patience
from paddle_base.remote.tree import download_all
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from paddle_cluster.prepare.errors import writing_to
from paddle_cluster.prepare.input.archive import unpack_if_archive
from paddle_cluster.prepare.input.folder import DIRECTORY, Folder
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.input.packed import from_start
from paddle_cluster.prepare.limits import FILES, Meter, disk_meter, memory_meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.values import Settings

INSTEAD = "raise DATA_TIMEOUT, or fetch the file yourself and set DATA_PATH"


def fetch(settings: Settings, scratch: Path) -> Input:
    """Return the input, which is one file or a directory; an archive is unpacked into the directory `scratch`.

    Raises: MissingInputError, ApiForbiddenError, PeerUnreachableError: if the input cannot be obtained.
    DataError: if the input does not match DATA_SHA256, exceeds DATA_MAX_BYTES, or is an archive with members outside
    its directory.  VolumeError: if `scratch` cannot be written.
    """
    name, path = ("DATA_URL", settings.data_url) if settings.data_url else ("DATA_PATH", settings.data_path)
    assert path is not None  # read_settings has checked that there is an input
    if isinstance(path, Address):
        path = _fetch_file(path, name, settings, scratch)
    disk, memory = disk_meter(settings.data_max_bytes), memory_meter(settings.data_max_memory)
    try:
        descriptor = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        pattern = Address(FILE, "", str(path))
        if name == "DATA_PATH" and pattern.has_pattern:
            return _open_matching(pattern, disk, memory, settings)
        raise MissingInputError(f"DATA_PATH {path} does not exist; mount the data there, or set DATA_URL") from None
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if settings.data_sha256 and not is_file:
        raise ConfigError(f"DATA_SHA256 is set, but {path} is not a file")
    if settings.data_sha256:
        _check_digest(path, descriptor, settings.data_sha256)
    unpacked = scratch / "unpacked"
    if not is_file:
        return Input(path, disk, memory, folder=Folder(path, descriptor), out_dir=settings.out_dir)
    if unpack_if_archive(descriptor, path.name, unpacked, disk, memory):
        os.close(descriptor)
        return Input(path, disk.fresh(), memory, folder=Folder(unpacked), out_dir=settings.out_dir)
    return Input(path, disk, memory, descriptor=descriptor)


def _open_matching(pattern: Address, disk: Meter, memory: Meter, settings: Settings) -> Input:
    """Return the files that match a pattern, as the files of a directory."""
    folder = Path(pattern.prefix or ".")
    try:
        opened = Folder(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"DATA_PATH {pattern}: there is no directory {folder}; correct the pattern") from None
    wanted = pattern.key.removeprefix(pattern.prefix)
    data = Input(folder, disk, memory, folder=opened, out_dir=settings.out_dir, keep=lambda name: matches(wanted, name))
    if not data.names:
        raise MissingInputError(f"DATA_PATH {pattern}: no file in {folder} matches; correct the pattern")
    return data


def _open(path: Path) -> int:
    """Return the descriptor of the input. A link must not lead out of its directory."""
    if path.name in ("", ".."):
        return os.open(path, DIRECTORY)
    with Folder(path.parent) as folder:
        return folder.open(path.name)


def _check_digest(path: Path, descriptor: int, expected: str) -> None:
    with from_start(descriptor) as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
    if found != expected:
        raise DataError(
            f"{path.name} has SHA-256 {found}, not {expected} (DATA_SHA256); it is another file, or damaged"
        )


def _fetch_file(address: Address, name: str, settings: Settings, scratch: Path) -> Path:
    """Return the path of the file of an address, or of its copy, or of the directory with the copies of several files.

    Retries end at DATA_TIMEOUT. The extension of a name tells what a file is, so names are kept.
    """
    if address.is_local:
        path = Path(str(address))
        if not path.exists():
            raise MissingInputError(f"{name} {address}: there is no such file; correct {name}")
        return path
    patience = Patience(name, settings.data_timeout, INSTEAD, say)
    folder = scratch / "download"
    with writing_to(folder):
        folder.mkdir()
    with writing_to(folder):
        files = download_all(address, folder, patience, disk_meter(settings.data_max_bytes).take, FILES)
    return files[0] if files == [folder / address.name] else folder
