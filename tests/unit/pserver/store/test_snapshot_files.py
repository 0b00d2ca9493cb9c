"""Snapshots of servers: what is written comes back bit for bit, and what has changed is named and never taken."""

import json
import os
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, snapshot, snapshot_files
from pserver.store.model_setup import describe_setup
from pserver.store.service_snapshot import SnapshotQueue, make_shard, take_service
from pserver.store.shard_loader import ShardLoader
from pserver.store.snapshot_files import path_of_new, read_snapshot, remove_others, write_snapshot
from pserver.wire import protocol
from runtime.errors import DamagedError, LostFileError, VolumeError

DENSE = [ParameterSpec("w", 700), ParameterSpec("b", 3, momentum=0.9)]
TABLE = [ParameterSpec("t", 60, sparse_update=True, row_width=6)]
ADAM = Optimization("adam", 0.1)


def begin(parameters, optimization, *, by_rows=False, services=1):
    """A service's hello, its setup, and its shard with first values."""
    hello = {"service": 0, "services": services, "parameters": partition.digest(parameters), "more": "is left out"}
    setup = describe_setup(parameters, optimization) | ({"by_rows": True} if by_rows else {})
    loader = ShardLoader(hello, setup)
    values = np.random.default_rng(1).standard_normal(loader._shard.size).astype(np.float32)
    loader.add("values", 0, memoryview(values.view(np.uint8)))
    return hello, setup, loader.finish()


def step(shard, seed):
    gradient = np.random.default_rng(seed).standard_normal(shard.size).astype(np.float32)
    shard.begin_step(8)
    shard.step_range(0, [gradient])
    shard.finish_step()


def bits(shard):
    part = snapshot.take(shard)
    return part.counters, {name: array.tobytes() for name, array in part.arrays.items()}


@pytest.fixture
def written(tmp_path):
    """A file of two services, and the shards that it has the state of."""
    services = [begin(DENSE, ADAM, services=2), begin(TABLE, Optimization("momentum", 0.1), by_rows=True)]
    step(services[0][2], 1)
    taken = [
        take_service(shard, hello, setup, {"pushed": {"3": 7}, "done": [1, number]})
        for number, (hello, setup, shard) in enumerate(services)
    ]
    _, path = path_of_new(tmp_path / "below", 3)
    return path, write_snapshot(path, taken), [shard for *_, shard in services]


def test_what_is_written_comes_back(written):
    path, crc, shards = written
    found = read_snapshot(path, crc)
    assert [bits(make_shard(one)) for one in found] == [bits(shard) for shard in shards]
    assert [one.elastic for one in found] == [{"pushed": {"3": 7}, "done": [1, number]} for number in (0, 1)]
    assert found[0].hello == {"service": 0, "services": 2, "parameters": partition.digest(DENSE)}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_run_that_goes_on_from_a_file_ends_in_the_same_bits(written):
    path, crc, (shard, _) = written
    again = make_shard(read_snapshot(path, crc)[0])
    for seed in range(2, 6):
        step(shard, seed)
        step(again, seed)
    assert bits(again) == bits(shard)


def test_later_steps_do_not_change_what_was_taken():
    hello, setup, shard = begin(DENSE, ADAM)
    before = bits(shard)
    taken = take_service(shard, hello, setup, {})
    step(shard, 1)
    assert bits(make_shard(taken)) == before


def test_arrays_of_many_pieces_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 64)
    hello = {"service": 0, "services": 1, "parameters": partition.digest(DENSE)}
    values = np.arange(703, dtype=np.float32)
    loader = ShardLoader(hello, describe_setup(DENSE, ADAM))
    for piece in range(protocol.count_pieces(values.nbytes)):
        loader.add("values", piece, protocol.cut(memoryview(values.view(np.uint8)), piece))
    taken = take_service(loader.finish(), hello, describe_setup(DENSE, ADAM), {})
    crc = write_snapshot(tmp_path / "a", [taken])
    assert sorted(make_shard(read_snapshot(tmp_path / "a", crc)[0]).values.tolist()) == values.tolist()


def test_a_server_without_values_has_a_snapshot_of_no_service(tmp_path):
    crc = write_snapshot(tmp_path / "a", [])
    assert read_snapshot(tmp_path / "a", crc) == []


# ----- What is not as it was written


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_file_of_which_any_byte_has_changed_is_damaged(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("snapshot") / "a"
    hello, setup, shard = begin(DENSE, ADAM)
    crc = write_snapshot(path, [take_service(shard, hello, setup, {})])
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


def test_another_whole_file_in_its_place_is_damage(written, tmp_path):
    path, crc, _ = written
    write_snapshot(path, [])
    with pytest.raises(DamagedError, match="its CRC-32 is wrong"):
        read_snapshot(path, crc)


def forge(path, note, arrays=b"", services=1):
    """A file with a right checksum around what is wrong."""
    text = note if isinstance(note, bytes) else json.dumps(note).encode()
    content = struct.pack("<8sII", b"PDLPSNAP", 1, services) + struct.pack("<I", len(text)) + text + arrays
    path.write_bytes(content + struct.pack("<I", zlib.crc32(content)))
    return zlib.crc32(content)


GOOD = {"hello": {}, "setup": {}, "counters": {}, "elastic": {}, "arrays": []}


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[" * 100_000,
        {},
        GOOD | {"hello": []},
        GOOD | {"elastic": None},
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


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.counters.update(steps=-1),
        lambda one: one.counters.update(size=5),
        lambda one: one.counters.pop("rate"),
        lambda one: one.hello.update(service=5),
        lambda one: one.hello.update(parameters="x"),
        lambda one: one.hello.pop("services"),
        lambda one: one.setup.update(parameters=[]),
        lambda one: one.setup.clear(),
        lambda one: one.arrays.pop("values"),
        lambda one: one.arrays.pop(max(one.arrays.keys() - {"values"})),
        lambda one: one.arrays.update(more=np.zeros(3, np.float32)),
        lambda one: one.arrays.update({"values": np.zeros(3, np.float32)}),
        lambda one: one.arrays.update({"values": one.arrays["values"].astype(np.float64)}),
    ],
)
def test_parts_that_do_not_fit_each_other_are_damage(change):
    taken = take_service(begin(DENSE, ADAM)[2], *begin(DENSE, ADAM)[:2], {})
    change(taken)
    with pytest.raises(DamagedError, match=r"it has|do not fit each other"):
        make_shard(taken)


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

    monkeypatch.setattr(snapshot_files, "write_file", full)
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


def test_a_queue_counts_what_is_wanted():
    queue = SnapshotQueue()
    assert [queue.ask(), queue.ask()] == [1, 1]
    queue.taken = 1
    assert (queue.ask(), queue.stored) == (2, 0)
