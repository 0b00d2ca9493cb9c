"""The fair shares and the changes that lead to them."""

from __future__ import annotations

from typing import Any

import pytest
from autoscale.model import TICK_S, TRAINER, ModelCluster, Owner
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.master.autoscaler.packing import ClusterRoom, Demand
from paddle_cluster.master.autoscaler.plan import HOLD_S, Change, Past, TrainerJob, make_plan, remember

NOW = 1000.0
ONE = (1,)


def job(key: str, parallelism: int, least: int = 1, most: int = 60, **rest: Any) -> TrainerJob:
    rest.setdefault("placed", {0: parallelism})
    return TrainerJob(key, least, most, parallelism, rest.pop("request", ONE), **rest)


def after(cluster: ClusterRoom, *jobs: TrainerJob, now: float = NOW) -> list[int]:
    """The parallelism of each job after the changes of a plan."""
    changed = {change.job: change.after for change in make_plan(cluster, jobs, now).changes}
    return [changed.get(index, one.parallelism) for index, one in enumerate(jobs)]


def test_one_job_gets_all_room_up_to_its_most() -> None:
    assert after(ClusterRoom([(10,)]), job("a", 2)) == [10]
    assert after(ClusterRoom([(10,)]), job("a", 2, most=7)) == [7]


def test_jobs_share_the_room_equally() -> None:
    assert after(ClusterRoom([(12,)]), job("a", 12), job("b", 1, placed={})) == [6, 6]


def test_the_remainder_of_a_division_stays_where_it_is() -> None:
    assert after(ClusterRoom([(7,)]), job("a", 3), job("b", 4)) == [3, 4]
    assert after(ClusterRoom([(7,)]), job("a", 4), job("b", 3)) == [4, 3]


def test_jobs_are_equally_fulfilled_between_their_least_and_most() -> None:
    assert after(ClusterRoom([(30,)]), job("a", 2, least=0, most=10), job("b", 2, least=0, most=50)) == [5, 25]


def test_no_job_is_lowered_below_its_least_although_there_is_no_room() -> None:
    assert after(ClusterRoom([(3,)]), job("a", 4, least=2), job("b", 4, least=2)) == [2, 2]


def test_a_job_outside_of_its_bounds_is_brought_back_at_once() -> None:
    just = Past(raised=NOW - 1, lowered=NOW - 1)
    assert after(ClusterRoom([(9,)]), job("a", 1, least=3, most=5, past=just)) == [5]
    assert after(ClusterRoom([(9,)]), job("a", 9, least=3, most=5, past=just)) == [5]


def test_room_in_pieces_is_no_room() -> None:
    """The master of 2017 looked at the sum of the nodes for some decisions."""
    cluster = ClusterRoom([(3,), (3,), (3,)])
    assert after(cluster, job("a", 1, request=(2,), placed={0: 1})) == [3]


def test_every_resource_counts() -> None:
    assert after(ClusterRoom([(10, 4)]), job("a", 1, request=(1, 2))) == [2]


def test_a_node_of_others_gets_no_trainer() -> None:
    cluster = ClusterRoom([(4,), (4,)])
    assert after(cluster, job("a", 1, sites=frozenset({1}), placed={1: 1})) == [4]


def test_a_cordoned_node_keeps_its_trainers_and_gets_no_more() -> None:
    cluster = ClusterRoom([(4,), (4,)], closed=frozenset({0}))
    assert after(cluster, job("a", 2, placed={0: 2})) == [6]


def test_pods_of_others_that_wait_have_their_room_first() -> None:
    cluster = ClusterRoom([(10,)], [Demand((2,), 3)])
    assert after(cluster, job("a", 10)) == [4]


def test_a_pod_that_fits_nowhere_takes_no_room() -> None:
    assert after(ClusterRoom([(10,)], [Demand((11,))]), job("a", 10)) == [10]


def test_a_job_that_was_raised_lately_is_not_lowered() -> None:
    cluster = ClusterRoom([(6,)])
    raised = job("a", 10, past=Past(raised=NOW - HOLD_S + 1))
    assert after(cluster, raised) == [10]
    assert make_plan(cluster, [raised], NOW).wake == NOW + 1
    assert after(cluster, raised, now=NOW + 1) == [6]


def test_a_job_that_was_lowered_lately_is_not_raised() -> None:
    lowered = job("a", 4, past=Past(lowered=NOW - 1))
    assert after(ClusterRoom([(10,)]), lowered) == [4]
    assert after(ClusterRoom([(10,)]), lowered, now=NOW + HOLD_S) == [10]


def test_what_was_raised_lately_gives_way_to_the_least_of_another_job() -> None:
    raised, new = job("a", 10, past=Past(raised=NOW - 5)), job("b", 2, least=2, placed={}, waiting=2)
    plan = make_plan(ClusterRoom([(10,)]), [raised, new], NOW)
    assert [change.after for change in plan.changes] == [5, 5]
    assert plan.changes[0].reason == "it was raised 5 s ago, but b lacks its minimum; 5 is its fair share among 2 jobs"


