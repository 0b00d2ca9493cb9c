"""Rows that are updated only when a batch touches them: what each misses, and how it catches up."""

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from pserver.optim import methods, sgd
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.store.updates import shard_state

RATE, RHO, EPSILON = 0.5, 0.9, 1e-6
WIDTH = 2


def table(rows=3, **settings):
    return ParameterSpec("table", rows * WIDTH, sparse_update=True, row_width=WIDTH, **settings)


def build(method, *parameters, values=None, **settings):
    optimization = Optimization(method, RATE, ada_rou=RHO, **settings)
    made = DenseShard(parameters, partition.whole(parameters), optimization, per_parameter=True)
    if values is not None:
        made.values[:] = values
    return made


def step(made, touched, value=1.0, parameter=0):
    """One batch whose gradient is `value` in the touched rows."""
    gradient = np.zeros((made.size // WIDTH, WIDTH), np.float32)
    gradient[list(touched)] = value
    made.step(gradient.reshape(-1), 1, {parameter: np.array(touched, np.int64)})


def rows(made):
    matrix = made.values.reshape(-1, WIDTH)
    assert (matrix[:, 0] == matrix[:, 1]).all()
    return matrix[:, 0].tolist()


ROW_METHODS = [name for name, method in methods.METHODS.items() if method.allows_sparse and name != "sparse_momentum"]


@each("method", ROW_METHODS)
@each("mu", [0.0, 0.5])
def test_a_table_touched_everywhere_is_a_dense_parameter_bit_for_bit(monkeypatch, method, mu):
    random = np.random.default_rng(2)
    values = random.standard_normal(60).astype(np.float32)
    sparse = build(method, ParameterSpec("w", 60, momentum=mu, sparse_update=True, row_width=6), values=values)
    dense = build(method, ParameterSpec("w", 60, momentum=mu), values=values)
    monkeypatch.setattr(shard_state, "CHUNK", 20)
    for number in range(5):
        gradient = random.standard_normal(60).astype(np.float32)
        sparse.step(gradient, 1, {0: np.arange(10)} if number % 2 else {})
        dense.step(gradient, 1)
    assert sparse.values.tobytes() == dense.values.tobytes()
    for name in dense.state:
        assert sparse.state[name].tobytes() == dense.state[name].tobytes()


def test_only_touched_rows_move_and_keep_their_velocity_meanwhile():
    made = build("momentum", table(momentum=0.5))
    step(made, [0, 1])
    step(made, [1])
    step(made, [0])
    # row 1: -.5, then velocity .5 * -.5 - .5; row 0 the same, a batch later
    assert rows(made) == [-1.25, -1.25, 0.0]


def test_a_dense_parameter_beside_a_table_moves_in_every_batch():
    made = build("momentum", table(2), ParameterSpec("b", WIDTH, momentum=0.5))
    step(made, [0])
    made.step(np.array([0, 0, 0, 0, 1, 1], np.float32), 1, {0: np.arange(0)})
    made.step(np.zeros(6, np.float32), 1, {0: np.arange(0)})
    assert rows(made) == [-0.5, 0.0, -0.75]


@pytest.mark.parametrize("method", ["decayed_adagrad", "rmsprop"])
def test_averages_of_a_row_decay_for_the_batches_that_it_missed(method):
    made = build(method, table())
    step(made, [1], 2.0)
    step(made, [0], 2.0)  # a first update in batch 2: the square has weight 1, and what is kept is of zero
    step(made, [], 2.0)
    step(made, [0, 1], 3.0)
    f = RHO**2 * (1 - RHO) * 2 + (1 - RHO) * 3, RHO**3 * (1 - RHO) * 2 + (1 - RHO) * 3
    q = RHO**2 * 4 + (1 - RHO) * 9, RHO**3 * 4 + (1 - RHO) * 9
    first_f = (1 - RHO) * 2 if method == "rmsprop" else 0.0
    f = f if method == "rmsprop" else (0.0, 0.0)
    expected = [
        -RATE * (2 / np.sqrt(4 - first_f**2 + EPSILON) + 3 / np.sqrt(one_q - one_f**2 + EPSILON))
        for one_q, one_f in zip(q, f, strict=True)
    ]
    assert rows(made) == pytest.approx([*expected, 0.0], rel=1e-5)
    rates = made.rates(0, 6)
    assert rates[:4:2] == pytest.approx([1 / np.sqrt(a - b**2 + EPSILON) for a, b in zip(q, f, strict=True)], rel=1e-5)
    assert rates[4] == 0, "a row that took no step has no rate"


# ----- Decay -----


def test_l2_of_a_row_waits_until_the_row_is_touched_or_the_pass_ends():
    made = build("momentum", table(decay_rate=0.5), values=8.0)
    step(made, [0])  # (8 - .5) / (1 + .5 * .5)
    step(made, [0, 1])  # row 1: (8 - .5) / (1 + .5 * .5 * 2): the missed batches at today's rate
    assert rows(made) == pytest.approx([(7.5 / 1.25 - 0.5) / 1.25, 7.5 / 1.5, 8.0])
    step(made, [0])
    before = rows(made)
    made.catch_up()
    assert rows(made) == pytest.approx([before[0], before[1] / 1.25, 8 / 1.75])
    made.catch_up()
    assert rows(made) == pytest.approx([before[0], before[1] / 1.25, 8 / 1.75])
    step(made, [2])
    made.finish_pass()
    assert rows(made)[2] == pytest.approx((8 / 1.75 - 0.5) / 1.25)
    assert rows(made)[0] == pytest.approx(before[0] / 1.25)


def test_l1_of_a_row_takes_off_what_it_missed():
    made = build("momentum", table(decay_rate_l1=0.25), values=[2, 2, -1, -1, 0.25, 0.25])
    step(made, [0])
    step(made, [])
    step(made, [0, 1])
    made.finish_pass()
    # row 0: 2 - .5 - .125, then - .5 - 2 * .125; row 1: -1.5 + 3 * .125
    assert rows(made) == [0.625, -1.125, 0.0]


def test_decay_takes_the_rates_of_elements_and_none_before_a_rows_first_step():
    made = build("adagrad", table(decay_rate=0.5), values=8.0)
    step(made, [0], 2.0)
    step(made, [])
    made.catch_up()
    r = 1 / np.sqrt(4 + EPSILON)
    touched = (8 - RATE * r * 2) / (1 + RATE * r * 0.5)
    assert rows(made) == pytest.approx([touched / (1 + RATE * r * 0.5), 8.0, 8.0], rel=1e-6)


def test_a_period_of_decay_goes_before_the_rows():
    made = build("momentum", table(decay_rate=0.5, num_batches_regularization=2), values=8.0)
    step(made, [0])
    assert rows(made) == [7.5, 8.0, 8.0]
    step(made, [])
    assert rows(made) == pytest.approx([7.5 / 1.5, 8 / 1.5, 8 / 1.5])


# ----- Sparse momentum -----


def test_sparse_momentum_is_momentum_for_rows_that_every_batch_touches(monkeypatch):
    monkeypatch.setattr(sgd, "ALPHA_LIMIT", np.float32(100))  # so that it starts afresh meanwhile
    random = np.random.default_rng(1)
    dense = build("momentum", ParameterSpec("w", 6, momentum=0.5))
    sparse = build("sparse_momentum", table(momentum=0.5))
    for number in range(20):
        gradient = random.standard_normal(6).astype(np.float32)
        dense.step(gradient, 1)
        sparse.step(gradient, 1)
        np.testing.assert_allclose(sparse.values, dense.values, rtol=1e-4, atol=1e-4, err_msg=str(number))
    (group,) = sparse.groups
    assert group.method.alpha < 100


def test_a_row_of_sparse_momentum_keeps_its_value_while_it_is_not_touched():
    """By the formulas, k = .5: after batch 1 tau 0, alpha 2; after 2 tau .5, alpha 4; after 3 tau .75, alpha 8."""
    made = build("sparse_momentum", table(momentum=0.5), values=4.0)
    step(made, [0])  # u = -1, v = 4: w = (0 + 1/2) * -1 + 4
    assert rows(made) == [3.5, 4.0, 4.0]
    step(made, [1])
    assert rows(made) == [3.5, (0.5 + 0.25) * -2 + (4 + 0.5 * 2), 4.0]
    step(made, [0])  # u = -1 - 4, v = 4 + .75 * 4
    assert rows(made)[0] == (0.75 + 0.125) * -5 + 7
    made.finish_pass()
    assert rows(made)[2] == 4.0


# ----- Clipping -----


def test_rows_are_clipped_one_by_one_and_the_log_says_which(capsys):
    parameters = [table(gradient_clipping_threshold=2.0), ParameterSpec("b", 2, gradient_clipping_threshold=1.0)]
    made = DenseShard(
        parameters, partition.whole(parameters), Optimization("momentum", 1.0), per_parameter=True, log_clipping=True
    )
    made.step(np.array([1, 1, 9, -1, 2, 2, 0, 3], np.float32), 1)
    assert made.values.tolist() == [-1, -1, -2, 1, -2, -2, 0, -1]
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "parameter=table need clipping, max grad=9 avg grad=5",
        "parameter=b need clipping, max grad=3 avg grad=1.5",
    ]


def test_the_sum_of_several_gradients_is_clipped_and_averaged_by_row():
    made = build("momentum", table(2, gradient_clipping_threshold=2.0), average_window=1.0)
    made.step([np.array([0, 0, 3, 1], np.float32), np.array([0, 0, 3, -1], np.float32)], 1, {0: np.array([1])})
    assert made.values.tolist() == [0, 0, -1, 0]
    made.step([np.zeros(4, np.float32)] * 2, 1, {0: np.arange(0)})
    assert made.averages().tolist() == [0, 0, -1, 0], "row 1 takes no part in the second step, and counts there"


# ----- What does not go together -----


@each(
    ("method", "settings", "message"),
    [
        ("adam", {}, "which adam cannot do"),
        ("adamax", {}, "which adamax cannot do"),
        ("adadelta", {}, "which adadelta cannot do"),
        ("sparse_momentum", {}, "by which sparse_momentum divides"),
        ("momentum", {"momentum": 0.5, "decay_rate": 0.1}, "momentum 0.5 and L2 with sparse_update"),
        ("sparse_momentum", {"momentum": 0.5, "decay_rate": 0.1}, "momentum 0.5 and L2 with sparse_update"),
    ],
)
def test_what_rows_cannot_do_is_refused_by_name(method, settings, message):
    with pytest.raises(ConfigError, match=message):
        build(method, table(**settings))
