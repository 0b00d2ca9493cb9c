"""Rows of matrices: the compiled loops and those in numpy against loops in Python."""

import importlib.util
import os

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import rows
from paddle_base.kernels.rows import (
    add_outer,
    add_rows,
    add_taken,
    all_inside,
    find_largest,
    pick_columns,
    put_columns,
    sum_rows,
)

TYPES = [np.float64, np.float32]  # numpy, and compiled where that is there


def stretches(rng, width, count, dtype):
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, count))])
    ids = rng.integers(0, 9, starts[-1])
    return starts, ids, rng.normal(size=(9, width)).astype(dtype), rng.normal(size=len(ids)).astype(dtype)


@pytest.mark.skipif(os.environ.get("PADDLE_KERNELS") == "plain", reason="PADDLE_KERNELS leaves the module out")
def test_the_compiled_module_is_there_where_it_was_built():
    built = importlib.util.find_spec("paddle_base.kernels._compiled") is not None
    assert built == (kernels.compiled is not None)


@each("dtype", TYPES)
@each("columns", [1, 2, 7, 8, 9, 30])
@each("count", [0, 1, 40])
def test_rows_are_added_where_their_ids_say(columns, count, dtype):
    rng = np.random.default_rng(columns)
    ids, more = rng.integers(0, 9, count), rng.normal(size=(count, columns)).astype(dtype)
    target, expected = np.ones((9, columns), dtype), np.ones((9, columns))
    add_rows(target, ids, more)
    for one, row in zip(ids, more, strict=True):
        expected[one] += row
    np.testing.assert_allclose(target, expected, atol=1e-5)


@each("dtype", TYPES)
@each("columns", [1, 2, 3, 4, 7, 20])
@each("with_values", [False, True])
def test_sums_of_rows_and_their_gradient_equal_dense_products(columns, with_values, dtype):
    rng = np.random.default_rng(columns)
    starts, ids, table, numbers = stretches(rng, columns, 12, dtype)
    values = numbers if with_values else None
    dense = np.zeros((12, 9))
    for i in range(12):
        for k in range(starts[i], starts[i + 1]):
            dense[i, ids[k]] += numbers[k] if with_values else 1
    np.testing.assert_allclose(sum_rows(table, ids, starts, values), dense @ table, atol=1e-5)
    g, target = rng.normal(size=(12, columns)).astype(dtype), np.ones((9, columns), dtype)
    add_outer(target, g, ids, starts, values)
    np.testing.assert_allclose(target, 1 + dense.T @ g, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_taken_rows_are_added(dtype):
    out, table = np.ones((3, 2), dtype), np.arange(8, dtype=dtype).reshape(4, 2)
    add_taken(out, table, np.array([3, 0, 3]))
    assert out.tolist() == [[7, 8], [1, 2], [7, 8]]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_that_is_not_there_is_an_error_and_changes_nothing(dtype):
    target = np.ones((3, 9), dtype)
    with pytest.raises((ValueError, IndexError)):
        add_rows(target, np.array([0, 3]), np.ones((2, 9), dtype))
    assert (target == 1).all()
    with pytest.raises((ValueError, IndexError)):
        sum_rows(target, np.array([3]), np.array([0, 1]))


def test_compiled_functions_refuse_arrays_that_do_not_fit():
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    table, ids, one = np.ones((3, 2), np.float32), np.zeros(2, np.int64), np.ones((2, 2), np.float32)
    wrong = [
        (table.astype(np.float64), ids, one, 2),
        (table, ids.astype(np.int32), one, 2),
        (table, ids, one[:1], 2),
        (table, ids, one, 0),
        (table, ids, one),
        (table[:, ::2], ids, one, 1),
    ]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError, BufferError)):
            kernels.compiled.add_rows(*arguments)
    read_only = table.copy()
    read_only.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        kernels.compiled.add_rows(read_only, ids, one, 2)
    with pytest.raises(ValueError, match="row number"):
        kernels.compiled.sum_rows(one.copy(), table, ids, np.array([0, 3, 2]), 2, None)


def test_without_the_compiled_module_numpy_computes(monkeypatch):
    monkeypatch.setattr(rows, "compiled", None)
    target = np.zeros((2, 9), np.float32)
    add_rows(target, np.array([1, 1]), np.ones((2, 9), np.float32))
    assert target[:, 0].tolist() == [0, 2]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_column_that_a_label_names_is_picked_and_put_back(dtype):
    table, labels = np.arange(12, dtype=dtype).reshape(4, 3), np.array([2, 0, 1, 2], np.int32)
    picked = pick_columns(table, labels)
    assert picked.tolist() == [2, 3, 7, 11]
    assert put_columns(picked, labels, 3).tolist() == [[0, 0, 2], [3, 0, 0], [0, 7, 0], [0, 0, 11]]
    assert picked.dtype == put_columns(picked, labels, 3).dtype == dtype
    assert pick_columns(table[:0], labels[:0]).shape == (0,)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_first_largest_number_of_a_row_counts_and_one_that_is_none_before_it(dtype):
    nan, inf = np.nan, np.inf
    table = np.array([[1, 3, 3], [0.0, -0.0, -1], [2, nan, nan], [nan, inf, 1], [-inf, -inf, -inf]], dtype)
    assert find_largest(table).tolist() == table.argmax(axis=1).tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("width", [1, 31, 255, 256, 257, 512, 600])
def test_the_first_largest_number_of_a_long_row_is_found_block_by_block(width):
    rng = np.random.default_rng(width)
    table = rng.integers(-3, 4, (200, width)).astype(np.float32)  # many numbers are equal
    table[::3, rng.integers(0, width)] = np.nan
    table[1::3, rng.integers(0, width)] = np.inf
    table[::7, 0] = -np.inf
    assert find_largest(table).tolist() == table.argmax(axis=1).tolist()


@pytest.mark.parametrize("module", [kernels.compiled, None])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_are_inside_or_not(module, dtype, monkeypatch):
    monkeypatch.setattr(rows, "compiled", module)
    for ids, is_inside in (([], True), ([0, 4], True), ([5], False), ([3, -1, 2], False)):
        assert all_inside(np.array(ids, dtype), 5) is is_inside


@pytest.mark.skipif(kernels.compiled is None, reason="there is no compiled module")
def test_columns_outside_of_the_matrix_are_refused():
    table = np.zeros((2, 3), np.float32)
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="not in the matrix"):
            pick_columns(table, np.array(labels))
        with pytest.raises(ValueError, match="not in the matrix"):
            put_columns(table[:, 0].copy(), np.array(labels), 3)
    with pytest.raises(ValueError, match="do not fit"):
        pick_columns(table, np.array([0]))
