"""Writes the job's directory in steps, so that a reader never takes an incomplete data set for a complete data set.

All files are written and synced in a staging directory inside OUT_DIR, and then moved in this order:

1. the marker `prepared.json` is removed;
2. the old shards are moved away, shard 0 first, to `earlier-<k>/` if no run of prepare has made them;
3. the new shards are moved in, shard 0 last: if `0/data` exists, all shards of the same data set exist;
4. the config directory is moved in;
5. the new marker is moved in, and the old files are deleted.

If the program is killed between two steps, OUT_DIR has all old shards, or all new shards, or no shard 0. Each job needs
shard 0, and cannot start without it. The next run removes the remains of the killed run. `output/` is created if it
does not exist, and never changed. The steps use only rename, link and fsync, which are reliable on NFS.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from paddle_base.runtime.durable_files import retry_stale, sync_directory, write_file
from paddle_base.runtime.errors import DataError, VolumeError
from paddle_cluster.prepare.dataset import Content, Shard
from paddle_cluster.prepare.errors import writing_to
from paddle_cluster.prepare.input.folder import Folder
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.values import MARKER

STAGING = ".preparing-"
RETIRED = "retired"  # in the staging directory: the old files, while the new ones are moved in
KILLED = "killed"  # a file in the staging directory: an earlier run was killed while it moved files
TOKEN = "mine"  # a file in the staging directory; a later run that takes over OUT_DIR removes this file
DIRECTORY_MODE = 0o775
FILE_MODE = 0o664
CHUNK = 1 << 20
HERE = PurePosixPath()

Owner = tuple[int, int] | None


@contextlib.contextmanager
def staging(out_dir: Path, owner: Owner) -> Iterator[Path]:
    """Create out_dir and an empty directory in it for this run; remove the remains of killed runs.

    After an error, only directories remain that existed before, or that have content. If a second run starts meanwhile,
    the second run removes the directory of the first run. The first run then fails, and publishes nothing.
    Args: owner: the owner of out_dir if this call creates it and the user is root.
    """
    with writing_to(out_dir):
        created = [path for path in (out_dir, *out_dir.parents) if not path.exists()]
        if not out_dir.is_dir():
            _make_directory(out_dir)
            give_to(owner, out_dir)
        directory = Path(tempfile.mkdtemp(prefix=STAGING, dir=out_dir))
        was_killed = False
        for left_over in sorted(out_dir.glob(f"{STAGING}*")):
            if left_over != directory:
                was_killed = was_killed or (left_over / RETIRED).exists()
                say(f"removing {left_over.name}, left by a run that did not end")
                left_over.rename(directory / left_over.name)
        for left_over in sorted(directory.iterdir()):
            _remove(left_over)
        (directory / TOKEN).touch()
        if was_killed:
            (directory / KILLED).touch()
    try:
        yield directory
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)  # ignore errors, because `raise` must report the first error
        with contextlib.suppress(OSError):  # a directory that is not empty has files of another program
            for path in created:
                path.rmdir()
        raise
    with writing_to(out_dir):
        _remove(directory)


def write_shards(directory: Path, shards: Sequence[Shard], common: Shard) -> None:
    """Write `<id>/data/<file>` for each shard. A common file is stored once, and hard-linked into the other shards."""
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
                        write_file(data / name, iter(partial(source.read, CHUNK), b""))
            sync_directory(data)


def copy_config(example: Path, target: Path) -> None:
    """Copy an example's directory, without the `__pycache__` directories in it.

    Raises: DataError: if a link leads out of the directory or is circular, or a file is not regular.
    """
    with Folder(example) as folder:
        names = _config_files(folder)
        with writing_to(target):
            target.mkdir(mode=DIRECTORY_MODE)
            for place in sorted({*(above for name in names for above in PurePosixPath(name).parents)} - {HERE}):
                (target / place).mkdir(mode=DIRECTORY_MODE)
        for name in names:
            with open(folder.open(name), "rb") as source, writing_to(target):  # noqa: PTH123
                write_file(target / name, iter(partial(source.read, CHUNK), b""))
    with writing_to(target):
        for directory in (target, *(path for path in target.rglob("*") if path.is_dir())):
            sync_directory(directory)


def same_files(one: Path, other: Path) -> bool:
    """Return whether two config directories hold the same files with the same contents.

    The result is False if `copy_config` would reject one of the directories.
    """
    try:
        with Folder(one) as first, Folder(other) as second:
            names = _config_files(first)
            return names == _config_files(second) and all(_is_same(first, second, name) for name in names)
    except DataError:
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
    """Write the marker into the staging directory; `publish` moves it to its place as the last file."""
    with writing_to(directory):
        write_file(directory / MARKER, [json.dumps(marker, indent=2, sort_keys=True).encode(), b"\n"])


def publish(directory: Path, out_dir: Path, count: int, config: str) -> None:
    """Move the content of the staging directory to its final place; the module's docstring describes the order.

    Raises: VolumeError: if the directory cannot be written, or if another run has started meanwhile. In the second case
    nothing is changed.
    """
    if not (directory / TOKEN).exists():
        raise VolumeError(f"another run of prepare started meanwhile and has taken over {out_dir}")
    _check_places(out_dir, count)
    retired = directory / RETIRED
    with writing_to(out_dir):
        retired.mkdir()
        kept = _find_kept(directory, out_dir)
        (out_dir / MARKER).unlink(missing_ok=True)
        sync_directory(out_dir)
        for shard in _shards_in(out_dir):
            retry_stale(partial(_retire, shard, kept or retired))
        for shard_id in reversed(range(count)):
            place = out_dir / str(shard_id)
            _make_directory(place)
            retry_stale(partial((directory / str(shard_id) / "data").rename, place / "data"))
            sync_directory(place)
        if config and (directory / config).is_dir():
            if (out_dir / config).exists():
                (out_dir / config).rename(retired / config)
            (directory / config).rename(out_dir / config)
        _make_directory(out_dir / "output")
        sync_directory(out_dir)
        (directory / MARKER).rename(out_dir / MARKER)
        sync_directory(out_dir)


def give_to(owner: Owner, path: Path) -> None:
    """Make the user of the pods the owner of a directory and its content, if this process is root.

    Only root can change the owner of a file. If this process is not root, the pods run as its user, which stays the
    owner.

    Args: owner: uid and gid; if the change fails, an error is raised. None: the owner of the parent directory, which is
    normally the owner of the volume. With None, the change may fail without an error, because NFS servers that squash
    root and containers whose root is mapped to another user forbid the change.
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


