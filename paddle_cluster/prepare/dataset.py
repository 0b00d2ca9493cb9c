"""A source of data, and the result of reading it: the samples, and the other files that each trainer needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from paddle_cluster.prepare.split import LabelledLine, file_names
from paddle_cluster.prepare.values import Settings


@dataclass(frozen=True)
class Dataset:
    """A data set before it is split.

    Args: training: shuffled training samples.  test: all test samples.  training_name, test_name: names of the files
    for the training and test samples.  common: file name -> content, for files that are the same for all trainers
    (dictionaries, labels).
    facts: additional entries of `prepared.json`.
    """

    training: Sequence[LabelledLine]
    test: Sequence[LabelledLine]
    training_name: str = "train.txt"
    test_name: str = "test.txt"
    common: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


Content = bytes | Path
"""The content of a file, as bytes or as the path of an existing file on the volume, which is moved into the shard."""
Shard = Mapping[str, Content]
"""The files of one shard's data directory: file name -> content."""


@dataclass(frozen=True)
class Split:
    """A data set after it is split.

    Args: training, test: numbers of samples.  shards: the files of each trainer.  common: the files that are the same
    for all trainers; the volume holds one copy of each file.  facts: additional entries of `prepared.json`.
    """

    training: int
    test: int
    shards: Sequence[Shard]
    common: Shard
    facts: Mapping[str, object] = field(default_factory=dict)


def arrange(
    names: tuple[str, str],
    training: Sequence[Sequence[Content]],
    test: Sequence[Content],
    common: Mapping[str, Content],
    settings: Settings,
) -> tuple[list[Shard], Shard]:
    """Return (the files of each shard, the files that are equal for all trainers), with the lists of files.

    Args: names: of the training and test file.  training: for each shard the contents of its SHARD_FILES files.
    test: empty, or for TEST_DATA=whole one content, else one for each shard.  common: further files for all trainers.
    """
    training_names = file_names(names[0], settings.shard_files)
    shards = [dict(zip(training_names, contents, strict=True)) for contents in training]
    common = {**common, "train.list": "".join(f"data/{name}\n" for name in training_names).encode()}
    if test:
        common["test.list"] = f"data/{names[1]}\n".encode()
    if test and settings.test_data == "whole":
        common[names[1]] = test[0]
    for shard, content in zip(shards, test if settings.test_data == "split" else (), strict=False):
        shard[names[1]] = content
    return list[Shard](shards), common


Reader = Callable[[Settings, Path], Dataset | Split]
"""A function that reads a data set; its second argument is an empty directory on the volume for temporary files."""


@dataclass(frozen=True)
class Source:
    """A source of data.

    Attributes:
        name: the value of DATA_SOURCE.
        read: the function that reads the data set.
        reads: "input": DATA_PATH or DATA_URL must be set; "input or example": without them the data of the example are
            read; "nothing": all samples are generated.
        test_fraction: the default of TEST_FRACTION.
        example: the name of the example whose config fits the data; "" if there is none.
        named_example: the name of an example that is copied only if TRAIN_CONFIG_DIR names it.
        shapes: for each value of SYNTHETIC_SHAPE, the example; empty for a source that has no shapes.
    """

    name: str
    read: Reader
    reads: Literal["input", "input or example", "nothing"]
    test_fraction: str = "1/5"
    example: str = ""
    named_example: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)

    def example_for(self, shape: str) -> str:
        """Return the name of the example for a shape of synthetic data, or "" if the source has no example."""
        return self.shapes.get(shape, self.example)
