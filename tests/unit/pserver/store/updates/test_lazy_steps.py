"""Lazy rows of dense parameters: rows without gradient are left out of steps that would not change their values."""

from dataclasses import replace

import numpy as np
import pytest
from each import each

from pserver.optim import methods
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.store.updates import shard_state

ROWS, WIDTH = 500, 40
LAZY = [name for name, method in methods.METHODS.items() if method.allows_lazy_rows]
TABLE = ParameterSpec("table", ROWS * WIDTH, row_width=WIDTH)


def build(method, *parameters, **settings):
    parameters = parameters or (TABLE, ParameterSpec("bias", WIDTH, row_width=WIDTH))
    made = DenseShard(
        parameters, partition.whole(parameters), Optimization(method, 0.1, ada_rou=0.9, **settings), per_parameter=False
    )
    made.values[:] = np.random.default_rng(1).standard_normal(made.size)
    return made


def batch(random, rows):
    """A gradient of these rows, and of the bias."""
    gradient = np.zeros((ROWS + 1, WIDTH), np.float32)
    gradient[[*rows, ROWS]] = random.standard_normal((len(rows) + 1, WIDTH))
    return gradient.reshape(-1)


def pick(random, number):
    """Few rows mostly, sometimes none, sometimes enough that all take the step."""
    count = {3: 0, 7: 400}.get(number % 10, int(random.integers(1, 20)))
    return np.sort(random.choice(ROWS, count, replace=False))


@pytest.mark.parametrize("chunk", [1 << 16, 160])
@pytest.mark.parametrize("method", LAZY)
def test_lazy_rows_change_no_number_beyond_rounding(monkeypatch, method, chunk):
    monkeypatch.setattr(shard_state, "CHUNK", chunk)
    random = np.random.default_rng(5)
    lazy, dense = build(method), build(method)
    for number in range(60):
        rows = pick(random, number)
        gradient = batch(random, rows)
        lazy.step(gradient, 1, {} if number % 25 == 0 else {0: rows})
        dense.step(gradient, 1)
        np.testing.assert_allclose(lazy.values, dense.values, rtol=1e-5, atol=1e-6, err_msg=str(number))
    if methods.METHODS[method].has_rates:
        np.testing.assert_allclose(lazy.rates(4, 99), dense.rates(4, 99), rtol=1e-5)
    lazy.catch_up()
    for name in dense.state:
        np.testing.assert_allclose(lazy.state[name], dense.state[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_a_row_is_lazy_until_it_is_touched_or_asked_for():
    made = build("rmsprop")
    made.step(np.ones(made.size, np.float32), 1, {})
    gradient = np.zeros(made.size, np.float32)
    for _ in range(2):
        made.step(gradient, 1, {0: np.array([1])})
    squares = made.state["mean_square"][: 2 * WIDTH : WIDTH]
    assert squares == pytest.approx([1, 0.9**2]), "row 0 is lazy"
    made.rates(0, 1)
    assert squares == pytest.approx([0.9**2, 0.9**2])


def test_where_most_rows_are_touched_all_take_the_step():
    made = build("rmsprop")
    made.step(np.ones(made.size, np.float32), 1, {})
    made.step(np.zeros(made.size, np.float32), 1, {0: np.arange(ROWS - 1)})
    assert made.state["mean_square"] == pytest.approx(np.full(made.size, 0.9))


@each(
    ("method", "parameter", "settings"),
    [
        ("adam", TABLE, {}),
        ("adadelta", TABLE, {}),
        ("momentum", replace(TABLE, momentum=0.5), {}),
        ("momentum", replace(TABLE, decay_rate=0.5), {}),
        ("momentum", TABLE, {"average_window": 0.5}),
        ("momentum", replace(TABLE, row_width=ROWS * WIDTH), {}),
        ("momentum", replace(TABLE, row_width=0), {}),
        ("momentum", ParameterSpec("small", 1000, row_width=2), {}),
    ],
)
def test_no_row_is_lazy_where_a_step_would_move_it(method, parameter, settings):
    (group,) = build(method, parameter, **settings).groups
    assert group.rows == 0


def test_rows_of_a_part_of_a_parameter_are_not_lazy():
    made = DenseShard([TABLE], [(0, 0, 10)], Optimization("rmsprop"), per_parameter=True)
    assert made.groups[0].rows == 0
