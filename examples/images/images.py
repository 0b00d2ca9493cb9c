"""Finds and reads the images of folders, and keeps them as arrays of pixels of one size.

images.json is beside the arrays: the names of the classes, the size, and mean and deviation of each colour.
"""

import json
import os

import numpy as np

ABOUT = "data/images.json"
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
CHANNELS = 3


def find_images(folder):
    """Return the paths of the images below a folder, sorted; names that begin with a dot are left out."""
    found = []
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = sorted(name for name in files if name.lower().endswith(ENDINGS) and not name.startswith("."))
        found += [path for path in (os.path.join(above, name) for name in names) if os.path.isfile(path)]
    return found


def read_image(path, size):
    """Return the middle square of an image, scaled to (3, size, size) numbers from 0 to 255.

    A grey image becomes a coloured one. Raises: DataError: the file is no image, or damaged. MissingInputError.
    """
    # imported here: only these lines need pillow, which the pods of a job have not
    from paddle.utils.image_util import crop_img
    from paddle.utils.preprocess_img import DiskImage

    pixels = DiskImage(path, size).convert_to_array()
    return crop_img(np.stack([pixels] * CHANNELS) if pixels.ndim == 2 else pixels, size)


def read_about(path=ABOUT):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def scale(pixels, about):
    """Return the input of the network: each colour as its distance from its mean, in standard deviations."""
    mean, std = (np.array(about[name], np.float32).reshape(CHANNELS, 1, 1) for name in ("mean", "std"))
    return ((pixels - mean) / std).astype(np.float32).reshape(len(pixels), -1)
