"""What a group gives is what numpy gives, on every rank the same bits, over memory and over connections."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from collective_ranks import add, groups, on_all, run
from collective_references import convert, reduced, some_numbers, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.elastic.collectives import paths
from paddle_cluster.elastic.collectives.dtypes import BFLOAT16, DTYPES, name_dtype, round_to_bfloat16
from paddle_cluster.elastic.collectives.forming import find_hosts
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.reducing import Arithmetic
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.collectives.waiting import CollectiveHandle

WAYS: dict[str, bool | list[list[int]]] = {"memory": True, "connections": False, "hosts": [[0, 2, 3], [1, 4]]}
COUNTS = [0, 1, 17, 9_000, 17_000, 70_000]  # inline, tree, ring; direct, parts


# every type is added at every count by `make nightly` alone: the way of an array depends on its bytes, not on its type
MANY = pytest.param(DTYPES, marks=pytest.mark.nightly)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("dtypes", [[np.dtype(np.float32), np.dtype(np.int64)], MANY], ids=["two types", "all types"])
def test_every_rank_gets_the_reduction_of_all_ranks(way: str, size: int, dtypes: list[np.dtype]) -> None:
    cases = list(itertools.product([17], DTYPES, Reduction))
    cases += [(count, dtypes[0], Reduction.AVERAGE) for count in COUNTS]
    is_whole = size in (2, 5) or len(dtypes) > 2
    cases += itertools.product(COUNTS, dtypes, Reduction if is_whole else [Reduction.SUM])
    cases.append((1_500_001, np.dtype(np.float32), Reduction.AVERAGE))  # several pieces
    # nobody can ask for an average of truth values
    cases = [one for one in cases if one[1:] != (np.dtype(bool), Reduction.AVERAGE)]

    def array(rank: int, count: int, dtype: np.dtype) -> np.ndarray:
        return some_numbers(dtype, count, rank)

    def work(group):  # type: ignore[no-untyped-def]
        return [
            run(group, CollectiveKind.ALLREDUCE, array(group.rank, count, dtype), argument=reduction)
            for count, dtype, reduction in cases
        ]

    with groups(size, with_memory=WAYS[way]) as made:
        for (count, dtype, reduction), *results in zip(cases, *on_all(made, work), strict=True):
            assert len({one.tobytes() for one in results}) == 1
            reference = reduced([array(rank, count, dtype) for rank in range(size)], reduction)
            tolerance = (1e-6 if dtype.itemsize > 2 else 1e-2) if reduction == Reduction.AVERAGE else 0
            np.testing.assert_allclose(widen(results[0]), widen(reference), rtol=tolerance, err_msg=f"{dtype}")


@pytest.mark.parametrize("way", WAYS)
def test_a_run_repeats_bit_for_bit(way: str) -> None:
    data = [np.random.default_rng(rank).standard_normal(200_003).astype(np.float32) for rank in range(4)]
    bits = set()
    for _ in range(2):
        with groups(4, with_memory=WAYS[way]) as made:
            for _ in range(3):
                results = on_all(made, lambda group: add(group, data[group.rank]))
                bits |= {one.tobytes() for one in results}
    assert len(bits) == 1


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16], ids=name_dtype)
@pytest.mark.parametrize("way", WAYS)
def test_a_sum_has_the_same_bits_whatever_is_sent_together(way: str, dtype: np.dtype) -> None:
    """Over connections the order of a sum depended on the arrays that had been submitted by the time of a round."""
    sizes = [20, 300, 9_000, 5_000_000 if dtype.itemsize == 4 else 300_000, 30_000, 50_001]

    def array(rank: int, number: int) -> np.ndarray:
        values = np.random.default_rng([rank, number]).standard_normal(sizes[number]).astype(np.float32)
        return convert(values, dtype)

    def work(group: RankGroup) -> list[tuple[bytes, ...]]:
        arrays = [array(group.rank, number) for number in range(len(sizes))]
        found = []
        for step in (1, 2, 3, len(sizes)):
            for first in range(0, len(sizes), step):
                names = range(first, min(first + step, len(sizes)))
                order = names if (group.rank + step) % 2 else reversed(names)  # the ranks differ in a round or not
                handles = {n: submit_sum(group, arrays[n], f"{step}.{n}") for n in (order if step > 2 else names)}
                found += [group.wait(handles[n]).tobytes() for n in names]
        return list(zip(*[iter(found)] * len(sizes), strict=True))

    with groups(4, with_memory=WAYS[way]) as made:
        every = [bits for found in on_all(made, work) for bits in found]
    assert [len({bits[number] for bits in every}) for number in range(len(sizes))] == [1] * len(sizes)


def submit_sum(group: RankGroup, array: np.ndarray, name: str) -> CollectiveHandle:
    return group.submit(CollectiveKind.ALLREDUCE, array, name=name, argument=Reduction.SUM)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_arrays_of_a_medium_size_are_halved(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums have the same bits alone and with others; all ranks have the same ones."""
    monkeypatch.setattr(paths, "HALVED_SIZE", 2)
    halved: list[int] = []
    original = paths.reduce_by_halving
    monkeypatch.setattr(paths, "reduce_by_halving", lambda *args: [halved.append(1), original(*args)])
    counts = [17_000, 20_001, 25_000, 30_000]  # over the limit of a tree, and below 64 kB for each rank
    dtypes = [np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.float16), BFLOAT16]

    def array(rank: int, count: int, dtype: np.dtype) -> np.ndarray:
        return some_numbers(dtype, count // (dtype.itemsize // 4 or 1), rank)

    def work(group: RankGroup) -> list[np.ndarray]:
        found = []
        for dtype in dtypes:
            arrays = [array(group.rank, count, dtype) for count in counts]
            alone = [add(group, one) for one in arrays]
            handles = [submit_sum(group, one, str(number)) for number, one in enumerate(arrays)]
            together = [group.wait(one) for one in handles]
            assert [one.tobytes() for one in alone] == [one.tobytes() for one in together]
            found += together
        return found

    with groups(size, with_memory=False) as made:
        results = on_all(made, work)
    assert len(halved) >= size * len(counts)
    for (dtype, count), *every in zip(itertools.product(dtypes, counts), *results, strict=True):
        assert len({one.tobytes() for one in every}) == 1
        reference = reduced([array(rank, count, dtype) for rank in range(size)], Reduction.SUM)
        np.testing.assert_allclose(widen(every[0]), widen(reference), rtol=1e-2 if dtype.itemsize == 2 else 1e-5)


@pytest.mark.parametrize("wire", [np.dtype(np.float16), BFLOAT16], ids=name_dtype)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 5])
def test_numbers_that_are_sent_in_another_type_are_rounded_before_and_after(
    way: str, size: int, wire: np.dtype
) -> None:
    """The result is that of arrays of the other type, also beside a rank that has those, as a joined one."""
    counts = [17, 9_000, 70_000, 1_500_001]
    cases = list(itertools.product(counts, [np.float32, np.float64], [Reduction.AVERAGE, Reduction.MAX]))

    def array(rank: int, count: int) -> np.ndarray:
        return np.random.default_rng([rank, count]).standard_normal(count)

    def work(group: RankGroup, is_converted: bool) -> list[np.ndarray]:
        found = []
        for count, dtype, reduction in cases:
            values = array(group.rank, count).astype(dtype)
            own = values if is_converted else convert(values.astype(np.float32), wire)
            handle = group.submit(CollectiveKind.ALLREDUCE, own, argument=reduction, output=own, wire=wire)
            assert group.wait(handle) is own
            found.append(own if is_converted else widen(own).astype(dtype))
        return found

    with groups(size, with_memory=WAYS[way]) as made:
        plain, mixed = (
            on_all(made, lambda group, some=some: work(group, is_converted=group.rank in some))
            for some in ((), set(range(size)) - {1})
        )
    for wanted, found in zip(plain, mixed, strict=True):
        for case, one, other in zip(cases, wanted, found, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(case))


