"""Each store: what is written is read by the next leader, and a former leader writes nothing."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from etcd_process import EtcdProcess

from paddle_base.registry.endpoints import decode, encode
from paddle_base.runtime.errors import LeaseLostError
from paddle_cluster.master.store.directory import DirectoryStore
from paddle_cluster.master.store.etcd import EtcdStore, split_writes
from paddle_cluster.master.store.interface import Leadership

Opens = Callable[[], Any]
TTL = 2.0


@pytest.fixture(params=["directory", "etcd"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    if request.param == "directory":
        return lambda: DirectoryStore(tmp_path / "store" / "job", TTL)
    etcd = request.getfixturevalue("etcd")
    return lambda: EtcdStore([etcd.endpoint], "job", TTL)


def lead(store: Any) -> Leadership:
    leadership: Leadership | None = store.campaign(lambda: False, lambda _: None)
    assert leadership is not None
    return leadership


def test_the_next_leader_reads_what_was_written(opens: Opens) -> None:
    first = lead(opens())
    assert list(first.load()) == []
    first.commit([("task/2", '["ü"]'), ("task/1", "[1]"), ("member/a", "{}")])
    first.commit([("member/a", None), ("task/1", "[2]"), ("task/1", "[3]")])
    first.resign()
    second = lead(opens())
    assert sorted(second.load()) == [("task/1", "[3]"), ("task/2", '["ü"]')]
    assert second.claim.token > first.claim.token
    second.resign()


def test_jobs_that_have_had_a_master_are_listed(opens: Opens) -> None:
    store = opens()
    assert store.list_jobs() == []
    lead(store).resign()
    assert store.list_jobs() == (["job"] if isinstance(store, DirectoryStore) else [])  # nothing was written
    leadership = lead(store)
    list(leadership.load())
    leadership.commit([("state", "{}")])
    leadership.resign()
    assert store.list_jobs() == ["job"]


def test_jobs_of_one_etcd_are_told_from_other_keys(etcd: EtcdProcess) -> None:
    for job in ("a", "a-b", "a0", "b.c"):
        leadership = lead(EtcdStore([etcd.endpoint], job, TTL))
        leadership.commit([("state", "{}"), ("task/1", "[]")])
        leadership.resign()
    for key in ("/registry/pods/x", "plain", "/b", "//", "/master/x"):
        requests.post(f"{etcd.endpoint}/v3/kv/put", json={"key": encode(key), "value": ""}, timeout=30)
    assert EtcdStore([etcd.endpoint], "other", TTL).list_jobs() == ["a-b", "a", "a0", "b.c"]


def test_many_writes_are_stored_in_order(opens: Opens) -> None:
    leadership = lead(opens())
    list(leadership.load())
    writes = [(f"task/{number:05d}", "x" * 100) for number in range(1000)]
    leadership.commit(writes)
    leadership.resign()
    again = lead(opens())
    assert list(again.load()) == writes
    again.resign()


def test_a_former_leader_writes_nothing_and_does_not_resign_for_the_present_one(opens: Opens) -> None:
    first = lead(opens())
    list(first.load())
    first.claim.release()
    second = lead(opens())
    list(second.load())
    second.publish("10.0.0.2:2")
    for write in (lambda: first.commit([("task/1", "stale")]), lambda: first.publish("10.0.0.1:1")):
        with pytest.raises(LeaseLostError):
            write()
    first.resign()
    assert opens().find() == "10.0.0.2:2" and list(second.load()) == []
    second.resign()


def test_a_trainer_waits_for_the_next_leaders_address(opens: Opens) -> None:
    leadership = lead(opens())
    list(leadership.load())
    leadership.publish("10.0.0.1:1")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(opens().wait("10.0.0.1:1", 20.0)))
    thread.start()
    leadership.publish("10.0.0.1:2")
    thread.join(10)
    assert found == ["10.0.0.1:2"]
    began = time.monotonic()
    assert opens().wait("10.0.0.1:2", 0.5) == "10.0.0.1:2"
    assert 0.4 < time.monotonic() - began < 5
    leadership.resign()
    assert opens().find() == ""


def test_two_jobs_on_one_etcd_know_nothing_of_each_other(etcd: EtcdProcess) -> None:
    first, second = (lead(EtcdStore([etcd.endpoint], job, TTL)) for job in ("job", "job0"))
    list(first.load()), list(second.load())
    first.commit([("task/1", "first")])
    second.commit([("task/1", "second")])
    assert list(first.load()) == [("task/1", "first")]
    first.resign()
    second.resign()


def test_the_keys_of_an_earlier_version_are_those_of_the_claim(etcd: EtcdProcess) -> None:
    """A master that was started before the lead was a claim of the registry keeps the lead, and its state is read."""

    def ask(path: str, **question: object) -> Any:
        return requests.post(f"{etcd.endpoint}/v3/{path}", json=question, timeout=30).json()

    lease = ask("lease/grant", TTL=60)["ID"]
    for key, value, held in (("lock", "leader", lease), ("addr", "10.0.0.1:1", lease), ("task/1", '["ü"]', "0")):
        ask("kv/put", key=encode(f"/job/master/{key}"), value=encode(value), lease=held)
    store, asked, notes = EtcdStore([etcd.endpoint], "job", TTL), iter([False, True]), list[str]()
    assert store.find() == "10.0.0.1:1"
    assert store.campaign(lambda: next(asked), notes.append) is None
    assert notes == ["the master at 10.0.0.1:1 leads; this master stands by"]
    ask("lease/revoke", ID=lease)
    leadership = lead(store)
    assert list(leadership.load()) == [("task/1", '["ü"]')]
    leadership.publish("10.0.0.2:2")
    found = ask("kv/range", key=encode("/job/master/"), range_end=encode("/job/master0"))["kvs"]
    assert [decode(one["key"]) for one in found] == [f"/job/master/{key}" for key in ("addr", "lock", "task/1")]
    assert decode(found[0]["value"]) == "10.0.0.2:2" and found[0]["lease"] == found[1]["lease"] != "0"
    leadership.resign()


def test_a_second_endpoint_answers_for_the_first(etcd: EtcdProcess) -> None:
    leadership = lead(EtcdStore(["http://127.0.0.1:1", etcd.endpoint], "job", TTL))
    list(leadership.load())
    leadership.commit([("task/1", "1")])
    leadership.resign()


def test_an_etcd_that_was_away_for_less_than_the_lease_costs_nothing(etcd: EtcdProcess) -> None:
    leadership = lead(EtcdStore([etcd.endpoint], "job", 30.0))
    list(leadership.load())
    etcd.stop()
    thread = threading.Thread(target=etcd.start)
    thread.start()
    leadership.commit([("task/1", "1")])
    thread.join(30)
    assert list(leadership.load()) == [("task/1", "1")]
    leadership.resign()


def test_writes_are_split_within_etcds_bounds() -> None:
    parts = list(split_writes([(f"k{number % 200}", str(number)) for number in range(300)]))
    assert [len(part) for part in parts] == [120, 120, 60]
    parts = list(split_writes([(f"k{number}", "x" * 200_000) for number in range(5)]))
    assert [len(part) for part in parts] == [2, 2, 1]
