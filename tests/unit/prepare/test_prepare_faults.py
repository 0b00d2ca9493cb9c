"""Faults D1, D2 and D4 of the original's data job (its script get_data.sh), each by name.

D3 and D5 are in the tests of the settings and of the download, the kill points of D1 in tests/integration/prepare.
"""

import errno
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from paddle_base.runtime.errors import DataError, VolumeError
from paddle_cluster.prepare import tree
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.program import main, prepare
from paddle_cluster.prepare.settings import read_settings

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(out_dir, count, *flags):
    source = ["--data_source=synthetic", "--synthetic_rows=60", f"--examples_dir={EXAMPLES}"]
    prepare(read_settings([f"--out_dir={out_dir}", f"--split_count={count}", *source, *flags], {}))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def lines(out_dir, shard, name="train.txt"):
    return (out_dir / str(shard) / "data" / name).read_text().splitlines()


def test_d1_a_run_with_fewer_shards_leaves_no_stale_one(tmp_path):
    """The original left shards 3 and 4 of an earlier run, and their pieces in the others, for a job to find."""
    run(tmp_path, 5)
    run(tmp_path, 3)
    assert names(tmp_path) == ["0", "1", "2", "output", "prepared.json", "quick_start"]
    common = ["dict.txt", "labels.list", "test.list", "test.txt"]
    assert names(tmp_path / "0" / "data") == [*common, "train.list", "train.txt"]
    assert json.loads((tmp_path / "prepared.json").read_text())["split_count"] == 3


def test_d1_a_tree_of_the_original_script_is_replaced_whole(tmp_path):
    """The original's shards have the leftover pieces train.00001 ... beside train.txt."""
    for shard in range(6):
        (tmp_path / str(shard) / "data").mkdir(parents=True)
        (tmp_path / str(shard) / "data" / "train.00005").write_text("old\n")
    for _ in range(2):
        run(tmp_path, 2)
        assert names(tmp_path) == ["0", "1", "earlier-1", "output", "prepared.json", "quick_start"]
        assert not list(tmp_path.glob("[0-9]/**/train.0*"))


def test_data_that_prepare_has_not_made_are_kept_with_a_warning(tmp_path, capsys):
    """They were deleted, although they may be the only copy: docs/tasks.md tells users to put their data there."""
    (tmp_path / "0" / "data").mkdir(parents=True)
    (tmp_path / "0" / "data" / "train.txt").write_text("mine\n")
    run(tmp_path, 1)
    assert (tmp_path / "earlier-1" / "0" / "train.txt").read_text() == "mine\n"
    assert f"WARNING: the data in {tmp_path} are not of this program" in capsys.readouterr().err
    run(tmp_path, 1)
    assert "not of this program" not in capsys.readouterr().err and not (tmp_path / "earlier-2").exists()


@pytest.mark.parametrize("name", ["1", "output"])
def test_a_file_with_the_name_of_a_directory_costs_no_earlier_shard(tmp_path, name):
    """The earlier shards were deleted, and the error advised to make room."""
    run(tmp_path, 1)
    before = lines(tmp_path, 0)
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(VolumeError, match=f"{tmp_path / name} is no directory, .* move it away"):
        run(tmp_path, 2)
    assert (tmp_path / name).read_text() == "mine" and lines(tmp_path, 0) == before


def test_a_file_in_place_of_the_directory_is_told_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VolumeError, match=r"File exists .*move it away, or name another OUT_DIR"):
        run(tmp_path / "file", 1)


def test_d1_nothing_is_visible_before_it_is_whole(tmp_path, monkeypatch):
    """The original untarred and split inside `0/data`, where a job that started meanwhile read half of it."""
    seen = []
    write = tree.write_file

    def watched(path, content):
        seen.append([name for name in names(tmp_path) if not name.startswith(".")])
        write(path, content)

    monkeypatch.setattr(tree, "write_file", watched)
    run(tmp_path, 3)
    assert seen
    assert all(visible == [] for visible in seen)


def test_d1_shard_0_appears_last_and_goes_first(tmp_path, monkeypatch):
    """The original filled shard 0 first, so every kill left a tree that looked like a small job's whole one."""
    run(tmp_path, 3)
    moves = []
    rename = Path.rename

    def watched(self, target):
        moves.append((str(self.relative_to(tmp_path)), str(Path(target).relative_to(tmp_path))))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)
    run(tmp_path, 2)
    assert [old for old, new in moves if "retired" in new] == ["0/data", "1/data", "2/data"]
    assert [new for _, new in moves if new[0].isdigit()] == ["1/data", "0/data"]
    assert moves[-1][1] == "prepared.json"


def test_d1_the_output_of_a_running_job_is_never_touched(tmp_path):
    """The original had no rule; the launcher made output/ itself."""
    results = tmp_path / "output" / "pass-00000"
    results.mkdir(parents=True)
    (results / "done").write_text("")
    before = (tmp_path / "output").stat().st_mtime_ns
    run(tmp_path, 2)
    assert names(results) == ["done"]
    assert (tmp_path / "output").stat().st_mtime_ns == before