@pytest.mark.parametrize("way", WAYS)
def test_gathered_arrays_follow_each_other_by_rank(way: str) -> None:
    with groups(3, with_memory=WAYS[way]) as made:
        for width in (1, 500_001):
            parts = [np.full((rank, width), rank, np.int32) for rank in range(3)]
            for one in on_all(made, lambda group, parts=parts: run(group, CollectiveKind.ALLGATHER, parts[group.rank])):
                np.testing.assert_array_equal(one, np.concatenate(parts))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_gets_its_rows_of_a_reduction(way: str, size: int) -> None:
    cases = [
        (rows, width, reduction, dtype)
        for rows, width in [(0, 3), (1, 2), (5, 1), (5, 0), (7, 20_000), (size, 300_001)]
        for reduction in (Reduction.SUM, Reduction.AVERAGE)
        for dtype in (DTYPES if width == 1 else DTYPES[1:2])
        if (dtype, reduction) != (np.dtype(bool), Reduction.AVERAGE)
    ]

    def array(rank: int, rows: int, width: int, dtype: np.dtype) -> np.ndarray:
        return some_numbers(dtype, rows * width, rank).reshape(rows, width)

    def work(group):  # type: ignore[no-untyped-def]
        return [
            run(group, CollectiveKind.REDUCESCATTER, array(group.rank, rows, width, dtype), argument=reduction)
            for rows, width, reduction, dtype in cases
        ]

    with groups(size, with_memory=WAYS[way]) as made:
        for (rows, width, reduction, dtype), *results in zip(cases, *on_all(made, work), strict=True):
            whole = reduced([array(rank, rows, width, dtype) for rank in range(size)], reduction)
            for one, part in zip(results, np.array_split(whole, size), strict=True):
                assert one.shape == part.shape
                tolerance = (1e-6 if dtype.itemsize > 2 else 1e-2) if reduction == Reduction.AVERAGE else 0
                np.testing.assert_allclose(widen(one), widen(part), rtol=tolerance, err_msg=f"{dtype}")


