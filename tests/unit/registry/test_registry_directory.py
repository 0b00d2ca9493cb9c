"""The directory as a registry: who holds a key, and what a former owner's writing is worth."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.registry import directory as module
from paddle_base.registry.directory import (
    ClaimFile,
    DirectoryClaim,
    DirectoryRegistry,
    path_of,
    read_claim_file,
    write_value,
)
from paddle_base.registry.interface import LEADER, MOST_VALUE_BYTES, Entry
from paddle_base.runtime.errors import BugError, DamagedError, LeaseLostError, VolumeError

TTL = 5.0


class Clock:
    """The clock of all that the module decides by."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def hold(registry: DirectoryRegistry, key: str = "ps/0", value: str = "v") -> DirectoryClaim:
    claim = registry.claim(key, value)
    assert isinstance(claim, DirectoryClaim)
    return claim


def take(registry: DirectoryRegistry, clock: Clock, key: str = "ps/0", value: str = "v") -> DirectoryClaim:
    """Claim a key whose owner is silent."""
    assert registry.claim(key, value) is None
    clock.now += TTL
    return hold(registry, key, value)


def test_a_key_is_held_until_its_owner_is_silent_for_its_time_to_live(tmp_path: Path, clock: Clock) -> None:
    owner, other = DirectoryRegistry(tmp_path, TTL), DirectoryRegistry(tmp_path, TTL)
    claim = hold(owner)
    for _ in range(10):
        assert other.claim("ps/0", "w") is None
        clock.now += TTL - 0.1
        claim.renew()
    assert other.claim("ps/0", "w") is None
    clock.now += TTL - 0.1
    assert other.claim("ps/0", "w") is None
    clock.now += 0.1
    taken = hold(other, value="w")
    assert (claim.token, taken.token, taken.valid_until) == (1, 2, clock.now + TTL)
    assert owner.read("") == {"ps/0": Entry("w", 2)}
    assert [one.name for one in tmp_path.iterdir()] == ["ps.0@000000000002"]


