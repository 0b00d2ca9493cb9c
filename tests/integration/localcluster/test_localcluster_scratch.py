"""Temporary directories go with their process, also after SIGKILL; nothing is deleted that is not surely ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.localcluster.scratch import CONTENT, MARKER, PREFIX, Scratch, sweep

ROOT = Path(__file__).parents[3]
LIMIT_S = 60
HOLDER = """
import sys
from paddle_cluster.localcluster.scratch import Scratch
one, other = Scratch(), Scratch("localcluster-logs-")
(one.path / "pod" / "deep").mkdir(parents=True)
print(one.path, other.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for temporary files, of this test alone."""
    found = tmp_path / "tmp"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


@pytest.fixture
def holder(place: Path) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """A living process with two directories, and their paths."""
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER], env=env, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None and process.stdin is not None
    paths = [Path(word) for word in process.stdout.readline().split()]
    yield process, paths
    process.kill()
    process.wait(LIMIT_S)
    process.stdin.close()
    process.stdout.close()


def left(place: Path, name: str = "abcdefgh") -> Path:
    """What a killed localcluster leaves."""
    path = place / f"{PREFIX}{name}"
    path.mkdir(mode=0o700)
    (path / MARKER).write_bytes(CONTENT)
    (path / "file").touch()
    return path


def test_what_a_killed_process_has_left_is_removed_and_not_before(holder, place: Path):
    process, paths = holder
    assert sweep() == []
    assert all(path.is_dir() for path in paths)
    process.kill()
    process.wait(LIMIT_S)
    assert all(path.is_dir() for path in paths)
    assert sorted(sweep()) == sorted(paths)
    assert list(place.iterdir()) == []


def test_own_directories_are_not_swept(place: Path):
    scratch = Scratch()
    assert sweep() == []
    (scratch.path / "pod").mkdir()
    scratch.remove()
    scratch.remove()
    assert list(place.iterdir()) == []


def test_what_is_kept_stays_for_good(place: Path):
    scratch = Scratch()
    (scratch.path / "log").touch()
    scratch.keep()
    scratch.remove()
    assert sweep() == []
    assert [path.name for path in scratch.path.iterdir()] == ["log"]


def no_marker(path: Path) -> None:
    (path / MARKER).unlink()


def other_marker(path: Path) -> None:
    (path / MARKER).write_bytes(CONTENT + b"x")


def half_marker(path: Path) -> None:
    (path / MARKER).write_bytes(CONTENT[:10])


def linked_marker(path: Path) -> None:
    (path / MARKER).rename(path.parent / "elsewhere")
    (path / MARKER).symlink_to(path.parent / "elsewhere")


def marker_is_a_pipe(path: Path) -> None:
    (path / MARKER).unlink()
    os.mkfifo(path / MARKER)


def marker_is_a_directory(path: Path) -> None:
    (path / MARKER).unlink()
    (path / MARKER).mkdir()


def other_name(path: Path) -> None:
    path.rename(path.with_name("localcluster-mine"))


def longer_name(path: Path) -> None:
    path.rename(path.with_name("localcluster-abcdefgh.bak"))


def a_link(path: Path) -> None:
    path.rename(path.parent / "target")
    path.symlink_to(path.parent / "target")


def open_to_others(path: Path) -> None:
    path.chmod(0o755)


def of_another_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may give a directory away")
    os.chown(path, 12345, -1)


def marker_of_another_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may give a file away")
    os.chown(path / MARKER, 12345, -1)


@pytest.mark.parametrize(
    "change",
    [
        *(no_marker, other_marker, half_marker, linked_marker, marker_is_a_pipe, marker_is_a_directory),
        *(other_name, longer_name, a_link, open_to_others, of_another_user, marker_of_another_user),
    ],
    ids=lambda change: change.__name__,
)
def test_what_is_not_surely_ours_is_left_alone(place: Path, change):
    change(left(place))
    before = sorted(place.rglob("*"))
    assert sweep() == []
    assert sorted(place.rglob("*")) == before


def test_links_in_a_directory_are_removed_and_not_followed(place: Path, tmp_path: Path):
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "model").touch()
    path = left(place)
    (path / "link").symlink_to(tmp_path / "volume")
    (path / "pod").mkdir()
    (path / "pod" / "link").symlink_to(tmp_path / "volume")
    assert sweep() == [path]
    assert (tmp_path / "volume" / "model").exists()


def test_a_directory_with_a_file_system_mounted_in_it_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch):
    path = left(place)
    real = Path.read_text
    line = f"1 1 0:1 / {os.path.realpath(path)}/pod rw - tmpfs none rw\n"

    def read_text(self: Path, *args: object) -> str:
        return line if str(self) == "/proc/self/mountinfo" else real(self)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert sweep() == []
    assert path.is_dir()


def test_a_directory_that_was_replaced_under_its_name_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch):
    path = left(place)
    is_mounted_on = "paddle_cluster.localcluster.scratch._is_mounted_on"

    def replace(_path: Path) -> bool:  # somebody is quicker than the sweep
        shutil.move(path, place / "moved")
        path.mkdir()
        (path / "new").touch()
        return False

    monkeypatch.setattr(is_mounted_on, replace)
    assert sweep() == []
    assert (path / "new").exists() and (place / "moved" / MARKER).exists()
