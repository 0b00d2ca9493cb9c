"""A volume that is full, away, or lost to this pod: what goes on, what is tried again, and what ends the pod."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

import pytest
from builders import pod, pod_environment, podlist
from launching import make_launcher

import start_paddle
from paddle_base.runtime.errors import VolumeError
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.errors import ApiError, LostMountError
from paddle_cluster.launcher.failures import read_errors
from paddle_cluster.launcher.programs.process import Program, copy_output, pick_last_lines, read_tail
from paddle_cluster.launcher.rendezvous import Rendezvous, decide_attempt
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.overlay import Overlay
from paddle_cluster.launcher.staging import stage_data
from paddle_cluster.launcher.volume import describe_volume_error

IN_AN_ATTEMPT = AttemptHistory(record=JobRecord("this", 10, False, attempt=1, pod_uids=["a"], start_pass=0))


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path)))


def fail_with(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


def test_a_log_that_cannot_be_written_is_said_once_and_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The log's file kept what it could not write, and raised it again when it was closed: status 70, a pod lost."""
    program = Program("trainer", ["echo", "one"], dict(os.environ), Path("/dev/full"), copied=True)
    program.process.wait(10)
    while copy_output(program):
        pass
    program.add_to_log(b"two\n")
    program.close()
    said = capfd.readouterr().out
    assert said.count("cannot write /dev/full: [Errno 28] No space left on device") == 1
    assert "one\n" in said


@pytest.mark.parametrize("copied", [True, False])
def test_the_end_of_a_program_is_told_though_its_log_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """MooseFS held the launcher for two minutes when it read the log of a trainer whose write had been refused."""
    log = tmp_path / "train.log"
    program = Program("trainer", ["sh", "-c", "echo one; exit 3"], dict(os.environ), log, copied=copied)
    program.process.wait(10)
    while copied and copy_output(program):
        pass
    log.unlink()
    os.mkfifo(log)  # whoever opens it, waits for ever
    monkeypatch.setattr("paddle_cluster.launcher.programs.process.TAIL_S", 0.1)
    lines = "one" if copied else "(the volume did not return the log within 0.1 s)"
    assert program.describe_end() == f"trainer ended with status 3; the end of {log}:\n    {lines}"
    os.close(os.open(log, os.O_RDWR))  # lets the reader go
    program.close()


def test_the_end_of_a_log_shows_the_error_and_no_blank_lines() -> None:
    """A program that ended with blank lines showed nothing, and lines after the error hid it."""
    assert pick_last_lines("one\n\n \n\n\n\n\n") == ["one"]
    assert pick_last_lines("\n\n") == pick_last_lines("") == ["(no output)"]
    later = [f"leaked object {number}" for number in range(7)]
    for error in ("..F1129 17:05:09.464277 21929 __main__.py:53] the data has no sample", "ValueError: no label"):
        assert pick_last_lines("\n".join([error, *later])) == [error, *later[-4:]]
    assert pick_last_lines("\n".join(later)) == later[-5:]


def test_a_log_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "no.log") == "(the log cannot be read: No such file or directory)"


def test_what_a_program_writes_is_in_the_pods_own_log_before_the_volume_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program("trainer", ["echo", "one"], dict(os.environ), tmp_path / "log", copied=True)
    program.process.wait(10)
    seen: list[str] = []
    monkeypatch.setattr(program, "add_to_log", lambda chunk: seen.append(capfd.readouterr().out))
    copy_output(program)
    assert seen == ["one\n"]
    program.close()


def obstacles(config: LauncherConfig, history: AttemptHistory) -> AbstractContextManager[None]:
    return Rendezvous(make_launcher(config, WaitPolicy(5.0), history)).volume_obstacles()


