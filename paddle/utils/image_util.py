"""Reads, crops and mirrors images for data providers, and computes the center of the mean image of a data set.

The shape of an image is (channels, height, width), and the shape of a grey image is (height, width). Reading JPEG files
needs the package pillow.

Source: python/paddle/utils/image_util.py of v0.10, which the demo image_classification uses.
"""

from __future__ import annotations

import importlib
import io
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.data.plain_pickle import load_sample

Image = npt.NDArray[Any]
_MOST_MEAN = 1 << 28  # maximum bytes of a file with a mean image
MAX_PIXELS = 64 << 20  # of one image; its pixels take up to 4 bytes each. A camera's image has up to about 50 million
_TOO_LARGE = f"too large: an image may have {MAX_PIXELS:,} pixels; scale it down, or leave it out"
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, ArithmeticError, LookupError, TypeError)


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise ConfigError("reading images needs pillow: pip install 'paddle-on-kubernetes[image]'") from error


def _open(source: Any, name: str) -> Any:
    """Return an image of pillow with its pixels. A damaged image can raise nearly any error inside pillow."""
    pillow = _pillow()
    try:
        with pillow.open(source) as image:  # closes the file; the pixels stay
            width, height = image.size
            if width * height <= MAX_PIXELS:
                image.load()
                return image
    except FileNotFoundError as error:
        raise MissingInputError(f"there is no image {name}; correct its name") from error
    except _DAMAGE as error:
        raise DataError(f"{name} is no image that can be read: {error}; replace it, or leave it out") from error
    except pillow.DecompressionBombError as error:
        raise DataError(f"{name} is {_TOO_LARGE}") from error
    raise DataError(f"{name} is {_TOO_LARGE}; it has {width} x {height}")


def decode_jpeg(jpeg_string: bytes | str) -> Image:
    """Return the image in the bytes of a JPEG file, as uint8. Bytes from Python 2's pickle may be a Latin-1 str."""
    data = jpeg_string.encode("latin-1") if isinstance(jpeg_string, str) else jpeg_string
    pixels = np.array(_open(io.BytesIO(data), f"a value of {len(data)} bytes"))
    return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels


def load_image(img_path: str, is_color: bool = True) -> Any:
    """Return the image of a file as an object of pillow; is_color has no effect, as in v0.10.

    Raises: MissingInputError: there is no such file. DataError: it is no image, is damaged, or is too large.
    """
    return _open(img_path, img_path)


def resize_image(img: Any, target_size: int) -> Any:
    """Return an image of pillow, resized so that its shorter edge has target_size pixels.

    Raises: DataError: the image is so thin that the result would be too large.
    """
    ratio = target_size / min(img.size)
    size = tuple(round(edge * ratio) for edge in img.size)
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(f"an image of {img.size[0]} x {img.size[1]} is {_TOO_LARGE}, also when it is resized")
    return img.resize(size, _pillow().LANCZOS)


def flip(im: Image) -> Image:
    """Return the image mirrored from left to right."""
    return im[..., ::-1]


