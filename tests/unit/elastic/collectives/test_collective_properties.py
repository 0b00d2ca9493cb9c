"""Any collectives of any types and sizes, in any orders: every rank gets what numpy says, and all get the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from collective_ranks import groups, on_all
from collective_references import reduced, some_numbers, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.elastic.collectives import algorithms, paths
from paddle_cluster.elastic.collectives.dtypes import DTYPES
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import REDUCING_KINDS, CollectiveKind, Reduction

ROWS = [0, 1, 2, 7, 1001]
WIDTHS = [0, 1, 3, 257]
FACTORS = [1.0, 0.5, -1.5]
SMALL_PIECE = 1 << 13  # bytes of a piece in these tests, so that small arrays have several pieces
MANY_BYTES = 100_000  # more than two pieces of shared memory, and more than a piece of each rank over connections


@dataclass(frozen=True)
class Call:
    """A collective that all ranks call. `rows`, `splits`: by rank."""

    kind: CollectiveKind
    dtype: np.dtype
    rows: tuple[int, ...]
    width: int
    reduction: Reduction
    factors: tuple[float, float]
    root: int
    splits: tuple[tuple[int, ...], ...]

    def array(self, rank: int) -> np.ndarray:
        return some_numbers(self.dtype, self.rows[rank] * self.width, rank).reshape(self.rows[rank], self.width)

    def options(self, rank: int) -> dict[str, Any]:
        if self.kind in REDUCING_KINDS:
            return {"argument": self.reduction, "prescale": self.factors[0], "postscale": self.factors[1]}
        if self.kind == CollectiveKind.ALLTOALL:
            return {"splits": self.splits[rank]}
        return {"argument": self.root} if self.kind == CollectiveKind.BROADCAST else {}

    def expected(self) -> list[np.ndarray]:
        """The results by rank."""
        data = [self.array(rank) for rank in range(len(self.rows))]
        if self.kind in REDUCING_KINDS:
            whole = reduced(data, self.reduction, *self.factors)
            return [whole] * len(data) if self.kind == CollectiveKind.ALLREDUCE else np.array_split(whole, len(data))
        if self.kind == CollectiveKind.BROADCAST:
            return [data[self.root]] * len(data)
        if self.kind == CollectiveKind.ALLGATHER:
            return [np.concatenate(data)] * len(data)
        parts = [np.split(one, np.cumsum(split))[:-1] for one, split in zip(data, self.splits, strict=True)]
        return [np.concatenate(of_rank) for of_rank in zip(*parts, strict=True)]


def calls(size: int) -> st.SearchStrategy[Call]:
    counts = st.lists(st.sampled_from(ROWS), min_size=size, max_size=size)
    parts = st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=size, max_size=size)

    def finish(made: Call, is_large: bool, rests: list[int]) -> Call:
        if made.kind == CollectiveKind.ALLTOALL:
            # rests: rows that a rank does not send
            rows = tuple(sum(split) + rest % 2 for split, rest in zip(made.splits, rests, strict=True))
        else:
            rows = tuple(rests) if made.kind == CollectiveKind.ALLGATHER else (rests[0],) * size
        made = replace(made, rows=rows)
        if is_large and max(rows):
            made = replace(made, width=MANY_BYTES // (max(rows) * made.dtype.itemsize) | 1)
        if made.dtype == bool:
            reduction = Reduction.SUM if made.reduction == Reduction.AVERAGE else made.reduction
            return replace(made, factors=(1.0, 1.0), reduction=reduction)
        # numpy's reference does not scale what a type cannot hold
        return made if made.dtype.kind != "u" else replace(made, factors=tuple(map(abs, made.factors)))

    made = st.builds(
        Call,
        kind=st.sampled_from([kind for kind in CollectiveKind if kind in KINDS]),
        dtype=st.sampled_from(DTYPES),
        rows=st.just(()),
        width=st.sampled_from(WIDTHS),
        reduction=st.sampled_from(Reduction),
        factors=st.tuples(st.sampled_from(FACTORS), st.sampled_from(FACTORS)),
        root=st.integers(0, size - 1),
        splits=parts.map(lambda lists: tuple(map(tuple, lists))),
    )
    return st.builds(finish, made, st.sampled_from([False, False, True]), counts)


KINDS = (
    CollectiveKind.ALLREDUCE,
    CollectiveKind.ALLGATHER,
    CollectiveKind.BROADCAST,
    CollectiveKind.ALLTOALL,
    CollectiveKind.REDUCESCATTER,
)
HOSTS: dict[str, Any] = {
    "memory": lambda size: True,
    "connections": lambda size: False,
    "hosts": lambda size: [range(0, size, 2), range(1, size, 2)],
}


def check(chosen: list[Call], orders: list[list[int]], way: str) -> None:
    size = len(orders)

    def work(group: RankGroup) -> list[np.ndarray]:
        handles = {
            number: group.submit(
                chosen[number].kind,
                chosen[number].array(group.rank),
                name=str(number),
                **chosen[number].options(group.rank),
            )
            for number in orders[group.rank]
        }
        return [group.wait(handles[number]) for number in range(len(chosen))]

    with groups(size, with_memory=HOSTS[way](size)) as made:
        results = on_all(made, work)
    for call, *of_ranks in zip(chosen, *results, strict=True):
        is_rounded = call.kind in REDUCING_KINDS and call.reduction == Reduction.AVERAGE
        tolerance = (1e-6 if call.dtype.itemsize > 2 else 1e-2) if is_rounded else 0
        for rank, (one, expected) in enumerate(zip(of_ranks, call.expected(), strict=True)):
            assert one.dtype == call.dtype and one.shape == expected.shape
            np.testing.assert_allclose(widen(one), widen(expected), rtol=tolerance, err_msg=f"{call} on rank {rank}")
        if call.kind == CollectiveKind.ALLREDUCE:
            assert len({one.tobytes() for one in of_ranks}) == 1


@pytest.mark.parametrize("way", HOSTS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), size=st.integers(2, 5))
def test_collectives_in_any_order_give_what_numpy_gives(way: str, data: st.DataObject, size: int) -> None:
    chosen = data.draw(st.lists(calls(size), min_size=1, max_size=6))
    order = st.permutations(range(len(chosen)))
    orders = data.draw(st.lists(order, min_size=size, max_size=size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "PIECE_BYTES", SMALL_PIECE)
        patch.setattr(paths, "DIRECT_BYTES", SMALL_PIECE)
        patch.setattr(paths, "SEGMENT_BYTES", 4 * SMALL_PIECE)
        patch.setattr(algorithms, "PIECE_BYTES", SMALL_PIECE)
        check(chosen, orders, way)
