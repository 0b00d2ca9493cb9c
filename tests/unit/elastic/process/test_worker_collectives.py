"""The collectives that a program calls, among several ranks as threads, and the errors of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from collective_ranks import groups, on_all

import paddle.elastic as hvd
from paddle_cluster.elastic.collectives.group import RankGroup


def among(size: int, work: Callable[[Any, int], Any]) -> list[Any]:
    """Calls a function with a process set and a rank, on all ranks; returns the results."""

    def call(group: RankGroup) -> Any:
        return work(SimpleNamespace(group=group, ranks=list(range(size)), size=lambda: size), group.rank)

    with groups(size) as made:
        return on_all(made, call)


def test_an_all_to_all_gives_the_rows_and_their_numbers() -> None:
    def work(every: Any, rank: int) -> Any:
        even = hvd.alltoall(np.arange(4) + 10 * rank, process_set=every)
        rows = np.arange(8).reshape(4, 2) + 100 * rank
        some, received = hvd.alltoall(rows, [rank, 2 - rank], process_set=every)
        pending = hvd.alltoall_async(np.ones(2), process_set=every)
        return even.tolist(), some.tolist(), received, hvd.synchronize(pending)

    first, second = among(2, work)
    assert first[0] == [0, 1, 10, 11] and second[0] == [2, 3, 12, 13]
    assert first[1] == [[100, 101]] and second[1] == [[0, 1], [2, 3], [102, 103]]
    assert first[2].tolist() == [0, 1] and second[2].tolist() == [2, 1] and first[2].dtype == np.int32
    rows, received = first[3]  # an asynchronous one always gives both
    assert rows.tolist() == [1, 1] and received.tolist() == [1, 1]


def test_a_reduce_scatter_gives_each_rank_its_rows() -> None:
    def work(every: Any, rank: int) -> Any:
        whole = np.arange(10.0).reshape(5, 2) * (rank + 1)
        group = [whole, whole.astype(np.int8)]
        return (
            hvd.reducescatter(whole, process_set=every).tolist(),
            [one.tolist() for one in hvd.grouped_reducescatter(group, op=hvd.Sum, process_set=every)],
            hvd.reducescatter(np.ones(1), op=hvd.Sum, postscale_factor=0.5, process_set=every).tolist(),
        )

    first, second = among(2, work)
    assert first[0] == [[0, 1.5], [3, 4.5], [6, 7.5]] and second[0] == [[9, 10.5], [12, 13.5]]
    assert first[1] == [[[0, 3], [6, 9], [12, 15]]] * 2 and second[1] == [[[18, 21], [24, 27]]] * 2
    assert first[2] == [1] and second[2] == []


def test_groups_are_sent_together_and_may_be_reduced_in_place() -> None:
    def work(every: Any, rank: int) -> Any:
        arrays = [np.full(3, rank, np.float32), np.full((2, 2), rank + 1.0)]
        strided = np.zeros(6)[::2]
        pending = hvd.grouped_allreduce_async_([*arrays, strided], op=hvd.Sum, process_set=every)
        results = hvd.synchronize(pending)
        assert all(one is other for one, other in zip(results, [*arrays, strided], strict=True))
        gathered = hvd.grouped_allgather([np.full(rank, rank), np.full((1, 2), rank)], process_set=every)
        sent = [np.full(2, rank), np.full(3, rank)]
        hvd.grouped_broadcast_(sent, 1, process_set=every)
        new = hvd.grouped_broadcast([np.full(1, rank)], 2, process_set=every)
        empty = hvd.grouped_allreduce([], process_set=every)
        return [one.tolist() for one in (*arrays, *gathered, *sent, *new, *empty)]

    expected = [[3, 3, 3], [[6, 6]] * 2, [1, 2, 2], [[0, 0], [1, 1], [2, 2]], [1, 1], [1, 1, 1], [2]]
    assert among(3, work) == [expected] * 3


def test_averages_of_integers_are_truncated() -> None:
    """They were rounded down: the average of -1 and 0 was -1, and is 0 in Horovod."""
    values = {np.int8: [-127, -126], np.int32: [-1, 0], np.int64: [-4, -3], np.uint8: [255, 254]}

    def work(every: Any, rank: int) -> Any:
        arrays = [np.array([pair[rank]], dtype) for dtype, pair in values.items()]
        return [int(one[0]) for one in hvd.grouped_allreduce(arrays, process_set=every)]

    assert among(2, work) == [[-126, 0, -3, 254]] * 2


def test_ranks_with_different_factors_get_an_error() -> None:
    def work(every: Any, rank: int) -> Any:
        with pytest.raises(hvd.CollectiveMismatchError, match="with the factors 1 and 2"):
            hvd.allreduce(np.ones(2), postscale_factor=2.0 if rank else 1.0, process_set=every)
        return hvd.allreduce(np.ones(1), op=hvd.Product, prescale_factor=3, process_set=every).tolist()

    assert among(2, work) == [[9.0], [9.0]]


def test_ranks_with_rows_of_different_lengths_get_an_error() -> None:
    def work(every: Any, rank: int) -> None:
        with pytest.raises(hvd.CollectiveMismatchError, match="alltoall of float64"):
            hvd.alltoall(np.ones((2, 1 + rank)), process_set=every)
        with pytest.raises(hvd.CollectiveMismatchError, match="reducescatter of float64"):
            hvd.reducescatter(np.ones((2 + rank, 1)), process_set=every)

    among(2, work)


ALONE: Any = SimpleNamespace(group=SimpleNamespace(size=2, rank=0), ranks=[3, 5], size=lambda: 2)
TWICE = np.ones(3)
WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: hvd.alltoall(np.ones(3), process_set=ALONE), ValueError, "is not an even multiple of the number of w"),
    (lambda: hvd.alltoall(np.ones(3), [2, 2], process_set=ALONE), ValueError, "their sum is at most 3"),
    (lambda: hvd.alltoall(np.ones(3), [4, -1], process_set=ALONE), ValueError, "are not negative"),
    (lambda: hvd.alltoall(np.ones(3), [3], process_set=ALONE), ValueError, "one number for each of 2 workers"),
    (lambda: hvd.alltoall(np.ones(3), [1.0, 2.0], process_set=ALONE), TypeError, "whole numbers"),
    (lambda: hvd.alltoall(np.float32(1), process_set=ALONE), ValueError, "at least one dimension"),
    (lambda: hvd.alltoall(np.broadcast_to(np.int8(1), 1 << 31), process_set=ALONE), ValueError, "2147483648 rows"),
    (lambda: hvd.reducescatter(np.float32(1), process_set=ALONE), ValueError, "at least one dimension"),
    # Horovod's test of a scalar catches a RuntimeError
    (lambda: hvd.grouped_reducescatter([np.float32(1)], process_set=ALONE), RuntimeError, "at least one dimension"),
    (lambda: hvd.reducescatter(np.ones(2), op=hvd.Max), ValueError, "only supports AVERAGE and SUM"),
    (lambda: hvd.allreduce(np.ones(2), average=True, op=hvd.Sum), ValueError, "The op parameter supersedes average"),
    (lambda: hvd.allreduce(np.ones(2), op=2), ValueError, r"op is 2; use hvd\.Average"),
    (lambda: hvd.allreduce(np.ones(2, bool)), TypeError, "truth values have no average"),
    (lambda: hvd.allreduce(np.ones(2), op=hvd.Sum, prescale_factor=float("nan")), ValueError, "give numbers"),
    (lambda: hvd.allreduce_([1.0, 2.0]), TypeError, "a list cannot be changed in place"),  # type: ignore[arg-type]
    (lambda: hvd.broadcast(np.ones(2), 4, process_set=ALONE), ValueError, "invalid root rank 4 .* ranks are 3, 5"),
    (lambda: hvd.broadcast(np.ones(2), 0.5), TypeError, "integer"),  # type: ignore[arg-type]
    (lambda: hvd.grouped_allreduce([np.ones(1), np.ones(1, complex)]), TypeError, "complex128"),
    (lambda: hvd.grouped_allreduce_([TWICE, np.ones(1), TWICE[:2]]), ValueError, "arrays 0 and 2 of a group in place"),
    (lambda: hvd.grouped_broadcast_([TWICE, TWICE], 0), ValueError, "arrays 0 and 1 .* have the same memory"),
]


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_wrong_arguments_are_refused_before_anybody_waits(call: Callable[[], Any], kind: type, text: str) -> None:
    hvd.init()
    try:
        with pytest.raises(kind, match=text):
            call()
        assert hvd.allreduce(np.ones(1)).tolist() == [1]
    finally:
        hvd.shutdown()


def test_the_old_argument_average_warns() -> None:
    hvd.init()
    try:
        with pytest.warns(DeprecationWarning, match=r"use op=hvd\.Average"):
            assert hvd.allreduce(np.full(2, 3.0), average=False).tolist() == [3, 3]
    finally:
        hvd.shutdown()
