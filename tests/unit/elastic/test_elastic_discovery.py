"""The discovery of hosts: list S of ../shared/spec/elastic.md, section 2, and what a script must not print."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from each import each
from waiting import DEADLINE_S, until

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.elastic import discovery as discovery_module
from paddle_cluster.elastic.agent.hosts import AgentHosts, AgentPolicy
from paddle_cluster.elastic.discovery import (
    FixedHosts,
    FoundHosts,
    HostDiscovery,
    HostDiscoveryScript,
    HostManager,
    HostState,
)
from paddle_cluster.elastic.membership.host_watch import STOP_S, HostWatch
from paddle_cluster.elastic.worker import HostUpdateResult

S1 = {
    "empty": ("", {}),
    "a bare host": ("host-1\n", {"host-1": 8}),
    "a host with slots": ("host-1:2\n", {"host-1": 2}),
    "two bare hosts": ("host-1\nhost-2\n", {"host-1": 8, "host-2": 8}),
    "two hosts with slots": ("host-1:2\nhost-2:3\n", {"host-1": 2, "host-2": 3}),
    "a leading blank line": ("\nhost-1:2\n", {"host-1": 2}),
    "an inner blank line": ("host-1:2\n\nhost-2:3\n", {"host-1": 2, "host-2": 3}),
    "a trailing blank line": ("host-1:2\n\n", {"host-1": 2}),
}


def make_script(directory: Path, text: str) -> str:
    path = directory / "discover.sh"
    (directory / "hosts").write_text(text)
    path.write_text(f"#!/bin/sh\ncat {directory}/hosts\n")
    path.chmod(0o755)
    return str(path)


@each(("text", "wanted"), S1.values(), ids=S1)
def test_s1_find_available_hosts_and_slots(tmp_path: Path, text: str, wanted: dict[str, int]) -> None:
    assert HostDiscoveryScript(make_script(tmp_path, text), 8).find_available_hosts_and_slots() == wanted


def test_hosts_keep_the_order_of_the_lines_and_comments_are_none(tmp_path: Path) -> None:
    script = make_script(tmp_path, "# hosts\nc:1\n a:1\nb:1\nc:1\n::1:4\n")
    assert list(HostDiscoveryScript(script, None).find_available_hosts_and_slots().items()) == [
        ("c", 1),
        ("a", 1),
        ("b", 1),
        ("::1", 4),
    ]


@each(
    ("text", "why"),
    [
        ("a", "without slots; give --slots-per-host"),
        ("a:", "whose slots are no number"),
        ("a:-1", "whose slots are no number"),
        ("a:x", "whose slots are no number"),
        ("a b:1", "is no host"),
        ("host-1 slots=2", "'host-1 slots=2', which is no host; write a host as name or name:slots, e.g. worker-1:2"),
        ("a:slots=2", "whose slots are no number; write a host as name or name:slots"),
        ("a\u2028b:1", "is no host"),
        (":1", "is no host"),
        ("a:1\na:2", "prints a with 1 and with 2 slots"),
    ],
)
def test_what_is_no_host_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        HostDiscoveryScript(make_script(tmp_path, text), None).find_available_hosts_and_slots()


def test_a_script_that_fails_hangs_or_floods_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="ended with status 3"):
        HostDiscoveryScript("exit 3", 1).find_available_hosts_and_slots()
    with pytest.raises(RuntimeError, match="prints more than"):
        HostDiscoveryScript("cat /dev/zero", 1).find_available_hosts_and_slots()
    monkeypatch.setattr(discovery_module, "SCRIPT_S", 0.05)
    with pytest.raises(RuntimeError, match=r"timed out"):
        HostDiscoveryScript("sleep 1000", 1).find_available_hosts_and_slots()


def test_n15_five_hosts_that_join_at_once_have_an_order() -> None:
    manager = HostManager(FixedHosts(dict.fromkeys(["e", "c", "a", "d", "b"], 1)))
    manager.update_available_hosts()
    assert manager.current_hosts.host_assignment_order == ["e", "c", "a", "d", "b"]
    assert HostManager.order_available_hosts({"e", "c", "a", "d", "b"}, ["c"]) == ["c", "a", "b", "d", "e"]


def test_n8_another_host_of_the_same_name_has_a_clean_record() -> None:
    discovery = FixedHosts(FoundHosts({"a": 1, "b": 1}, {"a": "uid-1", "b": "uid-2"}))
    manager = HostManager(discovery)
    manager.update_available_hosts()
    event = manager.get_host_event("a")
    manager.blacklist("a")
    assert event.is_set()
    discovery.set(FoundHosts({"a": 1, "b": 1}, {"a": "uid-3", "b": "uid-2"}))
    assert manager.update_available_hosts() == HostUpdateResult.mixed
    assert manager.current_hosts.host_assignment_order == ["b", "a"]
    assert not manager.is_blacklisted("a")
    assert not manager.get_host_event("a").is_set()


def test_a_host_comes_back_after_its_cooldown_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(discovery_module.time, "monotonic", lambda: now)
    manager = HostManager(FixedHosts({"a": 1, "b": 1}), [10, 100])
    manager.update_available_hosts()
    manager.blacklist("a")
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    now += 19.9
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    now += 10.1
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.current_hosts.host_assignment_order == ["b", "a"]
    assert manager.update_available_hosts() == HostUpdateResult.no_update


def test_a_cooldown_grows_with_each_failure_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(discovery_module.time, "monotonic", lambda: now)
    state = HostState([10, 100], draw=lambda: 0.5)
    seen = []
    for _ in range(5):
        state.blacklist()
        seen.append(state._cooldown_end - now)
        now = state._cooldown_end
        assert state.is_resurrected()
        state.whitelist()
    assert seen == [25, 45, 85, 100, 100]


def test_a_host_without_cooldown_stays_away() -> None:
    state = HostState()
    state.blacklist()
    assert state.is_blacklisted()
    assert not state.is_resurrected()
    event = state.get_event()
    assert not event.is_set()


@pytest.mark.parametrize("bounds", [[0, 10], [10, 5], [10, 4000], [float("nan"), 10]])
def test_a_range_that_is_none_is_an_error(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="--blacklist-cooldown-range"):
        HostManager(FixedHosts({}), bounds)


def test_a_script_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no processes left")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(RuntimeError, match="no processes left"):
        HostDiscoveryScript("true", 1).find_available_hosts_and_slots()


def test_a_script_has_ended_although_its_child_has_its_output(tmp_path: Path) -> None:
    """Such a script, e.g. one that left a shared connection of ssh, counted as hanging after 60 s."""
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; echo a:2"
    try:
        assert HostDiscoveryScript(script, None).find_available_hosts_and_slots() == {"a": 2}
        assert pid.exists()
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_end_of_a_job_ends_its_discovery(tmp_path: Path) -> None:
    """SIGTERM of the driver waited up to 57 s for a script that hung."""
    pid = tmp_path / "pid"
    manager = HostManager(AgentHosts(HostDiscoveryScript(f"echo $$ > {pid}; exec sleep 600", 1), "", AgentPolicy()))
    watch = HostWatch(manager, lambda _: None, lambda: 1.0)
    watch.start()
    until(lambda: pid.exists() and pid.read_text().strip(), pid)
    began = time.monotonic()
    watch.stop()
    assert time.monotonic() - began < STOP_S
    assert watch.problem == ""
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_the_end_of_a_job_does_not_wait_for_a_discovery_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.membership.host_watch.STOP_S", 0.01)
    begun, may_end = threading.Event(), threading.Event()

    class Hanging(HostDiscovery):
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            begun.set()
            may_end.wait(DEADLINE_S)
            return {}

    hosts = AgentHosts(Hanging(), "", AgentPolicy())
    watch = HostWatch(HostManager(hosts), lambda _: None, lambda: 1.0)
    watch.start()
    with ThreadPoolExecutor() as pool:
        found = pool.submit(hosts.find, "a", DEADLINE_S)  # a worker of an earlier driver
        assert begun.wait(DEADLINE_S)
        watch.stop()
        assert isinstance(found.exception(DEADLINE_S), LostPeerError)
    may_end.set()


def test_a_script_runs_without_the_number_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of programs of Horovod replace Popen, and its number was that of a Mock."""
    source, sink = os.pipe()
    os.write(sink, b"a:3\n")
    os.close(sink)
    with os.fdopen(source, "rb") as output:
        process = mock.MagicMock(pid=mock.Mock(), stdout=output)
        process.poll.return_value, process.wait.return_value = None, 0
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
        process.wait.side_effect = lambda *_: process.poll.__setattr__("return_value", 0) or 0
        assert HostDiscoveryScript("discover", 1).find_available_hosts_and_slots() == {"a": 3}
        process.poll.return_value, process.wait.side_effect = None, None
        monkeypatch.setattr(discovery_module, "SCRIPT_S", -1.0)
        with pytest.raises(RuntimeError, match="timed out"):
            HostDiscoveryScript("discover", 1).find_available_hosts_and_slots()
    process.kill.assert_called_once_with()
