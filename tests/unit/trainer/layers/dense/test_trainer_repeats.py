"""Rows that repeat: computing on the distinct ones gives what computing on all rows gives, forward and backward."""

import numpy as np
import pytest
from each import each
from layer_checks import make_network

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.arrays.arguments import Argument, find_distinct, sum_repeated
from trainer.arrays.rng import Stream
from trainer.layers.mixed import embedding
from trainer.layers.sequence import window_fc
from trainer.layers.sequence.window_fc import MAXIMA, SUMS
from trainer.network.fusion import fuse

WORDS, WIDTH, SIZE = 6, 4, 3


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    """Layers are put together where the compiled module is missing, too."""
    monkeypatch.setattr("trainer.network.network.compiled", True)


def text_model(*, window=0, active_type="tanh", drop_rate=0.0, clip=0.0, also_plain=False, pools=False):
    """word -> embedding [-> windows] -> fc -> square error per frame; `also_plain`: a second reader of the rows."""
    config = ModelConfig(type="nn", output_layer_names=["cost"])
    config.layers.add(name="word", type="data", size=WORDS)
    rows = config.layers.add(name="rows", type="mixed", size=WIDTH)
    table = rows.inputs.add(input_layer_name="word", input_parameter_name="table")
    table.proj_conf.CopyFrom(
        LayerConfig(
            inputs=[
                {
                    "input_layer_name": "",
                    "proj_conf": {"type": "table", "name": "t", "input_size": WORDS, "output_size": WIDTH},
                }
            ]
        )
        .inputs[0]
        .proj_conf
    )
    if window:
        spread = config.layers.add(name="windows", type="mixed", size=window * WIDTH)
        conf = spread.inputs.add(input_layer_name="rows").proj_conf
        conf.type, conf.name, conf.input_size, conf.output_size = "context", "c", WIDTH, window * WIDTH
        conf.context_start, conf.context_length = -1, window
    out = config.layers.add(
        name="out",
        type="fc",
        size=SIZE,
        active_type=active_type,
        drop_rate=drop_rate,
        bias_parameter_name="bias",
        error_clipping_threshold=clip,
    )
    out.inputs.add(input_layer_name="windows" if window else "rows", input_parameter_name="w")
    if also_plain:
        more = config.layers.add(name="more", type="fc", size=SIZE)
        more.inputs.add(input_layer_name="out", input_parameter_name="v")
        more.inputs.add(input_layer_name="other", input_parameter_name="u")
        config.layers.insert(0, LayerConfig(name="other", type="data", size=2))
    if pools:
        pool = config.layers.add(name="pool", type="max", size=SIZE, trans_type="non-seq")
        pool.inputs.add(input_layer_name="out")
    config.layers.add(name="label", type="data", size=SIZE)
    cost = config.layers.add(name="cost", type="square_error", size=1)
    cost.inputs.add(input_layer_name="more" if also_plain else "pool" if pools else "out")
    cost.inputs.add(input_layer_name="label")
    sizes = {"table": WORDS * WIDTH, "w": max(window, 1) * WIDTH * SIZE, "bias": SIZE, "v": SIZE * SIZE, "u": 2 * SIZE}
    for name, size in sizes.items():
        if also_plain or name not in ("v", "u"):
            config.parameters.add(name=name, size=size, dims=[size // WIDTH, WIDTH] if name == "table" else [1, size])
    return config


def run(config, *, repeats, dtype=np.float64, drops=False, pools=False):
    network, table = make_network(config, 5, dtype=dtype)
    if not repeats:
        for node in network._nodes.values():
            node.layer.may_repeat = False
    rng = np.random.default_rng(6)
    ids, starts = np.array([1, 1, 3, 1, 3, 3, 1, 0, 0]), np.array([0, 4, 4, 5, 9])
    batch = {
        "word": Argument(ids=ids, starts=starts),
        "label": Argument(
            value=rng.normal(size=(4 if pools else 9, SIZE)).astype(dtype), starts=None if pools else starts
        ),
        "other": Argument(value=rng.normal(size=(9, 2)).astype(dtype), starts=starts),
    }
    outputs = network.forward(batch, Stream(3) if drops else None)
    network.backward()
    return network, outputs["pool" if pools else "out"].value, table.gradients.copy()


@each(
    "case",
    [
        {},
        {"active_type": "softmax"},
        {"window": 3},
        {"window": 1},
        {"clip": 0.5},
        {"drop_rate": 0.5},
        {"also_plain": True},
        {"also_plain": True, "window": 2},
    ],
    ids=str,
)
@each("dtype", [np.float64, np.float32])
def test_distinct_rows_give_what_all_rows_give(case, dtype):
    drops = "drop_rate" in case
    _, y, gradients = run(text_model(**case), repeats=False, dtype=dtype, drops=drops)
    network, same_y, same_gradients = run(text_model(**case), repeats=True, dtype=dtype, drops=drops)
    assert network.outputs["rows"].index is not None
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(same_y, y, atol=tolerance)
    np.testing.assert_allclose(same_gradients, gradients, atol=tolerance)


@each("active_type", ["", "tanh", "sigmoid", "relu", "exponential"])
@each("few", [0, 100])
@each("dtype", [np.float64, np.float32])
@each("repeats", [True, False])
def test_a_maximum_over_windows_is_that_of_the_layers_one_by_one(active_type, few, dtype, repeats, monkeypatch):
    monkeypatch.setattr(window_fc, "FEW", few)  # both ways back
    config = text_model(window=3, active_type=active_type, pools=True)
    assert [one.type for one in fuse(config.layers, {"cost"})] == ["data", "mixed", MAXIMA, "data", "square_error"]
    _, y, gradients = run(config, repeats=repeats, dtype=dtype, pools=True)
    monkeypatch.setattr("trainer.network.network.fuse", lambda layers, kept: layers)
    _, same_y, same_gradients = run(config, repeats=False, dtype=dtype, pools=True)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(y, same_y, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(gradients, same_gradients, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "change",
    [
        "out.drop_rate = 0.5",
        "out.error_clipping_threshold = 1",
        "out.active_type = 'square'",
        "pool.trans_type = 'seq'",
        "pool.seq_pool_stride = 2",
        "pool.output_max_index = True",
        "pool.active_type = 'tanh'",
    ],
)
def test_a_maximum_that_does_more_stays(change):
    config = text_model(window=3, pools=True)
    exec(change, {}, {one.name: one for one in config.layers})
    assert len(fuse(config.layers, {"cost"})) == len(config.layers) - 1


def test_rows_are_kept_once_only_where_all_readers_can_use_that():
    config = text_model()
    config.output_layer_names.append("rows")
    network, _, _ = run(config, repeats=True)
    assert network.outputs["rows"].index is None


def test_rows_that_hardly_repeat_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(embedding, "WORTHWHILE", 0.1)
    network, _, _ = run(text_model(), repeats=True)
    assert network.outputs["rows"].index is None


def test_distinct_ids_are_found():
    distinct, index = find_distinct(np.array([4, 1, 4, 4, 0]), 6)
    assert (distinct.tolist(), index.tolist()) == ([0, 1, 4], [2, 1, 2, 2, 0])
    assert sum_repeated(np.arange(5.0)[:, None], index)[:, 0].tolist() == [4, 1, 5]


def test_a_window_that_only_one_layer_reads_is_put_into_it():
    config = text_model(window=3)
    assert [one.type for one in fuse(config.layers, {"cost"})] == ["data", "mixed", SUMS, "data", "square_error"]
    assert [one.type for one in fuse(config.layers, {"cost", "windows"})] == [one.type for one in config.layers]


@pytest.mark.parametrize(
    "change",
    [
        "windows.active_type = 'tanh'",
        "windows.bias_parameter_name = 'bias'",
        "windows.inputs[0].input_parameter_name = 'padding'",
        "windows.inputs[0].proj_conf.type = 'identity'",
        "out.inputs.add(input_layer_name='rows')",
        "windows.error_clipping_threshold = 1",
    ],
)
def test_a_window_that_does_more_stays(change):
    config = text_model(window=3)
    layers = {one.name: one for one in config.layers}
    exec(change, {}, layers)
    assert len(fuse(config.layers, {"cost"})) == len(config.layers)


@pytest.mark.parametrize("upper", [60, 10_000])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_ids_of_a_small_and_of_a_large_vocabulary_have_the_same_distinct_ids_and_places(upper, count):
    ids = np.random.default_rng(3).integers(0, 60, count).astype(np.int32)
    distinct, index = find_distinct(ids, upper)
    expected, places = np.unique(ids, return_inverse=True)
    assert distinct.tolist() == expected.tolist()
    assert index.tolist() == places.tolist() and index.dtype == np.int64
