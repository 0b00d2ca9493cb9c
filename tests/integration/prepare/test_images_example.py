"""examples/images: a folder of images becomes shards of pixels, a network, and predictions by name."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from each import each
from PIL import Image

from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError, UsageError, VolumeError

EXAMPLE = Path(__file__).parents[3] / "examples/images"
MODULES = ("images", "split")
COLOURS = {"blue sky": (10, 20, 200), "grün": (0, 180, 30)}


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("split")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return make_pictures(tmp_path)


def make_pictures(tmp_path: Path) -> Path:
    """20 images of different sizes of each of two classes."""
    for name, colour in COLOURS.items():
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(20):
            image = Image.new("RGB", (20 + number, 30), colour)
            image.save(tmp_path / "pictures" / name / f"{number:02}.png")
    return tmp_path / "pictures"


def read(shard: Path, name: str) -> list[tuple[int, list[int]]]:
    """The labels and the middle pixels of a set."""
    found = []
    for path in (shard / f"data/{name}.list").read_text().splitlines():
        with np.load(shard / path) as arrays:
            found += [
                (int(n), one[:, 8, 8].tolist()) for one, n in zip(arrays["pixels"], arrays["labels"], strict=True)
            ]
    return found


def test_each_shard_gets_equal_parts_of_all_classes_and_the_whole_test_set(
    split: ModuleType, pictures: Path, tmp_path: Path
) -> None:
    split.main([str(pictures), str(tmp_path / "job"), "--shards=3", "--size=16"])
    shards = [tmp_path / "job" / str(number) for number in range(3)]
    trained = [read(shard, "train") for shard in shards]
    assert [len(one) for one in trained] == [12, 12, 12]
    assert {label for one in trained for label, _ in one} == {0, 1}
    assert all(pixel == list(list(COLOURS.values())[label]) for one in trained for label, pixel in one)
    tested = [read(shard, "test") for shard in shards]
    assert tested[0] == tested[1] == tested[2]
    assert sorted(label for label, _ in tested[0]) == [0, 0, 1, 1]
    about = [json.loads((shard / "data/images.json").read_text()) for shard in shards]
    assert about[0] == about[1] == about[2]
    assert about[0]["classes"] == ["blue sky", "grün"]
    np.testing.assert_allclose(about[0]["mean"], [5, 100, 115])
    np.testing.assert_allclose(about[0]["std"], [5, 80, 85])
    assert (tmp_path / "job/images/trainer_config.py").exists()


def test_files_that_are_no_images_are_left_out_and_grey_ones_get_colours(
    split: ModuleType, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blue = pictures / "blue sky"
    (blue / "text.png").write_text("no image")
    (blue / "notes.txt").write_text("of no interest")
    (blue / ".hidden.png").write_text("")
    (pictures / ".git").mkdir()
    for path in (pictures / "grün").glob("*"):
        Image.open(path).convert("L").save(path)
    split.main([str(pictures), str(tmp_path / "job"), "--size=16"])
    said = capsys.readouterr()
    assert "WARNING: 1 files are left out, because they cannot be read" in said.err
    assert "text.png is no image that can be read" in said.err
    assert "36 training and 4 test images of 2 classes" in said.out
    green = [pixel for label, pixel in read(tmp_path / "job/0", "train") if label == 1]
    assert all(len(set(pixel)) == 1 for pixel in green)


def no_images(pictures: Path) -> None:
    for path in (pictures / "grün").glob("*"):
        path.write_text("damaged")


def a_file_in_the_way(pictures: Path) -> None:
    (pictures.parent / "way").write_text("")


FAULTS = {
    "no folder": ("nowhere", "job", [], None, MissingInputError, "cannot list .*nowhere: No such file"),
    "one class": ("pictures/grün", "job", [], None, DataError, r"needs a sub-folder .* at least two; it has \[\]"),
    "unreadable": ("pictures", "job", [], no_images, DataError, "the class grün has no image to learn from"),
    "many shards": ("pictures", "job", ["--shards=40"], None, DataError, "36 images are too few for 40 shards"),
    "there already": ("pictures", "pictures", [], None, UsageError, "exists; name a new folder"),
    "not writable": ("pictures", "way/job", [], a_file_in_the_way, VolumeError, "cannot write .*way/job"),
    "no number": ("pictures", "job", ["--size=big"], None, UsageError, "'big' is no whole number of at least 16"),
    "a wrong flag": ("pictures", "job", ["--shard=2"], None, UsageError, "unrecognized arguments: --shard=2"),
}


@each("name", FAULTS)
def test_a_fault_is_one_line_and_leaves_no_folder(split: ModuleType, tmp_path: Path, name: str) -> None:
    folder, out, flags, prepare, kind, message = FAULTS[name]
    pictures = make_pictures(tmp_path)
    if prepare:
        prepare(pictures)
    with pytest.raises(PaddleError, match=message) as caught:
        split.main([str(tmp_path / folder), str(tmp_path / out), *flags])
    assert caught.type is kind
    assert {path.name for path in tmp_path.iterdir()} <= {"pictures", "way"}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


def test_a_trained_network_predicts_names_and_faults_are_one_line(
    split: ModuleType, pictures: Path, tmp_path: Path
) -> None:
    split.main([str(pictures), str(tmp_path / "job"), "--size=16"])
    shard, model = tmp_path / "job/0", tmp_path / "job/output/pass-00001"
    flags = ["--config=../images/trainer_config.py", "--num_passes=2", "--save_dir=../output"]
    trained = run("-m", "paddle", "train", *flags, cwd=shard)
    assert trained.returncode == 0, trained.stderr
    predict = tmp_path / "job/images/predict.py"
    missing = run(predict, model, pictures, cwd=tmp_path)
    assert missing.returncode == 66
    assert "images.json is missing; copy data/images.json of the training there" in missing.stderr
    (model.parent / "images.json").write_text((shard / "data/images.json").read_text())
    predicted = run(predict, model, pictures, cwd=tmp_path)
    assert "40 images in folders of classes: 100.0% right" in predicted.stderr
    head, *rows = predicted.stdout.splitlines()
    assert (head, len(rows)) == ("image,predicted,probability", 40)
    assert rows[0].startswith(f"{pictures}/blue sky/00.png,blue sky,")
    (pictures / "grün/00.png").write_text("damaged")
    damaged = run(predict, model, pictures, cwd=tmp_path)
    assert (damaged.returncode, damaged.stdout) == (65, "")
    assert "grün/00.png is no image that can be read" in damaged.stderr
