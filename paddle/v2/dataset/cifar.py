"""CIFAR-10 and CIFAR-100: images of 32 x 32. A sample is (3072 float32 in [0, 1], channel by channel, class)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.v2.archives import MOST_MEMBER, members, open_tar, read_all
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError
from trainer.data.plain_pickle import PlainPickleError, load_sample

URL_PREFIX = "https://www.cs.toronto.edu/~kriz/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"

_MOST_BYTES = 2 * MOST_MEMBER  # the training file of CIFAR-100 has 155 MB


def reader_creator(filename: str, sub_name: str) -> common.Reader:
    """Return a reader of the members of a tar file whose names contain `sub_name`."""

    def reader() -> Iterator[tuple[Any, int]]:
        with open_tar(filename) as tar:
            for name, content in members(tar, lambda found: sub_name in found):
                try:
                    batch = load_sample(read_all(name, content, _MOST_BYTES), _MOST_BYTES)
                    samples, labels = batch["data"], batch.get("labels", batch.get("fine_labels"))
                except (PlainPickleError, AttributeError, KeyError, TypeError) as error:
                    raise DataError(f"{filename}, {name}: no file of CIFAR ({error}); remove the archive") from error
                for sample, label in zip(samples, labels, strict=True):
                    yield (sample / 255.0).astype(np.float32), int(label)

    return reader


def train10() -> common.Reader:
    """Return the reader of the 50,000 training samples of CIFAR-10."""
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "data_batch")


def test10() -> common.Reader:
    """Return the reader of the 10,000 test samples of CIFAR-10."""
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "test_batch")


def train100() -> common.Reader:
    """Return the reader of the 50,000 training samples of CIFAR-100."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "train")


def test100() -> common.Reader:
    """Return the reader of the 10,000 test samples of CIFAR-100."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "test")


def fetch() -> None:
    """Fetch the files."""
    train10()
    train100()


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    for name, reader in (("train100", train100), ("test100", test100), ("train10", train10), ("test10", test10)):
        common.convert(path, reader(), 1000, f"cifar_{name}")
