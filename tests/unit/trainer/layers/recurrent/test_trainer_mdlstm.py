"""The recurrent layer over grids: against lstmemory, against a plain recursion, and finite differences in float64."""

import itertools

import numpy as np
import pytest
from layer_checks import check_gradients, make_layer, run

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument

SIZE = 2
ACTS = {"active_type": "tanh", "active_gate_type": "sigmoid", "active_state_type": "tanh"}


def make(directions, bias=True, **fields):
    gates = 3 + len(directions)
    inputs = [{"parameter": gates * SIZE * SIZE}]
    many = (5 + 2 * len(directions)) * SIZE if bias else 0
    return make_layer("mdlstmemory", SIZE, inputs, bias=many, directions=directions, **{**ACTS, **fields})


def frames(grids, gates, seed=3):
    grids = np.array(grids)
    starts = np.concatenate([[0], np.cumsum(np.prod(grids, axis=1))])
    x = np.random.default_rng(seed).normal(size=(starts[-1], gates * SIZE))
    return Argument(value=x, starts=starts, grids=grids)


@pytest.mark.parametrize("forward", [True, False])
def test_along_one_dimension_it_is_lstmemory(forward):
    layer, table = make([forward])
    bias, inputs = 7 * SIZE, [{"parameter": 4 * SIZE * SIZE}]
    other, other_table = make_layer("lstmemory", SIZE, inputs, bias=bias, reversed=not forward, **ACTS)
    other_table.values[:] = table.values
    x = frames([[4], [1], [3]], 4)
    np.testing.assert_allclose(run(layer, x).value, run(other, x).value, rtol=1e-12)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def recursion(x, extents, directions, table):
    """Return h of every frame of one grid, from the formulas."""
    many, gates = len(extents), 3 + len(extents)
    w = table["w0"].value.reshape(SIZE, gates * SIZE)
    bias, p_i, p_f, p_o = np.split(table["bias"].value, np.cumsum([gates, 1, many]) * SIZE)
    known = {}

    def visit(place):
        if place not in known:
            earlier = [
                tuple(at - (1 if directions[d] else -1) * (d == k) for k, at in enumerate(place)) for d in range(many)
            ]
            inside = [all(0 <= at < most for at, most in zip(one, extents, strict=True)) for one in earlier]
            states = [visit(one) if there else np.zeros((2, SIZE)) for one, there in zip(earlier, inside, strict=True)]
            z = x[np.ravel_multi_index(place, extents)] + bias + sum(h @ w for h, _ in states)
            a, i, *f, o = z.reshape(gates, SIZE)
            i = sigmoid(i + sum(p_i * c for _, c in states))
            c = np.tanh(a) * i
            for d, (_, before) in enumerate(states):
                c = c + before * sigmoid(f[d] + p_f.reshape(many, SIZE)[d] * before)
            known[place] = np.array([sigmoid(o + p_o * c) * np.tanh(c), c])
        return known[place]

    return np.array([visit(place)[0] for place in np.ndindex(*extents)])


@pytest.mark.parametrize("directions", [*itertools.product([True, False], repeat=2), (True, False, True)])
def test_every_frame_depends_on_its_neighbours_before(directions):
    layer, table = make(directions)
    grids = [[2, 3, 1], [1, 1, 2]] if len(directions) == 3 else [[2, 3], [1, 4], [3, 1]]
    x = frames(grids, 3 + len(directions))
    found = run(layer, x)
    for extents, start, end in zip(grids, x.starts, x.starts[1:], strict=False):
        wanted = recursion(x.value[start:end], extents, directions, table)
        np.testing.assert_allclose(found.value[start:end], wanted, rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("directions", [(True,), (True, False), (False, False, True)])
def test_gradients_agree_with_finite_differences(directions, bias):
    grids = np.array([[2, 3, 2], [0, 1, 1], [1, 2, 1]])[:, : len(directions)]
    check_gradients(*make(directions, bias), [frames(grids, 3 + len(directions))])


def test_a_batch_without_frames_has_gradients_of_zero():
    check_gradients(*make((True, True)), [frames(np.zeros((2, 2), np.int64), 5)])


def test_a_sequence_without_a_grid_is_a_square():
    layer, _ = make((True, True))
    x = frames([[3, 3], [2, 2]], 5)
    plain = Argument(value=x.value, starts=x.starts)
    np.testing.assert_array_equal(run(layer, plain).value, run(layer, x).value)
    with pytest.raises(DataError, match="2 directions, but a sequence of the batch is not a square"):
        run(layer, Argument(value=x.value, starts=np.array([0, 8, 13])))


def test_grids_of_other_dimensions_are_refused():
    layer, _ = make((True, True))
    x = frames([[2, 3]], 5)
    with pytest.raises(DataError, match="is not a grid of 3 dimensions"):
        run(layer, Argument(value=x.value, starts=x.starts, grids=np.array([[1, 2, 3]])))
    with pytest.raises(ConfigError, match="needs directions"):
        make([])


def test_the_grids_go_along_with_the_rows():
    x = frames([[2, 3], [1, 4]], 5)
    assert x.with_value(x.value).grids is x.grids
    assert x.cut(1, 2).grids.tolist() == [[1, 4]]