def test_others_give_way_before_one_that_was_raised_lately() -> None:
    held, other = job("a", 8, past=Past(raised=NOW - 5), most=8), job("b", 8, most=8)
    new = job("c", 2, least=2, most=8, placed={}, waiting=2)
    changes = make_plan(ClusterRoom([(16,)]), [held, other, new], NOW).changes
    assert [(change.job, change.after) for change in changes] == [(1, 5), (2, 3)]


def test_one_trainer_more_than_its_share_is_not_worth_a_change() -> None:
    assert after(ClusterRoom([(5,)]), job("a", 6, placed={0: 5})) == [6]
    assert after(ClusterRoom([(5,)]), job("a", 6, placed={0: 5}, waiting=1)) == [5]


def test_one_trainer_more_than_its_share_goes_to_a_job_that_is_short() -> None:
    assert after(ClusterRoom([(6,)]), job("a", 4), job("b", 2)) == [3, 3]


def test_a_job_whose_trainers_find_no_node_is_lowered_and_waits_longer_each_time() -> None:
    refused = job("a", 8, placed={0: 5}, waiting=3, waiting_since=NOW - 40)
    (change,) = make_plan(ClusterRoom([(9,)]), [refused], NOW).changes
    assert (change.after, change.refused) == (5, True)
    assert change.reason == "3 of its trainers have found no node for 40 s"
    past = remember(Past(), change, NOW)
    assert past == Past(lowered=NOW, patience=60)
    assert remember(remember(past, Change(0, 5, 9, ""), NOW), change, NOW).patience == 120


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (job("a", 1, least=2, most=9), "it has fewer than its minimum, 2"),
        (job("a", 12, most=11), "it has more than its maximum, 11"),
        (job("a", 1, most=5), "there is room; what the nodes have room for is reached"),
        (job("a", 1), "there is room; 10 is what the nodes have room for"),
        (job("a", 20), "other pods take the room; 10 is what the nodes have room for"),
    ],
)
def test_a_change_has_a_reason(one: TrainerJob, reason: str) -> None:
    (change,) = make_plan(ClusterRoom([(10,)]), [one], NOW).changes
    assert change.reason == reason


def test_two_jobs_of_large_and_small_trainers_share_nodes() -> None:
    cluster = ClusterRoom([(8,)] * 4)
    large, small = job("a", 1, request=(6,), most=4), job("b", 1, request=(2,), most=16, placed={1: 1})
    got = after(cluster, large, small)
    assert got[0] * 6 + got[1] * 2 <= 32
    assert min(got) >= 2


def test_the_least_of_a_small_trainer_counts_where_no_large_one_has_room() -> None:
    """Otherwise small trainers were lowered for a large one and raised again every 30 s."""
    small = job("a", 5, most=8, placed=dict.fromkeys(range(5), 1))
    large = job("b", 1, request=(5,), most=1, placed={}, waiting=1)
    assert after(ClusterRoom([(1,)] * 4 + [(5,)]), small, large) == [4, 1]


def test_ten_thousand_nodes_and_a_thousand_jobs() -> None:
    """bench/autoscaler.py measures the time of it."""
    from autoscale.large import make_large

    cluster, jobs = make_large(1000, 100)
    plan = make_plan(cluster, jobs, NOW)
    assert max(plan.shares) - min(plan.shares) <= 1
    assert sum(plan.shares) == 3 * 1000


SIZES = st.lists(st.integers(4, 24), min_size=1, max_size=12)
BOUNDS = st.tuples(st.integers(1, 4), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, bounds=st.lists(BOUNDS, min_size=1, max_size=5), data=st.data())
def test_bounds_fairness_and_calm_hold_whatever_happens(
    sizes: list[int], bounds: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Also that 30 s after the last thing that happened no job is more than one trainer from its fair share.

    That counts for trainers of one size: beside smaller ones, large ones may find only pieces of room.
    """
    cluster = ModelCluster([size * 1000 for size in sizes], 0)
    service = cluster.add(Owner("service", 3000, 100, 0))
    trainers = data.draw(st.sampled_from([[2000], [5000], [1000, 2000, 5000]]))
    for number, (least, most) in enumerate(bounds):
        size = data.draw(st.sampled_from(trainers))
        cluster.add(Owner(f"job-{number}", size, TRAINER, least, least, most))
        service.wanted = data.draw(st.integers(0, sum(sizes) // 4))
        for _ in range(data.draw(st.integers(1, 80))):
            cluster.tick()
    latest: dict[str, tuple[float, bool]] = {}
    for moment, name, change in cluster.changes:
        least, most = bounds[int(name.removeprefix("job-"))]
        assert least <= change.after <= most
        rose = change.after > change.before
        since, before = latest.get(name, (-HOLD_S, rose))
        assert rose == before or moment - since >= HOLD_S or "lacks its minimum" in change.reason
        latest[name] = (moment, rose)
    for _ in range(round((HOLD_S + 5) / TICK_S)):  # at most 5 s until pods are where they will be
        cluster.tick()
    jobs = cluster.jobs()
    shares = make_plan(cluster.room(), jobs, cluster.now).shares
    if len(trainers) == 1:
        assert max(abs(one.parallelism - share) for one, share in zip(jobs, shares, strict=True)) <= 1
