"""What follows from the reports of a generation, and who has which rank in the next one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.elastic.hosts import parse_hosts
from paddle_cluster.elastic.membership.decisions import (
    FAILURE,
    READY,
    SUCCESS,
    Slot,
    assign_slots,
    compare_slots,
    decide,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
STATES = st.sampled_from([READY, SUCCESS, FAILURE])

CASES: dict[str, tuple[dict[Slot, str], bool, tuple[str, ...]]] = {
    "one success ends the job": ({A0: SUCCESS, A1: FAILURE, B0: READY}, True, ()),
    "failure of all ends it": ({A0: FAILURE, A1: FAILURE, B0: FAILURE}, True, ()),
    "a failure blacklists its host": ({A0: FAILURE, A1: READY, B0: READY}, False, ("a",)),
    "failures on every host end it": ({A0: FAILURE, A1: READY, B0: FAILURE}, True, ("a", "b")),
    "ready workers go on": ({A0: READY, A1: READY, B0: READY}, False, ()),
}


@pytest.mark.parametrize(("states", "is_over", "blacklist"), CASES.values(), ids=CASES)
def test_what_follows_from_the_reports(states: dict[Slot, str], is_over: bool, blacklist: tuple[str, ...]) -> None:
    decision = decide(states, lambda host: True, lambda host: False, 0, None)
    assert (decision.is_over, decision.blacklist, decision.error) == (is_over, blacklist, None)


@pytest.mark.parametrize(("limit", "resets", "is_over"), [(0, 0, True), (1, 0, False), (1, 1, True), (None, 99, False)])
def test_a_reset_limit_is_how_often_workers_resume(limit: int | None, resets: int, is_over: bool) -> None:
    decision = decide({A0: READY}, lambda host: True, lambda host: False, resets, limit)
    assert (decision.is_over, decision.error is not None) == (is_over, is_over)


def test_a_host_below_its_number_of_failures_stays() -> None:
    decision = decide({A0: FAILURE, B0: READY}, lambda host: False, lambda host: False, 0, None)
    assert (decision.is_over, decision.blacklist) == (False, ())


def test_rank_0_is_a_survivor_and_local_ranks_stay() -> None:
    slots = assign_slots(parse_hosts("new:1,a:3,b:1"), {("a", 2): 1, ("a", 1): 4, ("b", 0): 0}, 1, None)
    assert [(one.hostname, one.local_rank) for one in slots] == [("b", 0), ("a", 2), ("a", 1), ("a", 0), ("new", 0)]
    assert [one.rank for one in slots] == [0, 1, 2, 3, 4]


def test_a_host_that_has_no_room_for_its_survivor_does_not_come_first() -> None:
    slots = assign_slots(parse_hosts("a:1,b:1"), {A1: 1, B0: 2}, 1, None)
    assert [(one.hostname, one.local_rank) for one in slots] == [("b", 0), ("a", 0)]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_ranks_are_contiguous_and_survivors_come_first(sizes: list[int], data: st.DataObject) -> None:
    hosts = parse_hosts(",".join(f"h{number}:{size}" for number, size in enumerate(sizes)))
    every = [(host.hostname, rank) for host in hosts for rank in range(host.slots)]
    before = [(host.hostname, rank) for host in hosts for rank in range(4)]  # hosts may have had more slots, or fewer
    old = data.draw(st.lists(st.sampled_from(before), unique=True))
    survivors = {slot: rank for rank, slot in enumerate(old)}
    most = data.draw(st.none() | st.integers(1, 30))
    slots = assign_slots(hosts, survivors, 0, most)
    found = [(one.hostname, one.local_rank) for one in slots]
    assert [one.rank for one in slots] == list(range(len(slots)))
    assert len(set(found)) == len(found) == min(len(every), most or 30)
    assert not survivors.keys() & set(found) or found[0] in survivors
    for slot in slots:
        same_host = [rank for host, rank in found if host == slot.hostname]
        same_rank = [host for host, rank in found if rank == slot.local_rank]
        assert (slot.size, slot.local_size, slot.cross_size) == (len(found), len(same_host), len(same_rank))
        assert sorted(same_host) == list(range(len(same_host)))
    assert assign_slots(hosts, {slot: rank for rank, slot in enumerate(found)}, 0, most) == slots  # a repetition


def test_sets_of_slots_are_compared() -> None:
    assert [compare_slots({A0}, after) for after in ({A0}, set(), {A0, B0}, {B0})] == [0, 1, 2, 3]
