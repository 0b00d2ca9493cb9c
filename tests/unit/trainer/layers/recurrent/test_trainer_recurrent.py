"""Recurrent layers against plain loops over sequences and frames, written from the formulas."""

import itertools

import numpy as np
import pytest
from layer_checks import make_network

from paddle import trainer_config_helpers as language
from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import UPPER, Stream
from trainer.config import parse_config
from trainer.layers.ragged import PackedOrder

SIZE = 3
STARTS = np.array([0, 4, 4, 5, 11, 13])


def build(kind, width, weight, bias=0, dtype=np.float64, **extra):
    config = ModelConfig(type="nn", output_layer_names=["out"])
    config.layers.add(name="x", type="data", size=width)
    layer = config.layers.add(name="out", type=kind, size=SIZE, **extra)
    layer.inputs.add(input_layer_name="x", input_parameter_name="w")
    config.parameters.add(name="w", size=weight)
    if bias:
        layer.bias_parameter_name = "b"
        config.parameters.add(name="b", size=bias)
    return make_network(config, dtype=dtype)


def lstm(**extra):
    extra = {"active_type": "tanh", "active_gate_type": "sigmoid", "active_state_type": "tanh", **extra}
    return build("lstmemory", 4 * SIZE, 4 * SIZE * SIZE, 7 * SIZE, **extra)


def frames(width, dtype=np.float64):
    return Argument(value=np.random.default_rng(2).normal(size=(STARTS[-1], width)).astype(dtype), starts=STARTS)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def run_by_hand(x, is_reversed, step, states):
    """step(x_t, *states) returns the new states, of which the first is the output."""
    out = np.zeros((len(x), SIZE))
    for first, end in itertools.pairwise(STARTS):
        now = [np.zeros(SIZE) for _ in range(states)]
        for frame in reversed(range(first, end)) if is_reversed else range(first, end):
            now = step(x[frame], *now)
            out[frame] = now[0]
    return out


def lstm_step(w, bias, act=np.tanh):
    gate_bias, (p_i, p_f, p_o) = bias[: 4 * SIZE], bias[4 * SIZE :].reshape(3, SIZE)

    def step(x, h, c):
        candidate, i, f, o = (x + h @ w.reshape(SIZE, 4 * SIZE) + gate_bias).reshape(4, SIZE)
        c_new = act(candidate) * sigmoid(i + p_i * c) + c * sigmoid(f + p_f * c)
        return sigmoid(o + p_o * c_new) * np.tanh(c_new), c_new

    return step


@pytest.mark.parametrize("is_reversed", [False, True])
def test_lstm_is_the_formula_frame_by_frame(is_reversed):
    network, table = lstm(reversed=is_reversed)
    x = frames(4 * SIZE)
    out = network.forward({"x": x})["out"]
    expected = run_by_hand(x.value, is_reversed, lstm_step(table["w"].value, table["b"].value), states=2)
    np.testing.assert_allclose(out.value, expected, rtol=1e-12, atol=1e-14)
    assert out.starts is x.starts


def test_active_type_of_an_lstm_is_that_of_the_candidate_only():
    network, table = lstm(active_type="relu")
    x = frames(4 * SIZE)
    relu = lstm_step(table["w"].value, table["b"].value, act=lambda z: np.maximum(z, 0))
    expected = run_by_hand(x.value, False, relu, states=2)
    assert (expected < 0).sum() == 0 < (expected > 0).sum()
    np.testing.assert_allclose(network.forward({"x": x})["out"].value, expected, rtol=1e-12, atol=1e-14)


def test_float32_stays_float32():
    network, _ = lstm(dtype=np.float32)
    network.forward({"x": frames(4 * SIZE, np.float32)})
    network.backward()
    assert network.outputs["out"].value.dtype == np.float32


@pytest.mark.parametrize("is_reversed", [False, True])
def test_dropout_of_an_lstm_masks_its_output_in_the_order_of_the_frames_and_not_its_recurrence(is_reversed):
    network, table = lstm(reversed=is_reversed, drop_rate=0.4)
    x = frames(4 * SIZE)
    out = network.forward({"x": x}, Stream(11))["out"].value
    mask = Stream(11).draws(out.size).reshape(out.shape) > 0.4 * UPPER
    unmasked = run_by_hand(x.value, is_reversed, lstm_step(table["w"].value, table["b"].value), states=2)
    assert 0 < mask.sum() < mask.size
    np.testing.assert_allclose(out, unmasked * mask, rtol=1e-12, atol=1e-14)


