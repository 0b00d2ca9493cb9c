"""The state of a shard: a run that is cut anywhere ends in the same bits as one that is not."""

import json

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim import adagrad as adagrad_module
from pserver.optim import averaging, sgd
from pserver.optim.methods import METHODS
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.store.snapshot import Part, put_back, take
from pserver.store.sparse_shard import SparseShard

WIDTH, ROWS = 3, 6


def through_json(part):
    """What another process would read: counters as JSON, and arrays that are not the shard's."""
    counters = json.loads(json.dumps(part.counters, allow_nan=False))
    return Part(counters, {name: array.copy() for name, array in part.arrays.items()})


def build(parameters, optimization, per_parameter=True):
    return DenseShard(parameters, partition.whole(parameters), optimization, per_parameter=per_parameter)


def all_bits(shard):
    part = take(shard)
    return part.counters, {name: array.tobytes() for name, array in part.arrays.items()}


@st.composite
def jobs(draw):
    method = draw(st.sampled_from(sorted(METHODS)))
    allows_sparse = METHODS[method].allows_sparse
    mu = draw(st.sampled_from([0.0, 0.9]))
    decay = draw(
        st.sampled_from([{}, {"decay_rate": 0.01}, {"decay_rate_l1": 0.02}, {"num_batches_regularization": 3}])
    )
    if "num_batches_regularization" in decay:
        decay = {**decay, "decay_rate": 0.05}
    plain = {} if decay.keys() & {"decay_rate_l1", "num_batches_regularization"} else {"momentum": mu}
    parameters = [
        ParameterSpec("w", 10, **decay, **plain, gradient_clipping_threshold=draw(st.sampled_from([0.0, 1.0])))
    ]
    if allows_sparse:
        row_decay = {} if mu or method == "sparse_momentum" else decay
        row_mu = 0.9 if method == "sparse_momentum" else mu
        parameters.insert(
            0, ParameterSpec("table", ROWS * WIDTH, sparse_update=True, row_width=WIDTH, momentum=row_mu, **row_decay)
        )
    schedule = draw(
        st.sampled_from(
            [
                {},
                {"learning_rate_schedule": "poly", "learning_rate_decay_a": 0.1, "learning_rate_decay_b": 0.7},
                {"learning_rate_schedule": "pass_manual", "learning_rate_args": "0:1.0,1:0.5,2:0.25"},
            ]
        )
    )
    average = draw(st.sampled_from([{}, {"average_window": 0.5, "max_average_window": 3}, {"average_window": 0.3}]))
    optimization = Optimization(method, 0.05, **schedule, **average)
    steps = draw(st.lists(st.sampled_from(["step", "step", "step", "average", "pass"]), min_size=3, max_size=14))
    return parameters, optimization, steps, draw(st.integers(0, 2**31))


def run(parameters, optimization, events, seed, cut):
    random = np.random.default_rng(seed)
    shard = build(parameters, optimization)
    shard.values[:] = random.standard_normal(shard.size).astype(np.float32)
    has_table = parameters[0].name == "table"
    for number, event in enumerate(events):
        if number == cut:
            fresh = build(parameters, optimization)
            put_back(fresh, through_json(take(shard)))
            shard = fresh
        if event == "step":
            gradient = random.standard_normal(shard.size).astype(np.float32)
            touched = {}
            if has_table:
                touched = {0: np.flatnonzero(random.random(ROWS) < 0.4)}
                mask = np.zeros((ROWS, WIDTH), np.float32)
                mask[touched[0]] = 1
                gradient[: ROWS * WIDTH] *= mask.reshape(-1)
            shard.step(gradient, int(random.integers(1, 5)), touched)
        elif event == "average":
            shard.apply_average()
            shard.restore()
        else:
            shard.finish_pass()
    return all_bits(shard)


@settings(max_examples=40, deadline=None)
@given(jobs())
def test_a_run_that_is_cut_at_any_step_ends_in_the_same_bits(job):
    parameters, optimization, events, seed = job
    with pytest.MonkeyPatch.context() as patch:  # what happens seldom happens here
        patch.setattr(averaging, "LEAST_WINDOW", 2)
        patch.setattr(averaging, "FOLD_PERIOD", 3)
        patch.setattr(adagrad_module, "FOLD_PERIOD", 4)
        patch.setattr(sgd, "ALPHA_LIMIT", np.float32(1.3))
        whole = run(*job, cut=None)
        for cut in range(len(events)):
            assert run(parameters, optimization, events, seed, cut) == whole


