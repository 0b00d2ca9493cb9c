"""Gradient checks of projections, operators and the layers made of them: finite differences in float64."""

import numpy as np
import pytest
from each import each
from layer_checks import check_gradients, dense, ids, make_layer

from trainer.arrays.arguments import Argument, Sparse
from trainer.layers.mixed.operators import OPERATORS
from trainer.layers.mixed.projections import PROJECTIONS

WIDTH, SIZE = 4, 3
STARTS = {
    "several lengths": [0, 3, 3, 4, 9, 11, 11],
    "one sequence": [0, 6],
    "all of length 1": [0, 1, 2, 3],
    "all empty": [0, 0, 0],
    "shorter than the window": [0, 2, 3, 5],
}


def projection(kind, input_size=WIDTH, output_size=SIZE, parameter=0, **fields):
    conf = {"type": kind, "name": "p", "input_size": input_size, "output_size": output_size, **fields}
    return {"parameter": parameter, "proj_conf": conf}


def context(start, length, padding=False):
    rows = max(0, -start) + max(0, start + length - 1)
    return projection(
        "context",
        output_size=WIDTH * length,
        parameter=rows * WIDTH if padding else 0,
        context_start=start,
        context_length=length,
        trainable_padding=padding,
    )


FULL = projection("fc", parameter=WIDTH * SIZE)
CASES = {
    "fc": (SIZE, [FULL], SIZE),
    "trans_fc": (SIZE, [projection("trans_fc", parameter=WIDTH * SIZE)], 0),
    "identity": (WIDTH, [projection("identity", output_size=WIDTH)], WIDTH),
    "identity without bias": (WIDTH, [projection("identity", output_size=WIDTH)], 0),
    "identity_offset": (2, [projection("identity_offset", output_size=2, offset=1)], 2),
    "slice": (3, [projection("slice", slices=[{"start": 0, "end": 2}, {"start": 3, "end": 4}])], 0),
    "slice, overlapping": (4, [projection("slice", output_size=4, slices=[{"start": 0, "end": 2}] * 2)], 0),
    "dot_mul": (WIDTH, [projection("dot_mul", output_size=WIDTH, parameter=WIDTH)], 0),
    "scaling": (WIDTH, [projection("scaling", output_size=WIDTH, parameter=1)], WIDTH),
    "several": (SIZE, [FULL, projection("trans_fc", parameter=WIDTH * SIZE), FULL], SIZE),
    "several identities": (WIDTH, [projection("identity", output_size=WIDTH)] * 3, 0),
    "identity and context": (WIDTH, [context(1, 1), projection("identity", output_size=WIDTH), context(-1, 1)], 0),
    "shared bias": (6, [projection("fc", output_size=6, parameter=6 * WIDTH)], 2),
    **{
        f"context {start} {length}{' padded' if padding else ''}": (
            WIDTH * length,
            [context(start, length, padding)],
            0,
        )
        for start, length in [(-1, 3), (-2, 5), (0, 2), (-3, 2), (2, 2), (-1, 1), (1, 1), (-4, 9)]
        for padding in (False, True)
    },
}


@each("lengths", STARTS)
@each("name", CASES)
def test_mixed_gradients_agree_with_finite_differences(name, lengths):
    size, inputs, bias = CASES[name]
    layer, table = make_layer("mixed", size, inputs, bias, shared_biases=bias not in (0, size))
    starts, rng = STARTS[lengths], np.random.default_rng(len(name))
    check_gradients(layer, table, [dense(rng.normal(size=(starts[-1], WIDTH)), starts) for _ in inputs])


@pytest.mark.parametrize("numbers", [[2, 0, 2, -1, 4, 2], [1, 1], [-1], []])
def test_table_gradients_agree_with_finite_differences(numbers):
    layer, table = make_layer("mixed", SIZE, [projection("table", 5, SIZE, 5 * SIZE)], SIZE)
    check_gradients(layer, table, [ids(np.array(numbers, np.int64))])


def test_fc_of_sparse_rows_agrees_with_finite_differences():
    layer, table = make_layer("mixed", SIZE, [FULL, FULL])
    sparse = Sparse(WIDTH, np.array([0, 2, 2, 5]), np.array([1, 3, 0, 0, 2]), np.array([0.5, -1, 2, 1, 3]))
    zeros_and_ones = Sparse(WIDTH, np.array([0, 1, 3, 3]), np.array([2, 1, 1]))
    check_gradients(layer, table, [Argument(sparse=sparse), Argument(sparse=zeros_and_ones)])


@pytest.mark.parametrize("scale", [1, 2.5])
@pytest.mark.parametrize("indices", [(0, 1), (0, 0), (1, 0)])
def test_dot_mul_operator_gradients_agree_with_finite_differences(scale, indices):
    operator = {
        "type": "dot_mul",
        "input_indices": indices,
        "input_sizes": [WIDTH, WIDTH],
        "output_size": WIDTH,
        "dotmul_scale": scale,
    }
    inputs = [projection("dot_mul", output_size=WIDTH, parameter=WIDTH), {}]
    layer, table = make_layer("mixed", WIDTH, inputs, operator_confs=[operator])
    rng = np.random.default_rng(2)
    varied = [0, 1] if 1 in indices else [0]
    check_gradients(layer, table, [dense(rng.normal(size=(5, WIDTH))) for _ in inputs], varied)


@pytest.mark.parametrize("lengths", STARTS)
def test_concat2_gradients_agree_with_finite_differences(lengths):
    inputs = [FULL, context(-1, 2, padding=True), projection("identity", output_size=WIDTH)]
    layer, table = make_layer("concat2", SIZE + 3 * WIDTH, inputs, SIZE + 3 * WIDTH)
    starts, rng = STARTS[lengths], np.random.default_rng(3)
    check_gradients(layer, table, [dense(rng.normal(size=(starts[-1], WIDTH)), starts) for _ in inputs])


def test_every_projection_and_operator_of_this_family_is_in_the_tables():
    checked = {conf["proj_conf"]["type"] for _, inputs, _ in CASES.values() for conf in inputs} | {"table"}
    assert checked == PROJECTIONS.keys() - {"conv", "convt", "pool"}
    assert OPERATORS.keys() - {"conv", "convt"} == {"dot_mul"}