def test_a_batch_of_empty_sequences_gives_no_rows_and_no_gradient():
    network, table = lstm()
    out = network.forward({"x": Argument(value=np.zeros((0, 4 * SIZE)), starts=np.array([0, 0, 0]))})["out"]
    network.backward()
    assert out.value.shape == (0, SIZE)
    assert not table.gradients.any()


def test_packing_goes_step_by_step_from_the_longest_sequence_down():
    packing = PackedOrder(np.array([0, 1, 4, 4, 6]), is_reversed=False)
    assert packing.order.tolist() == [1, 3, 0, 2]
    assert packing.live == [3, 2, 1]
    assert packing.rows.tolist() == [1, 4, 0, 2, 5, 3]
    assert packing.previous.tolist() == [0, 1, 3]
    assert packing.places[packing.rows].tolist() == list(range(6))
    assert PackedOrder(np.array([0, 1, 4, 4, 6]), is_reversed=True).rows.tolist() == [3, 5, 0, 2, 4, 1]


@pytest.mark.parametrize(
    ("kind", "width", "weight", "bias", "extra", "message"),
    [
        ("lstmemory", 12, 36, 0, {}, "bias_attr"),
        ("lstmemory", 12, 36, 12, {}, "instead of 21"),
        ("lstmemory", 12, 35, 21, {}, "instead of 36"),
        ("lstmemory", 11, 36, 21, {}, "width 11"),
        ("lstmemory", 12, 36, 21, {"active_gate_type": "softmax"}, "gate activation 'softmax'"),
        ("gated_recurrent", 9, 27, 8, {}, "instead of 9"),
        ("recurrent", 3, 9, 3, {"active_type": "no such"}, "'no such'"),
    ],
)
def test_wrong_sizes_and_activations_are_refused_by_name(kind, width, weight, bias, extra, message):
    with pytest.raises(ConfigError, match=message) as caught:
        build(kind, width, weight, bias, **extra)[0].forward({"x": frames(width)})
    assert "layer out" in str(caught.value)


def test_an_input_without_sequences_is_refused():
    network, _ = lstm()
    with pytest.raises(ConfigError, match="declare the data of data layer x as a sequence type"):
        network.forward({"x": Argument(value=np.zeros((2, 4 * SIZE)))})


def test_a_layer_that_gives_its_last_state_is_named_where_sequences_are_needed():
    def config():
        frames = language.data_layer("frames", 2)
        first, last = language.first_seq(frames), language.last_seq(frames, name="last")
        language.outputs(language.expand_layer(first, expand_as=last))

    message = parse_config(config).model_config
    network, _ = make_network(message)
    frames = Argument(value=np.ones((3, 2)), starts=np.array([0, 1, 3]))
    with pytest.raises(
        ConfigError, match=r"input, layer last \(seqlastins\), has no sequences.* return_seq=True"
    ) as caught:
        network.forward({"frames": frames})
    assert "declare" not in str(caught.value)


@pytest.mark.parametrize("kind", ["lstmemory", "gated_recurrent", "recurrent"])
def test_words_that_occur_repeatedly_are_taken_from_their_distinct_rows(kind):
    gates, bias = {"lstmemory": (4, 7), "gated_recurrent": (3, 3), "recurrent": (1, 1)}[kind]
    acts = {"active_type": "tanh", "active_gate_type": "sigmoid", "active_state_type": "tanh"}
    config = build(kind, gates * SIZE, gates * SIZE * SIZE, bias * SIZE, **acts)[0].config
    config.layers[0].name = "word"
    embedding = config.layers.add(name="x", type="mixed", size=gates * SIZE)
    link = embedding.inputs.add(input_layer_name="word", input_parameter_name="table")
    link.proj_conf.type, link.proj_conf.input_size, link.proj_conf.output_size = "table", 5, gates * SIZE
    config.layers.extend([config.layers.pop(1)])  # after the embedding
    config.layers[0].size = 5
    config.parameters.add(name="table", size=5 * gates * SIZE, dims=[5, gates * SIZE])
    network, table = make_network(config)
    ids = np.random.default_rng(3).integers(0, 5, STARTS[-1])
    word = Argument(ids=ids, starts=STARTS)
    assert network.forward({"word": word})["x"].index is not None
    repeated = network.outputs["out"].value.copy()
    network.backward()
    gradient = table["table"].gradient.reshape(5, -1).copy()
    rows = Argument(value=table["table"].value.reshape(5, -1)[ids], starts=STARTS)
    np.testing.assert_array_equal(network.forward({"word": word, "x": rows})["out"].value, repeated)
    expected = np.zeros_like(gradient)
    np.add.at(expected, ids, network.backward_from({"out": np.ones_like(repeated)})["x"])
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-13)
