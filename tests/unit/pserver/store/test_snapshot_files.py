"""Snapshots of servers: what is written comes back bit for bit, and what has changed is named and never taken."""

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime import durable_files
from paddle_base.runtime.errors import DamagedError, LostFileError, VolumeError
from pserver.store.snapshot_files import check_directory, path_of_new, read_snapshot, remove_others, write_snapshot

NOTE = {"setup": {"parameters": [["w", 700, 0.5]]}, "done": [3, 4], "text": "ü"}
ARRAYS = {
    "values": np.arange(703, dtype=np.float32),
    "state.m": np.linspace(0, 1, 12).reshape(3, 4),
    "clock.step": np.arange(-3, 4),
    "none": np.zeros((0, 5), np.float32),
    "scalar": np.array(7, np.uint8),
}
SERVICES = [(NOTE, ARRAYS), ({}, {}), ({"a": None}, {"values": np.ones(5, np.float32)})]


def bits(services):
    return [
        (note, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()})
        for note, arrays in services
    ]


@pytest.fixture
def written(tmp_path):
    name, path = path_of_new(tmp_path / "below", 3)
    assert path.name == f"server-0003-{name}"
    return path, write_snapshot(path, SERVICES)


def test_what_is_written_comes_back(written):
    path, crc = written
    assert bits(read_snapshot(path, crc)) == bits(SERVICES)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_an_array_that_is_not_contiguous_comes_back(tmp_path):
    part = np.arange(20, dtype=np.float32).reshape(4, 5)[:, 1:3]
    crc = write_snapshot(tmp_path / "a", [({}, {"values": part})])
    assert bits(read_snapshot(tmp_path / "a", crc)) == bits([({}, {"values": part.copy()})])


def test_a_server_without_values_has_a_snapshot_of_no_service(tmp_path):
    crc = write_snapshot(tmp_path / "a", [])
    assert read_snapshot(tmp_path / "a", crc) == []


# ----- What is not as it was written


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_file_of_which_any_byte_has_changed_is_damaged(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("snapshot") / "a"
    crc = write_snapshot(path, [(NOTE, {"values": np.arange(20, dtype=np.float32)})])
    content = bytearray(path.read_bytes())
    change = data.draw(st.sampled_from(["flip", "cut", "append"]))
    if change == "flip":
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    elif change == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content += data.draw(st.binary(min_size=1, max_size=9))
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"snapshot .*/a of this server is damaged: .*; restore it"):
        read_snapshot(path, crc)


def test_another_whole_file_in_its_place_is_damage(written):
    path, crc = written
    write_snapshot(path, [])
    with pytest.raises(DamagedError, match="its CRC-32 is wrong"):
        read_snapshot(path, crc)


def forge(path, note, arrays=b"", services=1):
    """A file with a right checksum around what is wrong."""
    text = note if isinstance(note, bytes) else json.dumps(note).encode()
    content = struct.pack("<8sII", b"PDLPSNAP", 1, services) + struct.pack("<I", len(text)) + text + arrays
    path.write_bytes(content + struct.pack("<I", zlib.crc32(content)))
    return zlib.crc32(content)


GOOD = {"service": {}, "arrays": []}


@each(
    "note",
    [
        b"",
        b"[" * 100_000,
        {},
        GOOD | {"service": []},
        {"arrays": []},
        GOOD | {"arrays": {}},
        GOOD | {"arrays": [["a", "<f4", [0]]] * 5000},
        *(
            GOOD | {"arrays": [one]}
            for one in (
                5, [], ["a"], [5, "<f4", [1]], ["a", "|O", [1]], ["a", "<U9", [1]], ["a", "x", [1]], ["a", "<f4", 1],
                ["a", "<f4", [-1]], ["a", "<f4", [True]], ["a", "<f4", [1.5]], ["a", "<f4", [1 << 60]],
                ["a", "<f4", [100, 100]], ["a", "<f4", [1] * 9], ["a", None, [1]], ["a", "<M8", [1]],
            )
        ),
    ],
)  # fmt: skip
def test_a_forged_note_is_damage(tmp_path, note):
    crc = forge(tmp_path / "a", note, b"1234")
    with pytest.raises(DamagedError, match="is damaged"):
        read_snapshot(tmp_path / "a", crc)


def test_a_forged_number_of_services_is_damage(tmp_path):
    for services in (2, 1 << 31):
        crc = forge(tmp_path / "a", GOOD, services=services)
        with pytest.raises(DamagedError, match="is damaged"):
            read_snapshot(tmp_path / "a", crc)


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(LostFileError, match=r"the snapshot .*/none of this server cannot be read: No such file"):
        read_snapshot(tmp_path / "none", 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LostFileError, match="cannot be read"):
        read_snapshot(tmp_path / "pipe", 0)


def test_a_directory_that_is_away_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VolumeError, match="--checkpoint_path must be a directory"):
        write_snapshot(tmp_path / "file" / "a", [])


def test_a_write_that_fails_leaves_what_there_was(tmp_path, monkeypatch):
    path = tmp_path / "a"
    crc = write_snapshot(path, [])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_files, "write_file", full)
    with pytest.raises(VolumeError, match="No space left"):
        write_snapshot(path, [])
    assert read_snapshot(path, crc) == []
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_files_of_others_are_not_removed(tmp_path):
    paths = [path_of_new(tmp_path, index)[1] for index in (1, 1, 2, 11)]
    staging = tmp_path / f".{paths[0].name}.writing"
    for path in (*paths, staging, tmp_path / "server-0001", tmp_path / "README"):
        path.touch()
    remove_others(tmp_path, 1, paths[1])
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {*(one.name for one in paths[1:]), "server-0001", "README"}
    remove_others(tmp_path / "none", 1, None)


def test_a_directory_of_snapshots_is_tried_before_the_first_one(tmp_path):
    """A server on a read-only volume noticed it only at its first snapshot."""
    check_directory(tmp_path / "job" / "servers")
    assert list((tmp_path / "job" / "servers").iterdir()) == []
    (tmp_path / "file").write_text("kept")
    for place in (tmp_path / "file", tmp_path / "file" / "servers", Path("/proc/servers")):
        with pytest.raises(VolumeError, match=f"cannot write its snapshot {place}/server-0000-.*--checkpoint_path"):
            check_directory(place)
    assert (tmp_path / "file").read_text() == "kept"
