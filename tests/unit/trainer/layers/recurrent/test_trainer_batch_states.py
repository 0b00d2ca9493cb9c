"""--prev_batch_state: recurrent layers go on from the state of the batch before."""

import json

import numpy as np
import pytest
from layer_checks import check_cost_gradients, make_network

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.flags import list_warnings, parse_flags
from trainer.network.data_parallel import DataParallelNetwork

SIZE = 3
LSTM = {"active_type": "tanh", "active_gate_type": "sigmoid", "active_state_type": "tanh"}
SHAPES = {  # width of the input, sizes of weight and bias, both in numbers of SIZE
    "lstmemory": (4 * SIZE, 4 * SIZE * SIZE, 7 * SIZE),
    "recurrent": (SIZE, SIZE * SIZE, SIZE),
    "gated_recurrent": (3 * SIZE, 3 * SIZE * SIZE, 3 * SIZE),
}


def build(kind, dtype=np.float64, begins=True, **extra):
    width, weight, bias = SHAPES[kind]
    config = ModelConfig(type="nn", input_layer_names=["x"], output_layer_names=["out"])
    config.layers.add(name="x", type="data", size=width)
    fields = LSTM if kind == "lstmemory" else {"active_type": "tanh"}
    layer = config.layers.add(name="out", type=kind, size=SIZE, bias_parameter_name="b", **fields, **extra)
    layer.inputs.add(input_layer_name="x", input_parameter_name="w")
    config.parameters.add(name="w", size=weight)
    config.parameters.add(name="b", size=bias)
    network, table = make_network(config, dtype=dtype)
    if begins:
        network.states.begin()
    return network, table


def sequences(kind, lengths, seed=2, dtype=np.float64):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.random.default_rng(seed).normal(size=(starts[-1], SHAPES[kind][0])).astype(dtype)
    return Argument(value=rows, starts=starts)


def run(network, slot, **options):
    return network.forward({"x": slot}, **options)["out"].value.copy()


def joined(first, second):
    """Each sequence of the first batch with the one at its place in the second behind it."""
    pieces = [
        part
        for i in range(len(first.starts) - 1)
        for part in (
            first.value[first.starts[i] : first.starts[i + 1]],
            second.value[second.starts[i] : second.starts[i + 1]],
        )
    ]
    starts = first.starts + second.starts
    return Argument(value=np.concatenate(pieces), starts=starts)


def test_each_sequence_of_an_lstm_goes_on_from_the_one_at_its_place():
    network, _ = build("lstmemory")
    first, second = sequences("lstmemory", [2, 0, 4, 1]), sequences("lstmemory", [1, 3, 0, 2], seed=3)
    run(network, first)
    found = run(network, second)
    whole = run(build("lstmemory", begins=False)[0], joined(first, second))
    starts = first.starts + second.starts
    wanted = [whole[starts[i + 1] - n : starts[i + 1]] for i, n in enumerate(np.diff(second.starts))]
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-12)


def test_each_sequence_of_a_recurrent_layer_goes_on_from_the_one_before_it():
    network, table = build("recurrent")
    first, second = sequences("recurrent", [2, 3]), sequences("recurrent", [4, 0, 1], seed=3)
    found = np.concatenate([run(network, first), run(network, second)])
    h, wanted = np.zeros(SIZE), []
    for x in np.concatenate([first.value, second.value]):
        h = np.tanh(x + table["b"].value + h @ table["w"].value.reshape(SIZE, SIZE))
        wanted.append(h)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_gradients_of_an_lstm_are_those_of_a_given_first_state():
    network, table = build("lstmemory")
    run(network, sequences("lstmemory", [1, 2, 1]))
    given = network.states.carried()
    batch = {"x": sequences("lstmemory", [2, 3, 0], seed=5)}

    def forward():
        network.states.carry_on(given)
        network.forward(batch, Stream(1))

    check_cost_gradients(network, table, forward, np.random.default_rng(3), by_parameter=True)


def test_no_gradient_of_a_recurrent_layer_crosses_the_start_of_a_sequence():
    """So v0.10 has it: the weight gets nothing for the state that a sequence begins with either."""
    network, table = build("recurrent")
    run(network, sequences("recurrent", [1]))
    batch = sequences("recurrent", [1, 2], seed=5)
    h = run(network, batch, is_training=True)
    table.clear_gradients()
    network.backward()
    last = 1 - h[2] ** 2
    np.testing.assert_allclose(table["w"].gradient.reshape(SIZE, SIZE), np.outer(h[1], last), rtol=1e-12)


@pytest.mark.parametrize("kind", ["lstmemory", "recurrent"])
def test_a_restart_begins_with_zeros_and_a_test_leaves_the_states_alone(kind):
    network, _ = build(kind, np.float32)
    first, second = sequences(kind, [2, 1], dtype=np.float32), sequences(kind, [1, 2], seed=3, dtype=np.float32)
    fresh = run(network, first)
    with network.states.restored():
        network.states.restart()
        np.testing.assert_array_equal(run(network, first), fresh)
    gone_on = run(network, second)
    network.states.restart()
    np.testing.assert_array_equal(run(network, first), fresh)
    other, _ = build(kind, np.float32)
    other.carry_on(json.loads(json.dumps(network.carried())))
    np.testing.assert_array_equal(run(other, second), gone_on)


@pytest.mark.parametrize(
    ("kind", "extra", "message"),
    [
        ("lstmemory", {"reversed": True}, "layer out .lstmemory. runs from the last frame to the first"),
        ("recurrent", {"reversed": True}, "layer out .recurrent. runs from the last frame to the first"),
        ("gated_recurrent", {}, "layer out .gated_recurrent. cannot be used with --prev_batch_state; lstmemory"),
    ],
)
def test_what_cannot_go_on_is_refused_at_the_start(kind, extra, message):
    with pytest.raises(ConfigError, match=message):
        build(kind, **extra)


def test_a_batch_with_another_number_of_sequences_is_refused():
    network, _ = build("lstmemory")
    run(network, sequences("lstmemory", [1, 2]))
    with pytest.raises(DataError, match=r"layer out .lstmemory. has the states of 2 sequences, but this batch has 3"):
        run(network, sequences("lstmemory", [1, 2, 1]))


def test_several_threads_begin_every_batch_with_zeros_and_a_line_says_so():
    """v0.10's network of several parts has no state either."""
    lines = list_warnings(parse_flags(["--prev_batch_state", "--trainer_count=2"]))
    assert lines == ["--prev_batch_state has no effect with --trainer_count over 1: each batch begins with zero states"]
    config = build("lstmemory")[0].config
    network = DataParallelNetwork(config, ParameterTable(config.parameters), [Stream(1), Stream(2)], always=True)
    network.states.restart()
    assert network.states.carried() is None
    network.close()
