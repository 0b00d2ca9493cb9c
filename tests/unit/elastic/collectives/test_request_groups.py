"""Collectives that are submitted as one request: they run together, or fail together."""

from __future__ import annotations

import numpy as np
import pytest
from collective_ranks import add, groups, on_all
from waiting import until

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import (
    MAX_REQUESTS,
    CollectiveKind,
    Reduction,
    Request,
    encode_request,
    parse_announcement,
)
from paddle_cluster.elastic.errors import CollectiveMismatchError
from pserver.wire.protocol import ProtocolError

FLOAT = np.dtype(np.float32)
MEMBER = Request(CollectiveKind.ALLREDUCE, "", FLOAT, (2, 3), Reduction.SUM)


def make_group(*members: Request, name: str = "g") -> Request:
    return Request(CollectiveKind.GROUP, name, np.dtype(np.int64), (), len(members), members=members)


def submit(group: RankGroup, arrays: list[np.ndarray], **more: object):  # type: ignore[no-untyped-def]
    return group.submit_group(CollectiveKind.ALLREDUCE, arrays, argument=Reduction.SUM, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_memory", [True, False])
def test_a_group_gives_the_results_in_the_order_of_its_arrays(with_memory: bool) -> None:
    def work(group: RankGroup) -> list[list[float]]:
        arrays = [np.full(n, float(n + group.rank), np.float64 if n % 2 else np.float32) for n in range(6)]
        found = group.wait_group(submit(group, arrays, outputs=arrays))
        assert all(one is two for one, two in zip(found, arrays, strict=True))
        return [one.tolist() for one in found]

    with groups(3, with_memory=with_memory) as made:
        assert on_all(made, work) == [[[3.0 * n + 3.0] * n for n in range(6)]] * 3


def test_gathers_of_a_group_may_differ_in_their_first_dimension() -> None:
    def work(group: RankGroup) -> list[list[int]]:
        arrays = [np.full(group.rank + n, group.rank) for n in range(3)]
        found = group.wait_group(group.submit_group(CollectiveKind.ALLGATHER, arrays, name="g"))
        return [one.tolist() for one in found]

    with groups(2) as made:
        assert on_all(made, work) == [[[1], [0, 1, 1], [0, 0, 1, 1, 1]]] * 2


def test_a_group_runs_whole_or_not_at_all() -> None:
    """Without groups, the first two arrays were summed in place, and the third one was not."""

    def work(group: RankGroup) -> list[float]:
        arrays = [np.ones(2), np.ones(2), np.ones(2 + group.rank)]
        with pytest.raises(CollectiveMismatchError, match=r"'g\[2\]': rank 1 calls allreduce of float64 \(3,\)"):
            group.wait_group(submit(group, arrays, outputs=arrays, name="g"))
        with pytest.raises(CollectiveMismatchError, match="rank 1 calls a group of 1"):
            group.wait_group(submit(group, arrays[: 2 - group.rank], outputs=arrays[: 2 - group.rank], name="g"))
        assert add(group, np.ones(1)).tolist() == [2.0]
        return [float(one[0]) for one in arrays]

    with groups(2) as made:
        assert on_all(made, work) == [[1.0] * 3] * 2


def test_a_group_meets_no_single_collective_of_its_name() -> None:
    def work(group: RankGroup) -> None:
        with pytest.raises(CollectiveMismatchError, match="a group of 2"):
            if group.rank:
                add(group, np.ones(1), name="g")
            else:
                group.wait_group(submit(group, [np.ones(1)] * 2, name="g"))

    with groups(2) as made:
        on_all(made, work)


def test_a_group_waits_under_one_name() -> None:
    def work(group: RankGroup) -> bool:
        handle = submit(group, [np.ones(1)] * 3, name="g")
        with pytest.raises(ValueError, match="'g' waits already"):
            submit(group, [np.ones(1)], name="g")
        group.start()
        until(lambda: handle.is_done, "the group")
        return group.wait_group(submit(group, [], name="none")) == []

    with groups(2) as made:
        assert on_all(made, work) == [True] * 2


def test_a_group_over_the_limit_of_an_announcement_is_refused_at_the_call() -> None:
    with groups(1) as (group,):
        one = np.ones(1)
        with pytest.raises(ValueError, match=f"a group of {MAX_REQUESTS} arrays .* make several groups"):
            submit(group, [one] * MAX_REQUESTS)
        deep = np.ones((1,) * 32)
        with pytest.raises(ValueError, match="make several groups"):
            submit(group, [deep] * 4000)
        assert len(group.wait_group(submit(group, [one] * (MAX_REQUESTS - 1)))) == MAX_REQUESTS - 1


def test_groups_of_different_sizes_in_different_orders_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is never cut in two announcements, and does not keep other requests from theirs."""
    monkeypatch.setattr("paddle_cluster.elastic.collectives.waiting.MAX_REQUESTS", 12)

    def work(group: RankGroup) -> float:
        order = np.random.default_rng(group.rank).permutation(40)
        handles = [submit(group, [np.ones(1)] * (number % 12), name=str(number)) for number in order]
        return sum(float(one[0]) for handle in handles for one in group.wait_group(handle))

    with groups(3) as made:
        assert on_all(made, work) == [3.0 * sum(number % 12 for number in range(40))] * 3


def test_a_group_is_read_as_it_was_written() -> None:
    requests = [make_group(MEMBER, MEMBER._replace(shape=(9,))), MEMBER._replace(name="w"), make_group(name="empty")]
    assert parse_announcement(b"".join(map(encode_request, requests))) == requests


def test_a_group_in_a_group_or_without_its_members_is_refused() -> None:
    inner = make_group(name="")
    for note in (encode_request(make_group(inner)), encode_request(make_group(MEMBER))[:-8]):
        with pytest.raises(ProtocolError):
            parse_announcement(note)
    with pytest.raises(ProtocolError, match=f"more than {MAX_REQUESTS} collectives"):
        parse_announcement(encode_request(make_group(*[MEMBER] * MAX_REQUESTS)))
