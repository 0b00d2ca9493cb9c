"""A rank that has joined takes part with zeros in the all-reduces of the others, until all have joined."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from collective_ranks import DEADLINE_S, add, groups, on_all, run
from waiting import until

from paddle_cluster.elastic.collectives.dtypes import DTYPES, name_dtype
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Ledger, Reduction, Request
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from pserver.wire.protocol import ProtocolError

FLOAT = np.dtype(np.float32)
WAYS = {"memory": True, "hosts": [{0, 1}], "sockets": False}


def request(name: str, kind: CollectiveKind = CollectiveKind.ALLREDUCE) -> Request:
    return Request(kind, name, FLOAT, (3,), Reduction.SUM)


def join(number: int = 0) -> Request:
    return Request(CollectiveKind.JOIN, "join", np.dtype(np.int64), (number,))


@pytest.mark.parametrize("way", WAYS)
def test_ranks_with_different_numbers_of_batches_end_together(way: str) -> None:
    """Rank r has r + 1 batches; the averages count a joined rank as zeros, and divide by the full size."""

    def work(group: RankGroup) -> tuple[list[float], int]:
        averages = [
            float(run(group, CollectiveKind.ALLREDUCE, np.full(5, 6.0), argument=Reduction.AVERAGE)[4])
            for _ in range(group.rank + 1)
        ]
        return averages, group.join()

    with groups(3, with_memory=WAYS[way]) as made:
        assert on_all(made, work) == [([6.0, 4.0, 2.0][: rank + 1], 2) for rank in range(3)]


def test_another_collective_fails_on_those_who_call_it_and_all_go_on() -> None:
    kinds = (CollectiveKind.ALLGATHER, CollectiveKind.BROADCAST, CollectiveKind.BARRIER)

    def work(group: RankGroup) -> tuple[list[str], int, float]:
        errors = []
        for kind in kinds if group.rank != 1 else ():
            with pytest.raises(CollectiveMismatchError) as caught:
                run(group, kind, np.zeros(2))
            errors.append(str(caught.value))
        # the names of the numbers that rank 1 has not counted must meet those of the others
        return errors, group.join(), float(add(group, np.ones(1))[0])

    with groups(3) as made:
        found = on_all(made, work)
    assert [one[1:] for one in found] == [(found[0][1], 3.0)] * 3
    assert found[0][1] in (0, 2)
    assert [len(one[0]) for one in found] == [3, 0, 3]
    assert "rank 1 joined, and a joined rank takes part in all-reduces only; this is allgather" in found[0][0][0]


def test_a_group_of_all_reduces_runs_with_joined_ranks_and_another_group_fails() -> None:
    def work(group: RankGroup) -> tuple[list[float], int]:
        sums: list[float] = []
        if group.rank:
            arrays = [np.ones(2), np.full(3, 2.0)]
            handle = group.submit_group(CollectiveKind.ALLREDUCE, arrays, argument=Reduction.SUM)
            sums = [float(one[0]) for one in group.wait_group(handle)]
            with pytest.raises(CollectiveMismatchError, match="rank 0 joined"):
                group.wait_group(group.submit_group(CollectiveKind.ALLGATHER, arrays))
        return sums, group.join()

    with groups(3) as made:
        found = on_all(made, work)
    assert [one[0] for one in found] == [[], [2.0, 4.0], [2.0, 4.0]]


def test_what_a_rank_has_submitted_before_it_joins_counts() -> None:
    def work(group: RankGroup) -> float:
        handle = group.submit(CollectiveKind.ALLREDUCE, np.ones(1), name="early", argument=Reduction.SUM)
        if group.rank:
            group.join()
            return float(group.wait(handle)[0])
        total = float(group.wait(handle)[0])
        group.join()
        return total

    with groups(3) as made:
        assert on_all(made, work) == [3.0] * 3


def test_a_collective_that_one_rank_alone_calls_ends_when_all_have_joined() -> None:
    """All others have joined when it is announced last, or when the last rank joins."""

    def work(group: RankGroup) -> int:
        handle = group.submit(CollectiveKind.ALLREDUCE, np.ones(1), name=f"of {group.rank}", argument=Reduction.SUM)
        last = group.join()
        assert group.wait(handle).tolist() == [1.0]
        return last

    with groups(4) as made:
        assert len(set(on_all(made, work))) == 1


def test_ranks_may_join_again_and_not_twice_at_a_time() -> None:
    def work(group: RankGroup) -> list[int]:
        return [group.join() for _ in range(3)]

    with groups(2) as made:
        first, second = on_all(made, work)
        assert first == second
        thread = threading.Thread(target=made[0].join, daemon=True)
        thread.start()
        until(lambda: bool(made[0]._waiting), "the first join")
        with pytest.raises(ValueError, match="a join waits already"):
            made[0].join()
        made[1].join()
        thread.join(DEADLINE_S)


def test_a_collective_with_the_name_of_a_join_is_none() -> None:
    """A joined rank took the collective for its own join, which has no array, and the group ended by a ValueError."""

    def work(group: RankGroup) -> tuple[list[float], int]:
        found = [float(add(group, np.ones(1), name="join")[0]) for _ in range(2 * group.rank)]
        return found, group.join()

    with groups(2) as made:
        assert on_all(made, work) == [([], 1), ([1.0, 1.0], 1)]


@pytest.mark.parametrize("end", ["killed", "left"])
def test_a_rank_that_is_lost_while_others_have_joined_raises_on_them(end: str) -> None:
    def close(group: RankGroup) -> None:
        for peer in group._mesh.peers.values():
            peer.connection.stream.shutdown(2)

    ways: dict[str, Callable[[RankGroup], None]] = {"killed": close, "left": RankGroup.leave}

    def work(group: RankGroup) -> str:
        if group.rank == 2:
            assert not group._mesh.wait_until([0, 1], time.monotonic() + DEADLINE_S)
            ways[end](group)
            return ""
        with pytest.raises(HorovodInternalError) as caught:
            group.join()
        return str(caught.value)

    with groups(3) as made:
        texts = on_all(made, work)
    assert all("rank 2" in text for text in texts[:2])


def test_a_group_of_one_rank_joins_at_once() -> None:
    with groups(1) as (group,):
        assert group.join() == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=name_dtype)
def test_a_joined_rank_has_zeros_of_every_type(dtype: np.dtype) -> None:
    def work(group: RankGroup) -> bytes:
        own = np.zeros((2, 3), dtype)
        own.view(np.uint8)[...] = 1  # a small number that is no zero, whatever the type
        total = own
        if group.rank:
            total = run(group, CollectiveKind.ALLREDUCE, own, argument=Reduction.SUM, prescale=1.0)
        group.join()
        return bytes(total.tobytes())

    with groups(2) as made:
        first, second = on_all(made, work)
    assert first == second


# ----- The agreement alone -----


def test_the_last_one_in_the_order_of_the_announcements_has_joined_last() -> None:
    ledger = Ledger(3)
    assert ledger.add([[], [join(4)], []]).last_joined == -1
    assert [one.name for one in ledger.list_pending(1)] == ["join"]
    assert ledger.add([[], [], [join(9)]]).last_joined == -1
    found = ledger.add([[request("a"), join(5)], [], []])
    assert (found.last_joined, found.number) == (0, 9)
    assert [[one.name for one in same] for same in found.run] == [["a"] * 3]
    assert ledger.is_empty


def test_the_first_announcement_orders_what_rank_0_does_not_announce() -> None:
    ledger = Ledger(3)
    assert not ledger.add([[join()], [request("b"), request("a")], []]).run
    found = ledger.add([[], [request("c")], [request(name) for name in "cab"]])
    assert [same[0].name for same in found.run] == ["b", "a", "c"]


def test_a_rank_that_announces_two_joins_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a second announcement of 'join' from rank 1"):
        Ledger(2).add([[], [join(), join()]])
