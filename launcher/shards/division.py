"""Divide the shards of absent trainers among the present trainers. Pure: no input or output.

Each trainer trains one whole shard: its own, if it has one. The lists of the remaining shards name files, which are
distributed one by one: exactly one trainer trains each file. No file is cut, because only a data provider knows where a
sample ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

STAGED = "data/"  # prefix of a list's entries that name a file of the shard in which the list is


class Piece(NamedTuple):
    """A list entry of an absent trainer's shard.

    list_name: path of the list below the shard. size: bytes of the file.
    """

    shard: int
    list_name: str
    entry: str
    size: int

    @property
    def is_test(self) -> bool:
        """Whether the list's name marks it as a test list."""
        return "test" in self.list_name

    @property
    def file(self) -> str:
        """The path of the file below the shard, or "" if the entry is a path outside the shard."""
        return self.entry.removeprefix(STAGED) if self.entry.startswith(STAGED) else ""

    @property
    def staged(self) -> str:
        """The entry under which the trainer that receives this piece finds the file."""
        return f"{STAGED}{place_of(self.shard)}/{self.file}" if self.file else self.entry


@dataclasses.dataclass(frozen=True)
class ShardLists:
    """The files and lists of a shard. A list is a file whose name ends in .list.

    Attributes: sizes: the size in bytes of each file; the key is the name by which lists name the file
        (data/train.txt).  lists: the stripped lines of each list; the key is its path below the shard.
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
        """The absent trainers' shards that this trainer has files of, ascending."""
        return sorted({piece.shard for piece in self.pieces})


def place_of(shard: int | str) -> str:
    """Return the directory below ./data for an absent trainer's shard."""
    return f"absent_{shard}"


def assign_bases(shards: int, indexes: Sequence[int]) -> list[int]:
    """Return the shard that each trainer trains as a whole.

    A trainer keeps the shard of its index. If its index has no shard, because its pod ran only a pserver before, it
    takes the first remaining shard. Args: shards: the number of shards. indexes: the completion index of each trainer.
    """
    left = [number for number in range(shards) if number not in {*indexes}]
    return [index if index < shards else left.pop(0) for index in indexes]


def find_pieces(number: int, shard: ShardLists) -> list[Piece]:
    """Return the entries of all lists of a shard that name files: below ./data, or by an absolute path.

    Lists of anything else, for example of labels, are equal in all shards and are omitted.
    """
    pieces = []
    for name, lines in sorted(shard.lists.items()):
        entries = [line for line in lines if line]
        if all(entry in shard.sizes or entry.startswith("/") for entry in entries):
            pieces += [Piece(number, name, entry, shard.sizes.get(entry, 0)) for entry in entries]
    return pieces


def divide(bases: Sequence[int], absent: Mapping[int, ShardLists]) -> list[Portion] | int:
    """Return the data of each trainer; or the number of an absent trainer's shard that has no list of training files.

    Each file, the largest first, goes to the trainer with the fewest bytes so far. If several trainers have equally
    many bytes, the last of them gets the file, because trainer 0 also saves. Args: bases: see assign_bases. absent: the
    shards that are not a base, by number.
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
