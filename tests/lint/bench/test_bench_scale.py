"""bench/scale.py: the line that it fits, what it computes from the line, and the jobs that it chooses."""

from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def model(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import cost_model

    return cost_model


@pytest.fixture
def scale(model):
    import scale

    return scale


def test_a_fit_without_error_returns_the_costs_of_the_measurements(model):
    jobs = [model.Job(t, s, p) for t in (1, 4, 64) for s in (1, 4) for p in (10_000, 1_000_000)]
    server, trainer = np.array([2e-5, 1e-4, 5e-10, 1e-10]), np.array([5e-5, 2e-4, 7e-10])
    fits = [
        (server, model.fit(rows, rows @ server), rows)
        for server, rows in (
            (server, np.array([one.server_factors() for one in jobs])),
            (trainer, np.array([one.trainer_factors() for one in jobs])),
        )
    ]
    for costs, found, rows in fits:
        np.testing.assert_allclose(found.costs, costs, rtol=1e-6)
        np.testing.assert_allclose(found.residuals, 0, atol=1e-9)
        assert found.at(rows[3]) == pytest.approx(rows[3] @ costs)


def test_a_fitted_line_is_that_of_weighted_regression(model):
    x, y = np.array([1.0, 2.0, 3.0, 5.0]), np.array([3.0, 4.0, 7.0, 10.0])
    weight = 1 / y**2  # a relative residual is (a + b x - y) / y
    mean_x, mean_y = (weight @ x) / weight.sum(), (weight @ y) / weight.sum()
    slope = (weight @ ((x - mean_x) * (y - mean_y))) / (weight @ (x - mean_x) ** 2)
    start = mean_y - slope * mean_x
    found = model.fit([[1.0, one] for one in x], y)
    np.testing.assert_allclose(found.costs, [start, slope], rtol=1e-12)
    np.testing.assert_allclose(found.residuals, (start + slope * x) / y - 1, atol=1e-12)


def test_a_cost_that_would_be_negative_is_zero_and_the_others_fit_best_without_it(model):
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 4.0])  # the line through them begins below 0
    found = model.fit([[1.0, one] for one in x], y)
    # the best b of b x: the sum of x/y over the sum of the squares of x/y
    np.testing.assert_allclose(found.costs, [0, (x / y).sum() / ((x / y) ** 2).sum()], rtol=1e-12)


def test_too_few_measurements_are_refused(model):
    with pytest.raises(ValueError, match="2 measurements do not determine 3 costs"):
        model.fit([[1, 2, 3], [1, 3, 5]], [1, 2])


def test_a_predicted_round_is_bounded_by_its_busiest_part(model):
    server = model.Fit(np.array([1e-3, 1e-4, 1e-9, 2e-9]), np.zeros(1))
    trainer = model.Fit(np.array([2e-3, 3e-4, 1e-9]), np.zeros(1))
    job = model.Job(trainers=20, servers=10, parameters=1_000_000)  # 0.4 MB from each trainer to each server
    serving = 1e-3 + 20 * 1e-4 + 20 * 4e5 * 1e-9 + 4e5 * 2e-9
    training = 2e-3 + 10 * 3e-4 + 4e6 * 1e-9
    found = model.find_bounds(job, model.Cluster(machines=10, processors=2, network=1e9), server, trainer)
    # each machine has a server and two trainers, and its own server takes a tenth of what its trainers send
    sent = 2 * 0.9 * 4e6 + 18 * 4e5
    expected = {
        "server": serving,
        "trainer": training,
        "processors": (serving + 2 * training) / 2,
        "network": sent / 1e9,
    }
    assert dict(found) == pytest.approx(expected)
    assert model.find_limit(found) == ("processors", pytest.approx((serving + 2 * training) / 2))


def test_a_job_on_one_machine_uses_no_network(model):
    nothing = model.Fit(np.zeros(4), np.zeros(1)), model.Fit(np.zeros(3), np.zeros(1))
    assert model.find_bounds(model.Job(8, 2, 1000), model.Cluster(1, 2), *nothing)["network"] == 0


def test_jobs_are_chosen_by_memory_time_and_heartbeats(scale):
    jobs = scale.list_jobs(scale.WHOLE)
    assert len(set(jobs)) == 100
    # a run that ends early has still seen every number of trainers, of servers and of parameters
    assert all(
        set(column) == set(values) for column, values in zip(zip(*jobs[:20], strict=True), scale.WHOLE, strict=True)
    )

    def chosen(**limits):
        whole = {"memory": 1e15, "seconds": 1e9, "processors": 100}
        return list(scale.choose(jobs, scale.Limits(**(whole | limits)), repeats=1))

    assert chosen() == jobs
    assert chosen(memory=1) == [] and chosen(seconds=0) == []
    few = chosen(memory=24 * 2**30)
    assert (256, 16, 1_000_000) in few and (256, 16, 100_000_000) not in few
    assert max(one.messages for one in chosen(processors=2)) == 64 * 16  # 256 x 16 heartbeats a second are too many
    assert chosen(seconds=20) == [one for one in jobs if scale.estimate_seconds(one, 1) <= 20]


def test_a_small_job_is_measured_and_fitted(scale):
    one = scale.measure(scale.Job(2, 1, 1_000), repeats=1)
    assert one.rate > 0 and one.server_s > 0 and one.trainer_s > 0
    server, trainer = scale.fit_both([one] * 4)
    assert server.at(one.job.server_factors()) == pytest.approx(one.server_s)
    assert trainer.at(one.job.trainer_factors()) == pytest.approx(one.trainer_s)
