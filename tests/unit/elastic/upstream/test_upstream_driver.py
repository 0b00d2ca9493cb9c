"""List D of ../shared/spec/elastic.md, section 2: the promises of Horovod's test/single/test_elastic_driver.py.

The names of modules are Horovod's (see conftest.py). Workers wait for events and never for a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import pytest
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic.discovery import FixedHosts, HostManager
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager
from horovod.runner.http.http_server import RendezvousServer
from waiting import until

LIMIT_S = 60.0
Hosts = Mapping[str, int]


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with mock.patch("horovod.runner.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01):
        yield


def sequence(hosts: Sequence[Hosts]) -> Iterator[Hosts]:
    yield from hosts
    while True:
        yield hosts[-1]


def wait_for_one(events: Sequence[threading.Event]) -> None:
    until(lambda: any(event.is_set() for event in events), "an event")


def make_driver(hosts: Hosts, least: int = 2, most: int = 4) -> ElasticDriver:
    driver = ElasticDriver(mock.Mock(), FixedHosts(hosts), min_num_proc=least, max_num_proc=most, timeout=LIMIT_S)
    driver.wait_for_available_slots(min_num_proc=2)
    return driver


def finish(driver: ElasticDriver) -> dict[str, int]:
    results = driver.get_results().worker_results
    driver.stop()
    return {name: code for name, (code, _) in sorted(results.items())}


def test_d1_rank_and_size() -> None:
    driver = make_driver({"host-1": 2, "host-2": 2})
    same = []

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        updated = driver.get_slot_info(slot_info.hostname, slot_info.local_rank)
        same.append(updated.to_response_string() == slot_info.to_response_string())
        return 0, time.time()

    driver.start(4, exec_command)
    codes = finish(driver)
    assert codes == {"host-1[0]": 0, "host-1[1]": 0, "host-2[0]": 0, "host-2[1]": 0}
    assert same == [True] * 4


def test_d2_rank_and_size_with_host_failure() -> None:
    driver = make_driver({"host-1": 2, "host-2": 2})
    seen = []

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        if slot_info.hostname == "host-2":
            return 1, time.time()
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        seen.append((slot_info, driver.get_slot_info(slot_info.hostname, slot_info.local_rank)))
        return 0, time.time()

    driver.start(4, exec_command)
    assert finish(driver) == {"host-1[0]": 0, "host-1[1]": 0}
    for before, after in seen:
        assert (after.size, after.rank) == (2, before.rank % 2)
        assert (after.local_size, after.local_rank) == (before.local_size, before.local_rank)
        assert (after.cross_rank, after.cross_size) == (0, 1)


def test_d3_rank_and_size_with_host_added() -> None:
    discovery = FixedHosts({"host-1": 2})
    driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=2, max_num_proc=4, timeout=LIMIT_S)
    driver.wait_for_available_slots(min_num_proc=2)
    seen = []

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        if slot_info.rank == 0:
            discovery.set({"host-1": 2, "host-2": 2})
        if slot_info.hostname == "host-1":
            driver.wait_for_available_slots(4)
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        seen.append((slot_info, driver.get_slot_info(slot_info.hostname, slot_info.local_rank)))
        return 0, time.time()

    driver.start(2, exec_command)
    assert finish(driver) == {"host-1[0]": 0, "host-1[1]": 0, "host-2[0]": 0, "host-2[1]": 0}
    for before, after in seen:
        assert (after.rank, after.size) == (before.rank, 4)
        assert (after.local_rank, after.local_size) == (before.local_rank, 2)
        assert after.cross_size == 2


def test_d4_wait_for_available_slots() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = sequence(
        [{}, {"host-1": 4}, {"host-1": 4, "host-2": 8}, {"host-1": 4, "host-2": 8, "host-3": 4}]
    )
    with (
        mock.patch("horovod.runner.elastic.driver.ElasticDriver.get_coordinator_info") as coordinator,
        mock.patch("horovod.runner.elastic.driver.ElasticDriver.get_worker_client") as client,
    ):
        driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=8, max_num_proc=20, timeout=LIMIT_S)
        driver.wait_for_available_slots(min_num_proc=16)
        assert driver._host_manager.current_hosts.count_available_slots() >= 16
        driver.stop()
    assert (client.call_count, coordinator.call_count) == (2, 2)


def test_d5_wait_for_min_hosts() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = sequence(
        [{"host-1": 4}, {"host-1": 4, "host-2": 8}, {"host-1": 4, "host-2": 8, "host-3": 4}]
    )
    driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=2, max_num_proc=12, timeout=LIMIT_S)
    driver.wait_for_available_slots(min_num_proc=2, min_hosts=2)
    assert driver._host_manager.current_hosts.count_available_slots() >= 12
    driver.stop()


def test_d6_all_workers_fail() -> None:
    driver = make_driver({"host-1": 2, "host-2": 2})

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        return 1, time.time()

    driver.start(4, exec_command)
    assert finish(driver) == {"host-1[0]": 1, "host-1[1]": 1, "host-2[0]": 1, "host-2[1]": 1}


def test_d7_shutdown_on_success() -> None:
    driver = make_driver({"host-1": 2, "host-2": 2})

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        if slot_info.rank == 0:
            return 0, time.time()
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        wait_for_one(events)
        return 1, time.time()

    driver.start(4, exec_command)
    codes = finish(driver)
    assert len(codes) == 4
    assert sum(codes.values()) == 3


def test_d8_host_shutdown_on_worker_failure() -> None:
    driver = make_driver({"host-1": 2, "host-2": 2})
    sizes = []

    def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
        if slot_info.hostname == "host-1":
            if slot_info.local_rank == 0:
                return 1, time.time()
            driver.record_ready(slot_info.hostname, slot_info.local_rank)
            wait_for_one(events)
            return 1, time.time()
        driver.record_ready(slot_info.hostname, slot_info.local_rank)
        sizes.append(driver.get_slot_info(slot_info.hostname, slot_info.local_rank).size)
        return 0, time.time()

    driver.start(4, exec_command)
    assert finish(driver) == {"host-2[0]": 0, "host-2[1]": 0}
    assert sizes == [2, 2]


def test_d9_worker_notification_manager() -> None:
    """As upstream has it: the results come right after the change."""
    rendezvous, discovery = RendezvousServer(), FixedHosts({"host-1": 2})
    with mock.patch("horovod.runner.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01):
        driver = ElasticDriver(rendezvous, discovery, min_num_proc=2, max_num_proc=4, timeout=LIMIT_S)
        driver.wait_for_available_slots(min_num_proc=2)
        port = rendezvous.start(create_rendezvous_handler(driver))
        found: dict[int, mock.Mock] = {}
        managers = []

        def exec_command(slot_info: Any, events: Any) -> tuple[int, float]:
            manager, receiver = WorkerNotificationManager(), mock.Mock()
            managers.append(manager)
            manager.init("127.0.0.1", port, "lo", slot_info.hostname, slot_info.local_rank)
            manager.register_listener(receiver)
            found[slot_info.rank] = receiver.on_hosts_updated
            driver.record_ready(slot_info.hostname, slot_info.local_rank)
            if slot_info.rank == 0:
                discovery.set({"host-1": 2, "host-2": 2})
            driver.wait_for_available_slots(4)
            if slot_info.rank == 0:
                discovery.set({"host-2": 2})
            until(lambda: driver._host_manager.current_hosts.count_available_slots() <= 2, "fewer slots")
            return 0, time.time()

        driver.start(2, exec_command)
        codes = {name: code for name, (code, _) in driver.get_results().worker_results.items()}
    for manager in managers:
        manager.shutdown()
    driver.stop()
    assert codes == {"host-1[0]": 0, "host-1[1]": 0}
    assert [one.args[1] for one in found[0].call_args_list] == [HostUpdateResult.added, HostUpdateResult.removed]
    first, second = (one.args[0] for one in found[0].call_args_list)
    assert first < second
    assert found[1].call_args_list == []


def test_d10_send_notifications_without_assignments() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = sequence(
        [
            {"host-1": 8, "host-2": 4},
            {"host-1": 8, "host-2": 4},
            {"host-2": 4},
            {"host-2": 4, "host-3": 12},
        ]
    )
    with (
        mock.patch("horovod.runner.elastic.driver.ElasticDriver.host_assignments"),
        mock.patch("horovod.runner.elastic.driver.ElasticDriver.get_coordinator_info") as coordinator,
        mock.patch("horovod.runner.elastic.driver.ElasticDriver.get_worker_client") as client,
    ):
        driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=8, max_num_proc=12, timeout=LIMIT_S)
        driver.wait_for_available_slots(min_num_proc=16)
        driver.stop()
    assert (client.call_count, coordinator.call_count) == (3, 3)


def test_d11_order_available_hosts() -> None:
    assert HostManager.order_available_hosts(["a", "b", "c"], []) == ["a", "b", "c"]
    assert HostManager.order_available_hosts({"d", "c", "b"}, ["a", "b", "c"]) == ["b", "c", "d"]


def test_d12_update_available_hosts() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = [
        {"a": 2},
        {"a": 2, "b": 2},
        {"b": 2},
        {"b": 1, "c": 1},
        {"b": 1, "c": 1},
    ]
    manager = HostManager(discovery)
    empty = manager.current_hosts
    assert (empty.available_hosts, empty.count_available_slots()) == (set(), 0)
    wanted = [
        (HostUpdateResult.added, {"a"}, {"a": 2}),
        (HostUpdateResult.added, {"a", "b"}, {"a": 2, "b": 2}),
        (HostUpdateResult.removed, {"b"}, {"b": 2}),
        (HostUpdateResult.mixed, {"b", "c"}, {"b": 1, "c": 1}),
        (HostUpdateResult.no_update, {"b", "c"}, {"b": 1, "c": 1}),
    ]
    for result, names, slots in wanted:
        held, before = manager.current_hosts, manager.current_hosts.available_hosts
        assert manager.update_available_hosts() == result
        assert held.available_hosts == before
        now = manager.current_hosts
        assert (now.available_hosts, now.host_slots) == (names, slots)
        assert (now.count_available_slots(), now.get_slots("absent")) == (sum(slots.values()), 0)


def test_d13_blacklist_host() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = sequence([{"a": 2, "b": 2}])
    manager = HostManager(discovery)
    manager.update_available_hosts()
    before = manager.current_hosts
    manager.blacklist("a")
    assert before.available_hosts == {"a", "b"}
    after = manager.current_hosts
    assert (after.available_hosts, after.host_assignment_order, after.count_available_slots()) == ({"b"}, ["b"], 2)
    assert manager.is_blacklisted("a")
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    assert manager.current_hosts.available_hosts == {"b"}


def test_d14_shutdown_on_initial_discovery_failure() -> None:
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = RuntimeError("no such script")
    driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=2, max_num_proc=4, timeout=LIMIT_S)
    with pytest.raises(RuntimeError, match="no such script"):
        driver.wait_for_available_slots(min_num_proc=2)
    assert driver.finished()
    driver.stop()


def test_a_patched_update_of_assignments_is_what_a_generation_begins_with() -> None:
    slots = [SlotInfo("host-1", 0, 0, 0, 1, 1, 1)]
    with mock.patch("horovod.runner.elastic.driver.ElasticDriver._update_host_assignments", return_value=slots):
        driver = make_driver({"host-1": 2})
        started: list[Callable[[], object]] = []

        def exec_command(slot_info: SlotInfo, events: Any) -> tuple[int, float]:
            started.append(slot_info)
            wait_for_one(events)
            return 1, time.time()

        driver.start(2, exec_command)
        driver.stop()
        driver.get_results()
    assert started == slots
