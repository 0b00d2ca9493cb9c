"""Arrays of rows for the wire: compiled and in numpy, against what they say byte by byte."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import row_arrays
from paddle_base.kernels.row_arrays import TableRows, measure_numbers, measure_rows, pack_rows, unpack_rows
from paddle_base.kernels.tables import deal_rows

PLACES = np.array([1, 0, 2], np.int64)


def divide(rng, many, width, in_place):
    """Some rows of a table of 60, with a matrix of all rows or of these."""
    ids = np.sort(rng.choice(60, many, replace=False)).astype(np.uint32)
    matrix = rng.normal(size=(60 if in_place else many, width)).astype(np.float32)
    return TableRows(*deal_rows(ids, PLACES), matrix, width, ids if in_place else None)


def expect(tables, service, *, with_rows):
    numbers = [table.local[table.starts[service] : table.starts[service + 1]] for table in tables]
    parts = [np.array([len(one) for one in numbers], np.uint32), *numbers]
    if with_rows:
        parts += [table.rows[row] for table in tables for row in table.list_rows(service)]
    return b"".join(part.tobytes() for part in parts)


@pytest.fixture(params=[True, False])
def way(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(row_arrays, "compiled", None)


@each("in_place", [True, False])
@each("many", [(0, 0), (1, 5), (40, 0), (60, 60)])
def test_rows_are_packed_and_unpacked_for_each_service(way, many, in_place):
    rng = np.random.default_rng(1)
    tables = [divide(rng, count, width, in_place) for count, width in zip(many, (3, 16), strict=True)]
    wanted = [divide(rng, 20, 3, in_place), divide(rng, 0, 16, in_place)]
    for service in range(3):
        numbers, rows, asked = (
            measure_numbers(tables, service),
            measure_rows(tables, service),
            measure_numbers(wanted, service),
        )
        memory = memoryview(bytearray(numbers + rows + asked + 1))[1:]  # a message may be at any address
        pack_rows(memory, service, tables, wanted)
        assert bytes(memory) == expect(tables, service, with_rows=True) + expect(wanted, service, with_rows=False)
        request = memoryview(bytearray(asked))
        pack_rows(request, service, (), wanted)
        assert bytes(request) == expect(wanted, service, with_rows=False)
        copies = [table._replace(rows=np.zeros_like(table.rows)) for table in tables]
        unpack_rows(bytes(memory[numbers : numbers + rows]) if rows else b"", service, copies)
        for table, copy in zip(tables, copies, strict=True):
            mine = table.list_rows(service)
            assert copy.rows[mine].tobytes() == table.rows[mine].tobytes()
            assert np.count_nonzero(copy.rows.any(axis=1)) == len(mine)


def test_matrices_of_another_type_are_packed_as_float32(way):
    table = divide(np.random.default_rng(1), 20, 3, True)
    given = table._replace(rows=table.rows.astype(np.float64))
    memory = memoryview(bytearray(measure_numbers([table], 0) + measure_rows([table], 0)))
    pack_rows(memory, 0, [given])
    assert bytes(memory) == expect([table], 0, with_rows=True)


@each("change", [-4, 4, 1, -1])
def test_an_array_of_another_length_is_refused(way, change):
    table = divide(np.random.default_rng(1), 20, 3, True)
    numbers, rows = measure_numbers([table], 1), measure_rows([table], 1)
    with pytest.raises(ValueError, match=r"does not fit|multiple"):
        pack_rows(memoryview(bytearray(numbers + rows + change)), 1, [table])
    with pytest.raises(ValueError, match=r"does not fit|multiple"):
        unpack_rows(bytearray(rows + change), 1, [table])


@pytest.mark.skipif(kernels.compiled is None, reason="only compiled")
@each(
    "fields",
    [
        {"order": np.full(20, 60, np.uint32)},
        {"order": np.zeros(20, np.int64)},
        {"local": np.zeros(19, np.uint32)},
        {"starts": np.array([0, 30, 20, 20])},
        {"starts": np.array([0, 5, 4, 20])},
        {"starts": np.array([-1, 5, 9, 20])},
        {"starts": np.array([0])},
        {"rows": np.zeros((2, 3), np.float32)},
        {"width": 0},
        {"width": -1},
        {"width": 7},
        {"width": 1 << 62},
        {"ids": np.full(60, 60, np.uint32)},
        {"ids": np.zeros(0, np.uint32)},
        {"ids": 1},
    ],
)
def test_fields_that_do_not_fit_are_refused_and_nothing_is_written(fields):
    table = divide(np.random.default_rng(1), 20, 3, True)
    memory = memoryview(bytearray(measure_numbers([table], 1) + measure_rows([table], 1)))
    broken = (table._replace(**fields),)
    with pytest.raises((ValueError, TypeError, OverflowError)):
        kernels.compiled.pack_rows(memory, 1, broken, ())
    before = table.rows.copy()
    with pytest.raises((ValueError, TypeError, OverflowError)):
        kernels.compiled.unpack_rows(memory[: measure_rows([table], 1)], 1, broken)
    assert not any(memory) and table.rows.tobytes() == before.tobytes()


@pytest.mark.skipif(kernels.compiled is None, reason="only compiled")
@each(
    "arguments",
    [
        (),
        (bytearray(4), 0, ()),
        (bytearray(4), 0, [], []),
        (b"", 0, (), ()),
        (bytearray(4), 0, (1,), ()),
        (bytearray(4), "0", (), ()),
    ],
)
def test_other_arguments_are_refused(arguments):
    with pytest.raises((TypeError, BufferError)):
        kernels.compiled.pack_rows(*arguments)