@pytest.mark.parametrize("step", [-600.0, 600.0, 0.001], ids=["set back", "set forward", "almost stopped"])
def test_the_clock_of_the_volume_has_no_part_in_who_holds_a_key(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """The clock of a file server jumps at each renewal; only that the time of the file changes counts."""
    volume, utime = [1_000_000.0], os.utime

    def renew(path: Path) -> None:
        volume[0] += step
        utime(path, (volume[0], volume[0]))

    owner, other = DirectoryRegistry(tmp_path, TTL), DirectoryRegistry(tmp_path, TTL)
    claim = hold(owner)
    monkeypatch.setattr(os, "utime", renew)
    for _ in range(5):
        assert other.claim("ps/0", "w") is None and "ps/0" in other.read("ps/")
        clock.now += TTL - 0.1
        claim.renew()
    assert other.claim("ps/0", "w") is None
    clock.now += TTL
    assert hold(other, value="w").token == 2


def test_the_time_to_live_of_the_owner_counts_and_not_that_of_the_observer(tmp_path: Path, clock: Clock) -> None:
    hold(DirectoryRegistry(tmp_path, 3 * TTL))
    other = DirectoryRegistry(tmp_path, TTL)
    assert other.claim("ps/0", "w") is None
    clock.now += 3 * TTL - 0.1
    assert other.claim("ps/0", "w") is None
    clock.now += 0.1
    assert hold(other).token == 2


@pytest.mark.parametrize("function", ["scan", "read_claim_file"])
def test_an_observer_that_was_frozen_while_it_looked_takes_no_claim_that_was_renewed(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    claim, other = hold(DirectoryRegistry(tmp_path, TTL)), DirectoryRegistry(tmp_path, TTL)
    assert other.claim("ps/0", "w") is None
    real = getattr(module, function)

    def frozen(*arguments: object) -> object:
        found = real(*arguments)
        monkeypatch.setattr(module, function, real)
        for _ in range(3):
            clock.now += TTL / 2
            claim.renew()
        return found

    monkeypatch.setattr(module, function, frozen)
    assert other.claim("ps/0", "w") is None
    claim.renew()


def test_a_released_key_is_free_at_once(tmp_path: Path, clock: Clock) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    claim = hold(registry)
    claim.release()
    assert registry.read("") == {}
    assert hold(registry).token == 2
    claim.release()
    assert list(registry.read("")) == ["ps/0"]


def test_a_dead_claim_is_read_until_it_was_looked_at_for_its_time_to_live(tmp_path: Path, clock: Clock) -> None:
    hold(DirectoryRegistry(tmp_path, TTL))
    other = DirectoryRegistry(tmp_path, TTL)
    assert list(other.read("ps/")) == ["ps/0"]
    clock.now += TTL
    assert other.read("ps/") == {}


WRITES: list[tuple[str, Callable[[DirectoryClaim], None]]] = [
    ("renew", lambda claim: claim.renew()),
    ("update", lambda claim: claim.update("stale")),
    ("put", lambda claim: claim.put("ckpt/0", "stale")),
    ("put of another key", lambda claim: claim.put("init/done", "stale")),
    ("release", lambda claim: claim.release()),
]


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("write", [one for _, one in WRITES], ids=[name for name, _ in WRITES])
def test_a_former_owner_changes_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, write: Callable[[DirectoryClaim], None], step: int
) -> None:
    """It is frozen before one of its looks and renames, by a clock that does not count that time."""
    claim = hold(DirectoryRegistry(tmp_path, TTL))
    claim.put("ckpt/0", "1")
    steps: list[str] = []
    real = {name: getattr(module, name) for name in ("scan", "_replace")}

    def freeze() -> None:
        for name, function in real.items():
            monkeypatch.setattr(module, name, function)
        began, other = clock.now, DirectoryRegistry(tmp_path, TTL)
        while (taken := other.claim("ps/0", "new")) is None:
            clock.now += TTL
        taken.put("ckpt/0", "2")
        clock.now = began

    def count(name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if len(steps) == step:
                freeze()
            steps.append(name)
            return real[name](*arguments)

        return call

    for name in real:
        monkeypatch.setattr(module, name, count(name))
    is_lost = False
    try:
        write(claim)
    except LeaseLostError as exc:
        assert "has lost its claim of ps/0 in" in str(exc)
        is_lost = True
    was_frozen = len(steps) > step
    assert is_lost == (was_frozen and write is not WRITES[-1][1])
    if not was_frozen:
        freeze()
    found = DirectoryRegistry(tmp_path, TTL).read("")
    has_counted = "_replace" in steps[: step if was_frozen else None]
    if write is WRITES[3][1] and has_counted:  # it was written before it was frozen
        assert found.pop("init/done") == Entry("stale", 2)
    assert found == {"ps/0": Entry("new", 2), "ckpt/0": Entry("2", 2)}


def test_an_owner_that_was_frozen_knows_by_its_own_clock(tmp_path: Path, clock: Clock) -> None:
    claim = hold(DirectoryRegistry(tmp_path, TTL))
    clock.now += TTL
    for _, write in WRITES[:-1]:
        with pytest.raises(LeaseLostError, match="the claim was not renewed for 5 s"):
            write(claim)


def test_an_owner_counts_its_time_from_before_a_slow_renewal(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may see the renewal at its beginning, and then takes the key at the end of that time."""
    claim = hold(DirectoryRegistry(tmp_path, TTL))
    began, touch = clock.now, os.utime

    def touch_slowly(path: Path) -> None:
        touch(path)
        clock.now += TTL - 1

    monkeypatch.setattr(module.os, "utime", touch_slowly)
    claim.renew()
    assert claim.valid_until == began + TTL


def test_what_was_written_through_a_claim_outlives_it(tmp_path: Path, clock: Clock) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    hold(registry).put("ckpt/0", "1")
    second = take(registry, clock)
    assert registry.read("ckpt/") == {"ckpt/0": Entry("1", 2)}
    second.put("ckpt/0", "2")
    second.release()
    assert registry.read("") == {"ckpt/0": Entry("2", 2)}


def test_a_claim_is_carried_over_by_the_next_one_when_the_new_owner_dies_at_once(tmp_path: Path, clock: Clock) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    hold(registry).put("ckpt/0", "1")
    path_of(tmp_path, "ps/0", "@", 2).touch()  # made, and not taken over
    assert registry.read("") == {"ckpt/0": Entry("1", 1)}
    assert take(registry, clock).token == 3
    assert registry.read("ckpt/") == {"ckpt/0": Entry("1", 3)}


@settings(deadline=None, max_examples=60)
@given(dies_at=st.integers(0, 12))
def test_a_new_owner_that_dies_at_any_moment_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, dies_at: int
) -> None:
    directory = tmp_path_factory.mktemp("registry")
    first = DirectoryRegistry(directory, TTL)
    claim = hold(first, value="old")
    claim.put("ckpt/0", "1")
    claim.put("ckpt/1", "2")
    claim.release()
    with pytest.MonkeyPatch.context() as patch:
        left = [dies_at]

        def die_in_time(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return real(*arguments)

            return call

        for name in ("_replace", "write_staging"):
            patch.setattr(module, name, die_in_time(getattr(module, name)))
        with contextlib.suppress(KeyboardInterrupt):
            DirectoryRegistry(directory, TTL).claim("ps/0", "new")
    found = DirectoryRegistry(directory, TTL).read("")
    assert (found["ckpt/0"].value, found["ckpt/1"].value) == ("1", "2")
    assert "ps/0" not in found or found["ps/0"].value == "new"


@pytest.mark.parametrize("function", ["scan", "read_claim_file"])
def test_a_claimant_that_was_slow_does_not_get_an_old_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """It has seen that claim 1 is over; by the time it makes claim 2, claims 2 and 3 have come and claim 2 is gone."""
    registry = DirectoryRegistry(tmp_path, TTL)
    hold(registry).release()
    real = getattr(module, function)

    def slow(*arguments: object) -> object:
        monkeypatch.setattr(module, function, real)
        found = real(*arguments)
        hold(registry, value="2").release()
        hold(registry, value="3")
        return found

    monkeypatch.setattr(module, function, slow)
    assert DirectoryRegistry(tmp_path, TTL).claim("ps/0", "slow") is None
    assert registry.read("") == {"ps/0": Entry("3", 3)}


def test_put_new_writes_once(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    assert registry.put_new("ps_desired", "2")
    assert not registry.put_new("ps_desired", "3")
    registry.put("ps_desired", "4")
    assert registry.read("ps_desired") == {"ps_desired": Entry("4", 0)}
    registry.delete("ps_desired")
    registry.delete("ps_desired")
    assert registry.read("") == {}
    assert list(tmp_path.iterdir()) == []


def test_wait_returns_what_has_changed_or_what_there_is(tmp_path: Path, clock: Clock) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    registry.put("job/end", "1")
    began = clock.now
    found = registry.wait("", {}, 60.0)
    assert (found, clock.now) == ({"job/end": Entry("1", 0)}, began)
    assert registry.wait("", found, 60.0) == found
    assert clock.now - began == pytest.approx(60.0)


def test_a_job_that_has_not_begun_has_no_keys(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path / "a" / "b", TTL)
    assert registry.read("") == {}
    registry.delete("job/end")
    registry.close()


# ----- What is not as it was written


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"ttl": []}', b'{"value": 5}', b"\0" * 10_000, b"\xff"])
def test_a_claim_that_makes_no_sense_is_held_until_it_was_looked_at(
    tmp_path: Path, clock: Clock, content: bytes
) -> None:
    path_of(tmp_path, "ps/0", "@", 3).write_bytes(content)
    registry = DirectoryRegistry(tmp_path, TTL)
    assert read_claim_file(tmp_path, "ps/0", 3).value is None
    assert registry.read("") == {}
    assert take(registry, clock).token == 4


@each(
    ("ttl", "used"),
    [
        ("1" + "0" * 400, None),
        ("1e999", None),
        ("NaN", None),
        ("-1", None),
        ("0", None),
        ("1e300", module.MOST_TTL),
        ("7", 7.0),
    ],
    ids=lambda one: str(one)[:8],
)
def test_a_claim_has_a_time_to_live_that_a_process_can_wait_for(tmp_path: Path, ttl: str, used: float | None) -> None:
    """An observer takes its own time to live in place of None."""
    for key, value in (("ps/0", "value"), (LEADER, "address")):
        path_of(tmp_path, key, "@", 1).write_text(f'{{"{value}":"","ttl":{ttl},"is_over":false}}')
        assert read_claim_file(tmp_path, key, 1) == ClaimFile(
            path_of(tmp_path, key, "@", 1).stat().st_mtime_ns, "" if used or ttl in ("-1", "0") else None, used
        )


@each(
    "content",
    [b"", b"{", b'{"value":"1"}', b'{"value":1,"through":""}', b'{"value":"1","through":""', b"\0" * 20, b"\xff"],
)
def test_a_key_that_has_changed_is_damage(tmp_path: Path, content: bytes) -> None:
    path_of(tmp_path, "ckpt/0", "=", 3).write_bytes(content)
    registry = DirectoryRegistry(tmp_path, TTL)
    with pytest.raises(DamagedError, match=r"ckpt\.0=000000000003 is damaged"):
        registry.read("ckpt/")
    assert registry.read("ps/") == {}


def test_the_longest_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    for value in ("\0" * MOST_VALUE_BYTES, "ü" * (MOST_VALUE_BYTES // 2), "😀" * (MOST_VALUE_BYTES // 4)):
        registry.put("job/end", value)
        assert registry.read("job/end")["job/end"].value == value
        assert hold(registry, f"ps/{ord(value[0])}", value)
    assert {one.value for one in registry.read("ps/").values()} == {
        "\0" * MOST_VALUE_BYTES, "ü" * (MOST_VALUE_BYTES // 2), "😀" * (MOST_VALUE_BYTES // 4),
    }  # fmt: skip


def test_names_of_others_are_not_looked_at(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    for name in (
        "README",
        "ps.0@",
        "ps.0@12",
        "ps.0@00000000000x",
        "PS.0@000000000001",
        ".ps.0@000000000001.writing",
        "claim-",
        "claim-5",
        "claim-١١١١١١١١١١١١",
        "claim-" + "1" * 200,
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "sub").mkdir()
    assert registry.read("") == {}
    assert hold(registry).token == hold(registry, LEADER).token == 1


def test_a_directory_with_too_many_names_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(DamagedError, match="has 4 files"):
        DirectoryRegistry(tmp_path, TTL).read("")


def test_a_directory_that_is_away_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = DirectoryRegistry(tmp_path / "file" / "job", TTL)
    calls: list[Callable[[], object]] = [
        lambda: registry.claim("ps/0", ""),
        lambda: registry.read(""),
        lambda: registry.put("job/end", ""),
        lambda: registry.put_new("job/end", ""),
        lambda: registry.delete("job/end"),
        lambda: registry.wait("", {}, 1.0),
    ]
    for call in calls:
        with pytest.raises(VolumeError, match=r"--store_dir: .*file.* cannot be used"):
            call()


def test_a_file_that_is_replaced_meanwhile_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    write_value(tmp_path, "ckpt/0", 1, "old", "ps/0")
    scan = module.scan

    def replaced(directory: Path) -> module.Scan:
        monkeypatch.setattr(module, "scan", scan)
        found = scan(directory)
        write_value(directory, "ckpt/0", 2, "new", "ps/0")
        return found

    monkeypatch.setattr(module, "scan", replaced)
    assert registry.read("ckpt/") == {"ckpt/0": Entry("new", 2)}


def test_files_that_never_stop_changing_are_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    scan, numbers = module.scan, iter(range(1000))

    def restless(directory: Path) -> module.Scan:
        path_of(directory, "ckpt/0", "=", next(numbers)).touch()
        return scan(directory)

    monkeypatch.setattr(module, "scan", restless)
    with pytest.raises(VolumeError, match="change faster"):
        registry.read("ps/")


def test_a_claim_whose_file_was_removed_is_lost(tmp_path: Path) -> None:
    claim = hold(DirectoryRegistry(tmp_path, TTL))
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(LeaseLostError, match="the claim's file was removed"):
        claim.renew()
    claim.release()


@each("key", ["", "/", "a/", "/a", "a//b", "A", "a.b", "../a", "a b", "a" * 65, "a/b/c/d/e", "a\n"])
def test_a_key_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    for call in (registry.claim, registry.put, registry.put_new):
        with pytest.raises(BugError, match="is not a valid key"):
            call(key, "")


def test_a_value_that_is_too_long_is_refused(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    with pytest.raises(BugError, match="the value of job/end has more than"):
        registry.put("job/end", "ü" * MOST_VALUE_BYTES)


def test_what_is_written_is_json(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path, TTL)
    hold(registry, value="v").put("ckpt/0", "1")
    found = {one.name: json.loads(one.read_text()) for one in tmp_path.iterdir()}
    assert found == {
        "ps.0@000000000001": {"value": "v", "ttl": 5.0, "is_over": False},
        "ckpt.0=000000000001": {"value": "1", "through": "ps/0"},
    }
