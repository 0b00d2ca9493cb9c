"""L1 and L2 apart from the step, and model averaging, against closed forms and plain loops."""

import itertools

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from pserver.optim import averaging
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.optim.weight_decay import Decay, pull, separate_decay
from pserver.store import partition
from pserver.store.shard import DenseShard

RATE = 0.5


def build(parameter, method="momentum", values=0.0, per_parameter=True, **settings):
    optimization = Optimization(method, settings.pop("rate", RATE), **settings)
    made = DenseShard([parameter], partition.whole([parameter]), optimization, per_parameter=per_parameter)
    made.values[:] = values
    return made


def step(made, *gradient):
    made.step(np.array(gradient, np.float32), 1)


# ----- When decay is apart -----


@each(
    ("settings", "decay"),
    [
        ({}, None),
        ({"decay_rate": 0.5}, None),  # part of the step
        ({"sparse_update": True}, None),
        ({"num_batches_regularization": 3}, None),
        ({"decay_rate_l1": 0.5}, Decay(0.5, 0.0)),
        ({"decay_rate_l1": 0.5, "decay_rate": 0.25}, Decay(0.5, 0.25)),
        ({"decay_rate": 0.25, "num_batches_regularization": 3}, Decay(0.0, 0.25, 3)),
        ({"decay_rate": 0.25, "sparse_update": True}, Decay(0.0, 0.25, 1, by_row=True)),
        ({"decay_rate": 0.25, "sparse_update": True, "num_batches_regularization": 3}, Decay(0.0, 0.25, 3)),
    ],
)
def test_decay_is_apart_where_l1_rows_or_periods_ask_for_it(settings, decay):
    assert separate_decay(ParameterSpec("w", 2, **settings)) == decay


@pytest.mark.parametrize(
    ("settings", "kind", "remedy"),
    [
        ({"decay_rate_l1": 0.5}, "L1", "l1_rate=0"),
        (
            {"decay_rate": 0.25, "num_batches_regularization": 3},
            "num_batches_regularization over 1",
            "num_batches_regularization=1",
        ),
        ({"decay_rate": 0.25, "sparse_update": True}, "L2 with sparse_update", "l2_rate=0 or sparse_update=False"),
    ],
)
def test_decay_apart_does_not_go_with_momentum(settings, kind, remedy):
    expected = f"parameter w has momentum 0.5 and {kind}, which do not go together; set momentum=0 or {remedy} for it"
    with pytest.raises(ConfigError, match=f"^{expected}$"):
        separate_decay(ParameterSpec("w", 2, momentum=0.5, **settings))


# ----- Pulls -----


def test_l1_goes_to_zero_and_not_beyond():
    w = np.array([1, -1, 0.25, -0.25, 0.125, 0], np.float32)
    pull(w, None, np.empty_like(w), Decay(l1=0.25), rate=np.float32(0.5), batches=2)
    assert w.tolist() == [0.75, -0.75, 0, 0, 0, 0]


def test_l2_divides():
    w = np.array([3, -6], np.float32)
    pull(w, None, np.empty_like(w), Decay(l2=0.5), rate=np.float32(0.5), batches=2)
    assert w.tolist() == [2, -4]


def test_l1_comes_before_l2_and_rates_of_elements_multiply_both():
    w = np.array([4, 4], np.float32)
    pull(w, np.array([1, 2], np.float32), np.empty_like(w), Decay(l1=1, l2=1), rate=np.float32(0.5), batches=1)
    assert w.tolist() == pytest.approx([3.5 / 1.5, 3 / 2])


def test_dense_l1_follows_the_step_without_decay_in_it():
    made = build(ParameterSpec("w", 2, learning_rate=0.5, decay_rate_l1=0.5, decay_rate=1.0), values=2.0)
    step(made, 1, 0)
    # w - .25 * g, then .125 off, then / 1.25
    assert made.values.tolist() == pytest.approx([(1.75 - 0.125) / 1.25, (2 - 0.125) / 1.25])


def test_adam_decays_where_l1_makes_it_apart():
    made = build(ParameterSpec("w", 1, decay_rate_l1=0.5, decay_rate=1.0), "adam", values=8.0)
    step(made, 1)
    assert made.values[0] == pytest.approx((8 - RATE - 0.25) / 1.5, rel=1e-5)


def test_dense_l1_takes_the_rates_of_elements():
    made = build(ParameterSpec("w", 2, decay_rate_l1=0.5), "adagrad", values=8.0, ada_epsilon=0.0)
    step(made, 2, 4)
    # rates 1/2 and 1/4: each steps by RATE
    assert made.values.tolist() == [8 - 0.5 - 0.5 * 0.5 / 2, 8 - 0.5 - 0.5 * 0.5 / 4]


def test_decay_every_so_many_batches_and_the_rest_at_the_end_of_the_pass():
    made = build(ParameterSpec("w", 1, decay_rate=0.5, num_batches_regularization=3), values=16.0)
    seen = []
    for _ in range(5):
        step(made, 0)
        seen.append(float(made.values[0]))
    third = 16 / (1 + 0.25 * 3)
    assert seen == pytest.approx([16, 16, third, third, third])
    made.finish_pass()
    fifth = third / (1 + 0.25 * 2)
    assert made.values[0] == pytest.approx(fifth)
    for _ in range(2):  # the count begins again with the pass
        step(made, 0)
    assert made.values[0] == pytest.approx(fifth)
    step(made, 0)
    assert made.values[0] == pytest.approx(fifth / 1.75)


