"""Divide the shards of absent trainers among the present trainers. No I/O.

Each trainer trains one whole shard, which is its own shard if it has one. The lists of the remaining shards name files,
and exactly one trainer trains each of these files. A file is never split, because only a data provider can determine
where a sample ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

STAGED = "data/"  # prefix of a list entry that names a file in the shard that contains the list


class Piece(NamedTuple):
    """An entry of a list of files in an absent trainer's shard.

    list_name: path of the list below the shard. size: bytes of the file.
    """

    shard: int
    list_name: str
    entry: str
    size: int

    @property
    def is_test(self) -> bool:
        """Whether the list is a test list, according to its name."""
        return "test" in self.list_name

    @property
    def file(self) -> str:
        """The path of the file below the shard, or "" if the entry is a path outside the shard."""
        return self.entry.removeprefix(STAGED) if self.entry.startswith(STAGED) else ""

    @property
    def staged(self) -> str:
        """The entry that names this file in the lists of the trainer that receives this piece."""
        return f"{STAGED}{place_of(self.shard)}/{self.file}" if self.file else self.entry


@dataclasses.dataclass(frozen=True)
class ShardLists:
    """The files and lists of a shard. A list is a file whose name ends in .list.

    Attributes: sizes: the size of each file in bytes; a key is a file name as in the lists, for example data/train.txt.
        lists: the stripped lines of each list; a key is the path of a list below the shard.
    """

    sizes: Mapping[str, int]
    lists: Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Portion:
    """The data of one trainer: a whole shard, and files of the shards of absent trainers."""

    base: int
    pieces: tuple[Piece, ...] = ()

    @property
    def others(self) -> list[int]:
        """The numbers, in ascending order, of the absent trainers' shards from which this trainer has files."""
        return sorted({piece.shard for piece in self.pieces})


def place_of(shard: int | str) -> str:
    """Return the directory below ./data for an absent trainer's shard."""
    return f"absent_{shard}"


def assign_bases(shards: int, indexes: Sequence[int]) -> list[int]:
    """Return the shard that each trainer trains as a whole.

    A trainer keeps the shard of its index. A trainer in a pod that ran only a pserver before has no such shard, and
    takes the first remaining shard. Args: shards: the number of shards. indexes: the completion index of each trainer.
    """
    left = [number for number in range(shards) if number not in {*indexes}]
    return [index if index < shards else left.pop(0) for index in indexes]


def find_pieces(number: int, shard: ShardLists) -> list[Piece]:
    """Return the entries of a shard's lists of files; each entry is a path below ./data or an absolute path.

    A list that does not contain file names, for example a list of labels, is omitted, because such a list is equal in
    all shards.
    """
    pieces = []
    for name, lines in sorted(shard.lists.items()):
        entries = [line for line in lines if line]
        if all(entry in shard.sizes or entry.startswith("/") for entry in entries):
            pieces += [Piece(number, name, entry, shard.sizes.get(entry, 0)) for entry in entries]
    return pieces


def divide(bases: Sequence[int], absent: Mapping[int, ShardLists]) -> list[Portion] | int:
    """Return the data of each trainer, or the number of an absent trainer's shard that has no list of training files.

    The files are assigned in descending order of size. Each file goes to the trainer with the fewest bytes so far. If
    several trainers have equally many bytes, the last of these trainers gets the file, because trainer 0 also saves.
    Args: bases: the result of assign_bases. absent: {number: lists} of the shards that no trainer trains as a whole.
    """
    dealt: list[list[Piece]] = [[] for _ in bases]
    found = {number: find_pieces(number, shard) for number, shard in absent.items()}
    for number, pieces in found.items():
        if all(piece.is_test for piece in pieces):
            return number
    for is_test in (False, True):
        loads = [0] * len(bases)
        chosen = [piece for pieces in found.values() for piece in pieces if piece.is_test == is_test]
        for piece in sorted(chosen, key=lambda piece: (-piece.size, piece)):
            trainer = min(range(len(bases)), key=lambda number: (loads[number], -number))
            loads[trainer] += max(piece.size, 1)
            dealt[trainer].append(piece)
    return [Portion(base, tuple(sorted(pieces))) for base, pieces in zip(bases, dealt, strict=True)]
