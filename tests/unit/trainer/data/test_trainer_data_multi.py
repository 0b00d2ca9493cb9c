"""MultiData and model_type('multi_nn'): several networks, each with data of its own, trained together."""

import json
from pathlib import Path

import numpy as np
import pytest

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime.errors import ConfigError
from trainer.__main__ import run
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.config.scripts.python2 import use_directories
from trainer.data.loading import open_source
from trainer.data.source import DataStreams
from trainer.network.several import join_networks, list_networks

INPUTS = [{"x": 1, "a": 9}, {"y": 2, "b": 9}]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with two lists: a has the numbers 0 to 4, b pairs for 0 to 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "paddle_base.kernels.flush_denormals", lambda: None
    )  # of the process: later tests look at small numbers
    Path("a").write_text("".join(f"{n} {n}\n" for n in range(5)))
    Path("b").write_text("".join(f"{n} {n} -{n}\n" for n in range(3)))
    for name in "ab":
        Path(f"{name}.list").write_text(f"{name}\n")
    yield tmp_path
    use_directories(forget=True)


def make(ratios=(2, 1), mains=(True, False), *, is_train=True, tracks=False):
    config = DataConfig(type="multi")
    for name, dim, ratio, is_main in zip("ab", (1, 2), ratios, mains, strict=True):
        config.sub_data_configs.add(
            type="simple", files=f"{name}.list", feat_dim=dim, data_ratio=ratio, is_main_data=is_main
        )
    streams = DataStreams(Stream(1), Stream(1))
    source = open_source(
        config, INPUTS, is_train=is_train, streams=streams, shuffles=False, check=lambda: None, is_own=True
    )
    if tracks:
        source.track()
    return source


def read(source, size=3, most=9):
    batches = []
    while len(batches) < most and (batch := source.next_batch(size)) is not None:
        batches.append(([one.ids.tolist() for name, one in batch[0].items() if name in "ab"], batch[1]))
    return batches


def test_each_source_gives_its_share_and_one_that_is_not_main_begins_anew(here):
    source = make()
    for _ in range(2):
        source.start_pass()
        assert read(source) == [([[0, 1], [0]], 3), ([[2, 3], [1]], 3), ([[4], [2]], 2)]
    source = make(ratios=(1, 1))
    source.start_pass()
    assert read(source, 2) == [([[n], [n % 3]], 2) for n in range(5)]


def test_the_end_of_any_main_source_ends_the_pass(here):
    source = make(ratios=(1, 1), mains=(True, True))
    source.start_pass()
    assert len(read(source, 2)) == 3


def test_a_source_that_has_ended_gives_a_test_no_more_samples(here):
    source = make(ratios=(1, 1), is_train=False)
    source.start_pass()
    batches = read(source, 2)
    assert [units for _, units in batches] == [2, 2, 2, 1, 1] and batches[-1][0] == [[4], []]


def test_another_process_goes_on_with_the_same_batches(here):
    whole = make(ratios=(1, 1), tracks=True)
    whole.start_pass()
    wanted = read(whole, 2)
    for count in range(6):
        first, other = make(ratios=(1, 1), tracks=True), make(ratios=(1, 1), tracks=True)
        first.start_pass()
        read(first, 2, most=count)
        other.resume(json.loads(json.dumps(first.position(count))), 2)
        assert read(other, 2) == wanted[count:]


def test_a_batch_may_be_read_ahead_unless_a_source_then_begins_anew(here):
    """A job with MultiData never read ahead: its tables needed two exchanges a batch. Source b begins anew after 3."""
    whole = make(ratios=(1, 1), tracks=True)
    whole.start_pass()
    wanted = read(whole, 2)
    was_ready = []
    for count in range(6):
        first, other = make(ratios=(1, 1), tracks=True), make(ratios=(1, 1), tracks=True)
        first.start_pass()
        assert read(first, 2, most=count) == wanted[:count]
        for part in first._parts:
            if part.source._reader is not None:
                part.source._reader.wait_for_end()
        was_ready.append(first.is_ready(2))
        if was_ready[-1]:  # the checkpoint after this batch is made when the next one has been read
            assert read(first, 2, most=1) == wanted[count : count + 1]
        other.resume(json.loads(json.dumps(first.position(count))), 2)
        assert read(other, 2) == wanted[count:]
    assert was_ready == [True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mains": (False, False)}, "MultiData has no main source: set is_main_data=True"),
        ({"ratios": (0, 1)}, "a source with data_ratio=0: set a data_ratio of at least 1"),
    ],
)
def test_what_cannot_be_mixed_is_refused(here, options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)


