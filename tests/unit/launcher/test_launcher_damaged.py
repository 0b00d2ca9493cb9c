"""Damaged saves: the newest one is set aside with one line, and an older one taken; what cannot be read now stays."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import crafted
import pytest
from builders import pod, pod_environment, podlist
from launching import agree

import start_paddle
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.checkpoints import find_state_flaw, set_aside_damaged
from paddle_cluster.launcher.resume import position
from paddle_cluster.launcher.settings import LauncherConfig

IDS = start_paddle.getIdMap(podlist(pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")))
TEN_PASSES = {"num_passes": "10"}


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path)))


def begin(config: LauncherConfig, memory: AttemptHistory | None = None) -> JobRecord:
    return agree(config, IDS, memory)


def save_state(config: LauncherConfig, name: str) -> Path:
    directory = config.output / "state" / name
    (directory / "parameters").mkdir(parents=True)
    (directory / "parameters" / "w").write_bytes(b"12345678")
    (directory / "trainers.json").write_text("[]")
    crafted.reseal(directory, crafted.spell({"version": 1, "files": {"parameters/w": 8, "trainers.json": 2}}))
    return directory


def save_pass(config: LauncherConfig, number: int) -> Path:
    directory = config.output / f"pass-{number:05d}"
    directory.mkdir(parents=True)
    (directory / "w").write_bytes(struct.pack("<iIQ3f", 0, 4, 3, 1, 2, 3))
    (directory / "path.txt").write_text("config.py")
    (directory / "empty.py").write_text("")
    (directory / "done").write_text("0.10.0")
    return directory


def shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a bit of job.json": ("job.json", flip),
    "a bit of its mark": ("done", flip),
    "its mark is cut off": ("done", shorten),
    "a file is a byte short": ("parameters/w", shorten),
    "a file is gone": ("trainers.json", lambda path: path.unlink()),
    **{f"{what} for job.json": ("job.json", replace) for what, replace in crafted.REPLACEMENTS.items()},
    **{f"{what} for a file": ("parameters/w", replace) for what, replace in crafted.REPLACEMENTS.items()},
    **{
        f"{what} as job.json": ("done", lambda path, text=text: crafted.reseal(path.parent, text))
        for what, text in crafted.TEXTS.items()
    },
    "a name outside": (
        "done",
        lambda path: crafted.reseal(path.parent, b'{"version": 1, "files": {"../../../etc/passwd": 1}}'),
    ),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_it_taken(
    config: LauncherConfig, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    """It failed the Job for good, with 65, while an older whole one lay beside it."""
    begin(config)
    for one in ("pass-00000", "pass-00001-002"):
        state = save_state(config, one)
    damage(state / name)
    assert begin(config).checkpoint == "pass-00000"
    assert sorted(path.name for path in (config.output / "state").iterdir()) == ["pass-00000", "pass-00001-002.damaged"]
    lines = [line for line in capsys.readouterr().out.splitlines() if " is damaged: " in line]
    assert len(lines) == 1 and "state/pass-00001-002" in lines[0] and "pass-00001-002.damaged" in lines[0]
    assert begin(config).checkpoint == "pass-00000"


def test_a_second_damaged_one_of_the_name_does_not_replace_the_first(config: LauncherConfig) -> None:
    begin(config)
    for _ in range(3):
        shorten(save_state(config, "pass-00000") / "job.json")
        begin(config)
    suffixes = [path.name.removeprefix("pass-00000") for path in (config.output / "state").iterdir()]
    assert sorted(suffixes) == [".damaged", ".damaged.2", ".damaged.3"]


def test_a_damaged_newest_pass_is_set_aside_where_passes_are_gone_on_from(config: LauncherConfig) -> None:
    begin(config)
    for number in range(3):
        directory = save_pass(config, number)
    shorten(directory / "w")
    record = begin(config)
    assert record.start_pass == 2 and (config.output / "pass-00002.damaged").is_dir()
    assert position("pass-00002.damaged") == (-1, 0.0)


def test_whole_saves_stay_where_they_are(config: LauncherConfig, capsys: pytest.CaptureFixture[str]) -> None:
    begin(config)
    for number in range(2):
        save_pass(config, number)
        save_state(config, f"pass-0000{number}")
    with (config.output / "pass-00001" / "w").open("ab") as file:
        file.write(b"more")  # the original did not mind
    (config.output / "pass-00001" / "done").write_text("another version")
    assert begin(config).checkpoint == "pass-00001"
    assert "damaged" not in capsys.readouterr().out


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOSPC, errno.ENOTCONN, errno.ETIMEDOUT])
def test_what_cannot_be_read_now_is_not_damaged(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    save_state(config, "pass-00000")
    save_pass(config, 0)

    def refuse(path: Path, *_: object, **__: object) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr("paddle_cluster.launcher.checkpoints.read_text_file", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    saved = set_aside_damaged(config.output)
    assert (saved.states, saved.passes) == (("pass-00000",), (0,))


def test_the_attempt_that_found_its_checkpoint_damaged_is_not_one_in_vain(config: LauncherConfig) -> None:
    """With RESTARTS=0 it would have ended the Job; trainer 0 has looked at the sums."""
    begin(config)
    for one in ("pass-00000", "pass-00001"):
        state = save_state(config, one)
    counts = [begin(config).fruitless]
    state.rename(state.with_name("pass-00001.damaged"))
    record = begin(config)
    assert (record.checkpoint, record.fruitless) == ("pass-00000", counts[0])
    assert begin(config).fruitless == counts[0] + 1  # and the next one is, if it leaves nothing


def test_a_checkpoint_of_a_later_release_is_for_the_trainer_to_judge(config: LauncherConfig) -> None:
    state = save_state(config, "pass-00000")
    crafted.reseal(state, b'{"version": 2, "content": 7}')
    assert find_state_flaw(state) == ""
