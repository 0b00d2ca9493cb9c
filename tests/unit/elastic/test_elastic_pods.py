"""Pods as hosts: a list in the form of the API server, and what it answers when it does not."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.client import ApiProblem
from paddle_cluster.elastic.discovery import HostManager
from paddle_cluster.elastic.membership.kubernetes import PodDiscovery, read_pods
from paddle_cluster.elastic.worker import HostUpdateResult

LIST = json.loads((Path(__file__).parent / "pods.json").read_text())["items"]
ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_NAMESPACE": "default"}


def pod(number: int) -> dict[str, Any]:
    return copy.deepcopy(LIST[number])


def test_listed_pods_are_hosts_in_the_order_of_their_age() -> None:
    hosts, problems = read_pods(LIST, 1)
    assert list(hosts.items()) == [("paddle-worker-2", 1), ("paddle-worker-0", 1), ("paddle-worker-1", 2)]
    assert hosts.addresses["paddle-worker-2"] == "10.244.2.7"
    assert hosts.uids["paddle-worker-2"] == "5f1b0c6e-0a63-4cb0-9d5c-5d7e3b1a2c02"
    assert problems == []


def test_n15_pods_that_come_at_once_have_one_order() -> None:
    pods = [pod(0) for _ in range(5)]
    for number, one in enumerate(pods):
        one["metadata"].update(name=f"w-{number}", uid=str(number))
    expected = [f"w-{number}" for number in range(5)]
    for seed in range(20):
        random.Random(seed).shuffle(pods)
        assert list(read_pods(pods, 1)[0]) == expected


@each(
    "change",
    [
        lambda one: one["metadata"].update(deletionTimestamp="2026-11-23T10:00:00Z"),
        lambda one: one["status"].update(phase="Pending"),
        lambda one: one["status"].update(phase="Succeeded"),
        lambda one: one["status"].pop("podIP"),
        lambda one: one["status"].pop("conditions"),
        lambda one: one["status"]["conditions"][1].update(status="False"),
        lambda one: one["metadata"]["annotations"].update({"paddle/slots": "0"}),
    ],
)
def test_a_pod_that_cannot_have_workers_is_no_host(change: Callable[[dict[str, Any]], object]) -> None:
    one = pod(1)
    assert one["status"]["conditions"][1]["type"] == "Ready"
    change(one)
    assert read_pods([one], 1) == ({}, [])


@each("slots", ["x", "-1", "1025", "1.5", "", 3])
def test_slots_that_are_none_are_named(slots: object) -> None:
    one = pod(1)
    one["metadata"]["annotations"]["paddle/slots"] = slots
    hosts, problems = read_pods([one], 1)
    assert hosts == {} and "paddle-worker-1 has the annotation paddle/slots" in problems[0]


@pytest.mark.parametrize("item", [None, 1, {}, {"metadata": None}, {"metadata": {}, "status": {"phase": 3}}])
def test_an_object_that_is_no_pod_is_left_out(item: Any) -> None:
    assert read_pods([item], 1)[0] == {}


class Api:
    """An API server that gives pods, or a problem."""

    def __init__(self, place: object) -> None:
        self.pods: list[dict[str, Any]] = [pod(1)]
        self.problem: ApiProblem | None = None
        self.asked: list[tuple[str, Mapping[str, str] | None]] = []

    def list_all(self, path: str, take: Callable[[dict[str, Any]], None], options: Mapping[str, str] | None) -> str:
        self.asked.append((path, options))
        if self.problem:
            raise self.problem
        for one in self.pods:
            take(one)
        return "1"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("paddle_cluster.elastic.membership.kubernetes.time", found)
    return found


def discover(**options: Any) -> tuple[PodDiscovery, Any]:
    discovery = PodDiscovery(ENVIRON, make_client=Api, **options)  # type: ignore[arg-type]
    return discovery, discovery._client


def test_hosts_have_slots_uids_and_addresses() -> None:
    discovery, api = discover()
    found = discovery.find_available_hosts_and_slots()
    assert (found, found.addresses) == ({"paddle-worker-1": 2}, {"paddle-worker-1": "10.244.1.5"})
    assert found.uids == {"paddle-worker-1": pod(1)["metadata"]["uid"]}
    selector = "app.kubernetes.io/part-of=paddle,app.kubernetes.io/component=worker"
    assert api.asked == [("/api/v1/namespaces/default/pods", {"labelSelector": selector})]


@pytest.mark.parametrize("status", [0, 403, 409, 429, 500, 503])
def test_the_last_hosts_count_while_the_api_server_answers_with_an_error(
    status: int, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    discovery, api = discover()
    known = discovery.find_available_hosts_and_slots()
    api.problem = ApiProblem(f"the API server answered {status}: no", status)
    asked = len(api.asked)
    for _ in range(100):
        clock.now += 1.0
        assert discovery.find_available_hosts_and_slots() == known
    log = capfd.readouterr().err
    assert log.count(f"the pods cannot be listed, and the last host is used: the API server answered {status}") == 1
    assert ("k8s/allreduce/access.yaml" in log) is (status == 403)
    assert len(api.asked) - asked < 30
    api.problem, api.pods = None, []
    clock.now += 60.0
    assert discovery.find_available_hosts_and_slots() == {}
    assert "lists the pods again" in capfd.readouterr().err


def test_a_time_that_the_api_server_names_is_kept(clock: Clock) -> None:
    discovery, api = discover()
    api.problem = ApiProblem("slow down", 429, 20.0)
    for _ in range(19):
        discovery.find_available_hosts_and_slots()
        clock.now += 1.0
    assert len(api.asked) == 1


def test_a_refusal_from_the_begin_ends_the_job_and_a_silence_does_not(clock: Clock) -> None:
    discovery, api = discover()
    api.problem = ApiProblem("the API server answered 403: no", 403)
    assert discovery.find_available_hosts_and_slots() == {}
    clock.now += 60.0
    with pytest.raises(RuntimeError, match="verb `list` on pods"):
        discovery.find_available_hosts_and_slots()
    api.problem = ApiProblem("no answer", 0)
    clock.now += 60.0
    assert discovery.find_available_hosts_and_slots() == {}


def test_a_machine_that_is_no_pod_is_told_so() -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        PodDiscovery({})
    with pytest.raises(ConfigError, match="--namespace is not given"):
        PodDiscovery({"KUBERNETES_SERVICE_HOST": "h", "SERVICE_ACCOUNT_DIR": "/nowhere"})


def test_n8_a_pod_with_the_name_of_a_blacklisted_one_has_a_clean_record_also_after_a_gap() -> None:
    discovery, api = discover()
    manager = HostManager(discovery)
    assert manager.update_available_hosts() == HostUpdateResult.added
    manager.blacklist("paddle-worker-1")
    assert not manager.current_hosts.available_hosts
    api.pods = []
    assert manager.update_available_hosts() == HostUpdateResult.removed
    api.pods = [pod(1)]
    api.pods[0]["metadata"]["uid"] = "another"
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.current_hosts.available_hosts == {"paddle-worker-1"}
    assert not manager.is_same("paddle-worker-1", pod(1)["metadata"]["uid"])
