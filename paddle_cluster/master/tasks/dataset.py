"""Pure functions that compute the digest of a file list, and divide the list into tasks and parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

MOST_FILES = 10_000_000  # maximum files of a data set
LONGEST_NAME = 4096  # PATH_MAX of Linux
PART_CHARACTERS = 200_000  # maximum characters of file names in a part; a character has up to 6 bytes in JSON
PART_NAMES = 10_000


def digest_of(files: Iterable[str]) -> str:
    """Return the SHA-256 of a file list, in hexadecimal; the digest depends on the order of the files."""
    whole = hashlib.sha256()
    for name in files:
        whole.update(name.encode("utf-8", "surrogateescape") + b"\0")
    return whole.hexdigest()


def group_files(files: Sequence[str], per_task: int) -> list[tuple[str, ...]]:
    """Return the files of each task: `per_task` successive files; the last task has the rest."""
    return [tuple(files[first : first + per_task]) for first in range(0, len(files), per_task)]


def split_names(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide a file list into parts that fit into a message."""
    first, characters = 0, 0
    for number, name in enumerate(files):
        characters += len(name) + 3
        if number > first and (characters > PART_CHARACTERS or number - first >= PART_NAMES):
            yield files[first:number]
            first, characters = number, len(name) + 3
    if first < len(files):
        yield files[first:]


def split_tasks(tasks: Sequence[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Divide tasks into parts that fit into a value of the store; a task of very many files is a separate part."""
    first, characters = 0, 0
    for number, files in enumerate(tasks):
        size = sum(len(name) + 3 for name in files)
        if number > first and (characters + size > PART_CHARACTERS or number - first >= PART_NAMES):
            yield tuple(tasks[first:number])
            first, characters = number, 0
        characters += size
    if first < len(tasks):
        yield tuple(tasks[first:])
