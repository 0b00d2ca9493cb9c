"""Divide data sets of files into batches for data providers, and write their lists: the first step of old demos.

A directory has a sub-directory for each class; or a file lists paths and labels. A batch is a pickled dictionary with a
list for each key, which data providers read with cPickle.

Source: python/paddle/utils/preprocess_util.py of v0.10, from memory, for the demos image_classification, sentiment and
seqToseq. spec/config.md 17 says what the provider of image_classification reads: a list names text files, whose lines
name the batches, and a batch has `images` and `labels`. No recorded file shows more of the format.
"""

from __future__ import annotations

import math
import os
import pickle
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_base.runtime.errors import MissingInputError

_PYTHON_2 = 2  # the newest pickle protocol that Python 2 reads


def save_file(data: Any, filename: str) -> None:
    """Pickle an object into a file."""
    with Path(filename).open("wb") as file:
        pickle.dump(data, file, protocol=_PYTHON_2)


def save_list(l: Iterable[str], outfile: str) -> None:  # noqa: E741 - the name of v0.10
    """Write a file with one item a line."""
    Path(outfile).write_text("".join(f"{item}\n" for item in l), encoding="utf-8", errors="surrogateescape")


def exclude_pattern(f: str) -> bool:
    """Return whether a file is hidden or a backup of an editor."""
    return f.startswith(".") or f.endswith("~")


def _entries(path: str) -> list[Path]:
    try:
        return [Path(path, name) for name in sorted(os.listdir(path)) if not exclude_pattern(name)]  # noqa: PTH208
    except OSError as error:
        raise MissingInputError(f"cannot list {path}: {error.strerror}; give the directory of the data set") from error


def list_dirs(path: str) -> list[str]:
    """Return the names of the directories in a directory, sorted."""
    return [entry.name for entry in _entries(path) if entry.is_dir()]


def list_images(path: str, exts: Iterable[str] = ("jpg", "png", "bmp", "jpeg")) -> list[str]:
    """Return the names of the images in a directory, sorted."""
    endings = {f".{ending}" for ending in exts}
    return [entry.name for entry in _entries(path) if entry.is_file() and entry.suffix.lower() in endings]


def list_files(path: str) -> list[str]:
    """Return the names of the files in a directory, sorted."""
    return [entry.name for entry in _entries(path) if entry.is_file()]


def get_label_set_from_dir(path: str) -> dict[str, int]:
    """Return a number for each sub-directory, by its name, in alphabetical order."""
    return {name: number for number, name in enumerate(list_dirs(path))}


