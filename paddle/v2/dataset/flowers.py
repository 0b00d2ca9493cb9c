"""Oxford's 102 kinds of flowers. A sample is (3 * 224 * 224 float32, class)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from paddle.v2.archives import members, open_tar, read_all
from paddle.v2.dataset import common
from paddle.v2.reader.decorator import map_readers, xmap_readers
from paddle_base.runtime.errors import UsageError

DATA_URL = "http://www.robots.ox.ac.uk/~vgg/data/flowers/102/102flowers.tgz"
LABEL_URL = "http://www.robots.ox.ac.uk/~vgg/data/flowers/102/imagelabels.mat"
SETID_URL = "http://www.robots.ox.ac.uk/~vgg/data/flowers/102/setid.mat"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"
# the part of the pictures for training is the smallest one, so v0.11 trains with that for tests
TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"

Mapper = Callable[[tuple[bytes, int]], Any]


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[Any, int]:
    """Return (pixels, class) of (bytes of a picture, class): cut to 224 x 224, less the mean of each channel."""
    from paddle.v2 import image  # needs pillow, which the other data sets do not

    pixels = image.load_image_bytes(sample[0])
    cut = image.simple_transform(pixels, 256, 224, is_train, mean=[103.94, 116.78, 123.68])
    return cut.flatten().astype("float32"), sample[1]


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def reader_creator(
    data_file: str,
    label_file: str,
    setid_file: str,
    dataset_name: str,
    mapper: Mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
) -> common.Reader:
    """Return a reader of `mapper((bytes of a picture, class))` for the pictures of one part."""
    labels = _matrix(label_file, "labels")
    numbers = _matrix(setid_file, dataset_name)
    wanted = {f"jpg/image_{number:05d}.jpg": int(labels[number - 1]) - 1 for number in numbers}

    def reader() -> Iterator[tuple[bytes, int]]:
        with open_tar(data_file) as tar:
            for name, content in members(tar, wanted.__contains__):
                yield read_all(name, content), wanted[name]

    return xmap_readers(mapper, reader, os.cpu_count() or 1, buffered_size) if use_xmap else map_readers(mapper, reader)


def _matrix(path: str, name: str) -> Any:
    """Return a row of a file of MATLAB."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise UsageError("paddle.dataset.flowers needs scipy, which reads MATLAB's files: pip install scipy") from error
    return loadmat(path)[name][0]


def _part(name: str, mapper: Mapper, buffered_size: int, use_xmap: bool) -> common.Reader:
    return reader_creator(
        common.download(DATA_URL, "flowers", DATA_MD5),
        common.download(LABEL_URL, "flowers", LABEL_MD5),
        common.download(SETID_URL, "flowers", SETID_MD5),
        name, mapper, buffered_size, use_xmap,
    )  # fmt: skip


def train(mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> common.Reader:
    """Return the reader of the 6,149 training samples."""
    return _part(TRAIN_FLAG, mapper, buffered_size, use_xmap)


def test(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> common.Reader:
    """Return the reader of the 1,020 test samples."""
    return _part(TEST_FLAG, mapper, buffered_size, use_xmap)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> common.Reader:
    """Return the reader of the 1,020 samples for validation."""
    return _part(VALID_FLAG, mapper, buffered_size, use_xmap)


def fetch() -> None:
    """Fetch the files."""
    common.download(DATA_URL, "flowers", DATA_MD5)
    common.download(LABEL_URL, "flowers", LABEL_MD5)
    common.download(SETID_URL, "flowers", SETID_MD5)