def test_lazy_rows_stay_lazy():
    """A large table of a dense parameter: rows without gradient are left out and made up for later."""
    parameters = [ParameterSpec("table", 1 << 15, row_width=64)]
    random = np.random.default_rng(3)
    shards = [build(parameters, Optimization("rmsprop", 0.1))]
    for number in range(12):
        if number == 5:
            shards.append(build(parameters, Optimization("rmsprop", 0.1)))
            put_back(shards[1], through_json(take(shards[0])))
        rows = np.sort(random.choice(512, 3, replace=False))
        gradient = np.zeros((512, 64), np.float32)
        gradient[rows] = random.standard_normal((3, 64))
        touched = {} if number == 8 else {0: rows}
        for one in shards:
            one.step(gradient.reshape(-1), 1, touched)
    assert shards[0].groups[0].rows == 512
    assert all_bits(shards[0]) == all_bits(shards[1])


@each("method", ["momentum", "adagrad", "decayed_adagrad", "adam"])
@each("settings", [{"decay_rate": 0.1}, {"decay_rate_l1": 0.1}, {"momentum": 0.9}])
def test_rows_that_a_server_is_asked_for_first_are_brought_up_as_before(method, settings):
    """They are pulled to zero at the rate of the step before."""
    tables = [ParameterSpec("table", 40, sparse_update=True, row_width=4, **settings)]
    optimization = Optimization(method, 0.5, learning_rate_schedule="poly", learning_rate_decay_a=0.1,
                                learning_rate_decay_b=0.5)  # fmt: skip
    random = np.random.default_rng(2)
    shard = SparseShard(tables, optimization)
    shard.values[:] = random.standard_normal(40).astype(np.float32)
    for step in range(6):
        rows = np.array([step % 3, 7], np.uint32)
        shard.step_sparse([[(rows, random.standard_normal((2, 4)).astype(np.float32))]], 2)
        other = SparseShard(tables, optimization)
        put_back(other, through_json(take(shard)))
        every = [np.arange(10, dtype=np.uint32)]
        assert shard.take(every).tobytes() == other.take(every).tobytes()
        assert all_bits(shard) == all_bits(other)
        shard = other


def test_taking_the_state_changes_nothing_and_copies_nothing():
    shard = build([ParameterSpec("w", 4, num_batches_regularization=3, decay_rate=0.5)], Optimization("adam", 0.1))
    shard.step(np.ones(4, np.float32), 1)
    before = through_json(take(shard))
    part = take(shard)
    assert part.counters == before.counters
    assert np.shares_memory(part.arrays["values"], shard.values)
    assert np.shares_memory(part.arrays["state.first_moment"], shard.state["first_moment"])
    assert shard.groups[0].decayed == 0


def test_a_schedule_says_only_once_that_the_rate_changes(capsys):
    optimization = Optimization("momentum", 0.1, learning_rate_schedule="manual", learning_rate_args="2:1,9:0.5")
    shard, fresh = (build([ParameterSpec("w", 2)], optimization) for _ in range(2))
    for _ in range(3):
        shard.step(np.ones(2, np.float32), 1)
    assert "learning_rate changes to 0.05" in capsys.readouterr().err
    put_back(fresh, take(shard))
    fresh.step(np.ones(2, np.float32), 1)
    assert "changes" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "optimization", "message"),
    [
        ([ParameterSpec("w", 4)], Optimization("momentum"), r"learning_method 'adam', but the config has 'momentum'"),
        ([ParameterSpec("w", 5)], Optimization("adam"), r"its elements: 4; elements of this job: 5"),
        (
            [ParameterSpec("v", 3), ParameterSpec("w", 1, learning_rate=2)],
            Optimization("adam"),
            r"its parameter groups",
        ),
        (
            [ParameterSpec("w", 4)],
            Optimization("adam", average_window=0.5),
            r"its arrays: .*; arrays of this job: .*sum_older",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_with_both_sides(parameters, optimization, message):
    part = take(build([ParameterSpec("w", 4)], Optimization("adam")))
    with pytest.raises(ConfigError, match=message):
        put_back(build(parameters, optimization), part)


def test_settings_that_changed_are_named(capsys):
    part = take(build([ParameterSpec("w", 4)], Optimization("adam", 0.1)))
    put_back(build([ParameterSpec("w", 4)], Optimization("adam", 0.2)), through_json(part))
    assert "learning_rate 0.1 is now 0.2" in capsys.readouterr().err


def test_no_state_is_taken_while_averages_stand_in_the_place_of_values():
    shard = build([ParameterSpec("w", 4)], Optimization("momentum", 0.1, average_window=0.5))
    shard.step(np.ones(4, np.float32), 1)
    shard.apply_average()
    with pytest.raises(BugError, match="while averages replace its values"):
        take(shard)
