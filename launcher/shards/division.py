"""How the shards of absent trainers are divided among those that are present. No input or output.

Each trainer trains one shard as a whole, its own where it has one. The shards that are left over are dealt file by
file, as their lists name them, so that every file is trained by exactly one trainer. No file is cut: only a provider
knows where a sample ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

STAGED = "data/"  # how the entries of a list that name a file of their shard begin


class Piece(NamedTuple):
    """An entry of a list of an absent trainer's shard. list_name: path of the list below the shard. size: in bytes."""

    shard: int
    list_name: str
    entry: str
    size: int

    @property
    def is_test(self) -> bool:
        """The list is one for tests, by its name."""
        return "test" in self.list_name

    @property
    def file(self) -> str:
        """The path of the file below the shard, "" where the entry is a path of another place."""
        return self.entry.removeprefix(STAGED) if self.entry.startswith(STAGED) else ""

    @property
    def staged(self) -> str:
        """The entry by which the trainer that has this piece finds the file."""
        return f"{STAGED}{place_of(self.shard)}/{self.file}" if self.file else self.entry


@dataclasses.dataclass(frozen=True)
class ShardLists:
    """What a shard has: the size in bytes of each file, by its name in lists (data/train.txt), and each list's lines.

    Lists are all files that end in .list, by their path below the shard; lines without blanks around them.
    """

    sizes: Mapping[str, int]
    lists: Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Portion:
    """What one trainer trains: a whole shard, and files of the shards of absent trainers."""

    base: int
    pieces: tuple[Piece, ...] = ()

    @property
    def others(self) -> list[int]:
        """The absent trainers' shards that it has files of, ascending."""
        return sorted({piece.shard for piece in self.pieces})


def place_of(shard: int | str) -> str:
    """Returns the directory below ./data for an absent trainer's shard."""
    return f"absent_{shard}"


def assign_bases(shards: int, indexes: Sequence[int]) -> list[int]:
    """Returns the shard that each trainer trains as a whole.

    A trainer keeps the shard of its index. One whose index has no shard, a pod that had a pserver alone before, takes
    the first shard that is left over. Args: shards: their number. indexes: the completion index of each trainer.
    """
    left = [number for number in range(shards) if number not in {*indexes}]
    return [index if index < shards else left.pop(0) for index in indexes]


def find_pieces(number: int, shard: ShardLists) -> list[Piece]:
    """Returns the entries of all lists of a shard that name files: below ./data, or by a path from the root.

    Other lists, of labels for one, are the same in every shard and are left out.
    """
    pieces = []
    for name, lines in sorted(shard.lists.items()):
        entries = [line for line in lines if line]
        if all(entry in shard.sizes or entry.startswith("/") for entry in entries):
            pieces += [Piece(number, name, entry, shard.sizes.get(entry, 0)) for entry in entries]
    return pieces


def divide(bases: Sequence[int], absent: Mapping[int, ShardLists]) -> list[Portion] | int:
    """Returns what each trainer trains; the number of an absent trainer's shard that has no list of training files.

    The largest file goes to the trainer that has been dealt the fewest bytes, the last one of those: trainer 0 has the
    saves to make besides. Args: bases: of assign_bases. absent: by shard, all that are no base.
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