def test_what_a_save_inside_the_period_applied_is_not_applied_again():
    made = build(ParameterSpec("w", 1, decay_rate=0.5, num_batches_regularization=3), values=16.0)
    step(made, 0)
    for _ in range(2):
        made.catch_up()
        assert made.values[0] == pytest.approx(16 / 1.25)
    step(made, 0)
    step(made, 0)
    assert made.values[0] == pytest.approx(16 / 1.25 / 1.5)


def test_who_asks_for_averages_inside_the_period_has_the_decay_applied():
    """As the original's APPLY on servers: catch-up, then the average; the next decay is for the batches since."""
    spec = ParameterSpec("w", 1, decay_rate=1.0, num_batches_regularization=4)
    shard = DenseShard(
        [spec], partition.whole([spec]), Optimization("momentum", 0.1, average_window=1.0), per_parameter=True
    )
    shard.values[:] = 1.0
    for _ in range(3):
        shard.step(np.zeros(1, np.float32), 1)
    assert shard.averages() == pytest.approx([1.0])
    assert shard.values == pytest.approx([1 / 1.3])
    shard.step(np.zeros(1, np.float32), 1)
    assert shard.values == pytest.approx([1 / 1.3 / 1.1])


def test_one_optimiser_for_all_decays_within_the_step_in_every_batch():
    made = build(ParameterSpec("w", 1, decay_rate=0.5, num_batches_regularization=3), values=16.0, per_parameter=False)
    step(made, 0)
    assert made.values[0] == 12


# ----- Averages -----


def average_by_hand(values, window, limit, passes):
    """The average after each batch: a list of values in the window, and that of the window before.

    Args: values: of every batch.  passes: the numbers of batches after which a pass ends.
    """
    shortest, longest = min(10000, limit if limit is not None else 10**9), limit if limit is not None else 10**9
    now, before, averages, last_pass = [], [], [], 0
    for number, value in enumerate(values, 1):
        now.append(value)
        if len(now) >= shortest and len(now) >= min(longest, int(number * window)):
            now, before = [], now
        averages.append(np.mean(now + before))
        if number in passes:
            if limit is None:
                longest, last_pass = number - last_pass, number
            shortest = min(shortest, number)
    return averages


@each(
    ("window", "limit", "passes"),
    [(0.5, None, ()), (0.5, None, (8, 16, 24)), (0.25, None, (5, 15)), (1.0, 3, ()), (0.5, 4, (10,)), (1e-9, 1, ())],
)
def test_the_average_covers_the_window_and_the_one_before(window, limit, passes):
    random = np.random.default_rng(4)
    made = build(
        ParameterSpec("w", 3), values=1.0, per_parameter=False, average_window=window, max_average_window=limit
    )
    seen, averages = [], []
    for number in range(1, 41):
        made.step(random.standard_normal(3).astype(np.float32), 1)
        seen.append(made.values.copy())
        made.apply_average()
        averages.append(made.values.copy())
        made.restore()
        assert made.values.tobytes() == seen[-1].tobytes(), "training goes on with the values themselves"
        if number in passes:
            made.finish_pass()
    columns = [average_by_hand([float(v[i]) for v in seen], window, limit, passes) for i in range(3)]
    np.testing.assert_allclose(np.array(averages), np.array(columns).T, rtol=1e-5, atol=1e-5)


def test_sums_move_on_for_precision_without_changing_the_average(monkeypatch):
    monkeypatch.setattr(averaging, "FOLD_PERIOD", 2)
    made = build(ParameterSpec("w", 1), per_parameter=False, average_window=1.0)
    for _ in range(3):
        step(made, -2)
    assert [float(made.state[name][0]) for name in averaging.SUMS] == [3, 3, 0]
    made.apply_average()
    assert made.values[0] == 2


def test_before_the_first_batch_there_is_no_average():
    made = build(ParameterSpec("w", 1), values=3.0, average_window=1.0)
    made.apply_average()
    assert made.values[0] == 3
    made.restore()
    assert made.values[0] == 3


def test_a_row_that_no_batch_touches_counts_in_every_step():
    parameter = ParameterSpec("w", 4, sparse_update=True, row_width=2)
    made = build(parameter, values=[1, 1, 8, 8], average_window=1.0)
    made.step(np.array([2, 2, 0, 0], np.float32), 1, {0: np.array([0])})  # row 0: 0
    made.step(np.zeros(4, np.float32), 1, {0: np.arange(0)})
    made.step(np.array([2, 2, 0, 0], np.float32), 1, {0: np.array([0])})  # row 0: -1, also for the batch it missed
    made.apply_average()
    assert made.values.tolist() == pytest.approx([-2 / 3, -2 / 3, 8, 8])
    made.restore()
    assert made.values.tolist() == [-1, -1, 8, 8]


def test_rows_enter_the_sums_before_a_window_ends():
    parameter = ParameterSpec("w", 4, sparse_update=True, row_width=2)
    made = build(parameter, values=[1, 1, 8, 8], average_window=1.0, max_average_window=2)
    for _ in range(5):
        made.step(np.zeros(4, np.float32), 1, {0: np.arange(0)})
    made.apply_average()
    assert made.values.tolist() == pytest.approx([1, 1, 8, 8])


def test_without_a_limit_the_longest_window_is_the_last_pass():
    counters = averaging.Averaging.of(Optimization(average_window=0.5))
    for number, passes in itertools.product(range(2), (7, 3)):
        for _ in range(passes):
            counters.start_step()
        counters.finish_pass()
        assert counters.longest == passes, number
    assert counters.shortest == 7