@pytest.mark.parametrize("way", ["memory", "connections"])
@pytest.mark.parametrize("width", [5, 40_000])
def test_the_rows_of_a_reduction_have_the_bits_of_the_whole_reduction(way: str, width: int) -> None:
    data = [np.random.default_rng(rank).standard_normal((6, width)).astype(np.float32) for rank in range(3)]

    def work(group):  # type: ignore[no-untyped-def]
        whole = run(group, CollectiveKind.ALLREDUCE, data[group.rank], argument=Reduction.AVERAGE)
        rows = run(group, CollectiveKind.REDUCESCATTER, data[group.rank], argument=Reduction.AVERAGE)
        return rows.tobytes() == whole[2 * group.rank : 2 * group.rank + 2].tobytes()

    with groups(3, with_memory=WAYS[way]) as made:
        assert on_all(made, work) == [True] * 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_gets_the_rows_that_the_others_have_for_it(way: str, size: int) -> None:
    def splits(rank: int, turn: int) -> list[int]:
        return [[0] * size, [1] * size, [(rank + other) % 3 for other in range(size)], [rank * turn] * size][turn]

    def array(rank: int, turn: int, width: int) -> np.ndarray:
        rows = sum(splits(rank, turn)) + turn % 2  # the last row stays here
        return np.arange(rows * width, dtype=np.int32).reshape(rows, width) + 1_000_000_000 // size * rank

    cases = [(turn, width) for turn in range(4) for width in (1, 0, 200_001)]

    def work(group):  # type: ignore[no-untyped-def]
        handles = [
            group.submit(CollectiveKind.ALLTOALL, array(group.rank, *case), splits=splits(group.rank, case[0]))
            for case in cases
        ]
        return [(group.wait(handle), handle.received_splits) for handle in handles]

    with groups(size, with_memory=WAYS[way]) as made:
        for rank, results in enumerate(on_all(made, work)):
            for case, (result, received) in zip(cases, results, strict=True):
                ends = {other: np.cumsum(splits(other, case[0])) for other in range(size)}
                parts = [np.split(array(other, *case), ends[other])[rank] for other in range(size)]
                np.testing.assert_array_equal(result, np.concatenate(parts))
                assert received == [len(part) for part in parts]


@pytest.mark.parametrize("way", WAYS)
def test_everybody_gets_the_array_of_the_root(way: str) -> None:
    with groups(5, with_memory=WAYS[way]) as made:
        for root, count in itertools.product(range(5), (3, 1_200_001)):
            for one in on_all(
                made,
                lambda group, count=count, root=root: run(
                    group, CollectiveKind.BROADCAST, np.full(count, group.rank, np.float64), argument=root
                ),
            ):
                np.testing.assert_array_equal(one, root)


@pytest.mark.parametrize("way", WAYS)
def test_a_result_may_take_the_place_of_the_array(way: str) -> None:
    with groups(3, with_memory=WAYS[way]) as made:
        for count in (5, 40_000, 2_000_001):
            data = [np.full(count, rank + 1, np.float32) for rank in range(3)]
            on_all(made, lambda group, data=data: add(group, data[group.rank], output=data[group.rank]))
            for one in data:
                np.testing.assert_array_equal(one, 6)


@pytest.mark.parametrize("way", WAYS)
def test_an_array_that_is_scaled_in_place_is_scaled_once(way: str) -> None:
    with groups(3, with_memory=WAYS[way]) as made:
        for dtype, count in itertools.product((np.float32, np.float16, np.int64, np.int8), (5, 40_000)):
            data = [np.full(count, 4 * rank, dtype) for rank in range(3)]
            on_all(
                made,
                lambda group, data=data: add(
                    group, data[group.rank], output=data[group.rank], prescale=0.25, postscale=2.0
                ),
            )
            for one in data:
                np.testing.assert_array_equal(one, 6)


