"""Hosts, slots and ranks; C2 to C4 of ../shared/spec/elastic.md, section 2."""

from pathlib import Path

import pytest
from each import each

from paddle_cluster.elastic.hosts import (
    INVALID_SLOT_INFO,
    HostInfo,
    SlotInfo,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
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
