"""The data of the four trainings, and lists of ids packed so that each time step is a block of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from numpy_baseline.parameters import Array


@dataclass(frozen=True)
class Lists:
    """Lists of ids, stored one after the other; list k has the elements [starts[k], starts[k + 1]) of `ids`."""

    ids: Array
    starts: Array

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Lists:
        starts = np.cumsum([0, *map(len, lists)])
        return cls(np.fromiter((one for ids in lists for one in ids), np.int64, starts[-1]), starts)

    def take(self, numbers: Array) -> tuple[Array, Array]:
        """Returns the ids of the lists with these numbers, one list after the other, and the lengths of the lists."""
        firsts = self.starts[numbers]
        lengths = self.starts[numbers + 1] - firsts
        starts = np.cumsum(lengths) - lengths
        return self.ids[np.repeat(firsts - starts, lengths) + np.arange(int(lengths.sum()))], lengths


class PackedLists:
    """Some of the lists, sorted by length and packed, so that each time step is a block of rows.

    - `order`: the positions of the lists in `numbers`, the longest list first.
    - `live`: for each step, the number of lists that have this step.
    - `starts`: the first row of each step.
    - `ids`: the ids of all rows.
    """

    def __init__(self, lists: Lists, numbers: Array) -> None:
        lengths = lists.starts[numbers + 1] - lists.starts[numbers]
        self.order = np.argsort(-lengths, kind="stable")
        numbers, lengths = numbers[self.order], lengths[self.order]
        self.live = np.searchsorted(-lengths, -np.arange(1, lengths[0] + 1), side="right").tolist()
        self.starts = np.cumsum([0, *self.live]).tolist()
        self.rows = self.starts[-1]
        starts = np.asarray(self.starts[:-1])
        step = np.repeat(np.arange(len(self.live)), self.live)
        self.sequence = np.arange(self.rows) - starts[step]
        self.ids = lists.ids[lists.starts[numbers][self.sequence] + step]
        later = self.live[0]  # the rows of the first step have no previous row
        self.previous = (starts[step[later:] - 1] if self.rows > later else step[:0]) + self.sequence[later:]

    def span(self, step: int) -> slice:
        return slice(self.starts[step], self.starts[step + 1])


def find_windows(lengths: Array, first: int, length: int) -> Array:
    """Returns the row numbers of the window around each row of some lists: (rows, length).

    `first` is the position of a window's first row, relative to the row that the window belongs to. Where a window
    reaches beyond its list, it contains the total number of rows; at this number, the caller has a row of zeros.
    """
    rows = int(lengths.sum())
    ends = np.repeat(np.cumsum(lengths), lengths)[:, None]
    starts = ends - np.repeat(lengths, lengths)[:, None]
    places = np.arange(rows)[:, None] + np.arange(first, first + length)
    return np.where((places >= starts) & (places < ends), places, rows)


def read_files(directory: Path) -> list[str]:
    names = (directory / "data/train.list").read_text(encoding="utf-8").split()
    return [line for name in names for line in (directory / name).read_text(encoding="utf-8").splitlines()]


class Texts:
    """The words and the label of each text."""

    def __init__(self, directory: Path) -> None:
        lines = (directory / "data/dict.txt").read_text(encoding="utf-8").splitlines()
        ids = {line.split()[0]: number for number, line in enumerate(lines)}
        texts = [line.split("\t", 1) for line in read_files(directory)]
        self.words = Lists.of([[ids.get(word, 0) for word in text.split()] for _, text in texts])
        self.labels = np.array([int(label) for label, _ in texts])
        self.samples = len(texts)


class Ratings:
    """The film, the user and the score of each rating, and the fields of each film and user."""

    def __init__(self, directory: Path) -> None:
        meta = json.loads((directory / "data/meta.json").read_text(encoding="utf-8"))
        films, users = ([side[str(n)] for n in range(1, len(side))] for side in (meta["movie"], meta["user"]))
        ratings = np.array([[int(one) for one in line.split("::")[:3]] for line in read_files(directory)])
        self.users, self.films = ratings[:, 0] - 1, ratings[:, 1] - 1
        self.scores = (2 * ratings[:, 2] - 5).astype(np.float32)
        self.titles = Lists.of([title for title, _ in films])
        self.genres = np.array([genres for _, genres in films], np.float32)
        self.user_fields = np.array(users)
        self.samples = len(ratings)
