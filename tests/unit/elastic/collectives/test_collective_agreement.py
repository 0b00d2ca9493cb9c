"""Ranks that do not call the same: who differs in what, and for whom a collective waits."""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Callable

import numpy as np
import pytest
from collective_ranks import add, groups, on_all, run
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from paddle_cluster.elastic.collectives.dtypes import BFLOAT16
from paddle_cluster.elastic.collectives.fusion import FUSION_BYTES, FusedArray, fuse
from paddle_cluster.elastic.collectives.group import CYCLE_BYTES, RankGroup
from paddle_cluster.elastic.collectives.requests import (
    Agreement,
    CollectiveKind,
    Ledger,
    Reduction,
    Request,
    describe_stall,
    encode_request,
    parse_announcement,
)
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from pserver.wire.protocol import ProtocolError

FLOAT = np.dtype(np.float32)
NOTHING = np.empty(0, np.float32)


def request(name: str = "w", **changes: object) -> Request:
    return Request(CollectiveKind.ALLREDUCE, name, FLOAT, (3,), Reduction.SUM)._replace(**changes)


ROWS = Request(CollectiveKind.ALLTOALL, "rows", FLOAT, (4, 2), splits=(2, 1, 1))


def agree(lists: list[list[Request]]) -> Agreement:
    return Ledger(len(lists)).add(lists)


