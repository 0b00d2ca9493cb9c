"""Makes the data of a job from a folder of images: python split.py FOLDER OUT_DIR [--shards=3] [--size=32].

FOLDER has a sub-folder with images for each class. OUT_DIR gets 0/data, 1/data, ... and images/, the config.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

import numpy as np
from images import CHANNELS, find_images, read_image

from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError, UsageError, VolumeError

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGES_OF_A_FILE = 1000  # a provider holds one file in memory
SHOWN = 5  # unreadable files that are named


def main(argv):
    parser = Parser(prog="python split.py", allow_abbrev=False)
    parser.add_argument("folder", metavar="FOLDER", help="has a sub-folder with images for each class")
    parser.add_argument("out", metavar="OUT_DIR", help="a new folder")
    parser.add_argument("--shards", type=at_least(1), default=1, help="number of trainers (default 1)")
    parser.add_argument("--size", type=at_least(16), default=32, help="edge of the images in pixels (default 32)")
    args = parser.parse_args(argv)
    if os.path.exists(args.out):
        raise UsageError(f"{args.out} exists; name a new folder, because a model in it needs its own images.json")
    classes, files = find_classes(args.folder)
    train, test = divide(files, args.shards)
    above = os.path.dirname(os.path.abspath(args.out))
    try:
        os.makedirs(above, exist_ok=True)
        # complete, or absent: the folder gets its name at the end
        with tempfile.TemporaryDirectory(dir=above, prefix=".images-") as folder:
            made = os.path.join(folder, "made")
            counts = write_shards(made, classes, train, test, args.size)
            os.mkdir(os.path.join(made, "output"))
            shutil.copytree(HERE, os.path.join(made, "images"), ignore=shutil.ignore_patterns("__pycache__"))
            os.rename(made, args.out)
    except OSError as error:
        raise VolumeError(f"cannot write {args.out}: {error}; make room, or name another folder") from error
    print(
        f"{args.out}: {args.shards} shards, {counts[0]} training and {counts[1]} test images of {len(classes)} classes"
    )


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message}; see python split.py --help")


def at_least(least):
    def number(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return number


def find_classes(folder):
    """Return the names of the classes, and the paths of the images of each. Raises: DataError: there are too few."""
    try:
        classes = sorted(one.name for one in os.scandir(folder) if one.is_dir() and not one.name.startswith("."))
    except OSError as error:
        raise MissingInputError(f"cannot list {folder}: {error.strerror}; give the folder of the classes") from error
    if len(classes) < 2:
        raise DataError(f"{folder} needs a sub-folder with images for each class, at least two; it has {classes}")
    return classes, [find_images(os.path.join(folder, name)) for name in classes]


def divide(files, shards):
    """Return (path, class) of each image of each shard, and of the test set, which has a tenth of each class."""
    train, test, place = [[] for _ in range(shards)], [], 0
    for number, paths in enumerate(files):
        paths = random.Random(1).sample(paths, len(paths))
        tested = max(1, len(paths) // 10)
        test += [(path, number) for path in paths[:tested]]
        for path in paths[tested:]:
            train[place % shards].append((path, number))
            place += 1
    for shard in train:
        random.Random(1).shuffle(shard)
    return train, test


def write_shards(out, classes, train, test, size):
    """Write all arrays and lists, and images.json; return the numbers of images for training and for tests.

    Raises: DataError: a class has no image for training, or a shard or the test set has none at all.
    """
    writers = [Writer(os.path.join(out, str(shard)), "train", size, len(classes)) for shard in range(len(train))]
    writers.append(Writer(os.path.join(out, "0"), "test", size, len(classes)))
    for writer, pairs in zip(writers, [*train, test], strict=True):
        writer.write(pairs)
    unreadable = [line for writer in writers for line in writer.unreadable]
    for line in unreadable[:SHOWN]:
        print(f"WARNING: {line}", file=sys.stderr)
    if unreadable:
        print(f"WARNING: {len(unreadable)} files are left out, because they cannot be read", file=sys.stderr)
    *trained, tested = (writer.counts for writer in writers)
    for name, count in zip(classes, sum(trained), strict=True):
        if not count:
            raise DataError(f"the class {name} has no image to learn from; a class needs two images that can be read")
    if not all(sum(counts) for counts in (*trained, tested)):
        raise DataError(f"{sum(sum(trained))} images are too few for {len(train)} shards and a test set")
    about = {"size": size, "classes": classes, **colours(writers[:-1])}
    for shard in range(len(train)):
        with open(os.path.join(out, f"{shard}/data/images.json"), "w", encoding="utf-8") as file:
            json.dump(about, file, ensure_ascii=False)
        for name in os.listdir(os.path.join(out, "0/data")):
            if shard and name.startswith("test"):
                os.link(os.path.join(out, "0/data", name), os.path.join(out, f"{shard}/data", name))
    return sum(sum(trained)), sum(tested)


class Writer:
    """Writes a set of images of a shard: files of arrays, and their list."""

    def __init__(self, shard, name, size, classes):
        self.shard, self.name, self.size = shard, name, size
        self.counts = np.zeros(classes, int)  # images of each class
        self.unreadable = []
        self.sums = np.zeros((2, CHANNELS))  # of each colour, and of its squares
        os.makedirs(os.path.join(shard, "data"), exist_ok=True)

    def write(self, pairs):
        with open(os.path.join(self.shard, f"data/{self.name}.list"), "w", encoding="utf-8") as names:
            for first in range(0, len(pairs), IMAGES_OF_A_FILE):
                pixels, labels = self._read(pairs[first : first + IMAGES_OF_A_FILE])
                if labels:
                    path = f"data/{self.name}-{first // IMAGES_OF_A_FILE:05d}.npz"
                    np.savez(os.path.join(self.shard, path), pixels=np.array(pixels, np.uint8), labels=labels)
                    names.write(f"{path}\n")

    def _read(self, pairs):
        pixels, labels = [], []
        for path, number in pairs:
            try:
                pixels.append(read_image(path, self.size))
            except DataError as error:
                self.unreadable.append(str(error))
                continue
            labels.append(number)
            self.counts[number] += 1
            values = pixels[-1].astype(float)
            self.sums += values.mean((1, 2)), np.square(values).mean((1, 2))
        return pixels, labels


def colours(writers):
    """Return mean and standard deviation of each colour."""
    mean, squares = sum(writer.sums for writer in writers) / sum(writer.counts.sum() for writer in writers)
    std = np.sqrt(np.maximum(squares - mean**2, 1))
    return {"mean": mean.tolist(), "std": std.tolist()}


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PaddleError as error:
        print(f"split.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
