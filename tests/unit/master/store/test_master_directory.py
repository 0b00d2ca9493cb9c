"""The directory store: what a crash or a damaged disk leaves, and segments that are written anew."""

import contextlib
import itertools
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paddle_base.registry.directory as registry_directory
import paddle_cluster.master.store.interface as store_interface
from paddle_base.registry.directory import DirectoryClaim, scan
from paddle_base.registry.interface import LEADER
from paddle_base.runtime.errors import DamagedError, LeaseLostError
from paddle_cluster.master.store import directory as directory_store
from paddle_cluster.master.store import segment
from paddle_cluster.master.store.directory import DirectoryLeadership, DirectoryStore
from paddle_cluster.master.store.segment import encode_record, encode_state, read_segment


class Clock:
    """The clock of the store and of the registry."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def stop_after(self, seconds: float) -> Callable[[], bool]:
        until = self.now + seconds
        return lambda: self.now >= until


def lead(directory: Path) -> DirectoryLeadership:
    leadership = DirectoryStore(directory, 10.0).campaign(lambda: False, lambda _: None)
    assert isinstance(leadership, DirectoryLeadership)
    return leadership


@settings(deadline=None)
@given(cut=st.integers(0, 80))
def test_a_record_that_was_cut_off_is_left_out(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("segment") / "segment"
    first, last = encode_record([("a", "1"), ("b", "2")]), encode_record([("a", None), ("c", "x" * 40)])
    path.write_bytes(first + last[: min(cut, len(last) - 1)])
    assert read_segment(path) == {"a": "1", "b": "2"}


def test_a_last_record_of_zeros_is_left_out(tmp_path: Path) -> None:
    """After a power cut a file may have its length, and zeros in place of its bytes."""
    (tmp_path / "segment").write_bytes(encode_record([("a", "1")]) + bytes(40))
    assert read_segment(tmp_path / "segment") == {"a": "1"}


def test_a_record_that_has_changed_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    first, last = encode_record([("a", "1")]), encode_record([("b", "2")])
    for at in range(len(first)):
        changed = bytearray(first + last)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DamagedError, match="is damaged at byte 0"):
            read_segment(path)


def test_a_whole_state_is_read_as_it_was(tmp_path: Path) -> None:
    pairs = {f"task/{number:05d}": f"[{number}]" for number in range(12_345)}
    (tmp_path / "segment").write_bytes(b"".join(encode_state(pairs)))
    assert read_segment(tmp_path / "segment") == pairs


def test_a_segment_that_has_grown_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_store, "COMPACT_BYTES", 1000)
    leadership = lead(tmp_path)
    leadership.load()
    sizes = []
    for number in range(100):
        leadership.commit([("task/1", f"[{number}]"), ("task/2", "x" * 50)])
        sizes.append((tmp_path / "segment-000000000001").stat().st_size)
    assert max(sizes) < 1200
    leadership.resign()
    assert list(lead(tmp_path).load()) == [("task/1", "[99]"), ("task/2", "x" * 50)]


def test_a_leader_that_dies_before_it_has_loaded_leaves_the_state(tmp_path: Path) -> None:
    first = lead(tmp_path)
    first.load()
    first.commit([("task/1", "1")])
    first.resign()
    (tmp_path / "claim-000000000007").write_text("")  # made, and not written yet
    os.utime(tmp_path / "claim-000000000007", ns=(0, 0))
    assert scan(tmp_path).newest(LEADER) == 7
    (tmp_path / "claim-000000000007").write_text('{"address":"","ttl":0.2,"is_over":false}')
    second = lead(tmp_path)
    assert second.claim.token == 8
    assert list(second.load()) == [("task/1", "1")]


def test_what_a_former_leader_appends_between_its_two_looks_counts_for_nobody(tmp_path: Path) -> None:
    """It was frozen after it has looked for a newer claim, and thaws before it appends."""
    first = lead(tmp_path)
    first.load()
    first.commit([("task/1", "1")])
    claim = DirectoryClaim(tmp_path, LEADER, 2, 10.0)
    claim.take_over("")
    second = DirectoryLeadership(tmp_path, claim)
    assert list(second.load()) == [("task/1", "1")]
    first._append(encode_record([("task/1", "stale")]))
    with pytest.raises(LeaseLostError, match="another process holds the key now"):
        first.commit([("task/1", "stale")])
    second.resign()
    assert list(lead(tmp_path).load()) == [("task/1", "1")]


def test_a_leader_that_is_succeeded_while_it_appends_answers_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appends to a segment that nobody reads, so a trainer must not be told that its task is done."""
    leader = lead(tmp_path)
    list(leader.load())
    append = leader._append

    def be_succeeded(data: bytes) -> None:
        append(data)
        (tmp_path / "claim-000000000002").touch()

    monkeypatch.setattr(leader, "_append", be_succeeded)
    with pytest.raises(LeaseLostError, match="another process holds the key now"):
        leader.commit([("a", "1")])
    leader.resign()


def test_a_record_nested_too_deeply_is_damaged(tmp_path: Path) -> None:
    text = b"[" * 200_000
    header = segment._START.pack(len(text), zlib.crc32(text))
    (tmp_path / "segment").write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + text)
    with pytest.raises(DamagedError, match="no transaction"):
        read_segment(tmp_path / "segment")