def test_d1_a_second_run_that_starts_meanwhile_takes_over_from_the_first(tmp_path):
    """The original had both write into the same files."""
    with pytest.raises(VolumeError, match="No such file"), tree.staging(tmp_path, None) as first:
        run(tmp_path, 2)
        assert not first.exists()
        tree.write_shards(first, [{"train.txt": b"0\tx\n"}], {})
    with pytest.raises(VolumeError, match="another run of prepare"), tree.staging(tmp_path, None) as first:
        run(tmp_path, 2)
        first.mkdir()
        tree.publish(first, tmp_path, 0, "digits")
    assert len(lines(tmp_path, 0)) == 24
    assert names(tmp_path) == ["0", "1", "output", "prepared.json", "quick_start"]


def test_d1_a_run_that_fails_leaves_the_old_shards_as_they_were(tmp_path, monkeypatch):
    """The original deleted nothing, but had overwritten `0/data/train.txt` by then."""
    run(tmp_path, 3)
    before = [lines(tmp_path, shard) for shard in range(3)]

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VolumeError, match="No space left on device"):
        run(tmp_path, 2, "--seed=9")
    assert [lines(tmp_path, shard) for shard in range(3)] == before
    assert names(tmp_path) == ["0", "1", "2", "output", "prepared.json", "quick_start"]


def test_a_failed_run_leaves_no_directory_that_it_has_created(tmp_path):
    kept = tmp_path / "volume"
    kept.mkdir()
    with pytest.raises(KeyError), tree.staging(kept / "team" / "job", None) as directory:
        (directory / "0").mkdir()
        raise KeyError
    assert list(tmp_path.rglob("*")) == [kept]


def test_d1_the_same_settings_give_the_same_bytes(tmp_path):
    """The original's split followed byte offsets of one file; this must hold for a shuffled split too."""
    for name in "ab":
        run(tmp_path / name, 3)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) > 18
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_d2_a_shard_holds_no_line_and_no_file_of_another(tmp_path):
    """The original copied everything of `0/data`, the other pieces too, into each shard: N times the disk, and
    duplicates for a provider that reads `train.*`."""
    run(tmp_path, 3)
    positions = sorted(line for shard in range(3) for line in lines(tmp_path, shard))
    assert len(positions) == 48
    run(tmp_path / "one", 1)
    assert positions == sorted(lines(tmp_path / "one", 0))
    for shard in range(3):
        assert {path.name for path in (tmp_path / str(shard) / "data").glob("train.*")} == {"train.list", "train.txt"}


def test_d4_the_whole_test_set_lies_on_the_volume_once_for_all_trainers(tmp_path):
    """The original copied test data, dictionary and lists once for each trainer."""
    run(tmp_path, 3)
    for name in ("test.txt", "dict.txt"):
        assert len({(tmp_path / str(shard) / "data" / name).stat().st_ino for shard in range(3)}) == 1


def test_d4_test_data_can_be_split_like_training_data(tmp_path):
    """In the original each trainer tested the whole test set; here that is the default, and a choice."""
    run(tmp_path / "whole", 3)
    run(tmp_path / "split", 3, "--test_data=split")
    parts = [lines(tmp_path / "split", shard, "test.txt") for shard in range(3)]
    assert [len(part) for part in parts] == [4, 4, 4]
    assert sorted(line for part in parts for line in part) == sorted(lines(tmp_path / "whole", 1, "test.txt"))


