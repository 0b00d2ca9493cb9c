"""The lock on a save directory, where the file system has none or gives it to nobody."""

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_base.runtime.directory_lock import is_abandoned
from paddle_base.runtime.errors import DirectoryInUseError, UsageError, VolumeError
from paddle_base.runtime.saves import PENDING, PendingMove, find_pending_move
from trainer.flags import parse_flags
from trainer.storage.save_directory import LOCK, SaveDirectory

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
    assert capsys.readouterr().err.count("has no locks: make sure that no other run writes into it") == 1
    directory.leave()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EAGAIN])
def test_who_holds_the_lock_is_said_also_where_nothing_is_written_yet(tmp_path, monkeypatch, code):
    refuse(monkeypatch, code)
    for content, said in (("pid 7 on node-1 since\n\x1b[2J", r"pid 7 on node-1 since\\n\\x1b\[2J"), ("", "just begun")):
        (tmp_path / LOCK).write_text(content)
        with pytest.raises(DirectoryInUseError, match=rf"another run writes into it \(.*{said}\); wait for its end"):
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


@pytest.mark.parametrize("has_passes", [True, False])
def test_what_a_launcher_wants_moved_moves_at_the_first_batch(tmp_path, has_passes):
    fill(tmp_path)
    PendingMove("run-4", has_passes).write(tmp_path)
    for _ in range(2):  # an attempt that was killed before its first batch leaves all to the next one
        directory = SaveDirectory(parse_flags(FLAGS), {"PADDLE_ATTEMPT": "1.ab"})
        directory.prepare(str(tmp_path))
        assert directory.has_earlier and not directory.holds_records and not (tmp_path / "run-4").exists()
    directory.begin()
    assert not directory.has_earlier and find_pending_move(tmp_path) is None
    (tmp_path / "run-4").rename(tmp_path / "run-1")
    states = {f"state/{name}" for name in STATES}
    assert find_moved(tmp_path) == (states | {*SAVES, "pass-00009.damaged"} if has_passes else states)
    assert (tmp_path / "report.html").exists()  # the launcher moves it before this run begins its own


def test_a_mark_of_another_form_is_none(tmp_path):
    for text in ("", "../elsewhere\nall\n", "run-x"):
        (tmp_path / PENDING).write_text(text)
        assert find_pending_move(tmp_path) is None


SAVES = ("pass-00000", "pass-00001", "pass-00002-001", "pass-00002-002", "pass-00002", "pass-00003")
STATES = ("pass-00001", "pass-00002-003", "pass-00002-004", "pass-00002")


def fill(folder):
    for name in [*SAVES, *(f"state/{name}" for name in STATES), "pass-00009.damaged", "mine"]:
        (folder / name).mkdir(parents=True)
    (folder / "report.html").touch()


def find_moved(folder):
    moved = folder / "run-1"
    return {str(path.relative_to(moved)) for path in [*moved.glob("*"), *moved.glob("state/*")]} - {"state"}


FROM_PASS_2 = {*SAVES[2:], *(f"state/{name}" for name in STATES[1:])}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ["--init_model_path=out/pass-00001"],
            {*SAVES, *(f"state/{name}" for name in STATES), "pass-00009.damaged", "report.html"},
        ),
        (["--start_pass=2"], FROM_PASS_2),
        (["--start_pass=2", "--init_model_path=out/pass-00002-001"], FROM_PASS_2),
        (["--start_pass=4"], set()),
        (
            ["--resume_from=in_pass_2"],
            {"pass-00002-002", "pass-00002", "pass-00003", "state/pass-00002-004", "state/pass-00002"},
        ),
        (["--resume_from=after_pass_3"], set()),
        (["--resume_from=of_an_old_release"], set()),
    ],
)
def test_a_run_that_goes_on_replaces_no_save_of_an_earlier_run(tmp_path, monkeypatch, flags, expected):
    """It wrote over the passes whose names it used again, in silence."""
    monkeypatch.chdir(tmp_path)
    places = {
        "in_pass_2": {"place": {"number": 2, "saves": 1, "checkpoints": 3}},
        "after_pass_3": {"place": {"number": 4, "saves": 0, "checkpoints": 0}},
        "of_an_old_release": {},
    }
    for name, job in places.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(json.dumps(job))
    fill(tmp_path / "out")
    directory = SaveDirectory(parse_flags([*FLAGS, *flags]), {})
    directory.prepare("out")
    assert directory.has_earlier == bool(expected) and not (tmp_path / "out/run-1").exists()
    directory.begin()
    directory.leave()
    assert find_moved(tmp_path / "out") == expected


