"""What a source hands over: samples, and the files that every trainer needs beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prepare.settings import Settings
from prepare.split import LabelledLine


@dataclass(frozen=True)
class Dataset:
    """A data set before it is split.

    Args: training: in the order in which the shards keep them.  test: the whole test set.  common: contents by file
    name, the same for every trainer (dictionaries, labels).  facts: what `prepared.json` says besides.
    """

    training: Sequence[LabelledLine]
    test: Sequence[LabelledLine]
    training_name: str = "train.txt"
    test_name: str = "test.txt"
    common: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


Content = bytes | Path
"""Of a file: its bytes, or a file on the volume that becomes it."""
Shard = Mapping[str, Content]
"""The files of one shard's data directory."""


@dataclass(frozen=True)
class Split:
    """A data set that is split.

    Args: training, test: numbers of samples.  shards: what is each trainer's own.  common: what all have alike; each of
    its files lies on the volume once.  facts: what `prepared.json` says besides.
    """

    training: int
    test: int
    shards: Sequence[Shard]
    common: Shard
    facts: Mapping[str, object] = field(default_factory=dict)


Source = Callable[[Settings, Path], Dataset | Split]
"""Reads a data set; the second argument is an empty directory on the volume for downloads and unpacked archives."""
