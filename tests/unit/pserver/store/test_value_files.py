"""Files with all values of a service: the legacy's bytes, complete or not there, and what is wrong with others."""

import errno
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from paddle_base.runtime.errors import DataError, MissingInputError, VolumeError
from pserver.store import value_files
from pserver.wire.protocol import Op


def test_a_file_is_a_header_and_the_values(tmp_path):
    values = np.arange(5, dtype=np.float32)
    path = value_files.path_of(str(tmp_path), 3)
    value_files.save(path, values)
    assert path.name == "pserver.0003"
    assert path.read_bytes() == struct.pack("<iIQ", 0, 4, 5) + values.tobytes()
    found = np.zeros(5, np.float32)
    value_files.load(path, found)
    assert found.tolist() == values.tolist()
    assert [one.name for one in tmp_path.iterdir()] == ["pserver.0003"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no header, 0 bytes"),
        (struct.pack("<iIQ4x", 0, 4, 1), "4 bytes a value, 1 values"),
        (struct.pack("<iIQ8x", 0, 4, 2)[:-1], "2 values, 23 bytes"),
        (struct.pack("<iIQ8x", 1, 4, 2), "version 1"),
    ],
)
def test_another_file_is_refused_and_changes_nothing(tmp_path, content, message):
    path = tmp_path / "pserver.0000"
    path.write_bytes(content)
    values = np.ones(2, np.float32)
    with pytest.raises(DataError, match=message):
        value_files.load(path, values)
    assert values.tolist() == [1, 1]


def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pserver.0000")
    with pytest.raises(MissingInputError, match=r"cannot read .*pserver\.0000: Is no regular file"):
        value_files.load(tmp_path / "pserver.0000", np.zeros(2, np.float32))


def test_a_directory_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "gone" / "pserver.0000"
    with pytest.raises(VolumeError, match=r"cannot write .*gone/pserver\.0000: No such file"):
        value_files.save(path, np.ones(2, np.float32))
    with pytest.raises(MissingInputError, match=r"cannot read .*gone/pserver\.0000: No such file"):
        value_files.load(path, np.ones(2, np.float32))


def test_the_name_of_a_file_outlasts_a_power_cut(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def note(handle):
        synced.append((str(Path(f"/proc/self/fd/{handle}").readlink()), sorted(one.name for one in tmp_path.iterdir())))
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    value_files.save(tmp_path / "pserver.0000", np.ones(2, np.float32))
    assert synced[-1] == (str(tmp_path), ["pserver.0000"])


def test_a_volume_that_turns_read_only_under_a_file_is_a_volume_error(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(VolumeError, match="Read-only file system"):
        value_files.save(tmp_path / "pserver.0000", np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ESTALE, VolumeError), (errno.EIO, VolumeError), (errno.EACCES, MissingInputError)]
)
def test_a_file_on_a_sick_volume_is_not_a_missing_one(tmp_path, monkeypatch, code, kind):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(kind, match=rf"cannot read .*pserver\.0000: {os.strerror(code)}"):
        value_files.load(tmp_path / "pserver.0000", np.ones(2, np.float32))


def finish(wire):
    """Wait for the task as the server's loop does: it looks now and then."""
    wire.service._files._task._thread.join(10)
    wire.check()


def test_a_service_loads_before_the_first_step_and_saves_at_any_time(wire, tmp_path):
    value_files.save(tmp_path / "pserver.0000", np.arange(7, dtype=np.float32))
    wire = wire(1)
    one = wire.trainer(0).join().initialise()
    one.ask(Op.LOAD, note={"directory": str(tmp_path)})
    finish(wire)
    assert one.last.op == Op.LOAD
    one.ask(Op.START_PASS)
    one.push(0)
    assert one.values.tolist() == list(range(7))
    one.push(10)
    one.ask(Op.SAVE, note={"directory": str(tmp_path)})
    finish(wire)
    assert one.last.op == Op.SAVE
    found = np.zeros(7, np.float32)
    value_files.load(tmp_path / "pserver.0000", found)
    assert found.tobytes() == wire.service.state.shard.values.tobytes()
    one.ask(Op.LOAD, note={"directory": str(tmp_path)})
    assert one.last.op == Op.ERROR and "after the first step" in one.last.note["message"]


def test_what_goes_wrong_with_a_file_is_told_with_its_status(wire, tmp_path):
    wire = wire(2)
    one, two = wire.ready()
    one.ask(Op.SAVE, note={"directory": str(tmp_path / "gone")})
    finish(wire)
    assert one.last.op == Op.ERROR and one.last.note["exit_code"] == VolumeError.exit_code
    two.ask(Op.SAVE, note={"directory": str(tmp_path)})
    assert two.last.op == Op.ERROR and "trainer 1" in two.last.note["message"]
    one.ask(Op.SAVE, note={"directory": "here"})
    assert one.last.op == Op.ERROR and "cannot save or load values in 'here'" in one.last.note["message"]


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_earlier_one(tmp_path, monkeypatch):
    """After a power cut it would have its name and not its bytes."""
    steps, sync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), sync(handle)))
    monkeypatch.setattr(Path, "replace", lambda path, target: (steps.append("replace"), replace(path, target))[1])
    value_files.save(tmp_path / "values", np.arange(3, dtype=np.float32))
    assert steps == ["fsync", "replace", "fsync"]  # the last one is the directory's
