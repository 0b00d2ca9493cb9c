"""Pure decisions about samples: their order, which are the test set, and which trainer gets which.

The order is a shuffle by a seed; a sample's key is drawn from `random.Random(seed).random()`, the one sequence that
Python promises to keep between versions, so that the same input and seed give the same shards everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple


class LabelledLine(NamedTuple):
    """One line of a data file, and the class that decides how it is dealt out."""

    line: str
    label: str


def shuffle(samples: Sequence[LabelledLine], seed: int) -> list[LabelledLine]:
    """Return the samples in an order that depends on the seed and their number only."""
    draw = Random(seed)
    keys = [draw.random() for _ in samples]
    return [samples[i] for i in sorted(range(len(samples)), key=keys.__getitem__)]


def file_names(name: str, count: int) -> list[str]:
    """Return the names of the files that a shard's samples lie in: `name` itself, or so many with a number each."""
    stem, dot, suffix = name.rpartition(".")
    return [name] if count == 1 else [f"{stem}-{number:05d}{dot}{suffix}" for number in range(count)]


def hold_out(samples: Sequence[LabelledLine], fraction: Fraction) -> tuple[list[LabelledLine], list[LabelledLine]]:
    """Divide samples into (training, test) by position: every fifth is a test sample when fraction is 1/5.

    Args: fraction: in [0, 1); the test set has exactly floor(fraction x samples) of them, evenly spread.
    """
    training: list[LabelledLine] = []
    test: list[LabelledLine] = []
    for position, sample in enumerate(samples):
        (test if is_held_out(position, fraction) else training).append(sample)
    return training, test


def is_held_out(position: int, fraction: Fraction) -> bool:
    """Tell whether the sample at this position of the shuffled ones is a test sample."""
    share, whole = fraction.numerator, fraction.denominator
    return (position + 1) * share // whole > position * share // whole


def deal(samples: Sequence[LabelledLine], count: int) -> list[list[LabelledLine]]:
    """Deal samples to shards like cards, class after class, and keep their order inside each shard.

    Going round class after class without starting over, the shards' sizes differ by at most one, in all and in every
    class. Trainers step together, on the sum of their gradients, for as many batches as the longest shard has: equal
    sizes let none of them idle, and equal classes let every batch of every trainer see the same problem.

    Args: count: number of shards, >= 1.
    """
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.label, []).append(place)
    owner = [0] * len(samples)
    dealt = [place for label in sorted(places) for place in places[label]]
    for card, place in enumerate(dealt):
        owner[place] = card % count
    shards: list[list[LabelledLine]] = [[] for _ in range(count)]
    for place, sample in enumerate(samples):
        shards[owner[place]].append(sample)
    return shards
