"""Images of data providers (specification 17, image_classification)."""

import io
import os
import pickle
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paddle.utils import image_util
from paddle_base.runtime.errors import ConfigError, DataError

IMAGE = np.arange(3 * 4 * 6).reshape(3, 4, 6)


def test_the_middle_is_cropped_in_tests():
    assert np.array_equal(image_util.crop_img(IMAGE, 2), IMAGE[:, 1:3, 2:4])
    assert np.array_equal(image_util.crop_img(IMAGE[0], 2, color=False), IMAGE[0, 1:3, 2:4])


def test_a_random_place_and_side_are_cropped_in_training():
    crops = {image_util.crop_img(IMAGE, 3, test=False).tobytes() for _ in range(300)}
    places = [IMAGE[:, top : top + 3, left : left + 3] for top in range(2) for left in range(4)]
    assert crops == {np.ascontiguousarray(side).tobytes() for place in places for side in (place, place[..., ::-1])}


def test_a_smaller_image_stands_in_the_middle_of_zeros():
    crop = image_util.crop_img(IMAGE, 8)
    assert np.array_equal(crop[:, 2:6, 1:7], IMAGE)
    assert crop.shape == (3, 8, 8)
    assert crop.sum() == IMAGE.sum()
    odd = image_util.crop_img(IMAGE, 7)
    assert odd.shape == (3, 7, 7) and np.array_equal(odd[:, 1:5, :6], IMAGE)


def test_the_mean_is_cropped_and_subtracted(tmp_path):
    meta = tmp_path / "batches.meta"
    meta.write_bytes(pickle.dumps({"data_mean": np.arange(3 * 6 * 6, dtype=float)}, 2))
    mean = image_util.load_meta(str(meta), 6, 4)
    assert np.array_equal(mean, np.arange(3 * 6 * 6).reshape(3, 6, 6)[:, 1:5, 1:5])
    row = image_util.preprocess_img(np.full((3, 4, 4), 7, np.uint8), mean, 4, is_train=False)
    assert (row.dtype, row.tolist()) == (np.float32, (7 - mean).ravel().tolist())
    with pytest.raises(DataError, match=r"data_mean has 108 values; shape \(3, 5, 5\) needs 75"):
        image_util.load_meta(str(meta), 5, 4)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-here",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_mean_that_names_code_is_refused_and_runs_nothing(tmp_path, monkeypatch, protocol):
    """It was read by numpy.load(allow_pickle=True), which runs it: issue E 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meta").write_bytes(pickle.dumps({"data_mean": Evil()}, protocol))
    with pytest.raises(DataError, match=r"meta is no file of arrays: .*names a class or function \(posix\.mkdir"):
        image_util.load_meta("meta", 6, 4)
    assert not (tmp_path / "was-here").exists()


def test_a_mean_in_an_archive_of_numpy_is_read(tmp_path):
    np.savez(tmp_path / "meta.npz", data_mean=np.arange(108.0))
    assert image_util.load_meta(str(tmp_path / "meta.npz"), 6, 6).shape == (3, 6, 6)


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"text", pickle.dumps([1])])
def test_a_mean_that_is_none_is_bad_data(tmp_path, content):
    (tmp_path / "meta").write_bytes(content)
    with pytest.raises(DataError, match="meta is no file of arrays"):
        image_util.load_meta(str(tmp_path / "meta"), 6, 4)


def test_a_mean_with_a_huge_number_of_put_takes_no_memory(tmp_path):
    """The reader in C allocated a table of up to 64 GB."""
    (tmp_path / "meta").write_bytes(b"Nr\xff\xff\xff\xff.")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), limits[1]))
    try:
        with pytest.raises(DataError, match="meta is no file of arrays: 'NoneType' object is not subscriptable"):
            image_util.load_meta(str(tmp_path / "meta"), 6, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_an_image_of_another_form_is_refused():
    with pytest.raises(DataError, match="no channel axis"):
        image_util.crop_img(IMAGE[0], 2)


def test_reading_an_image_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)  # what an import finds where pillow is missing
    with pytest.raises(ConfigError, match=r"pip install 'paddle-on-kubernetes\[image\]'$"):
        image_util.decode_jpeg(b"\xff\xd8")


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4)])
def test_an_image_is_read_from_its_bytes(shape):
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")  # without loss; pillow sees the form by itself
    expected = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels
    assert np.array_equal(image_util.decode_jpeg(file.getvalue()), expected)
