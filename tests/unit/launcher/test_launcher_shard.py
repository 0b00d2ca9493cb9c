"""A shard that is there and is of no use: empty files, special files, files and directories of another user."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from builders import JOB, pod_environment

from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_cluster.launcher.attempts import AttemptHistory
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.overlay import Overlay
from paddle_cluster.launcher.shards.tree import check_config_dir
from paddle_cluster.launcher.staging import stage_data, stage_shard

ROOT = Path(__file__).parents[3]
NOBODY = 65534


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    (tmp_path / JOB / "0" / "data").mkdir(parents=True)
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path)))


def fill(config: LauncherConfig, files: dict[str, str], number: int = 0) -> Path:
    shard = config.job_dir / f"{number}" / "data"
    for name, text in files.items():
        (shard / name).parent.mkdir(parents=True, exist_ok=True)
        (shard / name).write_text(text)
    return shard


EMPTY = {
    "one empty file": ({"train.txt": ""}, "all files of .* are empty"),
    "several": ({"a": "", "sub/b": "", ".complete": "yes"}, "all files of .* are empty"),
    "a list of an empty file": (
        {"train.list": "data/train.txt\n", "train.txt": "", "dict.txt": "the\n"},
        r"train\.list names only empty files: data/train\.txt",
    ),
    "a list of nothing": ({"train.list": "\n", "train.txt": "1\n"}, r"train\.list names no file"),
    "empty beside a test set": (
        {"train.list": "data/train.txt", "train.txt": "", "test.list": "data/test.txt", "test.txt": "1\n"},
        r"train\.list names",
    ),
}


@pytest.mark.parametrize(("files", "said"), EMPTY.values(), ids=EMPTY)
def test_a_shard_of_empty_files_is_bad_data(
    config: LauncherConfig, tmp_path: Path, files: dict[str, str], said: str
) -> None:
    """Its trainer sent nothing, the others trained on, and the Job was Complete; alone `paddle train` ends with 65."""
    fill(config, files)
    with pytest.raises(DataError, match=f"trainer 0 has nothing to train with: .*{said}.*data job") as error:
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))
    assert error.value.exit_code == 65


GOOD = {
    "data without a list": {"train.txt": "1\n", "empty.txt": ""},
    "one file of a list is not empty": {"train.list": "data/a\ndata/b\n", "a": "", "b": "1\n"},
    "a list of files elsewhere": {"train.list": "/data/everything\n"},
    "an empty test set": {"train.list": "data/a\n", "a": "1\n", "test.list": "data/b\n", "b": ""},
}


@pytest.mark.parametrize("files", GOOD.values(), ids=GOOD)
def test_a_shard_with_something_in_it_is_copied(config: LauncherConfig, tmp_path: Path, files: dict[str, str]) -> None:
    fill(config, files)
    assert stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept")) == len(files)


LINKS = {
    "a loop": (("loop", "."), "loop is a link that forms a loop"),
    "a link to itself": (("a", "a"), "a is a link that forms a loop"),
    "a loop below a directory": (("d/up", ".."), "d/up is a link that forms a loop"),
    "a device": (("zero", "/dev/zero"), "zero is neither a file nor a directory"),
    "a pipe": (("pipe", "../../../fifo"), "pipe is neither a file nor a directory"),
    "a hidden device": ((".zero", "/dev/zero"), "zero is neither a file nor a directory"),
}


@pytest.mark.parametrize(("link", "said"), LINKS.values(), ids=LINKS)
def test_a_link_that_cannot_be_copied_is_bad_data(
    config: LauncherConfig, tmp_path: Path, link: tuple[str, str], said: str
) -> None:
    """A loop was copied forty times over, a link to /dev/zero until the disk was full, and a pipe was a sick volume."""
    shard = fill(config, {"train.txt": "1\n"})
    (shard / "d").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (shard / link[0]).symlink_to(link[1])
    with pytest.raises(DataError, match=said):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))
    assert not (tmp_path / "data").exists()


def test_a_farm_of_links_is_counted_and_not_copied(
    config: LauncherConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two links to the next directory in each of thirty: a thousand million copies, and no loop."""
    monkeypatch.setattr("paddle_cluster.launcher.staging.MAX_FILES", 1000)
    shard = fill(config, {"train.txt": "1\n"})
    for number in range(30):
        (shard / f"{number}").mkdir()
        for name in "ab":
            (shard / f"{number}" / name).symlink_to(f"../{number + 1}")
    (shard / "30").mkdir()
    with pytest.raises(DataError, match="more than 1000 files"):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))
    monkeypatch.setattr("paddle_cluster.launcher.shards.tree.MOST_CONFIG_FILES", 1000)
    with pytest.raises(DataError, match=rf"the config directory {shard} has more than 1000 files"):
        check_config_dir(shard)