def lead_and_freeze(directory: Path, step: int, patch: pytest.MonkeyPatch) -> tuple[dict[str, str], bool]:
    """Lead, and let another master take over at the step with a number: a look, an append or a replacement of a file.

    Return the last values that a leader has confirmed, and whether there is such a step.
    """
    clock, left, confirmed = Clock(), step, dict[str, str]()
    steps = [(registry_directory, "scan"), (registry_directory, "_replace")]
    real = {name: getattr(place, name) for place, name in steps}
    steps += [(DirectoryLeadership, "_begin"), (DirectoryLeadership, "_append")]  # type: ignore[list-item]
    for module in (registry_directory, store_interface):
        patch.setattr(module, "time", clock)

    def be_succeeded() -> None:
        for name, function in real.items():
            patch.setattr(registry_directory, name, function)
        began = clock.now
        second = lead(directory)
        confirmed.update(second.load())
        second.commit([("second", "2")])
        second.resign()
        confirmed["second"] = "2"
        clock.now = began  # the clock of the frozen master has not counted

    def count(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                be_succeeded()
            return function(*arguments)

        return call

    for place, name in steps:
        patch.setattr(place, name, count(getattr(place, name)))
    first = DirectoryStore(directory, 10.0).campaign(clock.stop_after(100.0), lambda _: None)
    if first is not None:
        with contextlib.suppress(LeaseLostError):
            first.load()
            for number in range(3):
                first.commit([("first", str(number))])
                confirmed["first"] = str(number)
        first.resign()
    return confirmed, left <= 0


def test_what_a_leader_confirms_is_kept_wherever_it_is_frozen(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in itertools.count(1):
        directory = tmp_path_factory.mktemp("job")
        with monkeypatch.context() as patch:
            confirmed, was_frozen = lead_and_freeze(directory, step, patch)
        last = lead(directory)
        assert dict(last.load()) == confirmed, step
        last.resign()
        if not was_frozen:
            break
    assert step > 20


# ----- A store that a master wrote before its lead was a claim of the registry

OLD_CLAIM = '{"address": "10.0.0.1:8080", "ttl": 2.0, "is_over": %s}'
OLD_SEGMENT = (
    b'\x02\x00\x00\x00)\xbbL\r\xe5UK\x11[],\x00\x00\x00\xaav\xcd\xb6I\xfa\x07\xe5[["task/1","[\\"\\u00fc\\"]"],["task/2","[2]"]]'
    b'"\x00\x00\x00g\xdb\x83]\xe8I(\xfc[["task/2",null],["task/1","[3]"]]'
)


def write_old_store(directory: Path, is_over: str) -> None:
    directory.mkdir()
    (directory / "claim-000000000041").write_text(OLD_CLAIM % is_over)
    (directory / "segment-000000000041").write_bytes(OLD_SEGMENT)


def test_a_store_of_an_earlier_version_is_read_and_its_leader_keeps_the_lead_while_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby waits for the time to live of the old claim, by its own clock, and its trainers find the leader."""
    write_old_store(tmp_path / "job", "false")
    store, clock, notes = DirectoryStore(tmp_path / "job", 10.0), Clock(), list[str]()
    for module in (registry_directory, store_interface):
        monkeypatch.setattr(module, "time", clock)
    for _ in range(4):  # the old leader renews its claim
        assert store.campaign(clock.stop_after(1.0), notes.append) is None
        assert store.find() == "10.0.0.1:8080"
        os.utime(tmp_path / "job" / "claim-000000000041", ns=(0, int(clock.now * 1e9)))
    assert notes[:1] == ["the master at 10.0.0.1:8080 leads; this master stands by"]
    began = clock.now
    second = store.campaign(clock.stop_after(9.0), notes.append)
    assert second is not None and second.claim.token == 42
    assert 2.0 <= clock.now - began < 3.0
    assert list(second.load()) == [("task/1", "[3]")]
    second.publish("10.0.0.2:8080")
    second.commit([("task/2", "[4]")])
    assert sorted(one.name for one in (tmp_path / "job").iterdir()) == ["claim-000000000042", "segment-000000000042"]
    assert read_segment(tmp_path / "job" / "segment-000000000042") == {"task/1": "[3]", "task/2": "[4]"}
    assert json.loads((tmp_path / "job" / "claim-000000000042").read_text()) == {
        "address": "10.0.0.2:8080",
        "ttl": 10.0,
        "is_over": False,
    }, "a trainer or master of an earlier version reads it, too"
    second.resign()


def test_a_store_of_an_earlier_version_whose_leader_has_resigned_is_free_at_once(tmp_path: Path) -> None:
    write_old_store(tmp_path / "job", "true")
    store = DirectoryStore(tmp_path / "job", 10.0)
    assert (store.find(), store.list_jobs()) == ("", ["job"])
    leadership = store.campaign(lambda: False, lambda _: None)
    assert leadership is not None and list(leadership.load()) == [("task/1", "[3]")]
    leadership.resign()


def test_a_directory_of_another_program_among_the_jobs_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more files than a job; a trainer that looked for its master among them would end."""
    write_old_store(tmp_path / "job", "false")
    (tmp_path / "mail").mkdir()
    for number in range(4):
        (tmp_path / "mail" / str(number)).touch()
    monkeypatch.setattr(registry_directory, "MOST_FILES", 3)
    assert DirectoryStore(tmp_path / "other").list_jobs() == ["job"]


@pytest.mark.parametrize("address", ["10.0.0.1", ":8080", "10.0.0.1:x", "10.0.0.1:123456", "a" * 400 + ":1"])
def test_what_is_no_address_of_a_master_is_damaged(tmp_path: Path, address: str) -> None:
    """A trainer read its port as a number, and the error ended the trainer."""
    (tmp_path / "job").mkdir()
    claim = json.dumps({"address": address, "ttl": 10.0, "is_over": False})
    (tmp_path / "job" / "claim-000000000001").write_text(claim)
    with pytest.raises(DamagedError, match="as the master's address, which is not host:port"):
        DirectoryStore(tmp_path / "job", 10.0).find()