class Label:
    """A class: its number and its name."""

    def __init__(self, label: int, name: str) -> None:
        self.label, self.name = label, name

    def convert_to_paddle_format(self) -> int:
        """Return the number."""
        return int(self.label)

    def __hash__(self) -> int:
        return hash(self.label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and self.label == other.label


class KeyedSamples:
    """Samples, each a list with a value for each key; a value has a method convert_to_paddle_format."""

    def __init__(self, data: Sequence[Sequence[Any]], keys: Sequence[str]) -> None:
        self.data, self.keys = list(data), list(keys)

    def check_valid(self) -> None:
        """Check that each sample has a value for each key."""
        for sample in self.data:
            assert len(sample) == len(self.keys), f"a sample has {len(sample)} values for {len(self.keys)} keys"

    def permute(self, key_id: int | None, num_per_batch: int) -> None:
        """Shuffle the samples; with a key, spread its values evenly, so that each batch has all of them."""
        if key_id is None:
            random.shuffle(self.data)
            return
        groups: dict[Any, list[Sequence[Any]]] = {}
        for sample in self.data:
            groups.setdefault(sample[key_id].convert_to_paddle_format(), []).append(sample)
        placed: list[tuple[float, Sequence[Any]]] = []
        for group in groups.values():
            random.shuffle(group)
            offset = random.random()
            placed += [((place + offset) / len(group), sample) for place, sample in enumerate(group)]
        self.data = [sample for _, sample in sorted(placed, key=lambda one: one[0])]


Dataset = KeyedSamples  # the name of v0.10


class DataBatcher:
    """Writes a training set and a test set as batches, with their lists and the set of labels."""

    def __init__(
        self, train_data: Dataset | None, test_data: Dataset | None, label_set: Mapping[Any, Any] | None
    ) -> None:
        self.train_data, self.test_data, self.label_set = train_data, test_data, label_set
        self.num_per_batch = 5000

    def create_batches_and_list(
        self, output_path: str, train_list_name: str, test_list_name: str, label_set_name: str
    ) -> None:
        """Write everything into a directory."""
        self.create_batches(self.train_data, output_path, "train_", train_list_name)
        self.create_batches(self.test_data, output_path, "test_", test_list_name)
        save_file(self.label_set, str(Path(output_path, label_set_name)))

    def create_batches(self, data: Dataset | None, output_path: str, prefix: str, list_name: str) -> None:
        """Write one set, and the list of its batches."""
        if data is None:
            return
        data.check_valid()
        names = []
        for number in range(math.ceil(len(data.data) / self.num_per_batch)):
            part = data.data[number * self.num_per_batch : (number + 1) * self.num_per_batch]
            columns = zip(*part, strict=True)
            batch = {
                key: [value.convert_to_paddle_format() for value in column]
                for key, column in zip(data.keys, columns, strict=True)
            }
            names.append(str(Path(output_path, f"{prefix}batch_{number:03d}")))
            save_file(batch, names[-1])
        save_list(names, str(Path(output_path, list_name)))


class DatasetCreater:
    """Makes the batches of a data set: a subclass reads the samples. A user changes the attributes before a run.

    Attributes: data_path: the directory with the data; it has the directories `train_dir_name` and `test_dir_name`, or
        with `from_list` two lists. batch_dir_name: the directory of the batches, in data_path. overwrite: whether an
        existing directory of batches is written again. permutate_key: the key whose values are spread over the batches.
    """

    train_dir_name, test_dir_name, batch_dir_name = "train", "test", "batches"
    train_list_name, test_list_name = "train.list", "test.list"
    meta_filename, label_set_name = "batches.meta", "labels.pkl"
    num_per_batch = 50000
    overwrite = from_list = False
    permutate_key = "labels"

    def __init__(self, data_path: str) -> None:
        self.data_path = data_path
        self.output_path = str(Path(data_path, self.batch_dir_name))

    def create_meta_file(self, data: Dataset) -> None:
        """Write the facts of the training set, such as the mean of its images."""
        raise NotImplementedError

    def create_dataset_from_list(self, path: str) -> tuple[Dataset, Any]:
        """Return the samples that a file lists, and the set of labels."""
        raise NotImplementedError

    def create_dataset_from_dir(self, path: str) -> tuple[Dataset, Any]:
        """Return the samples of a directory, and the set of labels."""
        raise NotImplementedError

    def create_dataset(self, path: str) -> tuple[Dataset, Any]:
        """Return the samples, and the set of labels."""
        return self.create_dataset_from_list(path) if self.from_list else self.create_dataset_from_dir(path)

    def create_batches(self) -> None:
        """Write the batches of both sets, their lists and the meta file."""
        self.output_path = str(Path(self.data_path, self.batch_dir_name))
        if Path(self.output_path).exists() and not self.overwrite:
            return
        Path(self.output_path).mkdir(parents=True, exist_ok=True)
        ending = ".list" if self.from_list else ""
        train, labels = self.create_dataset(str(Path(self.data_path, f"{self.train_dir_name}{ending}")))
        test, test_labels = self.create_dataset(str(Path(self.data_path, f"{self.test_dir_name}{ending}")))
        key = train.keys.index(self.permutate_key) if self.permutate_key in train.keys else None
        train.permute(key, self.num_per_batch)
        batcher = DataBatcher(train, test, {**test_labels, **labels} if isinstance(labels, Mapping) else labels)
        batcher.num_per_batch = self.num_per_batch
        batcher.create_batches_and_list(
            self.output_path, self.train_list_name, self.test_list_name, self.label_set_name
        )
        self.create_meta_file(train)
