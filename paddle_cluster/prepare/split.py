"""Pure functions on samples: their order, the choice of the test set, and the distribution to shards.

The samples are sorted by random keys. The keys are drawn from `random.Random(seed).random()`, the only sequence that
Python guarantees across versions. The same input and seed therefore give the same shards everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple


class LabelledLine(NamedTuple):
    """One line of a data file, and its class; `deal` spreads the lines of each class evenly."""

    line: str
    label: str


def shuffle(samples: Sequence[LabelledLine], seed: int) -> list[LabelledLine]:
    """Return the samples in an order that depends only on the seed and on the number of samples."""
    draw = Random(seed)
    keys = [draw.random() for _ in samples]
    return [samples[i] for i in sorted(range(len(samples)), key=keys.__getitem__)]


def file_names(name: str, count: int) -> list[str]:
    """Return the names of a shard's `count` files: `name` for one file, otherwise `name` with numbers."""
    stem, dot, suffix = name.rpartition(".")
    return [name] if count == 1 else [f"{stem}-{number:05d}{dot}{suffix}" for number in range(count)]


def is_test_file(path: str) -> bool:
    """Return whether a file of a folder belongs to the test set: its name begins with `test.`."""
    return PurePosixPath(path).name.startswith("test.")


def hold_out(samples: Sequence[LabelledLine], fraction: Fraction) -> tuple[list[LabelledLine], list[LabelledLine]]:
    """Split samples into (training, test) by position: with a fraction of 1/5, every fifth sample is for testing.

    Args: fraction: in [0, 1); the test set has exactly floor(fraction x number of samples) samples, evenly spread.
    """
    training: list[LabelledLine] = []
    test: list[LabelledLine] = []
    for position, sample in enumerate(samples):
        (test if is_held_out(position, fraction) else training).append(sample)
    return training, test


def is_held_out(position: int, fraction: Fraction) -> bool:
    """Return whether the sample at this position of the shuffled order is a test sample."""
    share, whole = fraction.numerator, fraction.denominator
    return (position + 1) * share // whole > position * share // whole


class Dealer:
    """Distributes samples to shards in turn, class after class.

    Each class begins at the shard after the last sample of the previous class. The sizes of the shards therefore differ
    by at most one, in total and in each class. In synchronous training, all trainers make as many steps as the longest
    shard has batches. With equal sizes, no trainer is idle. With equal numbers of each class, all batches have a
    similar distribution.

    Args: counts: class -> number of its samples, in the order of the classes.  shards: number of shards, >= 1.
    """

    def __init__(self, counts: Mapping[Hashable, int], shards: int) -> None:
        ends = accumulate(counts.values(), initial=0)
        self._next = dict(zip(counts, ends, strict=False))
        self._shards = shards

    def deal(self, label: Hashable) -> int:
        """Return the shard of the next sample of a class."""
        card = self._next[label]
        self._next[label] = card + 1
        return card % self._shards


def deal(samples: Sequence[LabelledLine], count: int) -> list[list[LabelledLine]]:
    """Distribute the samples of each class to the shards in turn, and keep the order of samples inside each shard.

    Args: count: number of shards, >= 1.
    """
    counts = Counter(sample.label for sample in samples)
    dealer = Dealer({label: counts[label] for label in sorted(counts)}, count)
    shards: list[list[LabelledLine]] = [[] for _ in range(count)]
    for sample in samples:
        shards[dealer.deal(sample.label)].append(sample)
    return shards
