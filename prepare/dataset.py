"""What a source hands over: samples, and the files that every trainer needs beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prepare.settings import Settings
from prepare.split import Sample


@dataclass(frozen=True)
class Dataset:
    """A data set before it is split.

    Args: training: in the order in which the shards keep them.  test: the whole test set.  common: contents by file
    name, the same for every trainer (dictionaries, labels).  facts: what `prepared.json` says besides.
    """

    training: Sequence[Sample]
    test: Sequence[Sample]
    training_name: str = "train.txt"
    test_name: str = "test.txt"
    common: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


Source = Callable[[Settings, Path], Dataset]
"""Reads a data set; the second argument is an empty directory on the volume for downloads and unpacked archives."""
