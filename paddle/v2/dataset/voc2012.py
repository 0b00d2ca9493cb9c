"""Pascal VOC 2012: pictures and their parts. A sample is (pixels (height, width, 3) uint8, classes (height, width))."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.v2.archives import member, open_tar, read_all, read_lines
from paddle.v2.dataset import common

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"
CACHE_DIR = "voc2012"

_FOLDER = "VOCdevkit/VOC2012"


def reader_creator(filename: str, sub_name: str) -> common.Reader:
    """Return a reader of the pictures of one list of the archive."""

    def reader() -> Iterator[tuple[Any, Any]]:
        with open_tar(filename) as tar:
            places = {one.name: one for one in tar if one.isfile()}

            def picture(name: str) -> Any:
                from PIL import Image  # the other data sets do not need pillow

                content = tar.extractfile(places[name])
                assert content is not None
                return np.array(Image.open(io.BytesIO(read_all(name, content))))

            names = f"{_FOLDER}/ImageSets/Segmentation/{sub_name}.txt"
            for name in list(read_lines(names, member(tar, names))):
                yield picture(f"{_FOLDER}/JPEGImages/{name}.jpg"), picture(f"{_FOLDER}/SegmentationClass/{name}.png")

    return reader


def _reader(sub_name: str) -> common.Reader:
    return reader_creator(common.download(VOC_URL, CACHE_DIR, VOC_MD5), sub_name)


def train() -> common.Reader:
    """Return the reader of the 2,913 samples for training and validation."""
    return _reader("trainval")


def test() -> common.Reader:
    """Return the reader of the 1,464 training samples."""
    return _reader("train")


def val() -> common.Reader:
    """Return the reader of the 1,449 samples for validation."""
    return _reader("val")


def fetch() -> None:
    """Fetch the file."""
    common.download(VOC_URL, CACHE_DIR, VOC_MD5)