def test_a_batch_has_room_for_every_source(here):
    source = make(ratios=(5, 1))
    source.start_pass()
    with pytest.raises(ConfigError, match="a batch_size of 3 gives no sample to a source with data_ratio=1"):
        source.next_batch(3)


CONFIG = """
from paddle.trainer.config_parser import *
model_type('multi_nn')
Settings(batch_size=4, algorithm='sgd', learning_rate=0.1, learning_method='momentum')
default_initial_std(0.5)
DATA = MultiData([SimpleData(files='a.list', feat_dim=1), SimpleData(files='b.list', feat_dim=2, is_main_data=False)])
TrainData(DATA)
TestData(DATA)
for name, x, label, size in (('one', 'x', 'a', 1), ('two', 'y', 'b', 2)):
    SubModelBegin(name)
    Layer(name=x, type='data', size=size)
    Layer(name=label, type='data', size=9)
    Layer(name=name + '_h', type='fc', inputs=[x], size=3, active_type='tanh')
    h = Input(name + '_h', parameter_name='shared')
    Layer(name=name + '_p', type='fc', inputs=[h], size=9, active_type='softmax')
    Layer(name=name + '_cost', type='multi-class-cross-entropy', inputs=[name + '_p', label])
    Inputs(x, label)
    Outputs(name + '_cost')
    SubModelEnd(name)
"""


def test_the_networks_have_inputs_and_outputs_of_their_own(here):
    Path("c.py").write_text(CONFIG)
    model = parse_config("c.py", "").model_config
    assert not model.input_layer_names and not model.output_layer_names
    assert [list(one.input_layer_names) for one in list_networks(model)] == [["x", "a"], ["y", "b"]]
    joined = join_networks(model)
    assert list(joined.output_layer_names) == ["one_cost", "two_cost"]
    assert [one.name for one in model.parameters].count("shared") == 1


def test_several_networks_train_together(here, capfd):
    Path("c.py").write_text(CONFIG)
    run(["--config=c.py", "--num_passes=30", "--save_dir=out", "--dot_period=0", "--log_period=1"])
    log = capfd.readouterr().err
    costs = [float(line.split("cost=")[1].split()[0]) for line in log.splitlines() if "Test samples=8" in line]
    assert len(costs) == 30 and np.isfinite(costs).all() and costs[-1] < costs[0]
    assert sorted(path.name for path in (here / "out" / "pass-00029").glob("*h.w0")) == ["_one_h.w0", "_two_h.w0"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "TrainData(DATA)",
            "TrainData(SimpleData(files='a.list', feat_dim=1))",
            "has 1 sources, but the model has 2 networks",
        ),
        ("model_type('multi_nn')", "model_type('nn')", "no output layer"),
        (
            "model_type('multi_nn')",
            "model_type('mixture')",
            "model type 'mixture' is unknown; use one of 'nn', 'recurrent_nn' and",
        ),
        ("Inputs(x, label)", "Inputs('x', 'a')", "data layer x is an input of two networks; give"),
        ("Inputs(x, label)", "Inputs(x, 'nowhere')", "the input layer 'nowhere' does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(here, old, new, message):
    assert old in CONFIG
    Path("c.py").write_text(CONFIG.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        run(["--config=c.py", "--num_passes=1", "--save_dir=out"])


def test_several_networks_are_between_begin_and_end(here):
    Path("c.py").write_text(CONFIG[: CONFIG.index("for name")])
    with pytest.raises(
        ConfigError, match=r"model has no network; put each network between SubModelBegin\(name\) and SubModelEnd\(\)"
    ):
        run(["--config=c.py", "--num_passes=1", "--save_dir=out"])
