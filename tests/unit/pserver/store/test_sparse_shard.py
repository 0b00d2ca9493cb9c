"""Steps with the gradients of some rows: every row takes every step, whether it is lazy meanwhile or not."""

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim.methods import METHODS
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, sparse_shard
from pserver.store.shard import DenseShard
from pserver.store.sparse_shard import SparseShard

WIDTH, ROWS = 3, 40
RATE = 0.3


def table(name="emb", rows=ROWS, **settings):
    return ParameterSpec(name, rows * WIDTH, sparse_update=True, row_width=WIDTH, **settings)


def make(method="momentum", *, table_settings=(), **settings):
    made = SparseShard([table(**dict(table_settings))], Optimization(method, RATE, **settings))
    made.values[:] = np.random.default_rng(1).standard_normal(made.size).astype(np.float32)
    return made


def batches(count, trainers=2, seed=2):
    """For each batch and trainer some rows and their gradients."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield [
            [(rows, rng.standard_normal((len(rows), WIDTH)).astype(np.float32))]
            for rows in (
                np.sort(rng.choice(ROWS, rng.integers(0, 8), replace=False)).astype(np.uint32) for _ in range(trainers)
            )
        ]


def all_rows(made):
    return [np.arange(group.rows, dtype=np.uint32) for group in made.groups]


def dense(parts):
    total = []
    for one in parts:
        gradient = np.zeros((ROWS, WIDTH), np.float32)
        gradient[one[0][0]] = one[0][1]
        total.append(gradient.reshape(-1))
    return total


@each("mu", [0.0, 0.6])
@each("clip", [0.0, 0.5])
@each("method", sorted(set(METHODS) - {"sparse_momentum"}))
def test_a_table_trains_as_a_dense_parameter(method, clip, mu):
    made = make(method, table_settings={"momentum": mu, "gradient_clipping_threshold": clip})
    spec = ParameterSpec("emb", ROWS * WIDTH, momentum=mu, gradient_clipping_threshold=clip)
    other = DenseShard([spec], partition.whole([spec]), made.optimization, per_parameter=True)
    other.values[:] = made.values
    for parts in batches(30):
        made.step_sparse(parts, 4)
        other.step(dense(parts), 4)
    is_exact = method in ("momentum", "torch_momentum", "adagrad") and not mu
    result = made.take(all_rows(made))
    if is_exact or not made._tables[0].lazy:
        assert result.tobytes() == other.values.tobytes()
    np.testing.assert_allclose(result, other.values, rtol=2e-5, atol=2e-6)
    made.finish_pass()
    np.testing.assert_allclose(made.values, other.values, rtol=2e-5, atol=2e-6)


def test_sparse_momentum_is_momentum_of_all_rows():
    made = make("sparse_momentum", table_settings={"momentum": 0.9})
    spec = ParameterSpec("emb", ROWS * WIDTH, momentum=0.9)
    other = DenseShard([spec], partition.whole([spec]), Optimization("momentum", RATE), per_parameter=True)
    other.values[:] = made.values
    for parts in batches(60):
        made.step_sparse(parts, 4)
        other.step(dense(parts), 4)
    np.testing.assert_allclose(made.take(all_rows(made)), other.values, rtol=2e-5, atol=2e-5)


DECAYS = [{"decay_rate": 0.05}, {"decay_rate_l1": 0.02}, {"decay_rate": 0.05, "decay_rate_l1": 0.02}]


def decay_once(w, rate, settings):
    w = np.sign(w) * np.maximum(np.abs(w) - rate * settings.get("decay_rate_l1", 0), 0)
    return w / (1 + rate * settings.get("decay_rate", 0))


@pytest.mark.parametrize("settings", DECAYS, ids=["l2", "l1", "both"])
@pytest.mark.parametrize(
    "schedule", [{}, {"learning_rate_schedule": "poly", "learning_rate_decay_a": 0.1, "learning_rate_decay_b": 0.5}]
)
def test_rows_are_pulled_to_zero_in_every_step_also_when_nothing_touches_them(settings, schedule):
    made = make(table_settings=settings, **schedule)
    expected = made.values.reshape(ROWS, WIDTH).astype(np.float64)
    looks = []
    for number, parts in enumerate(batches(50), 1):
        made.step_sparse(parts, 2)
        rate = RATE * (1 + 0.1 * 2 * number) ** -0.5 if schedule else RATE
        for one in parts:
            expected[one[0][0]] -= rate * one[0][1].astype(np.float64)
        expected = decay_once(expected, rate, settings)
        some = np.arange(number % 7, ROWS, 7, dtype=np.uint32)
        looks.append((made.take([some]), expected[some].reshape(-1)))
        if number == 25:
            made.finish_pass()
    for got, wanted in looks:
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    made.catch_up()
    np.testing.assert_allclose(made.values, expected.reshape(-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", DECAYS, ids=["l2", "l1", "both"])
def test_rows_with_rates_of_their_own_are_pulled_by_these(settings):
    made = make("adagrad", table_settings=settings)
    expected = made.values.reshape(ROWS, WIDTH).astype(np.float64)
    squares = np.zeros_like(expected)
    for parts in batches(40):
        made.step_sparse(parts, 2)
        g = np.sum([one.reshape(ROWS, WIDTH).astype(np.float64) for one in dense(parts)], axis=0)
        squares += g**2
        rates = RATE / np.sqrt(squares + made.optimization.ada_epsilon)
        expected = decay_once(expected - rates * g, rates, settings)
    np.testing.assert_allclose(made.take(all_rows(made)), expected.reshape(-1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("settings", DECAYS, ids=["l2", "l1", "both"])
@pytest.mark.parametrize("method", ["momentum", "adagrad", "rmsprop", "adam"])
def test_lazy_rows_change_nothing_but_the_work(monkeypatch, method, settings):
    lazy = make(method, table_settings=settings)
    monkeypatch.setattr(sparse_shard, "find_lazy_rows", lambda *args, **kwargs: None)
    eager = make(method, table_settings=settings)
    assert [table.lazy for table in eager._tables] == [None]
    for parts in batches(50):
        lazy.step_sparse(parts, 2)
        eager.step_sparse(parts, 2)
    np.testing.assert_allclose(lazy.take(all_rows(lazy)), eager.values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["momentum", "adagrad", "decayed_adagrad"])
def test_averages_count_the_steps_that_a_lazy_row_missed(method):
    made = make(method, average_window=0.5, max_average_window=7)
    spec = ParameterSpec("emb", ROWS * WIDTH)
    other = DenseShard([spec], partition.whole([spec]), made.optimization, per_parameter=True)
    other.values[:] = made.values
    for parts in batches(30):
        made.step_sparse(parts, 4)
        other.step(dense(parts), 4)
    made.catch_up()
    np.testing.assert_allclose(made.averages(), other.averages(), rtol=1e-5, atol=1e-6)


def test_averages_of_asynchronous_rows_are_of_the_values_before_a_decay_of_all_rows():
    """Decay after every other batch pulls lazy rows: their values until then are in the sums, not these."""
    spec = table(decay_rate=1.0, num_batches_regularization=2)
    made = SparseShard([spec], Optimization("momentum", RATE, average_window=1.0), is_asynchronous=True)
    made.values[:] = 1.0
    values, total = np.ones((ROWS, WIDTH)), np.zeros((ROWS, WIDTH))
    for batch, row in enumerate([0, 1, 0, 0, 2], start=1):
        made.step_sparse([[(np.array([row], np.uint32), np.full((1, WIDTH), 0.5, np.float32))]], 1)
        values[row] -= RATE * 0.5
        total += values
        if batch % 2 == 0:
            values /= 1 + 2 * RATE
    np.testing.assert_allclose(made.averages(), total.reshape(-1) / 5, rtol=1e-5)


def test_gradients_are_added_in_the_order_of_the_trainers():
    made = make()
    row = np.array([5], np.uint32)
    values = [np.full((1, WIDTH), value, np.float32) for value in (1e8, 1.0, -1e8)]
    before = made.values.copy()
    made.step_sparse([[(row, one)] for one in values], 3)  # (1e8 + 1) - 1e8 is 0 in float32
    assert made.values.tobytes() == before.tobytes()
    made.step_sparse([[(row, values[0])], [(row, values[2])], [(row, values[1])]], 3)
    assert made.values[5 * WIDTH] == before[5 * WIDTH] - np.float32(RATE)


def test_clipping_looks_at_the_sum():
    made = make(table_settings={"gradient_clipping_threshold": 1.0})
    row = np.array([5], np.uint32)
    before = made.values.copy()
    made.step_sparse([[(row, np.full((1, WIDTH), 0.8, np.float32))]] * 2, 2)
    np.testing.assert_allclose((before - made.values).reshape(ROWS, WIDTH)[5], RATE, rtol=1e-6)


def test_every_table_has_settings_of_its_own_and_may_have_no_row_here():
    tables = [table("a", 4), table("none", 0), table("b", 6, learning_rate=10.0)]
    made = SparseShard(tables, Optimization("momentum", 1.0))
    rows, nothing = np.array([1], np.uint32), np.zeros(0, np.uint32)
    one, none = np.ones((1, WIDTH), np.float32), np.zeros((0, WIDTH), np.float32)
    made.step_sparse([[(rows, one), (nothing, none), (rows, one)]], 1)
    assert made.take([rows, nothing, rows]).tolist() == [-1.0] * WIDTH + [-10.0] * WIDTH


def test_asynchronous_rows_wait_for_gradients_of_their_own():
    settings = {"decay_rate": 1.0}
    made = SparseShard([table(**settings)], Optimization("momentum", 1.0), is_asynchronous=True)
    made.values[:] = 1.0
    for row in (0, 0, 1):
        made.step_sparse([[(np.array([row], np.uint32), np.zeros((1, WIDTH), np.float32))]], 1)
    made.finish_pass()
    assert made.values.reshape(ROWS, WIDTH)[:3, 0].tolist() == [0.25, 0.5, 1.0]


def test_momentum_and_decay_do_not_go_together():
    with pytest.raises(ConfigError, match=r"emb has momentum 0\.5 and L2 with sparse_update"):
        make(table_settings={"momentum": 0.5, "decay_rate": 0.1})


def test_a_dense_parameter_is_no_table():
    with pytest.raises(BugError, match="w is not a table"):
        SparseShard([ParameterSpec("w", 10)], Optimization())


def test_the_bits_do_not_depend_on_how_rows_are_taken_together(monkeypatch):
    results = []
    for block in (sparse_shard.BLOCK, 6):
        monkeypatch.setattr(sparse_shard, "BLOCK", block)
        made = make("rmsprop", table_settings={"decay_rate": 0.0})
        for parts in batches(20):
            made.step_sparse(parts, 2)
        results.append(made.take(all_rows(made)).tobytes())
    assert results[0] == results[1]
