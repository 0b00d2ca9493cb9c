"""What a launcher takes out of ./data when its pod gets another shard: what it has copied, whatever the volume has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import JOB, pod_environment

from paddle_base.runtime.errors import DataError, VolumeError
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.overlay import Overlay
from paddle_cluster.launcher.staging import stage_shard

ROOT = Path(__file__).parents[3]
NOBODY = 65534
Change = Callable[[Path, Path], object]


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    for number in (0, 1):
        fill(tmp_path / JOB / str(number) / "data", f"part-{number}")
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "work" / "data"


def shard(config: LauncherConfig, number: int) -> Path:
    return config.job_dir / str(number) / "data"


def fill(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"{name}\n")


def tree(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def turn(old: Path, name: str) -> None:
    """Replace a file by a directory, or a directory by a file."""
    if (old / name).is_dir():
        shutil.rmtree(old / name)
        (old / name).touch()
    else:
        (old / name).unlink()
        (old / name / "y").mkdir(parents=True)


CHANGES: dict[str, Change] = {
    "a file is renamed": lambda old, _: (old / "part-0").rename(old / "other"),
    "the shard is removed": lambda old, _: shutil.rmtree(old),
    "a pipe appears": lambda old, _: os.mkfifo(old / "0"),
    "a loop appears": lambda old, _: (old / "0").symlink_to("."),
    "a file becomes a directory": lambda old, _: turn(old, "part-0"),
    "a directory becomes a file": lambda old, _: turn(old, "n"),
    "the new shard has a file in place of a directory": lambda _, new: fill(new, "n"),
    "the new shard has a directory in place of a file": lambda _, new: fill(new, "part-0/x"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_S13_nothing_of_the_old_shard_stays_whatever_the_volume_has_by_then(
    config: LauncherConfig, data: Path, change: Change
) -> None:
    """The launcher removed what the old shard contained then, and not what it had copied."""
    history = AttemptHistory()
    fill(shard(config, 0), "n/x", "n/m/z")
    (shard(config, 0) / "empty").mkdir()
    stage_shard(config, 0, data, history)
    change(shard(config, 0), shard(config, 1))
    stage_shard(config, 1, data, history)
    assert tree(data) == tree(shard(config, 1))
    assert tree(data.parent) == ["data", *(f"data/{name}" for name in tree(data))]


def test_S13_what_the_config_directory_has_in_data_stays_and_comes_back(config: LauncherConfig, data: Path) -> None:
    """Also a file that the old shard replaced, and a directory that both have."""
    history = AttemptHistory()
    fill(data, "dict.txt", "n/own", "hollow/a")
    (data / "hollow/a").unlink()
    (data / "part-0").write_text("the config's\n")
    fill(shard(config, 0), "n/x", "hollow/y")
    stage_shard(config, 0, data, history)
    assert (data / "part-0").read_text() == "part-0\n"
    stage_shard(config, 1, data, history)
    assert tree(data) == ["dict.txt", "hollow", "n", "n/own", "part-0", "part-1"]
    assert (data / "part-0").read_text() == "the config's\n"


CLASHES = {
    "a file over a directory": ("n/own", "n"),
    "a directory over a file": ("n", "n/x"),
}


@pytest.mark.parametrize(("own", "name"), CLASHES.values(), ids=CLASHES)
def test_a_shard_that_clashes_with_the_config_directory_is_refused(
    config: LauncherConfig, data: Path, own: str, name: str
) -> None:
    """The copy of the file went to data/n/n, which no list names."""
    fill(data, own)
    fill(shard(config, 0), name)
    before, history = tree(data), AttemptHistory()
    with pytest.raises(DataError, match=r"data/n is a \w+, and the shard has a \w+ of this name; rename one of them"):
        stage_shard(config, 0, data, history)
    assert tree(data) == before


def test_files_of_the_users_program_stay(config: LauncherConfig, data: Path) -> None:
    """Also one in a directory of the shard, and a directory in place of a file of it."""
    history = AttemptHistory()
    fill(shard(config, 0), "n/x")
    stage_shard(config, 0, data, history)
    fill(data, "n/cache")
    turn(data, "part-0")
    stage_shard(config, 1, data, history)
    assert tree(data) == ["n", "n/cache", "part-0", "part-0/y", "part-1"]


def test_what_cannot_be_removed_is_removed_by_the_next_attempt(
    config: LauncherConfig, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher forgot what it had copied before it removed it."""
    history = AttemptHistory()
    fill(shard(config, 0), "x", "y")
    stage_shard(config, 0, data, history)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(VolumeError, match="Permission denied"):
            stage_shard(config, 1, data, history)
    stage_shard(config, 1, data, history)
    assert tree(data) == ["part-1"]


def test_the_own_lists_come_back_as_they_were_copied(config: LauncherConfig, data: Path) -> None:
    """The launcher copied them from the volume again, where by then they may name other files."""
    history = AttemptHistory()
    for number in (0, 1):
        (shard(config, number) / "train.list").write_text(f"data/part-{number}\n")
    fill(data, "more.list")
    (shard(config, 1) / "more.list").write_text("data/part-1\n")
    stage_shard(config, 0, data, history)
    before = tree(data)
    pods = [{"ip": "10.0.0.1", "place": "", "uid": "a", "index": 0}]
    gone = [{"index": 1, "place": "", "since": 1.8e9}, {"index": 2, "place": "", "since": 1.8e9}]
    fill(shard(config, 2), "part-2")
    (shard(config, 2) / "train.list").write_text("data/part-2\n")
    record = JobRecord("job", 9, False, 2, ["a"], 0, gradient_num=1, pserver_num=1, pods=pods, absent=gone)
    (shard(config, 0) / "train.list").write_text("data/new\n")
    stage_shard(config, 0, data, history, record)
    lent = ["data/absent_1/part-1", "data/absent_2/part-2"]
    assert (data / "train.list").read_text().splitlines() == ["data/part-0", *lent]
    assert (data / "more.list").read_text() == "data/absent_1/part-1\n"
    stage_shard(config, 0, data, history)
    assert (data / "train.list").read_text() == "data/part-0\n"
    assert (data / "more.list").read_text() == "more.list\n"
    assert tree(data) == before


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may enter and write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


CLEAR = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from paddle_cluster.launcher.shards.overlay import Overlay
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
overlay = Overlay(Path("data"), Path("kept"))
overlay.make_room(Path("data/sub/x"))
Path("data/sub/x").touch()
Path("data/sub").chmod(0o555)
Path("data").chmod(0o555)
overlay.clear()
"""


def test_a_read_only_directory_of_a_shard_can_be_removed(open_place: Path) -> None:
    """Its copy has its mode; a launcher without the rights of root ended with a traceback."""
    command = [sys.executable, "-c", CLEAR, str(ROOT), str(NOBODY)]
    run = subprocess.run(command, cwd=open_place, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert tree(open_place) == []


def test_a_file_that_is_written_twice_is_kept_once(tmp_path: Path) -> None:
    fill(tmp_path / "data", "x")
    overlay = Overlay(tmp_path / "data", tmp_path / "kept")
    for text in ("first", "second"):
        overlay.make_room(tmp_path / "data/x")
        (tmp_path / "data/x").write_text(text)
    assert overlay.has_file("x") and overlay.files == 1
    overlay.clear()
    assert (tmp_path / "data/x").read_text() == "x\n"
    assert not overlay.has_file("x") and tree(tmp_path) == ["data", "data/x"]