def _check_places(out_dir: Path, count: int) -> None:
    """Check that no file has the name of a shard's directory.

    Raises: VolumeError.
    """
    for place in (*(out_dir / str(shard) for shard in range(count)), out_dir / "output"):
        if place.exists() and not place.is_dir():
            raise VolumeError(f"{place} is no directory, but the job needs one of this name; move it away")


def _find_kept(directory: Path, out_dir: Path) -> Path | None:
    """Return a new directory for shards that no run of prepare has made, or None if there are none.

    Such shards have no marker, although no run was killed while it moved files. They may be the only copy of the data.
    """
    if (out_dir / MARKER).exists() or (directory / KILLED).exists():
        return None
    if not any((shard / "data").exists() for shard in _shards_in(out_dir)):
        return None
    kept = next(path for path in (out_dir / f"earlier-{k}" for k in itertools.count(1)) if not os.path.lexists(path))
    _make_directory(kept)
    say(f"WARNING: the data in {out_dir} are not of this program ({MARKER} is missing); they move to {kept}")
    return kept


def _shards_in(out_dir: Path) -> list[Path]:
    """Return the shard directories of earlier runs and of the tutorial's script, in the order of their ids."""
    found = [path for path in out_dir.iterdir() if path.name.isascii() and path.name.isdigit() and path.is_dir()]
    return sorted(found, key=lambda path: (int(path.name), path.name))


def _retire(shard: Path, retired: Path) -> None:
    """Move a shard's data to `retired`, and then remove the shard's directory if it is empty."""
    if (shard / "data").exists():
        (shard / "data").rename(retired / shard.name)
        sync_directory(shard)
    with contextlib.suppress(OSError):
        shard.rmdir()


def _make_directory(path: Path) -> None:
    """Create a directory and its parents if they do not exist, each with the owner of its parent."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE)
    give_to(None, path)


def _place(content: Content, path: Path) -> None:
    """Create a file from bytes, or move a file of the volume to this path."""
    if isinstance(content, bytes):
        write_file(path, [content])
        return
    content.chmod(FILE_MODE)
    descriptor = os.open(content, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    content.rename(path)


def _link(existing: Path, name: Path) -> bool:
    """Give a file a second name; return False if the file system has no hard links."""
    try:
        name.hardlink_to(existing)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            return False
        raise
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)
