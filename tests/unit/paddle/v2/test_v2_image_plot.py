"""Pictures and curves of paddle.v2."""

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paddle.v2 import image
from paddle.v2.plot import Ploter
from paddle_base.runtime.errors import DataError, MissingInputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cat.png"
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, :30] = [200, 100, 0]
    Image.fromarray(pixels).save(path)
    return str(path)


def test_a_picture_is_read_blue_first_or_gray(file):
    assert image.load_image(file)[0, 0].tolist() == [0, 100, 200]
    assert image.load_image(file, is_color=False).shape == (40, 60)
    with pytest.raises(MissingInputError, match="there is no picture absent"):
        image.load_image("absent")
    with pytest.raises(DataError, match="the bytes: no picture"):
        image.load_image_bytes(b"no picture")


def test_resize_flip_and_chw(file):
    pixels = image.load_image(file)
    assert image.resize_short(pixels, 20).shape == (20, 30, 3)
    assert image.resize_short(pixels.transpose(1, 0, 2), 20).shape == (30, 20, 3)
    assert np.array_equal(image.left_right_flip(pixels), np.flip(pixels, 1))
    assert image.to_chw(pixels).shape == (3, 40, 60)
    assert image.center_crop(pixels, 20)[0, 0].tolist() == pixels[10, 20].tolist()


@pytest.mark.parametrize("is_train", [False, True])
def test_simple_transform_cuts_and_subtracts_the_mean(file, is_train):
    cut = image.load_and_transform(file, 40, 32, is_train, mean=[1, 2, 3])
    assert cut.shape == (3, 32, 32)
    assert cut.dtype == np.float32
    assert cut[:, 0, 0].tolist() in ([-1, 98, 197], [-1, -2, -3])
    assert image.load_and_transform(file, 40, 32, is_train, is_color=False, mean=np.ones((32, 32))).shape == (32, 32)


def test_pictures_of_a_tar_file_in_batches(file, tmp_path):
    archive = tmp_path / "pictures.tar"
    with tarfile.open(archive, "w") as tar:
        for number in range(4):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = 1
            tar.addfile(member, io.BytesIO(str(number).encode()))
    listed = image.batch_images_from_tar(str(archive), "train", {"0.jpg": 5, "1.jpg": 6, "3.jpg": 8}, 2)
    batches = [pickle.loads(Path(name).read_bytes()) for name in Path(listed).read_text("utf-8").splitlines()]
    assert batches == [{"label": [5, 6], "data": [b"0", b"1"]}, {"label": [8], "data": [b"3"]}]
    assert image.batch_images_from_tar(str(archive), "train", {}) == listed  # made once


def test_curves_are_drawn_into_a_file(tmp_path, monkeypatch):
    curves = Ploter("train cost", "test cost")
    curves.append("train cost", 1, 0.5)
    assert curves.__plot_data__["train cost"].step == [1]
    assert curves.__plot_data__["train cost"].value == [0.5]
    with pytest.raises(AssertionError, match="there is no curve 'cost'"):
        curves.append("cost", 1, 1)
    monkeypatch.setenv("MPLBACKEND", "agg")
    curves.plot(str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").stat().st_size > 1000
    curves.reset()
    assert curves.__plot_data__["train cost"].step == []
    monkeypatch.setenv("DISABLE_PLOT", "True")
    Ploter("a").plot()  # without IPython
