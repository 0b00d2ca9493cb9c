"""The session that `paddle train` and paddle.v2 stand on, used as a notebook uses it: a batch at a time."""

import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from paddle_base.runtime.interrupts import defer_interrupt
from trainer.arrays.arguments import Argument, Sparse, join_arguments
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.config.scripts.python2 import use_directories
from trainer.flags import parse_flags
from trainer.session import make_session
from trainer.training.assembly import Assembly

CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('data.list', 'data.list', module='session_provider', obj='process')
settings(batch_size=6, learning_rate=0.01, learning_method=AdamOptimizer(), model_average=ModelAverage(0.5))
x = data_layer('x', 4)
hidden = batch_norm_layer(fc_layer(x, 5, act=LinearActivation()), act=TanhActivation())
y = data_layer('y', 2)
out = fc_layer(dropout_layer(hidden, 0.3), 2, act=SoftmaxActivation(), name='out')
outputs(classification_cost(input=out, label=y))
auc_evaluator(input=out, label=y, name='auc')
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *
@provider(input_types={'x': dense_vector(4), 'y': integer_value(2)}, should_shuffle=False)
def process(settings, file):
    for number in range(15):
        yield {'x': [number % 3, number % 5, number % 7, 1], 'y': number % 2}
"""


def batch(first, stop):
    numbers = range(first, stop)
    x = np.array([[n % 3, n % 5, n % 7, 1] for n in numbers], np.float32)
    return {"x": Argument(value=x), "y": Argument(ids=np.array([n % 2 for n in numbers]))}


BATCHES = [batch(0, 6), batch(6, 12), batch(12, 15)]


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "session_provider.py").write_text(PROVIDER)
    (tmp_path / "data.list").write_text("data\n")
    monkeypatch.chdir(tmp_path)
    yield parse_config("config.py")
    use_directories(forget=True)


def open_session(config, **options):
    return make_session(config.model_config, config.opt_config, **options)


def values(session):
    return {one.name: one.value.copy() for one in session.table}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def train_pass(session):
    results = [session.step(one) for one in BATCHES]
    session.finish_pass()
    return results


@pytest.mark.parametrize("threads", [1, 2])
def test_a_session_trains_and_tests_with_the_bits_of_paddle_train(config, capsys, threads):
    flags = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--seed=1", f"--trainer_count={threads}"]
    assembly = Assembly(parse_flags(flags))
    try:
        assembly.training().run()
    finally:
        assembly.end()
    told = capsys.readouterr().err
    session = open_session(config, seed=1, threads=threads)
    for number in range(2):
        results = train_pass(session)
        cost = sum(one.average_cost() * one.samples for one in results) / 15
        assert f"Pass={number} Batch=3 samples=15 AvgCost={cost:g} " in told
        tested = session.test(BATCHES)
        assert f"Test samples=15 cost={tested.average_cost():g} Eval: {tested.text()}" in told
        with session.updater.averaged():  # `paddle train` saves the averages
            for name, value in values(session).items():
                saved = np.frombuffer(Path(f"out/pass-{number:05d}/{name}").read_bytes()[16:], np.float32)
                np.testing.assert_array_equal(saved, value, err_msg=name)
    session.close()


def test_metrics_are_numbers_of_full_precision_by_the_names_of_their_evaluators(config):
    session = open_session(config)
    metrics = session.test(BATCHES).metrics()
    assert list(metrics) == ["classification_error_evaluator", "auc"]
    assert all(isinstance(one, float) for one in metrics.values())


def test_inference_gives_arrays_that_the_next_batch_does_not_change(config):
    session, several = open_session(config), open_session(config, threads=2)
    first = session.infer(BATCHES[0], ["out", "x"])
    kept = first["out"].value.copy()
    second = session.infer(BATCHES[1], ["out"])["out"].value
    np.testing.assert_array_equal(first["out"].value, kept)
    np.testing.assert_array_equal(first["x"].value, BATCHES[0]["x"].value)
    assert not np.array_equal(second, kept)
    np.testing.assert_allclose(several.infer(BATCHES[0], ["out"])["out"].value, kept, rtol=1e-6)
    several.close()
    assert list(session.infer(BATCHES[0])) == list(session.network.output_names)
    with pytest.raises(ConfigError, match="does not compute a layer nowhere"):
        session.infer(BATCHES[0], ["nowhere"])


def test_a_restored_session_continues_bit_for_bit(config, tmp_path):
    session = open_session(config)
    session.step(BATCHES[0])
    session.save(tmp_path / "saved", {"batch": 1})
    for one in BATCHES[1:]:
        session.step(one)
    other = open_session(config, seed=7)
    assert other.restore(tmp_path / "saved") == {"batch": 1}
    for one in BATCHES[1:]:
        other.step(one)
    assert_equal(values(other), values(session))
    assert other.stream.state == session.stream.state
    with pytest.raises(MissingInputError, match=f"^{re.escape(str(tmp_path))}/nothing: there is no such directory"):
        other.restore(tmp_path / "nothing")


def test_a_checkpoint_refuses_names_that_would_leave_its_folder(config, tmp_path):
    # programs of paddle.v2 may have such names, because their parameters are members of a tar file
    bias = next(one for one in config.model_config.parameters if one.name == "_out.wbias")
    out = next(one for one in config.model_config.layers if one.name == "out")
    for bias.name in ("../bias", "done"):
        out.bias_parameter_name = bias.name
        table = ParameterTable(config.model_config.parameters, free_names=True)
        with pytest.raises(ConfigError, match=f"parameter '{bias.name}' cannot be saved"):
            open_session(config, table=table).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists() and not (tmp_path / "bias").exists()


def test_passes_begin_and_end_with_the_updater(config, monkeypatch):
    session, told = open_session(config), []
    for name in ("connect", "start_pass", "step", "finish_pass"):
        monkeypatch.setattr(session.updater, name, lambda *_, name=name: told.append(name))
    session.start_pass()
    session.step(BATCHES[0])
    session.finish_pass()
    assert told == ["connect", "start_pass", "step", "finish_pass"]


@pytest.mark.usefixtures("default_interrupts")
def test_ctrl_c_in_a_step_comes_after_it_and_the_session_goes_on(config, monkeypatch):
    plain, interrupted = open_session(config), open_session(config)
    for one in BATCHES:
        plain.step(one)
    backward = interrupted.network.backward
    monkeypatch.setattr(
        interrupted.network, "backward", lambda *args: (signal.raise_signal(signal.SIGINT), backward(*args))
    )
    for one in BATCHES:
        with pytest.raises(KeyboardInterrupt):
            interrupted.step(one)
    assert_equal(values(interrupted), values(plain))
    assert not interrupted.is_open


@pytest.mark.usefixtures("default_interrupts")
@pytest.mark.parametrize("name", ["apply_average", "restore", "finish_pass"])
def test_ctrl_c_in_the_exchange_of_averages_or_at_the_end_of_a_pass_leaves_whole_values(config, monkeypatch, name):
    plain, interrupted = open_session(config), open_session(config)
    shard = interrupted.updater._shard
    whole = getattr(shard, name)
    monkeypatch.setattr(shard, name, lambda *args: (signal.raise_signal(signal.SIGINT), whole(*args)))
    for session in (plain, interrupted):
        session.step(BATCHES[0])
    plain.test(BATCHES)
    plain.finish_pass()
    with pytest.raises(KeyboardInterrupt):
        interrupted.test(BATCHES)
        interrupted.finish_pass()
    monkeypatch.undo()
    if name != "finish_pass":
        interrupted.finish_pass()
    assert_equal(values(interrupted), values(plain))


@pytest.mark.usefixtures("default_interrupts")
def test_a_second_ctrl_c_ends_a_step_at_once_and_other_handlers_stay():
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), defer_interrupt():
        signal.raise_signal(signal.SIGINT)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("second")
    assert done == ["first"]
    assert signal.getsignal(signal.SIGINT) is before
    own = []
    signal.signal(signal.SIGINT, lambda *_: own.append(1))
    try:
        with defer_interrupt():
            signal.raise_signal(signal.SIGINT)
            assert own == [1]
    finally:
        signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=lambda: defer_interrupt().__enter__() or own.append(2))
    thread.start()
    thread.join()
    assert own == [1, 2]  # only the main thread may set a handler


def test_what_cannot_go_on_says_why(config):
    session = make_session(config.model_config)
    with pytest.raises(ConfigError, match="without the settings of an optimiser"):
        session.step(BATCHES[0])
    with pytest.raises(DataError, match="no sample"):
        session.test([])
    session = open_session(config)
    session.table["_out.w0"].value[:] = np.nan
    with pytest.raises(DataError, match=r"is nan in this batch: .*layer out"):
        session.step(BATCHES[0])


def test_joined_arguments_are_the_parts_in_order():
    whole = Argument(
        value=np.arange(10, dtype=np.float32).reshape(5, 2),
        ids=np.arange(5),
        starts=np.array([0, 2, 2, 5]),
        sub_starts=np.array([0, 1, 2, 4, 5]),
    )
    joined = join_arguments([whole.cut(0, 1), whole.cut(1, 3)])
    for name in ("value", "ids", "starts", "sub_starts"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name), err_msg=name)
    rows = Argument(sparse=Sparse(3, np.array([0, 1, 2]), np.array([2, 0])))
    np.testing.assert_array_equal(join_arguments([rows]).value, [[0, 0, 1], [1, 0, 0]])