def test_d4_a_file_system_without_hard_links_gets_copies(tmp_path, monkeypatch):
    """Some network file systems have none; the original copied always."""

    def no_links(self, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    run(tmp_path, 2)
    assert lines(tmp_path, 0, "test.txt") == lines(tmp_path, 1, "test.txt")


# ----- the config directory, permissions, other people's files -----


def test_a_config_that_the_user_changed_is_kept_unless_told_otherwise(tmp_path, capsys):
    run(tmp_path, 2)
    config = tmp_path / "quick_start" / "trainer_config.lr.py"
    original = config.read_text()
    config.write_text("mine")
    run(tmp_path, 2)
    assert config.read_text() == "mine"
    assert "differs from the example and is kept" in capsys.readouterr().err
    run(tmp_path, 2, "--replace_config=1")
    assert config.read_text() == original


def test_a_config_of_the_users_own_needs_no_example(tmp_path, capsys):
    run(tmp_path, 2, "--train_config_dir=mine")
    assert f"put your config into {tmp_path / 'mine'}" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


@pytest.mark.usefixtures("own_umask_and_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_a_signal_ends_says_what_is_there_and_how_to_go_on(tmp_path, capsys, monkeypatch, number):
    """It ended without a line."""
    monkeypatch.setattr("paddle_cluster.prepare.program.write_shards", lambda *_: signal.raise_signal(number))
    flags = ["--split_count=2", "--data_source=synthetic", f"--examples_dir={EXAMPLES}", f"--out_dir={tmp_path / 'o'}"]
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 128 + number and not (tmp_path / "o").exists()
    told = f"stopped by {number.name}: no part of the new data set can be used; run the same command again"
    assert told in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code and "stopped" not in capsys.readouterr().err


@pytest.mark.usefixtures("own_umask_and_signals")
def test_too_long_a_name_is_one_line(tmp_path, capsys):
    """It was a traceback."""
    name = tmp_path / ("m" * 256)
    flags = ["--split_count=2", "--data_source=synthetic"]
    assert main([*flags, f"--examples_dir={EXAMPLES}", f"--out_dir={name}"]) == 74
    assert main([*flags, f"--examples_dir={name}", f"--out_dir={tmp_path / 'job'}"]) == 66
    written, read = capsys.readouterr().err.splitlines()
    assert f"cannot write below {name}: File name too long" in written
    assert f"cannot read {name / 'quick_start'}: File name too long" in read


@pytest.mark.usefixtures("own_umask_and_signals")
def test_an_example_that_is_not_there_ends_the_job_unless_the_volume_has_it(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    flags = [f"--out_dir={tmp_path / 'job'}", "--split_count=2", "--data_source=synthetic"]
    flags += ["--synthetic_rows=60", f"--examples_dir={tmp_path / 'empty'}"]
    assert main(flags) == 66
    message = capsys.readouterr().err
    assert f"{tmp_path / 'empty' / 'quick_start'} does not exist; set EXAMPLES_DIR" in message
    assert "ready" not in message
    (tmp_path / "job" / "quick_start").mkdir(parents=True)
    assert main(flags) == 0


def test_other_things_in_a_shard_directory_are_kept(tmp_path):
    (tmp_path / "4" / "data").mkdir(parents=True)
    (tmp_path / "4" / "notes").write_text("mine")
    run(tmp_path, 2)
    assert names(tmp_path / "4") == ["notes"]


@pytest.fixture
def own_umask_and_signals():
    umask, handler = os.umask(0o077), signal.getsignal(signal.SIGTERM)
    yield
    os.umask(umask)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("own_umask_and_signals")
def test_the_group_may_write_whatever_umask_the_job_has(tmp_path):
    status = main([f"--out_dir={tmp_path / 'job'}", "--split_count=2", f"--examples_dir={EXAMPLES}"])
    assert status == 0
    for path in (tmp_path / "job").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o775 if path.is_dir() else 0o664)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_owner_of_the_volume(tmp_path):
    os.chown(tmp_path, 1234, 5678)
    run(tmp_path / "a" / "job", 2)
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (tmp_path / "a").rglob("*")}
    assert owners == {(1234, 5678)}
    run(tmp_path / "a" / "job", 2, "--data_owner=1:2")
    assert (tmp_path / "a" / "job" / "0" / "data" / "train.txt").stat().st_uid == 1


@pytest.mark.usefixtures("own_umask_and_signals")
def test_an_unwritable_volume_names_uid_owner_and_mode(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([f"--out_dir={tmp_path}/file/job", "--split_count=2"]) == 74
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"this process is uid {os.getuid()}" in message
    assert "File exists" in message


@pytest.mark.usefixtures("own_umask_and_signals")
def test_our_own_bug_shows_a_traceback_and_ends_with_70(tmp_path, monkeypatch, capsys):
    def broken(*_):
        raise KeyError("bug")

    monkeypatch.setattr("paddle_cluster.prepare.program.split_dataset", broken)
    assert main([f"--out_dir={tmp_path}", "--split_count=2", f"--examples_dir={EXAMPLES}"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_without_test_samples_there_is_no_test_list(tmp_path):
    run(tmp_path, 2, "--test_fraction=0")
    assert names(tmp_path / "0" / "data") == ["dict.txt", "labels.list", "train.list", "train.txt"]


def test_a_test_set_that_would_leave_a_trainer_without_any_is_refused(tmp_path):
    with pytest.raises(DataError, match="6 test samples cannot be split into 7 shards"):
        run(tmp_path, 7, "--test_fraction=0.1", "--test_data=split")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL], ids=["root squashed", "user namespace"])
def test_a_volume_that_gives_nothing_away_stays_usable_for_root(tmp_path, monkeypatch, code):
    def refused(path, uid, gid, **_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", refused)
    run(tmp_path / "a", 2)
    assert (tmp_path / "a" / "prepared.json").exists()
    with pytest.raises(VolumeError, match="cannot write below"):
        run(tmp_path / "b", 2, "--data_owner=1:2")


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stderr", [None, FullDisk()], ids=["closed", "full"])
def test_a_log_that_cannot_be_written_does_not_end_the_job(stderr, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr)
    say("nobody reads this")
