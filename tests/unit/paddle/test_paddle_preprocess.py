"""The first step of the demo image_classification: directories of images become batches, lists and a mean image."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from each import each
from PIL import Image

from paddle.utils import image_util, preprocess_util
from paddle.utils.preprocess_img import DiskImage, ImageClassificationDatasetCreater
from paddle_base.runtime.errors import DataError, MissingInputError

COLOURS = {"cat": (200, 0, 0), "dog": (0, 100, 0)}


@pytest.fixture
def images(tmp_path):
    """Four training images and one test image of two classes, and what no image is."""
    for part, count in (("train", 2), ("test", 1)):
        for name, colour in COLOURS.items():
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (12, 8), colour).save(tmp_path / part / name / f"{number}.png")
            (tmp_path / part / name / "notes.txt").write_text("no image")
            (tmp_path / part / name / ".hidden.png").write_bytes(b"")
    return tmp_path


def load(path):
    return pickle.loads(Path(path).read_bytes())


def test_the_first_step_of_the_demo_makes_what_its_provider_reads(images):
    creator = ImageClassificationDatasetCreater(str(images), 8, True)
    creator.train_list_name, creator.test_list_name = "train.txt", "test.txt"
    creator.num_per_batch, creator.overwrite = 3, True
    creator.create_batches()
    names = (images / "batches" / "train.txt").read_text().splitlines()
    batches = [load(name) for name in names]
    assert [len(batch["labels"]) for batch in batches] == [3, 1]
    for batch in batches:
        for data, label in zip(batch["images"], batch["labels"], strict=True):
            assert Image.open(io.BytesIO(data)).size == (12, 8)
            pixels = image_util.decode_jpeg(data)
            assert abs(pixels[:, 0, 0].astype(int) - list(COLOURS.values())[label]).max() < 4
    assert len((images / "batches" / "test.txt").read_text().splitlines()) == 1
    assert load(images / "batches" / "labels.pkl") == {"cat": 0, "dog": 1}
    mean = image_util.load_meta(str(images / "batches" / "batches.meta"), 8, 4)
    np.testing.assert_allclose(mean[:, 0, 0], [100, 50, 0], atol=4)


def test_what_is_there_stays_without_overwrite(images):
    (images / "batches").mkdir()
    ImageClassificationDatasetCreater(str(images), 8).create_batches()
    assert not list((images / "batches").iterdir())


def test_a_list_may_name_the_images(images):
    for part in ("train", "test"):
        (images / f"{part}.list").write_text(f"{images}/{part}/dog/0.png 7\n")
    creator = ImageClassificationDatasetCreater(str(images), 8, False)
    creator.from_list = True
    creator.create_batches()
    assert load(images / "batches" / "train_batch_000")["labels"] == [7]
    (images / "train.list").write_text("dog.png\n")
    with pytest.raises(DataError, match=r"train.list line 1: 'dog.png'; write the path of an image, a blank"):
        creator.create_dataset_from_list(str(images / "train.list"))


def test_a_file_that_is_no_image_and_a_missing_directory_are_named(images):
    (images / "train" / "cat" / "bad.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad.jpg is no image that can be read"):
        ImageClassificationDatasetCreater(str(images), 8).create_batches()
    with pytest.raises(MissingInputError, match=r"cannot list .*nowhere: No such file"):
        preprocess_util.list_dirs(str(images / "nowhere"))


def cut(path):
    path.write_bytes(path.read_bytes()[:45])


def bomb(path):
    Image.new("1", (20_000, 12_000)).save(path)


def large(path):
    Image.new("1", (9_000, 9_000)).save(path)


def thin(path):
    Image.new("1", (1, 30_000)).save(path)


DAMAGE = {
    "cut": (cut, "is no image that can be read: .*; replace it, or leave it out"),
    "bomb": (bomb, "0.png is too large: an image may have 67,108,864 pixels"),
    "large": (large, "0.png is too large: .*; it has 9000 x 9000"),
    "thin": (thin, "0.png: an image of 1 x 30000 is too large: .*, also when it is resized"),
}


@each("name", DAMAGE)
def test_a_damaged_or_too_large_image_is_an_error_with_its_path(images, name):
    """Such images ended in a traceback of pillow, or took gigabytes of memory."""
    damage, message = DAMAGE[name]
    path = images / "train" / "cat" / "0.png"
    damage(path)
    with pytest.raises(DataError, match=message):
        DiskImage(str(path), 64).read_image()


def test_a_missing_image_is_a_missing_file_and_a_damaged_value_is_bad_data(images):
    with pytest.raises(MissingInputError, match=r"there is no image .*9.png; correct its name"):
        image_util.load_image(str(images / "9.png"))
    with pytest.raises(DataError, match=r"a value of 5 bytes is no image that can be read"):
        image_util.decode_jpeg(b"wrong")


def test_a_grey_image_of_16_bits_keeps_its_upper_8_bits(tmp_path):
    """Every value above 255 became white."""
    Image.fromarray(np.array([[0, 300, 25_600, 65_535]] * 4, np.uint16)).save(tmp_path / "grey.png")
    assert DiskImage(str(tmp_path / "grey.png"), 4).convert_to_array()[0].tolist() == [0, 1, 100, 255]


def test_each_batch_gets_all_classes():
    samples = [[preprocess_util.Label(label, "")] for label in [0] * 30 + [1] * 30]
    data = preprocess_util.Dataset(samples, ["labels"])
    data.permute(0, 10)
    for begin in range(0, 60, 10):
        assert 3 <= sum(one[0].label for one in data.data[begin : begin + 10]) <= 7
    data.permute(None, 10)
    assert len(data.data) == 60