DIFFERENCES = {
    "shape": (request(shape=(4,)), "rank 1 calls allreduce of float32 (4,) by sum"),
    "type": (request(dtype=np.dtype(np.int64)), "rank 1 calls allreduce of int64 (3,) by sum"),
    "reduction": (request(argument=Reduction.MAX), "rank 1 calls allreduce of float32 (3,) by max"),
    "kind": (request(kind=CollectiveKind.BROADCAST), "rank 1 calls broadcast of float32 (3,) from rank 1"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_a_mismatch_names_the_rank_that_differs_and_in_what(difference: str) -> None:
    other, text = DIFFERENCES[difference]
    why = agree([[request()], [other], [request()]]).mismatches["w"]
    assert text in why
    assert "ranks 0, 2 call allreduce of float32 (3,) by sum" in why


def test_only_what_all_ranks_announce_runs_in_the_order_of_rank_0() -> None:
    lists = [[request(name) for name in names] for names in ("cab", "abc", "bdac")]
    assert [same[0].name for same in agree(lists).run] == ["c", "a", "b"]


def test_requests_run_when_the_last_rank_has_announced_them_in_whatever_round() -> None:
    ledger = Ledger(2)
    assert not ledger.add([[request("a"), request("b")], [request("c")]]).run
    assert [one.name for one in ledger.list_pending(0)] == ["a", "b"]
    found = ledger.add([[request("d")], [request("d"), request("b"), request("a", shape=(4,))]])
    assert [same[0].name for same in found.run] == ["b", "d"]
    assert list(found.mismatches) == ["a"]
    assert not ledger.is_empty
    assert [same[0].name for same in ledger.add([[request("c")], []]).run] == ["c"]
    assert ledger.is_empty
    ledger.add([[request("a")], []])
    with pytest.raises(ProtocolError, match="a second announcement of 'a' from rank 0"):
        ledger.add([[request("a")], []])


def test_any_number_of_collectives_may_wait_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than two announcements in another order waited for each other, with a warning that was not true."""
    monkeypatch.setattr("paddle_cluster.elastic.collectives.waiting.MAX_REQUESTS", 8)

    def work(group: RankGroup) -> list[float]:
        order = range(100) if group.rank else range(99, -1, -1)
        handles = {
            number: group.submit(
                CollectiveKind.ALLREDUCE, np.full(1, float(number)), name=str(number), argument=Reduction.SUM
            )
            for number in order
        }
        return [float(group.wait(handles[number])[0]) for number in range(100)]

    with groups(3) as made:
        assert on_all(made, work) == [[3.0 * number for number in range(100)]] * 3


def count_calls(work: Callable[[], object]) -> int:
    """The number of calls of functions in this thread."""
    calls = 0

    def see(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_n_requests_cost_n_however_many_wait() -> None:
    """Each of 6,000 requests of allreduce_async added up the bytes of all waiting ones, which took 11 s.

    100, 1,000, 10,000 and 100,000 requests take a rank 12 us each (process time of a group of one).
    """
    with groups(1) as (group,):

        def work(count: int) -> None:
            handles = [group.submit(CollectiveKind.ALLREDUCE, np.ones(1), argument=Reduction.SUM) for _ in range(count)]
            for handle in handles:
                group.wait(handle)

        work(10)
        assert count_calls(lambda: work(2000)) < 4.4 * count_calls(lambda: work(500))


@pytest.mark.parametrize("order", [1, -1])
def test_an_agreement_costs_what_is_new_in_it(order: int) -> None:
    def work(count: int) -> None:
        ledger = Ledger(3)
        lists = [[request(str(number)) for number in range(count)][::step] for step in (1, order, 1)]
        for place in range(count):
            ledger.add([[one[place]] for one in lists])
        assert ledger.is_empty

    assert count_calls(lambda: work(2000)) < 4.4 * count_calls(lambda: work(500))


@pytest.mark.parametrize(
    ("name", "shape", "error"),
    [("n" * 513, (1,), ValueError), ("\u00e4" * 257, (1,), ValueError), (5, (1,), TypeError), (None, (1,) * 33, None)],
)
def test_what_no_rank_would_accept_is_refused_at_the_call(
    name: str, shape: tuple[int, ...], error: type[Exception] | None
) -> None:
    """The other ranks refused the announcement, and the group had ended for good."""
    with groups(2) as made:
        for group in made:
            if error is None:
                with pytest.raises(ValueError, match=r"maximum supported dimension|at most 32 dimensions"):
                    group.submit(CollectiveKind.ALLREDUCE, np.ones(shape))
            else:
                with pytest.raises(error, match=r"name .*of a collective"):
                    group.submit(CollectiveKind.ALLREDUCE, np.ones(shape), name=name)
        ends = on_all(made, lambda group: run(group, CollectiveKind.ALLREDUCE, np.ones(1), argument=1)[0])
    assert ends == [2.0, 2.0]


def test_gathered_arrays_may_differ_in_their_first_dimension_only() -> None:
    one = request(kind=CollectiveKind.ALLGATHER, shape=(2, 5))
    assert agree([[one], [one._replace(shape=(9, 5))]]).run
    assert agree([[one], [one._replace(shape=(2, 6))]]).mismatches


def test_a_mismatch_fails_on_every_rank_and_the_group_goes_on() -> None:
    def work(group):  # type: ignore[no-untyped-def]
        with pytest.raises(CollectiveMismatchError, match=r"rank 2 calls allreduce of float64 \(5,\)"):
            count = 5 if group.rank == 2 else 4
            add(group, np.zeros(count), name="w")
        return add(group, np.ones(2))[0]

    with groups(3) as made:
        assert on_all(made, work) == [3.0, 3.0, 3.0]


def test_collectives_without_names_that_differ_in_kind_are_a_mismatch() -> None:
    def work(group):  # type: ignore[no-untyped-def]
        kind = CollectiveKind.BROADCAST if group.rank else CollectiveKind.ALLREDUCE
        with pytest.raises(CollectiveMismatchError, match="broadcast"):
            run(group, kind, np.zeros(1), argument=Reduction.SUM)

    with groups(2) as made:
        on_all(made, work)


def test_a_stall_is_named_and_ends_the_group_after_its_time() -> None:
    def work(group):  # type: ignore[no-untyped-def]
        with pytest.raises(HorovodInternalError) as caught:
            run(group, CollectiveKind.ALLREDUCE, np.zeros(1), name="ab"[group.rank])
        return str(caught.value)

    with groups(2, patience=Patience(0.05, 0.1)) as made:
        texts = on_all(made, work)
    assert any("'a' is called by rank 0 and waits for rank 1" in text for text in texts)
    assert any("'b' is called by rank 1 and waits for rank 0" in text for text in texts)


def test_a_stall_says_who_is_missing() -> None:
    text = describe_stall([[request()], None, [request()], []], 0, 61.0)
    assert "'w' is called by ranks 0, 2 and waits for ranks 1, 3" in text


def test_arrays_of_one_kind_type_and_reduction_travel_together_up_to_64_mib() -> None:
    def sizes(*requests: Request) -> list[int]:
        entries = [FusedArray(one, NOTHING, NOTHING) for one in requests]
        return [len(batch.entries) for batch in fuse(entries, [[one] * 3 for one in requests])]

    large = request(shape=(FUSION_BYTES // 8,))  # half of what travels together
    assert sizes(*[large] * 5) == [2, 2, 1]
    assert sizes(large, large, request()) == [2, 1]
    assert sizes(*[request()] * 1000) == [1000]
    assert sizes(request(), request(dtype=np.dtype(np.int64)), request(argument=Reduction.MAX), request()) == [2, 1, 1]
    gathered = request(kind=CollectiveKind.ALLGATHER)
    assert sizes(gathered, gathered) == [1, 1]


def test_arrays_of_8_mib_run_before_anybody_waits_for_them() -> None:
    def work(group):  # type: ignore[no-untyped-def]
        some = [np.ones(CYCLE_BYTES // 16, np.float32) for _ in range(4)]
        handles = [group.submit(CollectiveKind.ALLREDUCE, one, argument=Reduction.SUM) for one in some]
        until(lambda: all(handle.is_done for handle in handles), "the results")
        return [float(group.wait(handle)[0]) for handle in handles]

    with groups(2) as made:
        assert on_all(made, work) == [[2.0] * 4] * 2


def test_a_collective_with_a_name_does_not_meet_one_without_a_name() -> None:
    """The sum of an array named "noname.0" and of another rank's first array without a name was a sum of both."""
    with groups(1) as (group,):
        with pytest.raises(ValueError, match=r"'noname\.0' is that of a collective without a name"):
            add(group, np.ones(1), name="noname.0")
        assert [add(group, np.ones(1), name=name)[0] for name in ("noname.", "noname.0.x", "a noname.0")] == [1.0] * 3


def test_a_name_may_wait_once() -> None:
    with groups(1) as (group,):
        group.submit(CollectiveKind.ALLREDUCE, np.zeros(1), name="w")
        with pytest.raises(ValueError, match="'w' waits already"):
            group.submit(CollectiveKind.ALLREDUCE, np.zeros(1), name="w")


def test_an_announcement_is_read_as_it_was_written() -> None:
    requests = [request(), request("é" * 9, shape=()), request(kind=CollectiveKind.BARRIER, shape=(0, 2), argument=7)]
    requests += [request("scaled", prescale=0.5, postscale=-3.0), ROWS, request("last", dtype=BFLOAT16)]
    assert parse_announcement(b"".join(map(encode_request, requests))) == requests


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (ROWS._replace(splits=(2, -1, 1)), "splits"),
        (ROWS._replace(splits=(3, 1, 1)), "splits"),
        (ROWS._replace(shape=(), splits=()), "no rows"),
        (request(splits=(0, 1)), "splits"),
        (request(splits=(0,)), "of the kind ALLREDUCE with splits"),
        (request(dtype=np.dtype(bool), argument=Reduction.AVERAGE), "truth values with an average or a factor"),
        (request(dtype=np.dtype(bool), postscale=2.0), "truth values with an average or a factor"),
        (request(kind=CollectiveKind.REDUCESCATTER, shape=()), "no rows"),
        (request(kind=CollectiveKind.REDUCESCATTER, argument=2), "reduction 2"),
        (request(argument=6), "reduction 6"),
    ],
)
def test_an_announcement_that_no_rank_would_write_is_refused(wrong: Request, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        parse_announcement(encode_request(wrong))


def test_an_array_of_no_elements_has_no_endless_dimension() -> None:
    """The sum of the rows of all ranks had more than 64 bits, and numpy's error ended the group."""
    endless = request(kind=CollectiveKind.ALLGATHER, shape=(1 << 62, 0))
    note = encode_request(endless._replace(shape=(1, 0))).replace(struct.pack("<q", 1), struct.pack("<q", 1 << 62))
    with pytest.raises(ProtocolError, match="out of bounds"):
        parse_announcement(note)
    with pytest.raises(ValueError, match="cannot take part"):
        encode_request(endless)


def test_splits_for_more_ranks_than_there_are_end_the_group() -> None:
    ledger = Ledger(2)
    with pytest.raises(ProtocolError, match="3 splits of 'rows' from rank 1"):
        ledger.add([[], [ROWS]])


@given(st.data())
def test_a_damaged_announcement_is_refused_or_means_something_else(data: st.DataObject) -> None:
    note = bytearray(b"".join(map(encode_request, (request(), ROWS, request("other", postscale=2.0)))))
    note[data.draw(st.integers(0, len(note) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        parse_announcement(bytes(note[: data.draw(st.integers(0, len(note)))]))
