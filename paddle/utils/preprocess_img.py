"""Make the batches of a data set of images: the first step of the demo image_classification.

Source: python/paddle/utils/preprocess_img.py of v0.10.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from paddle.utils import preprocess_util
from paddle.utils.image_util import Image, crop_img, load_image, resize_image
from paddle_base.runtime.errors import DataError

__all__ = ["DiskImage", "ImageClassificationDatasetCreater", "resize_image"]


class DiskImage:
    """An image in a file, resized so that its shorter edge has `target_size` pixels."""

    def __init__(self, path: str, target_size: int) -> None:
        self.path, self.target_size = path, target_size

    def read_image(self) -> Any:
        """Return the resized image, with colours or grey, as an object of pillow.

        Raises: MissingInputError: there is no such file. DataError: it is no image, is damaged, or is too large.
        """
        image = load_image(self.path)
        if image.mode.startswith("I"):  # grey of 16 bits, of which convert would clip the upper 8 bits
            image = image.point(lambda grey: grey * (1 / 256)).convert("L")
        try:
            image = resize_image(image, self.target_size)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error
        return image if image.mode in ("L", "RGB") else image.convert("RGB")

    def convert_to_array(self) -> Image:
        """Return the pixels, (channels, height, width) or (height, width)."""
        pixels = np.array(self.read_image())
        return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels

    def convert_to_paddle_format(self) -> bytes:
        """Return the image as the bytes of a JPEG file."""
        output = io.BytesIO()
        self.read_image().save(output, "jpeg")
        return output.getvalue()


class ImageClassificationDatasetCreater(preprocess_util.DatasetCreater):
    """Makes batches with the keys `images` and `labels`, and the mean image.

    Args: target_size: length of the shorter edge of each image, and of the edges of the mean image, in pixels.
    """

    def __init__(self, data_path: str, target_size: int, color: bool = True) -> None:
        super().__init__(data_path)
        self.target_size, self.color = target_size, color
        self.keys = ["images", "labels"]
        self.permutate_key = "labels"

    def create_meta_file(self, data: preprocess_util.Dataset) -> None:
        """Write batches.meta: the mean image of the training set, its size, and the number of classes."""
        shape = (3, self.target_size, self.target_size) if self.color else (self.target_size, self.target_size)
        total = np.zeros(shape)
        for image, _label in data.data:
            pixels = image.convert_to_array()
            if self.color and pixels.ndim == 2:
                pixels = np.stack([pixels] * 3)
            elif not self.color and pixels.ndim == 3:
                pixels = pixels.mean(axis=0)
            total += crop_img(pixels, self.target_size, bool(self.color))
        meta = {
            "data_mean": (total / max(len(data.data), 1)).astype(np.float32).ravel(),
            "image_size": self.target_size,
            "mean_image_size": self.target_size,
            "num_classes": len({label.convert_to_paddle_format() for _image, label in data.data}),
            "color": self.color,
        }
        with Path(self.output_path, self.meta_filename).open("wb") as file:
            pickle.dump(meta, file, protocol=2)

    def create_dataset_from_list(self, path: str) -> tuple[preprocess_util.Dataset, dict[str, int]]:
        """Return the images of a list, whose lines are a path and a number of a class, divided by a blank."""
        samples, labels = [], {}
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            name, _, label = line.strip().rpartition(" ")
            if not name or not label.isdecimal():
                raise DataError(f"{path} line {number}: {line!r}; write the path of an image, a blank, and its class")
            labels[label] = int(label)
            samples.append((DiskImage(name, self.target_size), preprocess_util.Label(int(label), label)))
        return preprocess_util.Dataset(samples, self.keys), labels

    def create_dataset_from_dir(self, path: str) -> tuple[preprocess_util.Dataset, dict[str, int]]:
        """Return the images of a directory, which has a sub-directory for each class."""
        labels = preprocess_util.get_label_set_from_dir(path)
        samples = [
            (DiskImage(str(Path(path, name, image)), self.target_size), preprocess_util.Label(number, name))
            for name, number in labels.items()
            for image in preprocess_util.list_images(str(Path(path, name)))
        ]
        return preprocess_util.Dataset(samples, self.keys), labels
