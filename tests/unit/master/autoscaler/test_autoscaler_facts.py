"""What is read of objects of the API, and the room and the jobs that come of it."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from autoscale.fake_api import job, node, pod
from each import each

from paddle_cluster.master.autoscaler.amounts import parse_amount, sum_requests
from paddle_cluster.master.autoscaler.facts import JobFacts, Taint, Toleration, read_job, read_node, read_pod
from paddle_cluster.master.autoscaler.lease import LeaseView, make_lease, view_lease
from paddle_cluster.master.autoscaler.plan import make_plan
from paddle_cluster.master.autoscaler.snapshot import ClusterSnapshot, judge_job, make_snapshot

GIB = 1 << 30


@each(
    ("text", "is_cpu", "amount"),
    [
        ("2", True, 2000),
        ("250m", True, 250),
        ("0.5", True, 500),
        ("1n", True, 1),
        ("1Ki", False, 1024),
        ("1.5Gi", False, 3 << 29),
        ("2k", False, 2000),
        ("1e3", False, 1000),
        ("12E2", False, 1200),
        ("999999999999999999Ei", False, 1 << 62),
    ],
)
def test_amounts_are_those_of_kubernetes(text: str, is_cpu: bool, amount: int) -> None:
    assert parse_amount(text, is_cpu=is_cpu) == amount


@each("text", ["", "x", "1Xi", "-1", "1" * 40, None, 3, "1e999"])
def test_anything_else_is_no_amount(text: object) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_amount(text)


def wants(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_a_pod_asks_for_its_containers_or_a_larger_init_container() -> None:
    assert dict(sum_requests({"containers": [wants("1"), wants("2")]})) == {"cpu": 3000}
    assert dict(sum_requests({"containers": [wants("1")], "initContainers": [wants("4")]})) == {"cpu": 4000}
    sidecar = wants("1", restartPolicy="Always")
    assert dict(sum_requests({"containers": [wants("1")], "initContainers": [sidecar, wants("2")]})) == {"cpu": 3000}
    assert dict(sum_requests({"containers": [wants("1")], "overhead": {"cpu": "1"}})) == {"cpu": 2000}
    assert dict(sum_requests({"containers": [{"resources": {"limits": {"cpu": "2"}}}]})) == {"cpu": 2000}


def test_pods_that_have_ended_and_jobs_without_annotations_are_not_kept() -> None:
    assert read_pod(pod("a", on="one", phase="Succeeded")) is None
    assert read_job(job("a", 1, None, None)) is None


def test_a_taint_needs_a_toleration() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    assert Toleration("gpu", "yes", "", "").covers(taint)
    assert Toleration("", "", "", "Exists").covers(taint)
    assert not Toleration("gpu", "no", "", "Equal").covers(taint)
    assert not Toleration("gpu", "yes", "NoExecute", "").covers(taint)


def facts(item: dict[str, Any]) -> JobFacts:
    found = read_job(
        {**item, "metadata": {"uid": f"uid-of-jobs-science/{item['metadata']['name']}", **item["metadata"]}}
    )
    assert found
    return found


def snapshot(nodes: list[Any], pods: list[Any], jobs: list[Any]) -> ClusterSnapshot:
    kept = [found for one in pods if (found := read_pod(one))]
    return make_snapshot([read_node(one) for one in nodes], kept, [facts(one) for one in jobs], {})


def test_room_is_what_others_leave() -> None:
    made = snapshot([node("one")], [pod("x", on="one", cpu="3"), pod("a-0", "a", "one")], [job("a", 1)])
    assert made.room.rooms == [(13_000, 63 * GIB, 109)]
    assert made.jobs[0].placed == {0: 1}
    assert made.jobs[0].request == (5000, GIB, 1)


def test_pods_that_wait_are_demands_and_trainers_that_wait_are_counted() -> None:
    made = snapshot([node("one")], [pod("x", cpu="3"), pod("a-0", "a")], [job("a", 1)])
    assert [(one.request[0], one.number) for one in made.room.demands] == [(3000, 1)]
    assert made.jobs[0].waiting == 1


def test_pods_of_lower_priority_than_trainers_are_no_demands() -> None:
    low, trainer = pod("x", cpu="3"), pod("a-0", "a", "one")
    low["spec"]["priority"], trainer["spec"]["priority"] = -20, -10
    assert not snapshot([node("one")], [low, trainer], [job("a", 1)]).room.demands


def test_pods_that_are_deleted_or_gated_ask_for_nothing() -> None:
    leaving, gated = pod("a-0", "a", "one"), pod("x")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T07:00:00Z"
    gated["spec"]["schedulingGates"] = [{"name": "later"}]
    made = snapshot([node("one")], [leaving, gated], [job("a", 1)])
    assert made.jobs[0].placed == {} and not made.room.demands
    assert made.room.rooms[0][0] == 16_000


def test_a_node_that_is_not_ready_has_no_room_and_a_cordoned_one_takes_none() -> None:
    lost, cordoned = node("lost"), node("cordoned", unschedulable=True)
    lost["status"]["conditions"][0]["status"] = "Unknown"
    made = snapshot([lost, cordoned], [], [job("a", 1)])
    assert len(made.room.rooms) == 1 and made.room.closed == {0}


def test_a_job_is_placed_where_selector_and_tolerations_allow() -> None:
    tainted = node("tainted", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    made = snapshot([tainted, node("plain")], [], [job("a", 1)])
    assert made.jobs[0].sites == {1}


def test_trainers_with_a_gpu_are_counted_by_the_gpus_of_the_nodes() -> None:
    """By their processors the nodes have room for nine trainers; they have three GPUs."""
    small, large, none = node("small"), node("large"), node("none")
    small["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    large["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    wanting, plain = job("a", 1), job("a", 1)
    resources = wanting["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"] = {"nvidia.com/gpu": "1"}
    for one, count in ((wanting, 3), (plain, 9)):
        made = snapshot([small, large, none], [], [one])
        assert make_plan(made.room, made.jobs, 1000.0).shares == [count]


def test_jobs_that_are_over_are_no_jobs_any_more() -> None:
    for part, value in (
        ("status", {"succeeded": 1}),
        ("status", {"conditions": [{"type": "Failed", "status": "True"}]}),
    ):
        assert not snapshot([node("one")], [], [{**job("a", 1), part: value}]).jobs
    suspended = job("a", 1)
    suspended["spec"]["suspend"] = True
    assert not snapshot([node("one")], [], [suspended]).jobs


def test_a_job_that_another_manager_of_kueue_has_is_left_alone() -> None:
    managed = job("a", 1)
    managed["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert "managed by Kueue" in judge_job(facts(managed))


def test_a_lease_is_free_when_it_did_not_change_for_its_duration() -> None:
    item = {"spec": {"holderIdentity": "other", "renewTime": "t1", "leaseDurationSeconds": 15}}
    first = view_lease(item, None, 100.0)
    assert first == LeaseView("other", "t1", 15.0, 100.0)
    assert view_lease(item, first, 110.0).seen == 100.0
    assert not first.is_free("me", 114.0) and first.is_free("me", 115.0) and first.is_free("other", 100.0)
    item["spec"]["renewTime"] = "t2"
    assert view_lease(item, first, 110.0).seen == 110.0


def test_a_lease_that_changes_hands_counts_it() -> None:
    moment = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    made = make_lease("lease", "me", None, moment)
    assert made["spec"]["leaseTransitions"] == 0 and made["spec"]["renewTime"] == "2026-11-23T00:00:00.000000Z"
    taken = make_lease("lease", "you", made, moment)
    assert taken["spec"]["leaseTransitions"] == 1 and taken["spec"]["holderIdentity"] == "you"


def spec(**requests: str) -> dict[str, Any]:
    return {"containers": [{"resources": {"requests": requests}}]}


def test_the_resources_of_a_pod_are_bounded_and_those_of_amount_0_do_not_count() -> None:
    """The Jobs of one namespace exhausted the autoscaler, which others share."""
    many = {f"x.io/r{number}": "0" for number in range(5000)}
    assert dict(sum_requests(spec(cpu="1", **many))) == {"cpu": 1000}
    with pytest.raises(ValueError, match="a pod requests 5000 resources, and at most 100 are accepted"):
        sum_requests(spec(**dict.fromkeys(many, "1")))


@each("part", [{"tolerations": [{"operator": "Exists"}] * 201}, {"nodeSelector": {str(n): "" for n in range(201)}}])
def test_the_terms_by_which_a_pod_chooses_its_node_are_bounded(part: dict[str, Any]) -> None:
    item = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {**spec(cpu="1"), **part}}
    with pytest.raises(ValueError, match="more than 200"):
        read_pod(item)
    running = read_pod({**item, "spec": {**item["spec"], "nodeName": "one"}})
    assert running is not None and running.requests == (("cpu", 1000),)  # it takes room, whatever it asks for


def test_resources_that_no_node_has_cost_nothing_for_each_node() -> None:
    jobs = []
    for number in range(50):
        item = job("a", 1, uid=str(number))
        names = {f"x{number}.io/r{one}": "1" for one in range(90)}
        item["spec"]["template"]["spec"] = spec(cpu="1", **(names if number else {}))
        jobs.append(read_job(item))
    made = make_snapshot([read_node(node("one")), read_node(node("two"))], [], filter(None, jobs), {})
    assert {len(room) for room in made.room.rooms} == {3}
    plan = make_plan(made.room, made.jobs, 1000.0)
    assert plan.shares[0] > 1 and set(plan.shares[1:]) == {1}  # the others fit nowhere, and keep their minimum
