"""Rows of large tables: the compiled loops and those in numpy against dictionaries in Python."""

import numpy as np
import pytest
from each import each

from paddle_base.kernels import tables

DTYPES = [np.float64, np.float32]  # numpy, and compiled where that is there


def draw(rng, many, upper, width, dtype):
    ids = np.sort(rng.choice(upper, many, replace=False)).astype(np.uint32)
    return ids, rng.normal(size=(many, width)).astype(dtype)


@each("dtype", DTYPES)
@each("width", [1, 3, 16, 100])
@each("many", [0, 1, 50])
def test_rows_are_taken_and_put_back(many, width, dtype):
    rng = np.random.default_rng(width)
    table = rng.normal(size=(70, width)).astype(dtype)
    ids, rows = draw(rng, many, 70, width, dtype)
    expected = table.copy()
    assert tables.take_rows(table, ids).tobytes() == b"".join(table[one].tobytes() for one in ids)
    tables.put_rows(table, ids, rows)
    for one, row in zip(ids, rows, strict=True):
        expected[one] = row
    assert table.tobytes() == expected.tobytes()


@pytest.mark.skipif(tables.compiled is None, reason="numpy names the row itself")
@pytest.mark.parametrize("call", ["take", "put"])
def test_a_row_beyond_the_table_is_refused(call):
    table, ids = np.zeros((4, 2), np.float32), np.array([1, 4], np.uint32)
    with pytest.raises(ValueError, match="not in the table"):
        tables.take_rows(table, ids) if call == "take" else tables.put_rows(table, ids, np.ones((2, 2), np.float32))


@each("dtype", DTYPES)
@each(("many", "more"), [(0, 0), (0, 5), (5, 0), (30, 40), (60, 60)])
def test_rows_of_two_are_united_and_added_in_their_order(many, more, dtype):
    rng = np.random.default_rng(many)
    a, b = draw(rng, many, 60, 5, dtype), draw(rng, more, 60, 5, dtype)
    expected = {int(one): row.copy() for one, row in zip(*a, strict=True)}
    for one, row in zip(*b, strict=True):
        expected[int(one)] = expected[int(one)] + row if int(one) in expected else row
    ids, rows = tables.merge_rows([a, b])
    assert ids.tolist() == sorted(expected)
    assert rows.tobytes() == b"".join(expected[one].tobytes() for one in sorted(expected))


@pytest.mark.parametrize(
    ("ids", "is_so"),
    [([], True), ([0], True), ([9], True), ([10], False), ([1, 2, 9], True), ([1, 1], False), ([3, 2], False)],
)
def test_rising_numbers_below_a_bound_are_told(ids, is_so):
    assert tables.is_rising(np.array(ids, np.uint32), 10) == is_so


@pytest.mark.parametrize("places", [[0], [1, 0], [2, 0, 1], [0, 3, 2, 1]])
def test_rows_go_to_the_owner_of_their_remainder(places):
    ids = np.sort(np.random.default_rng(1).choice(1000, 200, replace=False)).astype(np.uint32)
    order, local, starts = tables.deal_rows(ids, np.array(places, np.int64))
    assert starts[0] == 0 and starts[-1] == len(ids)
    for owner in range(len(places)):
        mine = [int(one) for one in ids if places[one % len(places)] == owner]
        part = slice(starts[owner], starts[owner + 1])
        assert ids[order[part]].tolist() == mine
        assert local[part].tolist() == [one // len(places) for one in mine]


SIZES = [[], [0], [20], [20, 30], [0, 25, 60], [10, 60, 0, 20, 30, 1, 60], [7, 40, 60] * 11]


@each("width", [1, 3, 16, 300])
@each("sizes", SIZES[1:])
def test_rows_of_any_number_of_lists_are_added_in_the_order_of_the_lists(sizes, width):
    """A pairwise union read the rows of many trainers again for each trainer; the bits are those of the pairs."""
    rng = np.random.default_rng(width)
    lists = [draw(rng, size, 60, width, np.float32) for size in sizes]
    expected = {}
    for ids, rows in lists:
        for one, row in zip(ids.tolist(), rows, strict=True):
            expected[one] = expected[one] + row if one in expected else row
    ids, rows = tables.merge_rows(lists)
    assert ids.tolist() == sorted(expected)
    assert rows.tobytes() == b"".join(expected[one].tobytes() for one in sorted(expected))


@pytest.mark.skipif(tables.compiled is None, reason="only compiled")
@each("width", [1, 3, 16, 1025])
@each("sizes", SIZES)
def test_rows_descend_by_the_sum_of_lists_as_when_these_are_united_first(sizes, width):
    """More than seven lists were united pairwise before the step."""
    rng = np.random.default_rng(width)
    table = rng.normal(size=(60, width)).astype(np.float32)
    lists = [draw(rng, size, 60, width, np.float32) for size in sizes]
    expected = table.copy()
    if lists:
        ids, total = tables.merge_rows(lists)
        expected[ids] -= total * np.float32(0.3)
    assert tables.descend_rows(table, 0.3, lists)
    assert table.tobytes() == expected.tobytes()


@pytest.mark.skipif(tables.compiled is None, reason="only compiled")
def test_what_does_not_descend_is_left_as_it_is():
    ids, rows = np.array([1, 4], np.uint32), np.ones((2, 2), np.float32)
    table = np.zeros((4, 2), np.float32)
    with pytest.raises(ValueError, match="not in the table"):
        tables.descend_rows(table, 1.0, [(ids, rows)])
    with pytest.raises(ValueError, match="do not fit their numbers"):
        tables.descend_rows(table, 1.0, [(ids, rows[:1])])
    assert not tables.descend_rows(table.astype(np.float64), 1.0, [(ids[:1], rows[:1])])
    assert not table.any()


@pytest.mark.skipif(tables.compiled is None, reason="only compiled")
def test_a_list_that_has_a_number_twice_writes_nothing_outside_of_the_arrays():
    """The callers check this, and a sanitizer would report a write behind the places of the lists' rows."""
    twice = np.array([1, 1, 1, 1], np.uint32), np.ones((4, 2), np.float32)
    ids, rows = tables.merge_rows([twice, twice])
    assert ids.tolist() == [1] * 4 and rows.sum() == 16
    table = np.zeros((4, 2), np.float32)
    assert tables.descend_rows(table, 1.0, [twice, twice])
    assert table.tolist() == [[0, 0], [-8, -8], [0, 0], [0, 0]]


@pytest.mark.parametrize("name", ["merge_rows", "deal_rows"])
def test_numpy_gives_the_same_bits(monkeypatch, name):
    rng = np.random.default_rng(3)
    a, b = draw(rng, 40, 90, 4, np.float32), draw(rng, 50, 90, 4, np.float32)
    given = ([a, b, (a[0][::2].copy(), b[1][:20])],) if name == "merge_rows" else (a[0], np.array([1, 2, 0], np.int64))
    first = getattr(tables, name)(*given)
    monkeypatch.setattr(tables, "compiled", None)
    second = getattr(tables, name)(*given)
    assert [one.tobytes() for one in first] == [one.tobytes() for one in second]