def test_a_save_that_other_trainers_may_still_read_is_not_moved(tmp_path):
    fill(tmp_path)
    model = f"--init_model_path={tmp_path}/pass-00003"
    for flags, remedy in (
        (["--local=0"], "add --start_pass=N, .*, or another --save_dir"),
        (["--local=0", "--start_pass=4"], ""),
        (["--store_dir=s"], "add another --save_dir"),
    ):
        directory = SaveDirectory(parse_flags([*FLAGS, model, *flags]), {})
        with pytest.raises(UsageError, match=remedy) if remedy else contextlib.nullcontext():
            directory.prepare(str(tmp_path))
        directory.leave()


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
    assert not is_abandoned(tmp_path / LOCK)
    os.mkfifo(tmp_path / LOCK)
    assert not is_abandoned(tmp_path / LOCK)
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_text("pid 7 on node-1 since yesterday\n")
    assert is_abandoned(tmp_path / LOCK)

    def refuse_fcntl(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse_fcntl)
    assert not is_abandoned(tmp_path / LOCK)


def run_beside(folder, *flags):
    """Take a directory in another process, and return what that says."""
    code = (
        "import sys; from trainer.flags import parse_flags; from trainer.storage.save_directory import SaveDirectory\n"
        "try: SaveDirectory(parse_flags(sys.argv[2:]), {}).prepare(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    command = [sys.executable, "-c", code, str(folder), *FLAGS, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_trainers_of_a_master_share_the_directory_and_no_other_run_has_it(tmp_path):
    (tmp_path / "pass-00000").mkdir()
    directory = SaveDirectory(parse_flags([*FLAGS, "--store_dir=store"]), {})
    directory.prepare(str(tmp_path))
    assert run_beside(tmp_path, "--store_dir=store") == ""
    assert run_beside(tmp_path) == "DirectoryInUseError"
    assert (tmp_path / "pass-00000").exists()
    directory.leave()
    assert run_beside(tmp_path) == "" and not (tmp_path / "run-1").exists()


def test_a_master_job_waits_for_the_end_of_a_run_of_its_own(tmp_path):
    directory = SaveDirectory(parse_flags(FLAGS), {})
    directory.prepare(str(tmp_path))
    assert run_beside(tmp_path, "--store_dir=store") == "DirectoryInUseError"
    directory.leave()
    assert not (tmp_path / LOCK).exists()


def test_the_last_trainer_removes_the_lock(tmp_path):
    """Another process holds it while the first one leaves."""
    directory = SaveDirectory(parse_flags([*FLAGS, "--store_dir=store"]), {})
    directory.prepare(str(tmp_path))
    with (tmp_path / LOCK).open("r+b") as file:
        started, ending = os.pipe(), os.pipe()
        if (pid := os.fork()) == 0:
            fcntl.lockf(file, fcntl.LOCK_SH)
            os.write(started[1], b"x")
            os.read(ending[0], 1)
            os._exit(0)
        os.read(started[0], 1)
        directory.leave()
        assert (tmp_path / LOCK).exists()
        os.write(ending[1], b"x")
        os.waitpid(pid, 0)
    other = SaveDirectory(parse_flags([*FLAGS, "--store_dir=store"]), {})
    other.prepare(str(tmp_path))
    other.leave()
    assert list(tmp_path.iterdir()) == []
