"""Writes the job's directory so that no reader ever takes a half-written set for a whole one.

Everything is written and synced in a staging directory beside its final place and then renamed, in this order:

1. the marker `prepared.json` is removed;
2. the old shards are moved away, shard 0 first;
3. the new shards are moved in, shard 0 last: wherever `0/data` exists, all shards of its set exist;
4. the config directory is moved in;
5. the marker is written, and what was moved away is deleted.

A kill between any two steps leaves either the old set whole, or no shard 0 (every job needs it, so none can start), or
the new set whole; the next run clears up. `output/` is made when it is absent, and else never touched. Only rename,
link and fsync are used, which hold on NFS.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from prepare.dataset import Content, Shard
from prepare.errors import InputError, OutputError, writing_to
from prepare.input.folder import Folder
from prepare.log import say
from prepare.settings import MARKER

STAGING = ".preparing-"
TOKEN = "mine"  # a file in the staging directory; gone when another run took the place of this one
STALE_TRIES = 5
DIRECTORY_MODE = 0o775
FILE_MODE = 0o664
CHUNK = 1 << 20
HERE = PurePosixPath()

Result = TypeVar("Result")
Owner = tuple[int, int] | None


@contextlib.contextmanager
def staging(out_dir: Path, owner: Owner) -> Iterator[Path]:
    """Make out_dir and an empty directory in it for the work of this run; clear up what killed runs left there.

    Args: owner: who gets a new out_dir when root makes it.

    A second run that starts meanwhile takes the place of the first, which then fails and publishes nothing.
    """
    with writing_to(out_dir):
        if not out_dir.is_dir():
            _make_directory(out_dir)
            give_to(owner, out_dir)
        directory = Path(tempfile.mkdtemp(prefix=STAGING, dir=out_dir))
        for left_over in sorted(out_dir.glob(f"{STAGING}*")):
            if left_over != directory:
                say(f"removing {left_over.name}, left by a run that did not end")
                left_over.rename(directory / left_over.name)
        for left_over in sorted(directory.iterdir()):
            _remove(left_over)
        (directory / TOKEN).touch()
    try:
        yield directory
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)  # the first failure counts; what stays is the next run's to remove
        raise
    with writing_to(out_dir):
        _remove(directory)


def write_shards(directory: Path, shards: Sequence[Shard], common: Shard) -> None:
    """Write `<id>/data/<file>` for every shard; common files lie on the volume once, linked into every shard."""
    with writing_to(directory):
        for shard_id, shard in enumerate(shards):
            data = directory / str(shard_id) / "data"
            data.parent.mkdir(mode=DIRECTORY_MODE)
            data.mkdir(mode=DIRECTORY_MODE)
            for name, content in shard.items():
                _place(content, data / name)
            for name, content in common.items():
                first = directory / "0" / "data" / name
                if shard_id == 0:
                    _place(content, first)
                elif not _link(first, data / name):
                    with first.open("rb") as source:
                        _write_file(data / name, source)
            _sync_directory(data)


def copy_config(example: Path, target: Path) -> None:
    """Copy an example's directory, without what Python leaves in it.

    Raises: InputError: for a link that leads outside or round in circles, and for what is no regular file.
    """
    with Folder(example) as folder:
        names = _config_files(folder)
        with writing_to(target):
            target.mkdir(mode=DIRECTORY_MODE)
            for place in sorted({*(above for name in names for above in PurePosixPath(name).parents)} - {HERE}):
                (target / place).mkdir(mode=DIRECTORY_MODE)
        for name in names:
            with open(folder.open(name), "rb") as source, writing_to(target):  # noqa: PTH123
                _write_file(target / name, source)
    with writing_to(target):
        for directory in (target, *(path for path in target.rglob("*") if path.is_dir())):
            _sync_directory(directory)


def same_files(one: Path, other: Path) -> bool:
    """Tell whether two config directories hold the same files with the same contents.

    What `copy_config` would refuse is not the same as anything.
    """
    try:
        with Folder(one) as first, Folder(other) as second:
            names = _config_files(first)
            return names == _config_files(second) and all(_is_same(first, second, name) for name in names)
    except InputError:
        return False


def _config_files(folder: Folder) -> list[str]:
    return [name for name in folder.files(linked=True, hidden=True) if "__pycache__" not in PurePosixPath(name).parts]


def _is_same(one: Folder, other: Folder, name: str) -> bool:
    with open(one.open(name), "rb") as first, open(other.open(name), "rb") as second:  # noqa: PTH123
        while (part := first.read(CHUNK)) == second.read(CHUNK):
            if not part:
                return True
    return False


def write_marker(directory: Path, marker: Mapping[str, object]) -> None:
    """Write the marker that `publish` moves in last."""
    with writing_to(directory):
        _write_file(directory / MARKER, json.dumps(marker, indent=2, sort_keys=True).encode() + b"\n")


def publish(directory: Path, out_dir: Path, count: int, config: str) -> None:
    """Put what lies in the staging directory into its place; see the module's text for the order.

    Raises: OutputError: also if another run has started meanwhile; nothing is changed then.
    """
    if not (directory / TOKEN).exists():
        raise OutputError(f"another run of prepare started meanwhile and has taken over {out_dir}")
    retired = directory / "retired"
    with writing_to(out_dir):
        retired.mkdir()
        (out_dir / MARKER).unlink(missing_ok=True)
        _sync_directory(out_dir)
        for shard in _shards_in(out_dir):
            _again_if_stale(partial(_retire, shard, retired))
        for shard_id in reversed(range(count)):
            place = out_dir / str(shard_id)
            _make_directory(place)
            _again_if_stale(partial((directory / str(shard_id) / "data").rename, place / "data"))
            _sync_directory(place)
        if config and (directory / config).is_dir():
            if (out_dir / config).exists():
                (out_dir / config).rename(retired / config)
            (directory / config).rename(out_dir / config)
        _make_directory(out_dir / "output")
        _sync_directory(out_dir)
        (directory / MARKER).rename(out_dir / MARKER)
        _sync_directory(out_dir)


def give_to(owner: Owner, path: Path) -> None:
    """Give a directory and what lies in it to the user that the pods run as; only root can, and only root needs to.

    Args: owner: uid and gid; None means those of the directory that it lies in, so of the volume in the end, where the
    volume allows it: an NFS server that squashes root does not, nor a container whose root is another user outside.
    """
    if os.geteuid() != 0:
        return
    with writing_to(path):
        parent = path.parent.stat()
        uid, gid = owner or (parent.st_uid, parent.st_gid)
        try:
            for inside in (path, *path.rglob("*")):
                os.chown(inside, uid, gid, follow_symlinks=False)
        except OSError as error:
            if owner is not None or error.errno not in (errno.EPERM, errno.EINVAL, errno.ENOTSUP):
                raise


def _shards_in(out_dir: Path) -> list[Path]:
    """Return the shard directories of earlier runs, of ours and of the tutorial's script, in the order of their ids."""
    found = [path for path in out_dir.iterdir() if path.name.isascii() and path.name.isdigit() and path.is_dir()]
    return sorted(found, key=lambda path: (int(path.name), path.name))