def test_before_the_first_attempt_a_full_volume_is_an_error_and_later_it_is_waited_for(config: LauncherConfig) -> None:
    with pytest.raises(VolumeError, match="the volume is full: make room"), obstacles(config, AttemptHistory()):
        fail_with(errno.ENOSPC)
    with (
        pytest.raises(ApiError, match="the volume is full: make room") as caught,
        obstacles(config, IN_AN_ATTEMPT),
    ):
        fail_with(errno.ENOSPC)
    assert caught.value.final is VolumeError and not caught.value.fatal


def test_what_is_decided_again_and_again_on_a_full_volume_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = start_paddle.getIdMap(podlist(pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")))
    config = LauncherConfig.from_env(pod_environment(JOB_PATH=str(tmp_path), POD_IP="10.0.0.1"))
    launcher = make_launcher(config, WaitPolicy(5.0))
    launcher.history.record = decide_attempt(launcher, ids)
    (config.output / "pass-00000").mkdir()
    (config.output / "pass-00000/done").touch()
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("paddle_cluster.launcher.control.job_record.write_atomically", lambda *_: fail_with(errno.ENOSPC))
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                decide_attempt(launcher, ids)
    decide_attempt(launcher, ids)
    said = capsys.readouterr().out
    assert said.count("the previous attempt was attempt 1") == 1
    assert said.count("pass-00000") == 1


@pytest.mark.parametrize("memory", [AttemptHistory(), IN_AN_ATTEMPT], ids=["before", "in an attempt"])
def test_a_pod_whose_mount_is_dead_ends_since_only_another_gets_a_new_one(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch, memory: AttemptHistory
) -> None:
    monkeypatch.setattr(Path, "stat", lambda *_, **__: fail_with(errno.ENOTCONN))
    with (
        pytest.raises(LostMountError, match="is dead: Transport endpoint is not connected") as caught,
        obstacles(config, memory),
    ):
        raise AssertionError("nothing is asked of a dead mount")
    assert caught.value.exit_code == 74


def test_a_stale_root_of_the_volume_is_waited_for(config: LauncherConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "stat", lambda *_, **__: fail_with(errno.ESTALE))
    with obstacles(config, IN_AN_ATTEMPT):
        pass


def test_a_volume_that_is_away_does_not_end_the_watch_over_the_other_pods(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: fail_with(errno.EIO))
    assert read_errors(config.output) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOTCONN])
def test_a_shard_on_a_sick_volume_is_not_a_missing_one(
    config: LauncherConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """66 would end the Job for good."""
    shard = config.job_dir / "0/data"
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda *_: fail_with(code))
        with pytest.raises(VolumeError, match=f"cannot read {shard}: {os.strerror(code)}"):
            stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))
    shard.mkdir(parents=True)
    (shard / "train.list").write_text("a\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    error = OSError(code, os.strerror(code))
    trouble = shutil.Error([(str(shard / "train.list"), "data/train.list", str(error))])
    monkeypatch.setattr(shutil, "copytree", lambda *_, **__: raise_it(trouble))
    with pytest.raises(VolumeError, match=os.strerror(code)):
        stage_data(config, 0, Overlay(tmp_path / "data", tmp_path / "kept"))


def raise_it(error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EROFS, "mount it read-write"),
        (errno.EACCES, "chown"),
        (errno.EEXIST, "in the way"),
    ],
    ids=["full", "read-only", "forbidden", "something else of that name"],
)
def test_S30_a_volume_error_says_what_to_do(tmp_path: Path, number: int, advice: str) -> None:
    problem = OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert advice in describe_volume_error(tmp_path, problem)


def test_S30_a_volume_error_describes_what_was_refused_and_not_what_lies_above_it(tmp_path: Path) -> None:
    """Moving aside an earlier Job's node_0 of another user named output/, which was this user's."""
    tmp_path.chmod(0o750)
    (tmp_path / "node_0").mkdir(mode=0o701)
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "node_0"))
    text = describe_volume_error(tmp_path, refused)
    assert f"{tmp_path / 'node_0'} belongs to uid {os.getuid()} with mode 0701" in text