def crop_img(im: Image, inner_size: int, color: bool = True, test: bool = True) -> Image:
    """Return a square crop of the image. A smaller image is padded with zeros.

    Args:
        inner_size: length of the square's edge in pixels.
        color: whether the image has channels.
        test: if true, crop the center; otherwise crop a random place, and mirror the result with probability 1/2.
    """
    if im.ndim != (3 if color else 2):
        raise DataError(f"an image of shape {im.shape} has {'no' if color else 'a'} channel axis, but color is {color}")
    padded = _pad(im, inner_size)
    spare = [edge - inner_size for edge in padded.shape[-2:]]
    top, left = (rest // 2 if test else np.random.randint(0, rest + 1) for rest in spare)
    square = padded[..., top : top + inner_size, left : left + inner_size]
    return flip(square) if not test and np.random.randint(2) == 0 else square


def _pad(im: Image, smallest: int) -> Image:
    widths = [(0, 0)] * (im.ndim - 2)
    for edge in im.shape[-2:]:
        missing = max(smallest - edge, 0)
        widths.append((missing // 2, missing - missing // 2))
    return np.pad(im, widths)


def oversample(imgs: Sequence[Image], crop_dims: Sequence[int]) -> Image:
    """Return ten crops of each image, (images * 10, height, width, channels): corners, centre, and these mirrored.

    Shapes: imgs: each (height, width, channels); crop_dims: height and width of a crop.
    """
    height, width = crop_dims
    crops = []
    for image in imgs:
        rows, columns = image.shape[0] - height, image.shape[1] - width
        places = [(0, 0), (0, columns), (rows, 0), (rows, columns), (rows // 2, columns // 2)]
        found = [image[top : top + height, left : left + width] for top, left in places]
        crops += found + [crop[:, ::-1] for crop in found]
    return np.array(crops, np.float32)


class ImageTransformer:
    """Changes an image: the order of its axes, then the order of its channels, then subtracts a mean."""

    def __init__(
        self,
        transpose: Sequence[int] | None = None,
        channel_swap: Sequence[int] | None = None,
        mean: Image | None = None,
        is_color: bool = True,
    ) -> None:
        self.is_color = is_color
        self.transpose, self.channel_swap, self.mean = transpose, channel_swap, mean

    def set_transpose(self, order: Sequence[int]) -> None:
        """Set the order of the axes, such as (2, 0, 1)."""
        self.transpose = order

    def set_channel_swap(self, order: Sequence[int]) -> None:
        """Set the order of the channels, such as (2, 1, 0)."""
        self.channel_swap = order

    def set_mean(self, mean: Image) -> None:
        """Set the mean image, or a mean of each channel."""
        self.mean = mean[:, np.newaxis, np.newaxis] if mean.ndim == 1 else mean

    def transformer(self, data: Image) -> Image:
        """Return the changed image."""
        changed = data if self.transpose is None else data.transpose(self.transpose)
        if self.channel_swap is not None:
            changed = changed[list(self.channel_swap)]
        return changed if self.mean is None else changed - self.mean


def preprocess_img(im: Image, img_mean: Image, crop_size: int, is_train: bool, color: bool = True) -> Image:
    """Return a crop of the image (random if is_train, else the center) minus the mean image, as a flat float32 row."""
    crop = crop_img(im.astype(np.float32), crop_size, color, not is_train)
    return (crop - img_mean).ravel()


_NO_MEAN = (
    zipfile.BadZipFile, ArithmeticError, AttributeError, EOFError, ImportError, LookupError,
    MemoryError, TypeError, ValueError,
)  # fmt: skip


def _read_mean(path: str) -> Image:
    """Return `data_mean` of a file, which is a numpy archive or a dictionary pickled by Python 2 or 3.

    Raises: DataError: the file has another format, or contains objects that are not arrays.
    """
    try:
        with Path(path).open("rb") as file:
            if zipfile.is_zipfile(file):
                with np.load(path, allow_pickle=False) as arrays:
                    return np.asarray(arrays["data_mean"])
            file.seek(0)
            return np.asarray(load_sample(file.read(_MOST_MEAN + 1), _MOST_MEAN)["data_mean"])
    except _NO_MEAN as error:
        raise DataError(f"{path} is no file of arrays: {error}; it must have a dictionary with data_mean") from error


def load_meta(meta_path: str, mean_img_size: int, crop_size: int, color: bool = True) -> Image:
    """Return the center of the mean image of a data set, as float32.

    Args:
        meta_path: a pickled dictionary or numpy archive, whose `data_mean` is the mean image as a flat array.
        mean_img_size, crop_size: edge lengths of the mean image and of the result, in pixels.
        color: whether the mean image has three channels.
    Raises: DataError: the mean image has another size.
    """
    mean = _read_mean(meta_path)
    shape = (3, mean_img_size, mean_img_size) if color else (mean_img_size, mean_img_size)
    if mean.size != np.prod(shape):
        raise DataError(f"{meta_path}: data_mean has {mean.size} values; shape {shape} needs {np.prod(shape)}")
    return crop_img(mean.reshape(shape).astype(np.float32), crop_size, bool(color))
