"""Caps of namespaces: how they are written, and what they do to the plan."""

from __future__ import annotations

from typing import Any

import pytest
from autoscale.fake_api import job as job_item
from autoscale.fake_api import node
from each import each
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.master.autoscaler.amounts import parse_caps
from paddle_cluster.master.autoscaler.facts import read_job, read_node
from paddle_cluster.master.autoscaler.packing import ClusterRoom
from paddle_cluster.master.autoscaler.plan import HOLD_S, Past, TrainerJob, make_plan
from paddle_cluster.master.autoscaler.snapshot import UNBOUNDED, make_snapshot

NOW = 1000.0
ONE = (1,)


def job(key: str, parallelism: int, least: int = 1, most: int = 60, **rest: Any) -> TrainerJob:
    rest.setdefault("placed", {0: parallelism})
    return TrainerJob(key, least, most, parallelism, rest.pop("request", ONE), **rest)


def room(size: int, **caps: int) -> ClusterRoom:
    return ClusterRoom([(size,)], caps={namespace: (cap,) for namespace, cap in caps.items()})


def after(cluster: ClusterRoom, *jobs: TrainerJob) -> list[int]:
    """The parallelism of each job after the changes of a plan."""
    changed = {change.job: change.after for change in make_plan(cluster, jobs, NOW).changes}
    return [changed.get(index, one.parallelism) for index, one in enumerate(jobs)]


def test_a_text_names_the_amounts_of_each_namespace() -> None:
    assert parse_caps("") == {}
    assert parse_caps("a:cpu=1500m,memory=32Gi,nvidia.com/gpu=4; *:pods=3") == {
        "a": {"cpu": 1500, "memory": 32 << 30, "nvidia.com/gpu": 4},
        "*": {"pods": 3},
    }


@each("text", ["a", "a:", "a:cpu", "a:cpu=", "a:cpu=x", "a:=3", ":cpu=1", "A:cpu=1", "a:cpu=1;a:cpu=2", "cpu=8"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAMESPACE:cpu|not a Kubernetes quantity|two caps"):
        parse_caps(text)


@each(
    ("text", "why"),
    [
        ("a:cpu=1,cpu=2", "the cap of a has a resource twice"),
        ("a:cpu=1, cpu=2", "twice"),
        ("a:b:cpu=1", "'b:cpu' is no resource"),
        ("a:memo=8Gi", "'memo' is no resource"),
        ("a:CPU=8", "'CPU' is no resource"),
        ("a:requests.cpu=8", "'requests.cpu' is no resource"),
        ("a:nvidia.com/=8", "is no resource"),
        ("a:/gpu=8", "is no resource"),
        ("a:gpu=8", "'gpu' is no resource"),
    ],
)
def test_a_cap_of_no_resource_is_refused(text: str, why: str) -> None:
    """It bounded nothing, and nobody was told."""
    with pytest.raises(ValueError, match=why):
        parse_caps(text)


def test_each_resource_of_kubernetes_may_have_a_cap() -> None:
    names = ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "a.io/b_c.D"]
    assert parse_caps("a:" + ",".join(f"{name}=1Ki" for name in names))["a"].keys() == set(names)


def test_a_cap_bounds_the_resources_that_it_names() -> None:
    items = [job_item("a", 1), job_item("b", 1, namespace="arts"), job_item("c", 1, namespace="law")]
    facts = [
        found for one in items if (found := read_job({**one, "metadata": {"uid": str(id(one)), **one["metadata"]}}))
    ]
    caps = {"science": {"cpu": 8000, "gpu": 1}, "*": {"pods": 3}}
    made = make_snapshot([read_node(node("one"))], [], facts, {}, caps)
    assert made.room.caps == {
        "science": (8000, UNBOUNDED, UNBOUNDED),
        "arts": (UNBOUNDED, UNBOUNDED, 3),
        "law": (UNBOUNDED, UNBOUNDED, 3),
    }
    assert make_snapshot([], [], facts, {}, {"law": {"cpu": 1}}).room.caps.keys() == {"law"}


def test_jobs_share_the_cap_of_their_namespace_and_leave_the_rest_to_others() -> None:
    assert after(room(20, a=6), job("a/one", 1)) == [6]
    assert after(room(20, a=6), job("a/one", 6), job("a/two", 1, placed={}), job("b/three", 1)) == [3, 3, 14]
    assert after(ClusterRoom([(20, 20)], caps={"a": (UNBOUNDED, 4)}), job("a/one", 1, request=(1, 2))) == [2]
    assert after(ClusterRoom([(20, 20)], caps={"a": (0, 9)}), job("a/one", 1, request=(0, 2))) == [4]


def test_a_cap_leaves_each_job_its_minimum() -> None:
    assert after(room(20, a=3), job("a/one", 9, least=2), job("a/two", 1, least=2, placed={})) == [2, 2]
    assert after(room(20, a=0), job("a/one", 5, least=5)) == [5]


def test_a_job_above_the_cap_is_lowered_at_once() -> None:
    """Otherwise a job that was raised lately, or that has one trainer too many, would stay above the cap."""
    just = Past(raised=NOW - 1)
    assert after(room(20, a=6), job("a/one", 6, past=just), job("a/two", 1, placed={})) == [3, 3]
    assert after(room(20, a=6), job("a/one", 7, past=just)) == [6]
    assert after(room(30), job("a/one", 20, past=just), job("b/two", 1)) == [20, 10]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (1, "there is room; 6 is its fair share of the cap of namespace a"),
        (9, "6 is its fair share of the cap of namespace a"),
    ],
)
def test_a_reason_names_the_cap(before: int, reason: str) -> None:
    (change,) = make_plan(room(20, a=6), [job("a/one", before)], NOW).changes
    assert change.reason == reason


@given(
    cap=st.integers(0, 30),
    size=st.integers(0, 40),
    shapes=st.lists(
        st.tuples(
            st.integers(0, 12), st.integers(1, 4), st.integers(0, 9), st.integers(1, 3), st.floats(0, 2 * HOLD_S)
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_no_plan_exceeds_a_cap_but_for_minimums(
    cap: int, size: int, shapes: list[tuple[int, int, int, int, float]]
) -> None:
    jobs = [
        job(f"a/{number}", parallelism, least, least + more, request=(amount,), past=Past(raised=NOW - since))
        for number, (parallelism, least, more, amount, since) in enumerate(shapes)
    ]
    numbers = after(room(size, a=cap), *jobs)
    least = sum(one.least * one.request[0] for one in jobs)
    assert sum(number * one.request[0] for number, one in zip(numbers, jobs, strict=True)) <= max(cap, least)
    assert all(one.least <= number <= one.most for number, one in zip(numbers, jobs, strict=True))
