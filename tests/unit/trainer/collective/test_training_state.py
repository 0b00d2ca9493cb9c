"""What a trainer among others keeps: after a restore it trains as it did after the commit."""

import numpy as np
import pytest

from paddle_base.runtime.errors import UsageError
from paddle_cluster.elastic.process import operations
from trainer.collective.assembly import DividedAssembly, check_flags
from trainer.flags import parse_flags

CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='state_provider', obj='process')
settings(batch_size=6, learning_rate=0.01, learning_method=AdamOptimizer(), model_average=ModelAverage(0.5))
x = data_layer('x', 4)
hidden = batch_norm_layer(fc_layer(x, 5, act=LinearActivation()), act=TanhActivation())
y = data_layer('y', 2)
outputs(classification_cost(input=fc_layer(hidden, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
@provider(input_types={'x': dense_vector(4), 'y': integer_value(2)})
def process(settings, file):
    for number in range(40):
        yield {'x': [number % 3, number % 5, number % 7, 1], 'y': number % 2}
"""


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A training session of one trainer, in which a test makes the steps."""
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "state_provider.py").write_text(PROVIDER)
    (tmp_path / "train.list").write_text("data\n")
    monkeypatch.chdir(tmp_path)
    for name in ("HOROVOD_RANK", "HOROVOD_GLOO_RENDEZVOUS_ADDR"):
        monkeypatch.delenv(name, raising=False)
    operations.init()
    flags = ["--config=config.py", "--collective", "--save_dir=out", "--commit_period_by_batches=100"]
    assembly = DividedAssembly(parse_flags(flags))
    try:
        yield assembly.training()
    finally:
        assembly.end()
        operations.shutdown()


def step(session, count):
    """Make steps of the pass in hand, and return all values then."""
    state = session._state
    session._source.go_to(state.position.number, state.position.batches, 6)
    for _ in range(count):
        session._run_batch(state, session._next_share())
    return {one.name: one.value.copy() for one in session._parts.session.table}


def test_a_restore_goes_back_to_the_commit_and_the_same_steps_follow(session):
    state = session._state
    state.sync()
    first = {one.name: one.value.copy() for one in session._parts.session.table}
    step(session, 2)
    state.restore()
    assert state.position.batches == 0
    for one in session._parts.session.table:  # also those that follow the batches since the first step
        np.testing.assert_array_equal(one.value, first[one.name])
    step(session, 2)
    state.save()
    wanted = step(session, 3)
    place = state.position.record()
    state.restore()
    assert state.position.batches == 2
    again = step(session, 3)
    assert state.position.record() == place
    for name, values in wanted.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)
    assert session._log.since_start.samples == 5 * 6


def test_passes_of_an_earlier_job_move_when_the_first_batch_is_read(session, tmp_path):
    """They had moved before the provider was called."""
    (tmp_path / "out" / "pass-00003").mkdir(parents=True)
    session._directory.take()
    session._source.go_to(0, 0, 6)
    assert (tmp_path / "out" / "pass-00003").exists()
    session._next_share()
    assert (tmp_path / "out" / "run-1" / "pass-00003").exists()


def test_a_sync_keeps_what_trainer_0_has(session):
    state = session._state
    wanted = step(session, 3)
    state.sync()
    step(session, 2)
    state.restore()
    assert state.position.batches == 3
    for one in session._parts.session.table:
        np.testing.assert_array_equal(one.value, wanted[one.name], err_msg=one.name)


@pytest.mark.parametrize("flag", ["--resume_from=x", "--test_period=5", "--checkpoint_period_seconds=5"])
def test_flags_of_trainers_that_stay_are_refused(flag):
    with pytest.raises(UsageError, match="cannot be used with trainers that come and go"):
        check_flags(parse_flags(["--config=c.py", "--collective", flag]))


def test_commits_are_for_training_among_workers():
    with pytest.raises(UsageError, match="add --collective"):
        parse_flags(["--config=c.py", "--commit_period_by_batches=5"])
