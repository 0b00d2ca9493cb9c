"""The entries of a directory that is copied to the work directory, and why some of them cannot be copied.

`python3 -m paddle_cluster.launcher.shards.tree DIRECTORY` checks a config directory for start.sh.
"""

from __future__ import annotations

import contextlib
import errno
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from paddle_base.runtime.errors import DataError

LOOP, NOTHING = "a link that forms a loop", "a link to a path that does not exist"
TOO_MANY = "too many files"
MOST_CONFIG_FILES = 100_000  # maximum number of files in a config directory
_KINDS = {stat.S_IFREG: "", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


def walk_tree(top: Path, most: int) -> Iterator[tuple[Path, str]]:
    """Yield each file with "", also below linked directories, and each other entry with what it is.

    Args: most: number of entries after which the walk ends with `top` and TOO_MANY. Only links to directories make so
        many: two links in each of thirty directories make 2^30 paths without a loop.
    Entries that this user may not inspect, and entries that are being removed, are skipped.
    """
    passed = 0
    left: list[tuple[Path, tuple[tuple[int, int], ...]]] = [(top, ())]
    while left:
        directory, above = left.pop()
        with contextlib.suppress(OSError):
            facts = directory.stat()
            here = (facts.st_dev, facts.st_ino)
            if here in above:
                yield directory, LOOP
                continue
            for path in directory.iterdir():
                passed += 1
                if passed > most:
                    yield top, TOO_MANY
                    return
                kind = _inspect(path)
                if kind is None:
                    left.append((path, (*above, here)))
                elif kind != "gone":
                    yield path, kind


def _inspect(path: Path) -> str | None:
    """Return None for a directory, "gone" if the entry cannot be inspected, and otherwise see walk_tree."""
    try:
        mode = path.stat().st_mode
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return LOOP
        is_absent = problem.errno in (errno.ENOENT, errno.ENOTDIR)
        return NOTHING if is_absent and path.is_symlink() else "gone"
    return None if stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")


def check_config_dir(directory: Path) -> None:
    """Check that a config directory can be copied in a finite time, and that no file in it can block a reader.

    Raises: DataError.
    """
    for path, kind in walk_tree(directory, MOST_CONFIG_FILES):
        if kind == TOO_MANY:
            many = f"the config directory {directory} has more than {MOST_CONFIG_FILES} files"
            raise DataError(f"{many}\nremove links to directories, or data, from it")
        if kind:
            odd = f"the config directory {directory} has {kind}: {path}"
            raise DataError(f"{odd}\nremove it; only files and directories can be copied")


def main(directory: str) -> int:
    """Check a config directory for start.sh, print the error as start.sh does, and return the exit status."""
    try:
        check_config_dir(Path(directory))
    except DataError as error:
        sys.stderr.write("".join(f"start.sh: {line}\n" for line in str(error).split("\n")))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
