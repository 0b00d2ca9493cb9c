"""Products of a recurrent group's steps, which are added to a gradient at once."""

import numpy as np
import pytest

from paddle_base.kernels import compiled
from paddle_base.kernels.products import PackedMatrix
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from trainer.arrays import step_products
from trainer.arrays.parameters import ParameterTable


def make_table():
    return ParameterTable([ParameterConfig(name="w", size=18), ParameterConfig(name="unused", size=2)], np.float64)


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def test_products_that_wait_are_those_added_one_by_one():
    table, other = make_table(), make_table()
    for one in (table, other):
        one["w"].add_product(draw(0, 300, 3), draw(1, 300, 6))
    steps = [(draw(seed, seed, 3), draw(seed + 9, seed, 4), 6) for seed in range(4)]
    steps += [(draw(seed, seed, 2), draw(seed + 9, seed, 3), 0) for seed in range(4)]
    for x, g, begin in steps:
        other["w"].add_product(x, g, begin)
    with table.joined_products():
        for x, g, begin in steps:
            table["w"].add_product(x, g, begin)
            g *= 0  # a layer may change its gradient afterwards
        with table.joined_products():  # a group within the group
            pass
        assert (table["w"].peek_gradient() != other["w"].peek_gradient()).any()
    np.testing.assert_allclose(table.gradients, other.gradients, rtol=1e-12, atol=1e-13)


def test_a_product_of_a_part_of_a_parameter_leaves_zeros_elsewhere():
    table = make_table()
    table["w"].gradient[:] = 7
    table.clear_gradients()
    table["w"].add_product(np.ones((1, 2)), np.ones((1, 3)), begin=6)
    assert table.gradients.tolist() == [0] * 6 + [1] * 6 + [0] * 8


def test_products_of_steps_that_fail_are_forgotten():
    table = make_table()
    with pytest.raises(ArithmeticError), table.joined_products():
        table["w"].add_product(np.ones((1, 3)), np.ones((1, 6)))
        raise ArithmeticError
    assert not table.gradients.any()


@pytest.mark.skipif(compiled is None, reason="the compiled module is not built here")
def test_the_steps_of_a_group_pack_a_matrix_once(monkeypatch):
    """A BLAS library packed the matrix in each step; with two threads that took longer than the products of 10 rows."""
    table, packed = ParameterTable([ParameterConfig(name="w", size=2 * 64 * 64)]), []
    table.values[:] = np.random.default_rng(3).normal(size=table.values.size)
    monkeypatch.setattr(step_products, "PackedMatrix", note_matrices(packed))
    w, x = table["w"], np.random.default_rng(4).normal(size=(10, 64)).astype(np.float32)
    alone = [w.multiply(x, (64, 64), begin, is_transposed=way) for begin in (0, 4096) for way in (False, True)]
    with table.joined_products():
        for _ in range(3):
            found = [w.multiply(x, (64, 64), begin, is_transposed=way) for begin in (0, 4096) for way in (False, True)]
    assert len(packed) == 4
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-5)
    with table.joined_products():
        w.multiply(x, (64, 64))
        w.multiply(np.ones((300, 64), np.float32), (64, 64))  # a library computes so many rows
    assert len(packed) == 5


def note_matrices(packed):
    class Noted(PackedMatrix):
        def __init__(self, *given, **named):
            packed.append(given)
            super().__init__(*given, **named)

    return Noted
