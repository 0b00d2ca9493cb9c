"""Checkpoints on the volume: what is complete at every moment, what is kept, and what is refused."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime import durable_files
from paddle_base.runtime.errors import ConfigError, DamagedError, DataError, MissingInputError, VolumeError
from paddle_base.runtime.saves import clean, list_saves
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.parameters import ParameterTable
from trainer.storage import checkpoint, checkpoint_reader
from trainer.storage.checkpoint import keep_newest, write_checkpoint
from trainer.storage.checkpoint_reader import read_checkpoint
from trainer.storage.sums import sum_of

CONFIGS = {"config.py": b"outputs()"}


def make_table(*parameters, value=0.0):
    given = parameters or (("w", 6, False), ("mean", 2, True), ("b", 3, False))
    table = ParameterTable([ParameterConfig(name=n, size=s, dims=[1, s], is_static=fixed) for n, s, fixed in given])
    for number, parameter in enumerate(table):
        parameter.value[:] = value + number + np.arange(parameter.size) / 8
    return table


def count(steps):
    """The counters of a service without parameter groups."""
    counts = dict.fromkeys(("size", "samples", "steps", "passes", "batch"), steps)
    settings = {"learning_method": "momentum", "learning_rate": {"float": "0x1.0p+0"}}
    lists = {"settings": settings, "layout": [], "segments": [], "schedule": [0, False], "averaging": None}
    return {**counts, **lists, "rate": "0x1.0p+0"}


def checkpoint_of(table, steps=7):
    """A service with all values, and one with some of its own."""
    first = Part(count(steps), {"values": table.values, "clock.step": np.arange(3, dtype=np.int64) + steps})
    second = Part(count(steps), {"values": np.full(4, steps, np.float32), "empty": np.zeros(0, np.float32)})
    return CheckpointState([first, second], [{"place": {"batches": steps}}, None])


def write(folder, name, value=0.0):
    table = make_table(value=value)
    write_checkpoint(folder / name, checkpoint_of(table, int(value)), table, CONFIGS, {"number": 1})
    return table


def read(folder, name):
    table = make_table(value=-1)
    return table, read_checkpoint(folder / name, table)


def test_what_was_written_is_read(tmp_path):
    table = write(tmp_path, "pass-00001-002", 7.0)
    found, gathered = read(tmp_path, "pass-00001-002")
    for parameter in table:
        assert found[parameter.name].value.tolist() == parameter.value.tolist()
    assert gathered.trainers == [{"place": {"batches": 7}}, None]
    assert [part.counters for part in gathered.services] == [count(7)] * 2
    for part, written in zip(gathered.services, checkpoint_of(table, 7).services, strict=True):
        assert list(part.arrays) == list(written.arrays)
        for name, array in written.arrays.items():
            assert (part.arrays[name].dtype, part.arrays[name].tolist()) == (array.dtype, array.tolist())


def test_values_that_the_parameter_files_have_are_written_once(tmp_path):
    write(tmp_path, "pass-00000")
    names = {str(path.relative_to(tmp_path / "pass-00000")) for path in (tmp_path / "pass-00000").rglob("*")}
    assert "services/0/values.bin" not in names
    assert {"services/1/values.bin", "parameters/w", "parameters/mean", "parameters/done"} <= names


def test_at_every_moment_of_a_save_only_complete_checkpoints_count(tmp_path, monkeypatch):
    """A picture of the volume is taken at every sync; a kill or a power cut leaves what is on one of them."""
    state, pictures, real = tmp_path / "state", [], os.fsync

    def picture(handle):
        real(handle)
        pictures.append(tmp_path / f"picture{len(pictures)}")
        shutil.copytree(state, pictures[-1])

    state.mkdir()
    monkeypatch.setattr(os, "fsync", picture)
    for number, name in enumerate(["pass-00000-001", "pass-00000", "pass-00001-001", "pass-00001-001"], 1):
        write(state, name, float(number))
        keep_newest(state, name, 2)
    monkeypatch.undo()
    assert len(pictures) > 40
    seen = 0
    for one in pictures:
        for _ in range(2):  # before and after the next attempt cleans up
            complete = list_saves(one)
            for name in complete:
                table, gathered = read(one, name)
                assert table["w"].value[0] == gathered.services[0].counters["steps"]
            assert len(complete) >= seen
            clean(one)
        assert {path.name for path in one.iterdir()} == set(complete)
        seen = max(seen, min(len(complete), 1))
    assert seen == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_save_that_fails_anywhere_loses_nothing(tmp_path, monkeypatch, code):
    write(tmp_path, "pass-00000", 1.0)
    real, calls, limit = os.fsync, [0], [0]

    def fail(handle):
        calls[0] += 1
        if calls[0] == limit[0]:
            raise OSError(code, os.strerror(code))
        real(handle)

    monkeypatch.setattr(os, "fsync", fail)
    for fails_at in range(1, 100):
        calls[0], limit[0] = 0, fails_at
        try:
            write(tmp_path, "pass-00001", 2.0)
        except VolumeError as error:
            assert "cannot save to" in str(error)
            assert set(list_saves(tmp_path)) <= {"pass-00000", "pass-00001"}
            assert read(tmp_path, "pass-00000")[0]["w"].value[0] == 1.0
        else:
            break
    assert 10 < fails_at < 99
    assert list_saves(tmp_path) == ["pass-00000", "pass-00001"]


@pytest.mark.parametrize("name", ["pass-00001", "pass-00000"])
def test_a_volume_that_fills_up_at_any_file_leaves_only_complete_checkpoints(tmp_path, monkeypatch, name):
    """A file is made without room for its first byte: the mark, too, which counts by its name."""
    write(tmp_path, "pass-00000", 1.0)
    real, calls, limit = durable_files.write_file, [0], [0]

    def fill_up(path, content):
        calls[0] += 1
        if calls[0] == limit[0]:
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    monkeypatch.setattr(durable_files, "write_file", fill_up)
    monkeypatch.setattr(checkpoint, "write_file", fill_up)
    for fails_at in range(1, 100):
        calls[0], limit[0] = 0, fails_at
        try:
            write(tmp_path, name, 2.0)
        except VolumeError:
            clean(tmp_path)  # as the next attempt does
            assert list_saves(tmp_path) == ["pass-00000"]
            assert read(tmp_path, "pass-00000")[0]["w"].value[0] == 1.0
        else:
            break
    assert 5 < fails_at < 99
    assert read(tmp_path, name)[0]["w"].value[0] == 2.0


def test_on_a_volume_that_does_not_answer_a_save_is_kept_and_going_on_may_be_tried_again(tmp_path, monkeypatch, capsys):
    write(tmp_path, "pass-00000")

    def fail(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "iterdir", fail)
    keep_newest(tmp_path, "pass-00000", 2)
    assert "cannot look for old checkpoints" in capsys.readouterr().err
    with pytest.raises(VolumeError, match=r"cannot clean up .*: Stale file handle"):
        clean(tmp_path)
    monkeypatch.setattr(checkpoint_reader, "open_regular", fail)
    with pytest.raises(VolumeError, match=r"done of the checkpoint .* cannot be read: Stale file handle"):
        read(tmp_path, "pass-00000")


def test_the_newest_are_kept_and_those_of_a_later_place_go(tmp_path, capsys):
    for name in ("pass-00000-001", "pass-00000-002", "pass-00000", "pass-00001-001", "pass-00007"):
        write(tmp_path, name)
    assert list_saves(tmp_path) == [
        "pass-00000-001",
        "pass-00000-002",
        "pass-00000",
        "pass-00001-001",
        "pass-00007",
    ]
    keep_newest(tmp_path, "pass-00001-001", 2)
    assert list_saves(tmp_path) == ["pass-00000", "pass-00001-001"]
    assert "pass-00007 is removed: this run has not reached the checkpoint's position" in capsys.readouterr().err


def test_cleaning_leaves_what_is_not_ours(tmp_path):
    for name in ("notes", "pass-1", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("pass-00003", ".pass-00004.writing", ".pass-00005.old"):
        (tmp_path / name).mkdir()
    clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "pass-1", ".hidden"}
    clean(tmp_path / "nowhere")


def test_a_checkpoint_that_was_replaced_whole_stays_when_the_old_one_is_still_there(tmp_path):
    for name in ("pass-00001", ".pass-00001.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "done").write_text(name)
    clean(tmp_path)
    assert {path.name: (path / "done").read_text() for path in tmp_path.iterdir()} == {"pass-00001": "pass-00001"}


def spoil_size(folder):
    with (folder / "services/1/values.bin").open("ab") as file:
        file.truncate(8)


def spoil_job(folder):
    job = json.loads((folder / "job.json").read_text())
    job["services"][0]["counters"]["steps"] = 0
    (folder / "job.json").write_text(json.dumps(job))


def write_job(folder, text):
    """Write a job.json that fits its mark."""
    (folder / "job.json").write_text(text)
    (folder / "done").write_text(hashlib.sha256(text.encode()).hexdigest())


def spoil_version(folder):
    write_job(folder, json.dumps({"version": 9}))


def flip_bit(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 4
    (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (spoil_size, DataError, r"values\.bin has 8 bytes, not 16"),
        (lambda folder: (folder / "parameters" / "w").unlink(), DataError, "parameters/w is missing"),
        (spoil_job, DataError, "job.json does not have the checksum in 'done'"),
        (lambda folder: (folder / "done").write_bytes(b"\xff"), DataError, "does not have the checksum in 'done'"),
        (lambda folder: (folder / "job.json").write_text("{"), DataError, "does not have the checksum in 'done'"),
        (
            lambda folder: (folder / "job.json").write_text('{"version": 9}'),
            DataError,
            "does not have the checksum in 'done'",
        ),
        (lambda folder: write_job(folder, "{"), DataError, "job.json cannot be read"),
        (lambda folder: (folder / "job.json").unlink(), MissingInputError, "it has no job.json"),
        (lambda folder: flip_bit(folder, "job.json"), DataError, "does not have the checksum in 'done'"),
        (spoil_version, ConfigError, "has version 9, but this program reads version 1"),
        (
            lambda folder: (folder / "done").unlink(),
            MissingInputError,
            "no complete checkpoint; complete checkpoints are",
        ),
        (shutil.rmtree, MissingInputError, "there is no such directory"),
    ],
)
def test_a_checkpoint_that_is_not_in_order_is_refused(tmp_path, spoil, kind, message):
    for name in ("pass-00000", "pass-00001"):
        write(tmp_path, name)
    spoil(tmp_path / "pass-00001")
    with pytest.raises(kind, match=message):
        read(tmp_path, "pass-00001")


def names_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_bit_that_has_changed_in_any_file_is_noticed_and_the_others_are_named(tmp_path):
    """A flipped bit of an array trained on, with other numbers, and nothing said so."""
    for name in ("pass-00000", "pass-00001"):
        write(tmp_path, name)
    names = [name for name in names_of(tmp_path / "pass-00001") if (tmp_path / "pass-00001" / name).stat().st_size]
    assert len(names) > 8
    for name in names:
        before = (tmp_path / "pass-00001" / name).read_bytes()
        flip_bit(tmp_path / "pass-00001", name)
        with pytest.raises(
            DamagedError, match=r"pass-00001 is damaged: .*go on from another checkpoint: .*/pass-00000"
        ):
            read(tmp_path, "pass-00001")
        (tmp_path / "pass-00001" / name).write_bytes(before)
    read(tmp_path, "pass-00001")


def test_the_sums_are_those_of_the_files_also_of_large_ones(tmp_path):
    table = make_table(("w", 100_000, False), ("b", 3, False))
    write_checkpoint(tmp_path / "pass-00000", checkpoint_of(table), table, CONFIGS, {})
    job = json.loads((tmp_path / "pass-00000" / "job.json").read_text())
    assert job["sums"] == {name: sum_of([(tmp_path / "pass-00000" / name).read_bytes()]) for name in job["files"]}
    assert set(names_of(tmp_path / "pass-00000")) == {*job["files"], "job.json", "done"}


def test_a_checkpoint_of_an_older_release_is_read_and_what_it_lacks_is_said_once(tmp_path, capsys):
    table = write(tmp_path, "pass-00000", 7.0)
    job = json.loads((tmp_path / "pass-00000" / "job.json").read_text())
    del job["sums"]
    write_job(tmp_path / "pass-00000", json.dumps(job))
    found, _ = read(tmp_path, "pass-00000")
    assert found["w"].value.tolist() == table["w"].value.tolist()
    assert capsys.readouterr().err.count("has no checksums of its files, because an older release wrote it") == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([("w", 6, False), ("mean", 2, True)], "only the checkpoint has b"),
        ([("w", 6, False), ("mean", 2, True), ("b", 3, False), ("c", 1, False)], "only the config has c"),
        (
            [("w", 7, False), ("mean", 2, False), ("b", 3, False)],
            r"w has 6 .*, but 7 in the config; mean has 2 elements \(static\)",
        ),
        ([("b", 3, False), ("mean", 2, True), ("w", 6, False)], "the order of the parameters differs"),
        ([(f"v{n}", 1, False) for n in range(9)], "and 7 more"),
    ],
)
def test_a_checkpoint_of_other_parameters_is_refused_by_their_names(tmp_path, parameters, message):
    write(tmp_path, "pass-00000")
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(tmp_path / "pass-00000", make_table(*parameters))


def test_names_rise_with_the_place_in_training():
    names = ["pass-00000-001", "pass-00000-010", "pass-00000-1000", "pass-00000", "pass-00001-001", "pass-100000"]
    keys = [checkpoint.order_of(name) for name in names]
    assert None not in keys and keys == sorted(keys)
    assert checkpoint.order_of("pass-00001.old") is None
