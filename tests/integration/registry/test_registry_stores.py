"""Each registry: keys, claims, and processes that race, freeze and thaw."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from etcd_process import EtcdProcess
from ports import free_ports

from paddle_base.registry.choice import open_registry
from paddle_base.registry.etcd import EtcdRegistry
from paddle_base.registry.interface import MOST_VALUE_BYTES, Claim, Registry
from paddle_base.registry.servers import ServerRecord, claim_index, find_servers, write_desired
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PeerUnreachableError, UsageError

Opens = Callable[[], Registry]
TTL = 5.0
DEADLINE_S = 60.0


def hold(registry: Registry, key: str = "ps/0", value: str = "v") -> Claim:
    claim = registry.claim(key, value)
    assert claim is not None
    return claim


def values(registry: Registry, prefix: str = "") -> dict[str, str]:
    return {key: entry.value for key, entry in registry.read(prefix).items()}


def test_keys_are_written_read_and_removed(opens: Opens) -> None:
    first, second = opens(), opens()
    assert first.read("") == {}
    assert first.put_new("ps_desired", "2")
    assert not second.put_new("ps_desired", "3")
    second.put("job/end", "ü")
    second.put("job/end", "x" * MOST_VALUE_BYTES)
    assert values(first) == {"ps_desired": "2", "job/end": "x" * MOST_VALUE_BYTES}
    assert values(first, "ps") == {"ps_desired": "2"}
    second.delete("ps_desired")
    second.delete("ps_desired")
    assert values(first) == {"job/end": "x" * MOST_VALUE_BYTES}
    first.close()


def test_a_claim_is_one_processes_and_its_token_grows(opens: Opens) -> None:
    first, second = opens(), opens()
    claim = hold(first)
    assert second.claim("ps/0", "w") is None
    entry = second.read("ps/")["ps/0"]
    assert (entry.value, entry.token) == ("v", claim.token)
    claim.update("changed")
    assert second.read("ps/")["ps/0"] == ("changed", claim.token)
    claim.put("ckpt/0", "1")
    claim.release()
    assert values(second) == {"ckpt/0": "1"}
    again = hold(second, value="w")
    assert again.token > claim.token
    for write in (lambda: claim.update("x"), lambda: claim.put("ckpt/0", "2"), claim.renew):
        with pytest.raises(LeaseLostError, match=r"has lost its claim of .*ps/0"):
            write()
    claim.release()
    assert values(second) == {"ps/0": "w", "ckpt/0": "1"}
    again.release()


def test_a_claim_that_is_renewed_stays_and_one_that_is_not_is_free(opens: Opens) -> None:
    first, second = opens(), opens()
    claim = hold(first)
    until = time.monotonic() + 2 * TTL
    while time.monotonic() < until:
        claim.renew()
        assert time.monotonic() < claim.valid_until
        second.wait("ps/", second.read("ps/"), TTL / 4)
        assert second.claim("ps/0", "w") is None
    deadline = time.monotonic() + DEADLINE_S
    while (taken := second.claim("ps/0", "w")) is None:
        assert time.monotonic() < deadline
        second.wait("ps/", second.read("ps/"), 0.1)
    assert time.monotonic() >= claim.valid_until
    assert taken.token > claim.token
    with pytest.raises(LeaseLostError):
        claim.renew()


def test_wait_hears_of_a_change_of_another_process(opens: Opens) -> None:
    first, second = opens(), opens()
    known = first.read("ps/")
    found: list[object] = []

    def wait() -> None:
        found.append(first.wait("ps/", known, DEADLINE_S))

    thread = threading.Thread(target=wait)
    thread.start()
    second.put("job/end", "not below the prefix")
    claim = hold(second)
    thread.join(DEADLINE_S)
    assert found == [{"ps/0": ("v", claim.token)}]
    assert first.wait("ps/", found[0], 0.1) == found[0]  # type: ignore[arg-type]


def test_a_server_that_ends_leaves_its_index_to_the_next_one(opens: Opens) -> None:
    registry = opens()
    assert write_desired(registry, 2) == 2
    claims = [claim_index(opens(), 2, f"10.0.0.{number}", lambda line: None) for number in (1, 2)]
    for claim, record in claims:
        claim.update(ServerRecord(record.index, record.incarnation, record.host, (7164,)).value)
    assert [one and one.host for one in find_servers(registry)] == ["10.0.0.1", "10.0.0.2"]
    waiting: list[tuple[Claim, ServerRecord]] = []
    thread = threading.Thread(target=lambda: waiting.append(claim_index(opens(), 2, "10.0.0.3", lambda line: None)))
    thread.start()
    claims[0][0].release()
    thread.join(DEADLINE_S)
    assert (waiting[0][1].index, waiting[0][1].incarnation) == (0, waiting[0][0].token)
    assert waiting[0][0].token > claims[0][0].token


# ----- Processes


class Claimant:
    """registry_claimant.py."""

    def __init__(self, place: str, name: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        program = Path(__file__).with_name("registry_claimant.py")
        self.process = subprocess.Popen([sys.executable, program, place, name], stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()

    def wait_for(self, start: str) -> str:
        def found() -> str:
            return next((line for line in self.lines if line.startswith(start)), "")

        with self._changed:
            assert self._changed.wait_for(found, DEADLINE_S), self.lines
            return found()

    def has_said(self, start: str) -> bool:
        return any(line.startswith(start) for line in self.lines)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def claimants(place: str, *names: str) -> Iterator[list[Claimant]]:
    started = [Claimant(place, name) for name in names]
    try:
        yield started
    finally:
        for one in started:
            one.end()


def test_of_two_processes_that_race_one_gets_the_claim(place: str) -> None:
    with claimants(place, "a", "b") as both:
        for one in both:
            one.wait_for("waits")
        deadline = time.monotonic() + DEADLINE_S
        while not any(one.has_said("wrote") for one in both):
            assert time.monotonic() < deadline, [one.lines for one in both]
            time.sleep(0.01)
        assert sum(one.has_said("holds") for one in both) == 1
        winner, loser = sorted(both, key=lambda one: not one.has_said("holds"))
        winner.process.kill()
        loser.wait_for("wrote")
        assert not winner.has_said("lost")


def test_an_owner_that_was_frozen_writes_nothing_when_it_thaws(place: str, opens: Opens) -> None:
    registry = opens()
    with claimants(place, "a") as (first,):
        first.wait_for("wrote")
        with claimants(place, "b") as (second,):
            second.wait_for("waits")
            first.process.send_signal(signal.SIGSTOP)
            token = int(second.wait_for("holds").split()[1])
            second.wait_for("wrote")
            second.end()  # so that what the first one writes now is not written over
            known = registry.read("init/")
            assert known["init/done"].value.startswith("b ")
            first.process.send_signal(signal.SIGCONT)
            assert re.search(
                "has lost its claim of|renewal: LeaseLostError", first.wait_for("lost")
            )  # a write or a renewal
            assert registry.read("init/") == known
            assert token > int(first.wait_for("holds").split()[1])
            assert first.process.wait(DEADLINE_S) == 0


# ----- etcd alone


def test_jobs_have_keys_of_their_own(etcd: EtcdProcess) -> None:
    one, two = (open_registry([etcd.endpoint], None, job, TTL) for job in ("one", "two"))
    one.put("job/end", "1")
    assert hold(one, "ps/0") and hold(two, "ps/0")
    assert two.read("job/") == {}
    assert values(one) == {"job/end": "1", "ps/0": "v"}


def test_an_etcd_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_base.registry.etcd.FIRST_S", 0.1)
    port = free_ports(1)[0]
    with pytest.raises(PeerUnreachableError, match=f"no etcd answers: http://127.0.0.1:{port}: .*refused"):
        open_registry([f"http://127.0.0.1:{port}"], None, "job")
    for endpoint in ("ftp://a:1", "http://", "a:b", "http://a:99999", "http://a:1/x"):
        with pytest.raises(UsageError, match=f"--etcd_endpoints has '{endpoint}'; write each endpoint as http://host"):
            open_registry([endpoint], None, "job")


def test_a_claim_ends_when_etcd_is_away_for_a_whole_lease(etcd: EtcdProcess) -> None:
    registry = open_registry([etcd.endpoint], None, "job", TTL)
    claim = hold(registry)
    etcd.stop()
    with pytest.raises(PeerUnreachableError):
        claim.renew()
    with pytest.raises(LeaseLostError, match="no write succeeded before the claim expired"):
        claim.put("ckpt/0", "1")
    with pytest.raises(LeaseLostError, match="not renewed in time"):
        claim.put("ckpt/0", "1")
    claim.release()
    etcd.start()
    assert "ckpt/0" not in registry.read("")


def test_a_claim_whose_key_was_removed_is_lost(etcd: EtcdProcess) -> None:
    registry = open_registry([etcd.endpoint], None, "job", TTL)
    claim = hold(registry)
    registry.delete("ps/0")
    with pytest.raises(LeaseLostError, match="the key was removed"):
        claim.renew()


def test_a_key_of_etcd_that_is_no_text_is_damage(etcd: EtcdProcess) -> None:
    registry = open_registry([etcd.endpoint], None, "job", TTL)
    assert isinstance(registry, EtcdRegistry)
    registry.etcd.call(lambda client: client.put("/job/ckpt/0", b"\xff\xfe"))
    with pytest.raises(DamagedError, match="the key /job/ckpt/0 of etcd is damaged"):
        registry.read("ckpt/")
    registry.etcd.call(lambda client: client.put("/job/ckpt/0", b"x" * (MOST_VALUE_BYTES + 1)))
    with pytest.raises(DamagedError, match="the key /job/ckpt/0 of etcd is damaged"):
        registry.read("ckpt/")
    assert registry.read("ps/") == {}