def test_the_shard_stays_with_the_trainer_id(config: LauncherConfig, tmp_path: Path) -> None:
    """It is copied once for all attempts, and exchanged when the pod gets another id (S21: ./data need not exist)."""
    for number in (0, 1):
        fill(config, {f"part-{number}": "1\n", "sub/more.txt": "2\n"}, number)
    memory, data = AttemptHistory(), tmp_path / "data"
    assert "copied 2 files of shard 1" in stage_shard(config, 1, data, memory)
    (config.job_dir / "1" / "data" / "late").touch()
    assert "is still in" in stage_shard(config, 1, data, memory)
    assert sorted(path.name for path in data.rglob("*")) == ["more.txt", "part-1", "sub"]
    assert "copied 2 files of shard 0" in stage_shard(config, 0, data, memory)
    assert sorted(path.name for path in data.rglob("*")) == ["more.txt", "part-0", "sub"]


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "empty"])
def test_S20_a_missing_or_empty_shard_is_an_error(config: LauncherConfig, tmp_path: Path, exists: bool) -> None:
    """The original ignored cp's status and trained on whatever lay in ./data."""
    if exists:
        fill(config, {".complete": ""})
    else:
        (config.job_dir / "0" / "data").rmdir()
    with pytest.raises(MissingInputError, match=r"0/data, the shard of trainer 0.*data job makes .*SPLIT_COUNT=3"):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))


def test_S20_what_is_unstaged_leaves_the_configs_own_data(config: LauncherConfig, tmp_path: Path) -> None:
    """Files of a linked directory stayed, so that a pod with another id trained with files of its shard of before."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    shard = fill(config, {"part-0": "1\n", "sub/part-0": "1\n"})
    for path in (data / "dict.txt", elsewhere / "part-1", elsewhere / "sub" / "part-2"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    (shard / "linked").symlink_to(elsewhere)
    overlay = Overlay(data, tmp_path / "kept")
    assert stage_data(config, 0, overlay) == 4
    assert (data / "linked" / "sub" / "part-2").is_file()
    overlay.clear()
    assert [path.name for path in data.rglob("*") if path.is_file()] == ["dict.txt"]


def test_S20_a_file_of_the_shard_that_cannot_be_read_is_missing_input(config: LauncherConfig, tmp_path: Path) -> None:
    """It was taken for a full work directory, which is worth a retry."""
    (config.job_dir / "0" / "data" / "train.txt").symlink_to("nowhere")
    with pytest.raises(MissingInputError, match=r"train\.txt"):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))


def test_S24_data_split_for_another_number_of_trainers_are_refused(config: LauncherConfig, tmp_path: Path) -> None:
    """In the original SPLIT_COUNT and the number of trainers were independent: some data were never read (D5)."""
    fill(config, {"train.txt": ""})
    (config.job_dir / "prepared.json").write_text('{"split_count": 4}')
    with pytest.raises(MissingInputError, match="split into 4 shards for 3 trainers"):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x")


def test_S20_a_refused_shard_is_missing_input_whatever_this_python_lists_with(
    config: LauncherConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path.iterdir calls os.listdir up to Python 3.12, and os.scandir from 3.13 on."""
    for function in ("listdir", "scandir"):
        monkeypatch.setattr(os, function, refuse)
    with pytest.raises(MissingInputError, match=f"uid {os.getuid()} cannot read .*0/data: Permission denied"):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))


def lock(path: Path, mode: int) -> Callable[[Path], Path]:
    def change(shard: Path) -> Path:
        place = shard / path
        place.chmod(mode)
        return Path(os.path.normpath(place))

    return change


# how a user without rights is refused: what is changed about the shard, and how much of it the message names
REFUSALS = {
    "the shard may not be listed": lock(Path(), 0o711),
    "the shard may be listed, but not entered": lock(Path(), 0o744),
    "a directory above it may not be entered": lock(Path(".."), 0o700),
    "a file in it may not be read": lock(Path("train.txt"), 0o600),
    "a directory in it may not be listed": lock(Path("sub"), 0o711),
    "a file of a directory in it may not be read": lock(Path("sub/more.txt"), 0o200),
}
STAGE = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from paddle_base.runtime.errors import PaddleError
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.overlay import Overlay
from paddle_cluster.launcher.staging import stage_data
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
config = LauncherConfig.from_env(os.environ)
try:
    stage_data(config, 0, Overlay(Path(sys.argv[2]), Path("kept")))
except PaddleError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may enter; pytest locks its own again with each run."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / JOB / "0" / "data").mkdir(parents=True)
        (Path(name) / "work").mkdir()
        (Path(name) / "work").chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("change", REFUSALS.values(), ids=REFUSALS)
def test_S20_a_shard_of_another_user_is_missing_input(open_place: Path, change: Callable[[Path], Path]) -> None:
    """A process without rights is really refused. The text names what refuses it, its owner, and what to do."""
    config = LauncherConfig.from_env(pod_environment(JOB_PATH=str(open_place)))
    refused = change(fill(config, {"train.txt": "1\n", "sub/more.txt": "2\n"}))
    command = [sys.executable, "-c", STAGE, str(ROOT), str(open_place / "work" / "data"), str(NOBODY)]
    environ = {**os.environ, **pod_environment(JOB_PATH=str(open_place))}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    refused.chmod(0o755)
    assert run.returncode == 66, run.stdout + run.stderr
    assert re.search(rf"uid \d+ cannot read {config.job_dir}/0/data\S*: Permission denied; ", run.stdout), run.stdout
    assert re.search(rf"{refused} belongs to uid {os.getuid()} with mode 0\d+; let this user read it", run.stdout)
    assert re.search(rf"chmod (-R )?a\+rX {refused}$", run.stdout.strip()), run.stdout
