"""MNIST: handwritten digits. A sample is (784 float32 in [-1, 1], digit)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

URL_PREFIX = "http://yann.lecun.com/exdb/mnist/"
TRAIN_IMAGE_MD5 = "f68b3c2dcbeaaa9fbdd348bbdeb94873"
TRAIN_LABEL_MD5 = "d53e105ee54ea40749a09fcbcd1e9432"
TEST_IMAGE_MD5 = "9fb629c4189551a2d022fa330f9573f3"
TEST_LABEL_MD5 = "ec29112dd5afa0611ce80d1b7f02629c"

_PIXELS = 28 * 28
_IMAGE_HEADER = 16  # bytes: kind of file, number of images, rows, columns
_LABEL_HEADER = 8


def reader_creator(image_filename: str, label_filename: str, buffer_size: int) -> common.Reader:
    """Return a reader of two files of the MNIST format, packed by gzip; `buffer_size` images are read at a time."""

    def reader() -> Iterator[tuple[Any, int]]:
        with gzip.open(image_filename) as images, gzip.open(label_filename) as labels:
            try:
                images.read(_IMAGE_HEADER)
                labels.read(_LABEL_HEADER)
                while found := labels.read(buffer_size):
                    pixels = np.frombuffer(images.read(len(found) * _PIXELS), np.uint8).reshape(len(found), _PIXELS)
                    scaled = pixels.astype(np.float32) / 255.0 * 2.0 - 1.0
                    yield from zip(scaled, found, strict=True)
            except (EOFError, OSError, ValueError) as error:
                raise DataError(f"{image_filename} or {label_filename} is damaged ({error}); remove both") from error

    return reader


def _reader(name: str, image_md5: str, label_md5: str) -> common.Reader:
    return reader_creator(
        common.download(f"{URL_PREFIX}{name}-images-idx3-ubyte.gz", "mnist", image_md5),
        common.download(f"{URL_PREFIX}{name}-labels-idx1-ubyte.gz", "mnist", label_md5),
        100,
    )


def train() -> common.Reader:
    """Return the reader of the 60,000 training samples."""
    return _reader("train", TRAIN_IMAGE_MD5, TRAIN_LABEL_MD5)


def test() -> common.Reader:
    """Return the reader of the 10,000 test samples."""
    return _reader("t10k", TEST_IMAGE_MD5, TEST_LABEL_MD5)


def fetch() -> None:
    """Fetch the files."""
    train()
    test()


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    common.convert(path, train(), 1000, "minist_train")  # v0.11's names
    common.convert(path, test(), 1000, "minist_test")
