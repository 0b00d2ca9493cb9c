"""A volume that is full, away, or lost to this pod: what goes on, what is tried again, and what ends the pod."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from builders import pod, pod_environment, podlist

import start_paddle
from start_paddle import ApiError, JobRecord, LauncherConfig, LostMountError, Memory, VolumeError

IN_AN_ATTEMPT = Memory(record=JobRecord("this", 10, False, attempt=1, pod_uids=["a"], start_pass=0))


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path)))


def fail_with(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


def test_a_log_that_cannot_be_written_is_said_once_and_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The log's file kept what it could not write, and raised it again when it was closed: status 70, a pod lost."""
    program = start_paddle.Program("trainer", ["echo", "one"], dict(os.environ), Path("/dev/full"), copied=True)
    program.process.wait(10)
    while start_paddle.copy_output(program):
        pass
    program.add_to_log(b"two\n")
    program.close()
    said = capfd.readouterr().out
    assert said.count("cannot write /dev/full: [Errno 28] No space left on device") == 1
    assert "one\n" in said


def test_before_the_first_attempt_a_full_volume_is_an_error_and_later_it_is_waited_for(config: LauncherConfig) -> None:
    with pytest.raises(VolumeError, match="the volume is full: make room"):
        start_paddle.try_on_volume(config, Memory(), lambda _: fail_with(errno.ENOSPC), {})
    with pytest.raises(ApiError, match="the volume is full: make room") as caught:
        start_paddle.try_on_volume(config, IN_AN_ATTEMPT, lambda _: fail_with(errno.ENOSPC), {})
    assert caught.value.final is VolumeError and not caught.value.fatal


def test_what_is_decided_again_and_again_on_a_full_volume_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = start_paddle.getIdMap(podlist(pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")))
    config = LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path), POD_IP="10.0.0.1"))
    memory = Memory()
    memory.record = start_paddle.decide_attempt(config, ids, {}, memory)
    (config.output / "pass-00000").mkdir()
    (config.output / "pass-00000/done").touch()
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(start_paddle, "write_atomically", lambda *_: fail_with(errno.ENOSPC))
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                start_paddle.decide_attempt(config, ids, {}, memory)
    start_paddle.decide_attempt(config, ids, {}, memory)
    said = capsys.readouterr().out
    assert said.count("the last was attempt 1") == 1
    assert said.count("pass-00000") == 1


@pytest.mark.parametrize("memory", [Memory(), IN_AN_ATTEMPT], ids=["before", "in an attempt"])
def test_a_pod_whose_mount_is_dead_ends_since_only_another_gets_a_new_one(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch, memory: Memory
) -> None:
    monkeypatch.setattr(Path, "stat", lambda *_, **__: fail_with(errno.ENOTCONN))
    with pytest.raises(LostMountError, match="is dead: Transport endpoint is not connected") as caught:
        start_paddle.try_on_volume(config, memory, lambda _: "never asked", {})
    assert caught.value.exit_code == 74


def test_a_stale_root_of_the_volume_is_waited_for(config: LauncherConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "stat", lambda *_, **__: fail_with(errno.ESTALE))
    assert start_paddle.try_on_volume(config, IN_AN_ATTEMPT, lambda _: "waiting", {}) == "waiting"


def test_a_volume_that_is_away_does_not_end_the_watch_over_the_other_pods(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: fail_with(errno.EIO))
    assert start_paddle.read_errors(config.output) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOTCONN])
def test_a_shard_on_a_sick_volume_is_not_a_missing_one(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """66 would end the Job for good."""
    shard = config.job_dir / "0/data"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", lambda *_: fail_with(code))
        with pytest.raises(VolumeError, match=f"cannot read {shard}: {os.strerror(code)}"):
            start_paddle.stage_data(config, 0, tmp_path / "data")
    shard.mkdir(parents=True)
    (shard / "train.list").write_text("a\n")
    monkeypatch.setattr(start_paddle.os, "access", lambda *_: False)
    error = OSError(code, os.strerror(code))
    trouble = start_paddle.shutil.Error([(str(shard / "train.list"), "data/train.list", str(error))])
    monkeypatch.setattr(start_paddle.shutil, "copytree", lambda *_, **__: raise_it(trouble))
    with pytest.raises(VolumeError, match=os.strerror(code)):
        start_paddle.stage_data(config, 0, tmp_path / "data")


def raise_it(error: Exception) -> NoReturn:
    raise error