@pytest.mark.parametrize("way", WAYS)
def test_what_travels_behind_an_empty_array_is_added(way: str) -> None:
    def work(group):  # type: ignore[no-untyped-def]
        handles = [
            group.submit(CollectiveKind.ALLREDUCE, np.full(count, group.rank), argument=Reduction.SUM)
            for count in (0, 5)
        ]
        return [group.wait(handle).tolist() for handle in handles]

    with groups(3, with_memory=WAYS[way]) as made:
        assert on_all(made, work) == [[[], [3] * 5]] * 3


@pytest.mark.parametrize("way", WAYS)
def test_small_arrays_travel_together(way: str) -> None:
    counts = [1, 100, 3_000_000, 7, 0, 40_000]

    def work(group):  # type: ignore[no-untyped-def]
        handles = [
            group.submit(CollectiveKind.ALLREDUCE, np.full(count, group.rank + number), argument=Reduction.SUM)
            for number, count in enumerate(counts)
        ]
        return [group.wait(handle) for handle in reversed(handles)][::-1]

    with groups(3, with_memory=WAYS[way]) as made:
        for results in on_all(made, work):
            for number, (count, one) in enumerate(zip(counts, results, strict=True)):
                np.testing.assert_array_equal(one, np.full(count, 3 + 3 * number))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=20, deadline=None)
@given(orders=st.lists(st.permutations("abcde"), min_size=3, max_size=3))
def test_ranks_may_ask_in_different_orders(way: str, orders: list[list[str]]) -> None:
    def work(group):  # type: ignore[no-untyped-def]
        handles = {
            name: group.submit(CollectiveKind.ALLREDUCE, np.array([ord(name)]), name=name, argument=Reduction.MAX)
            for name in orders[group.rank]
        }
        return {name: group.wait(handle) for name, handle in handles.items()}

    with groups(3, with_memory=WAYS[way]) as made:
        for results in on_all(made, work):
            assert {name: int(one[0]) for name, one in results.items()} == {name: ord(name) for name in "abcde"}


def test_ranks_that_wait_in_different_orders_help_each_other() -> None:
    def work(group):  # type: ignore[no-untyped-def]
        names = "xy" if group.rank else "yx"
        first = group.submit(CollectiveKind.ALLREDUCE, np.array([1.0]), name=names[0], argument=Reduction.SUM)
        second = group.submit(CollectiveKind.ALLREDUCE, np.array([1.0]), name=names[1], argument=Reduction.SUM)
        return [float(group.wait(one)[0]) for one in (first, second)]

    with groups(2) as made:
        assert on_all(made, work) == [[2.0, 2.0], [2.0, 2.0]]


@given(
    values=st.lists(st.lists(st.floats(-1e3, 1e3, width=16), min_size=4, max_size=4), min_size=1, max_size=9),
    reduction=st.sampled_from(list(Reduction)),
)
@settings(deadline=None)
def test_sums_of_float16_are_made_in_float32(values: list[list[float]], reduction: Reduction) -> None:
    sources = [np.array(one, np.float16) for one in values]
    out = np.empty(4, np.float16)
    with np.errstate(over="ignore"):
        Arithmetic(out.dtype, reduction).combine(out, sources, len(sources))
        np.testing.assert_allclose(out, reduced(sources, reduction), rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)], ids=name_dtype)
def test_an_overflow_is_an_infinity_and_no_warning(way: str, dtype: np.dtype) -> None:
    """A program whose warnings are errors lost its group by gradients that overflowed."""
    large = convert(np.full(70_000, 3e38 if dtype.itemsize != 2 or dtype == BFLOAT16 else 6e4), dtype)
    with groups(3, with_memory=WAYS[way]) as made:
        for one in on_all(made, lambda group: add(group, large)):
            assert np.isposinf(widen(one)).all()


def test_factors_of_short_floats_count_in_float32_and_are_rounded_once() -> None:
    """The factors of float16 were applied in float16: 6e4 * 2 was infinite before it was multiplied by 0.5."""
    with groups(2) as made:
        for dtype in (np.dtype(np.float16), BFLOAT16):
            large = convert(np.full(3, 3e4), dtype)
            results = on_all(made, lambda group, large=large: add(group, large, prescale=4.0, postscale=0.125))
            np.testing.assert_array_equal(widen(results[0]), widen(large))


