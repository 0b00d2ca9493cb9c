"""Hosts, slots and ranks (C2 to C4 of ../shared/spec/elastic.md, section 2), and what follows from reports."""

from pathlib import Path

import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.elastic.hosts import (
    INVALID_SLOT_INFO,
    HostInfo,
    SlotInfo,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
)
from paddle_cluster.elastic.membership.decisions import (
    FAILURE,
    READY,
    SUCCESS,
    Slot,
    assign_slots,
    compare_slots,
    decide,
)


def test_c2_get_host_assignments() -> None:
    sizes = {"size": 4, "local_size": 2, "cross_size": 2}
    assert get_host_assignments(parse_hosts("worker-0:2,worker-1:2"), 4) == [
        SlotInfo(hostname="worker-0", rank=0, local_rank=0, cross_rank=0, **sizes),
        SlotInfo(hostname="worker-0", rank=1, local_rank=1, cross_rank=0, **sizes),
        SlotInfo(hostname="worker-1", rank=2, local_rank=0, cross_rank=1, **sizes),
        SlotInfo(hostname="worker-1", rank=3, local_rank=1, cross_rank=1, **sizes),
    ]


def test_c3_get_host_assignments_elastic() -> None:
    sizes = {"size": 2, "local_size": 2, "cross_size": 1}
    assert get_host_assignments(parse_hosts("worker-0:2,worker-1:2"), min_num_proc=1, max_num_proc=2) == [
        SlotInfo(hostname="worker-0", rank=0, local_rank=0, cross_rank=0, **sizes),
        SlotInfo(hostname="worker-0", rank=1, local_rank=1, cross_rank=0, **sizes),
    ]


def test_c4_get_host_assignments_heterogeneous() -> None:
    slots = get_host_assignments(parse_hosts("worker-0:1,worker-1:2"), 3)
    assert slots == [
        SlotInfo("worker-0", 0, 0, 0, 3, 1, 2),
        SlotInfo("worker-1", 1, 0, 1, 3, 2, 2),
        SlotInfo("worker-1", 2, 1, 0, 3, 2, 1),
    ]


def test_the_last_host_gives_only_as_many_slots_as_are_wanted() -> None:
    found = get_host_assignments(parse_hosts("a:2,b:2,c:2"), 1, 3)
    assert [(slot.hostname, slot.local_rank, slot.local_size) for slot in found] == [
        ("a", 0, 2),
        ("a", 1, 2),
        ("b", 0, 1),
    ]


def test_fewer_slots_than_wanted_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"Requested more processes \(3\) than there are available slots \(2\)"):
        get_host_assignments(parse_hosts("a:2"), 3)


def test_the_answer_to_a_question_for_a_rank_is_read_back() -> None:
    slot = SlotInfo("a", 1, 2, 3, 4, 5, 6)
    assert slot.to_response_string() == "1,4,2,5,3,6"
    assert SlotInfo.from_response_string("a", "1,4,2,5,3,6") == slot
    assert INVALID_SLOT_INFO.to_response_string() == "-1,-1,-1,-1,-1,-1"


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5,x", "1" * 30 + ",2,3,4,5,6"])
def test_an_answer_that_is_no_rank_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        SlotInfo.from_response_string("a", text)


@each("text", ["", "a", "a:", ":2", "a:x", "a:-1", "a:2,b", "a:1000000"])
def test_a_text_that_is_no_host_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no host with its slots"):
        parse_hosts(text)


def test_a_host_with_two_numbers_of_slots_is_an_error() -> None:
    """The last number counted, without a word; the discovery script refuses the same."""
    with pytest.raises(ValueError, match="a has 1 slots and then 2"):
        parse_hosts_and_slots("a:1,b:1,a:2")


def test_hosts_are_read_from_text_and_files(tmp_path: Path) -> None:
    assert parse_hosts("a:2,::1:3") == [HostInfo("a", 2), HostInfo("::1", 3)]
    assert parse_hosts_and_slots("a:2,b:3") == (["a", "b"], {"a": 2, "b": 3})
    path = tmp_path / "hosts"
    path.write_text("a slots=2\n\nb  slots=3\n")
    assert parse_host_files(str(path)) == "a:2,b:3"
    path.write_text("a slots=2\nb 3\n")
    with pytest.raises(ValueError, match=r"hosts:2: 'b 3' is no host"):
        parse_host_files(str(path))


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
