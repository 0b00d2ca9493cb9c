"""The lock on a save directory, where the file system has none or gives it to nobody."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from runtime.errors import DirectoryInUseError, VolumeError
from trainer.flags import parse_flags
from trainer.storage.save_directory import LOCK, SaveDirectory, is_abandoned

FLAGS = ["--config=config.py"]


def refuse(monkeypatch, code):
    def lockf(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "lockf", lockf)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_costs_a_warning(tmp_path, monkeypatch, capsys, code):
    refuse(monkeypatch, code)
    directory = SaveDirectory(parse_flags(FLAGS), {})
    directory.prepare(str(tmp_path / "new" / "out"))
    assert capsys.readouterr().err.count("has no locks: see to it that no other run writes into it") == 1
    directory.leave()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EAGAIN])
def test_who_holds_the_lock_is_said_also_where_nothing_is_written_yet(tmp_path, monkeypatch, code):
    refuse(monkeypatch, code)
    for content, said in (("pid 7 on node-1 since\n\x1b[2J", r"pid 7 on node-1 since\\n\\x1b\[2J"), ("", "just begun")):
        (tmp_path / LOCK).write_text(content)
        with pytest.raises(DirectoryInUseError, match=f"another run writes into it, .*{said}; wait for its end"):
            SaveDirectory(parse_flags(FLAGS), {}).prepare(str(tmp_path))


def test_a_volume_that_fails_is_a_volume_error_and_nothing_stays_open(tmp_path, monkeypatch):
    refuse(monkeypatch, errno.EIO)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(VolumeError, match=r"cannot save to .*: Input/output error"):
        SaveDirectory(parse_flags(FLAGS), {}).prepare(str(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """The run before removes the file when it ends: another one may have opened it before that."""
    real, times = fcntl.lockf, []

    def lockf(handle, flags):
        if not times:
            (tmp_path / LOCK).unlink()
        times.append(1)
        real(handle, flags)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    directory = SaveDirectory(parse_flags(FLAGS), {})
    directory.prepare(str(tmp_path))
    assert len(times) == 2 and (tmp_path / LOCK).read_text().startswith(f"pid {os.getpid()} on ")
    directory.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_cares_for_the_directory_itself(tmp_path):
    (tmp_path / "pass-00000").mkdir()
    directory = SaveDirectory(parse_flags(FLAGS), {"PADDLE_ATTEMPT": "1.ab"})
    directory.prepare(str(tmp_path))
    directory.leave()
    assert [path.name for path in tmp_path.iterdir()] == ["pass-00000"]


def test_earlier_passes_stay_until_the_run_begins(tmp_path):
    (tmp_path / "pass-00000").mkdir()
    directory = SaveDirectory(parse_flags(FLAGS), {})
    directory.prepare(str(tmp_path))
    assert directory.has_earlier and (tmp_path / "pass-00000").exists()
    for _ in range(2):  # what this run saves is none of the earlier one's
        directory.begin()
        assert not directory.has_earlier and [path.name for path in (tmp_path / "run-1").iterdir()] == ["pass-00000"]
        (tmp_path / "pass-00000").mkdir(exist_ok=True)
    directory.leave()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pass-00000", "run-1"]


def test_passes_that_cannot_be_moved_are_a_volume_error(tmp_path, monkeypatch):
    (tmp_path / "pass-00000").mkdir()
    directory = SaveDirectory(parse_flags(FLAGS), {})
    directory.prepare(str(tmp_path))

    def refuse_rename(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "rename", refuse_rename)
    with pytest.raises(VolumeError, match=r"cannot save to .*: Read-only file system"):
        directory.begin()
    directory.leave()


def test_where_no_lock_is_or_none_can_be_asked_about_nothing_is_abandoned(tmp_path, monkeypatch):
    assert not is_abandoned(tmp_path)
    os.mkfifo(tmp_path / LOCK)
    assert not is_abandoned(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_text("pid 7 on node-1 since yesterday\n")
    assert is_abandoned(tmp_path)

    def refuse_fcntl(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse_fcntl)
    assert not is_abandoned(tmp_path)
