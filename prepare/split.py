"""Pure decisions about samples: their order, which are the test set, and which trainer gets which.

The order is a shuffle by a seed; a sample's key is drawn from `random.Random(seed).random()`, the one sequence that
Python promises to keep between versions, so that the same input and seed give the same shards everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple


class Sample(NamedTuple):
    """One line of a data file, and the class that decides how it is dealt out."""

    line: str
    label: str


def shuffle(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """Return the samples in an order that depends on the seed and their number only."""
    draw = Random(seed)
    keys = [draw.random() for _ in samples]
    return [samples[i] for i in sorted(range(len(samples)), key=keys.__getitem__)]


def hold_out(samples: Sequence[Sample], fraction: Fraction) -> tuple[list[Sample], list[Sample]]:
    """Divide samples into (training, test) by position: every fifth is a test sample when fraction is 1/5.

    Args: fraction: in [0, 1); the test set has exactly floor(fraction x samples) of them, evenly spread.
    """
    training: list[Sample] = []
    test: list[Sample] = []
    for position, sample in enumerate(samples):
        is_test = math.floor((position + 1) * fraction) > math.floor(position * fraction)
        (test if is_test else training).append(sample)
    return training, test


def deal(samples: Sequence[Sample], count: int) -> list[list[Sample]]:
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
    shards: list[list[Sample]] = [[] for _ in range(count)]
    for place, sample in enumerate(samples):
        shards[owner[place]].append(sample)
    return shards