def test_the_products_with_the_first_factor_have_the_precision_of_float16() -> None:
    """Horovod's test of `prescale_factor` with 3 processes has 3 * float16(71 * 0.3), and got float16(3 * 71 * 0.3)."""
    own = np.array([71, -94, 68], np.float16)
    scaled = (own.astype(np.float32) * np.float32(0.3)).astype(np.float16)
    expected = (scaled.astype(np.float32) * 3).astype(np.float16)
    with groups(3) as made:
        for one in on_all(made, lambda group: add(group, own, prescale=0.3)):
            np.testing.assert_array_equal(one, expected)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_bfloat16_is_the_nearest_one_and_a_tie_is_even(values: list[float]) -> None:
    given_values = np.array(values, np.float32)
    out = np.empty(len(values), np.uint16).view(BFLOAT16)
    round_to_bfloat16(given_values, out)
    back = widen(out)
    is_nan = np.isnan(given_values)
    np.testing.assert_array_equal(np.isnan(back), is_nan)
    with np.errstate(over="ignore"):
        # the neighbours, by the bits; what is over the largest number by half a step is infinite
        low = (given_values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
        step = 2.0 ** (np.maximum(np.frexp(np.abs(given_values.astype(np.float64)))[1], -125) - 8)
    for value, found, below, width, bits in zip(
        given_values[~is_nan].astype(np.float64),
        back[~is_nan],
        low[~is_nan],
        step[~is_nan],
        out.view(np.uint16)[~is_nan],
        strict=True,
    ):
        if np.isinf(value) or np.isinf(found):
            assert np.sign(value) == np.sign(found) and abs(value) >= 2.0**128 - 2.0**119
            continue
        distance = abs(found - value)
        assert distance <= width / 2 and found in (below, below + np.copysign(width, value))
        assert distance < width / 2 or bits % 2 == 0


@pytest.mark.parametrize(
    ("opened", "hosts"),
    [
        ([[0], [1]], [[0], [1]]),
        ([[0, 1], [0, 1]], [[0, 1]]),
        ([[0, 2], [1], [0, 2], [3]], [[0, 2], [1], [3]]),
        ([[0, 1, 2], [0, 1], [0, 1, 2]], [[0], [1], [2]]),  # rank 1 cannot open the memory of rank 2
        ([[0, 1], [], [2, 7]], [[0], [1], [2]]),  # rank 1 has none, and rank 2 names a rank that does not exist
    ],
)
def test_a_host_is_the_ranks_that_open_each_others_memory(opened: list[list[int]], hosts: list[list[int]]) -> None:
    assert find_hosts(opened) == hosts


def test_a_part_of_an_array_is_one_step_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of a host wait for the ring between hosts no longer than a part of the array takes."""
    monkeypatch.setattr("paddle_cluster.elastic.collectives.paths.SEGMENT_BYTES", 1 << 17)
    data = [np.random.default_rng(rank).integers(-9, 9, 200_003).astype(np.float16) for rank in range(5)]

    def work(group):  # type: ignore[no-untyped-def]
        return run(group, CollectiveKind.ALLREDUCE, data[group.rank], argument=Reduction.AVERAGE)

    with groups(5, with_memory=[[1, 3], [0, 4], [2]]) as made:
        results = on_all(made, work)
    assert len({one.tobytes() for one in results}) == 1
    np.testing.assert_allclose(results[0], reduced(data, Reduction.AVERAGE), rtol=1e-3)


def test_ranks_agree_on_the_place_of_each_request_and_no_two_requests_have_one() -> None:
    """A place says which operation a pickle is signed for."""

    def work(group):  # type: ignore[no-untyped-def]
        handles = []
        for turn in range(3):
            # other orders on the ranks, and a request that meets no other one until the next turn
            names = [f"{turn}.{letter}" for letter in "abc"][:: 1 if group.rank else -1]
            names += [f"late {turn}"] if group.rank else [f"late {turn - 1}"] * (turn > 0)
            made = {name: group.submit(CollectiveKind.BARRIER, np.empty(0, np.uint8), name=name) for name in names}
            for name in names:
                if not (group.rank and name == f"late {turn}"):
                    group.wait(made[name])
            handles += made.values()
        return {handle.request.name: handle.place for handle in handles if handle.is_done}

    with groups(2) as made:
        first, second = on_all(made, work)
    assert first == {name: place for name, place in second.items() if name in first}
    assert len(set(first.values())) == len(first) == 11
