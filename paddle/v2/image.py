"""`paddle.image`: read, cut and flip pictures: (height, width, 3) uint8, blue first, or (height, width)."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from paddle.v2.archives import members, open_tar, read_all
from paddle_base.runtime.errors import DataError, MissingInputError

Array = np.ndarray[Any, Any]


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Array:
    """Return the picture of the bytes of a file.

    Raises: DataError: they are no picture, or it is damaged.
    """
    return _decode(io.BytesIO(bytes), "the bytes", is_color)


def load_image(file: str, is_color: bool = True) -> Array:
    """Return the picture of a file.

    Raises: MissingInputError: there is no such file.  DataError: it is no picture, or damaged.
    """
    try:
        return _decode(file, file, is_color)
    except FileNotFoundError as error:
        raise MissingInputError(f"there is no picture {file}") from error


def _decode(source: Any, name: str, is_color: bool) -> Array:
    try:
        with Image.open(source) as picture:
            pixels = np.array(picture.convert("RGB" if is_color else "L"))
    except FileNotFoundError:
        raise
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name}: no picture that can be read ({error})") from error
    return np.ascontiguousarray(pixels[:, :, ::-1]) if is_color else pixels


def resize_short(im: Array, size: int) -> Array:
    """Return the picture scaled (bicubic) so that its shorter edge has `size` pixels."""
    height, width = im.shape[:2]
    scaled = (size, size * height // width) if height > width else (size * width // height, size)
    return np.array(Image.fromarray(im).resize(scaled, Image.Resampling.BICUBIC))


def to_chw(im: Array, order: tuple[int, ...] = (2, 0, 1)) -> Array:
    """Return the picture channel by channel: (3, height, width)."""
    assert len(im.shape) == len(order), f"the picture has the shape {im.shape}, the order {order}"
    return im.transpose(order)


def _crop(im: Array, top: int, left: int, size: int) -> Array:
    return im[top : top + size, left : left + size]


def center_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """Return the middle `size` x `size` pixels."""
    return _crop(im, (im.shape[0] - size) // 2, (im.shape[1] - size) // 2, size)


def random_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """Return `size` x `size` pixels at a place drawn by numpy's global generator."""
    top = np.random.randint(0, im.shape[0] - size + 1)
    return _crop(im, top, np.random.randint(0, im.shape[1] - size + 1), size)


def left_right_flip(im: Array, is_color: bool = True) -> Array:
    """Return the picture mirrored."""
    return im[:, ::-1]


def simple_transform(
    im: Array, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> Array:
    """Return the picture (3, `crop_size`, `crop_size`) float32: scaled, cut, and for training flipped half the time.

    Args: mean: a number for each channel, or a picture, to subtract.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size, is_color)
        if np.random.randint(2) == 0:
            im = left_right_flip(im, is_color)
    else:
        im = center_crop(im, crop_size, is_color)
    if im.ndim == 3:
        im = to_chw(im)
    im = im.astype(np.float32)
    if mean is not None:
        mean = np.array(mean, np.float32)
        im -= mean[:, np.newaxis, np.newaxis] if mean.ndim == 1 and im.ndim == 3 else mean
    return im


def load_and_transform(
    filename: str, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> Array:
    """Return `simple_transform` of the picture of a file."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(
    data_file: str, dataset_name: str, img2label: dict[str, int], num_per_batch: int = 1024
) -> str:
    """Write the pictures of a tar file as pickles {"data": files, "label": labels} beside it; return their list.

    Args: img2label: {name of a member: its label}; other members are left out.
    """
    folder = Path(f"{data_file}_batch") / dataset_name
    listed = folder.with_name(f"{dataset_name}.txt")
    if folder.is_dir() and listed.is_file():
        return str(listed)
    folder.mkdir(parents=True, exist_ok=True)
    data: list[bytes] = []
    labels: list[int] = []
    batches: list[Path] = []

    def write() -> None:
        batches.append(folder / f"batch_{len(batches)}")
        batches[-1].write_bytes(pickle.dumps({"label": list(labels), "data": list(data)}, 2))
        data.clear()
        labels.clear()

    with open_tar(data_file) as tar:
        for name, content in members(tar, img2label.__contains__):
            data.append(read_all(name, content))
            labels.append(img2label[name])
            if len(data) == num_per_batch:
                write()
    if data:
        write()
    listed.write_text("".join(f"{batch.absolute()}\n" for batch in batches), encoding="utf-8")
    return str(listed)