def _retire(shard: Path, retired: Path) -> None:
    """Move a shard's data away; the directory goes with it unless somebody keeps other things there."""
    if (shard / "data").exists():
        (shard / "data").rename(retired / shard.name)
        _sync_directory(shard)
    with contextlib.suppress(OSError):
        shard.rmdir()


def _make_directory(path: Path) -> None:
    """Make a directory and those above it, each for the owner of the one it lies in, unless it is there."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE)
    give_to(None, path)


def _place(content: Content, path: Path) -> None:
    """Make a file of bytes, or of a file that is on the volume already."""
    if isinstance(content, bytes):
        _write_file(path, content)
        return
    content.chmod(FILE_MODE)
    descriptor = os.open(content, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    content.rename(path)


def _write_file(path: Path, content: bytes | IO[bytes]) -> None:
    """Write and sync a new file, with these bytes or with those of another file."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as output:  # noqa: PTH123
        if isinstance(content, bytes):
            output.write(content)
        else:
            shutil.copyfileobj(content, output, CHUNK)
        output.flush()
        os.fsync(output.fileno())


def _link(existing: Path, name: Path) -> bool:
    """Give a file a second name; False where the file system has no hard links."""
    try:
        name.hardlink_to(existing)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            return False
        raise
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _again_if_stale(step: Callable[[], Result]) -> Result:
    """Repeat a step that NFS refused because another client changed the directory (ESTALE)."""
    for tries_left in reversed(range(STALE_TRIES)):
        try:
            return step()
        except OSError as error:
            if error.errno != errno.ESTALE or not tries_left:
                raise
        time.sleep(0.05)
    raise AssertionError("unreachable: the last try returns or raises")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)
