"""Forward passes with answers known in closed form, and what the network refuses."""

import numpy as np
import pytest
from each import each

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.activations import ACTIVATIONS, OVERWRITING, find_activation
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import UPPER, Stream
from trainer.layers.dense.fc import FullyConnectedLayer
from trainer.network.network import Network


def softmax_regression(**cost):
    config = ModelConfig(type="nn", output_layer_names=["cost"], input_layer_names=["word", "label"])
    config.layers.add(name="word", type="data", size=3)
    out = config.layers.add(name="out", type="fc", size=2, active_type="softmax", bias_parameter_name="b")
    out.inputs.add(input_layer_name="word", input_parameter_name="w")
    config.layers.add(name="label", type="data", size=2)
    layer = config.layers.add(name="cost", type="multi-class-cross-entropy", size=1, **cost)
    layer.inputs.add(input_layer_name="out")
    layer.inputs.add(input_layer_name="label")
    config.parameters.add(name="w", size=6, dims=[3, 2])
    config.parameters.add(name="b", size=2, dims=[1, 2])
    return config


def sparse_rows(*rows, width=3):
    return Sparse(width, np.cumsum([0, *map(len, rows)]), np.array([i for row in rows for i in row], np.int32))


def batch(*rows, labels):
    return {"word": Argument(sparse=sparse_rows(*rows)), "label": Argument(ids=np.array(labels))}


def run(config, slots, values=None):
    table = ParameterTable(config.parameters)
    if values is not None:
        table.values[:] = values
    network = Network(config, table)
    network.forward(slots)
    return network, table


def test_zero_weights_cost_the_logarithm_of_the_number_of_classes():
    network, _ = run(softmax_regression(), batch([0], [1, 2], [], labels=[0, 1, 1]))
    assert network.cost() == pytest.approx(3 * np.log(2), rel=1e-6)


def test_a_repeated_id_counts_repeatedly_forward_and_backward():
    network, table = run(softmax_regression(), batch([1, 1, 1], labels=[0]), [0, 0, 1, 0, 0, 0, 0, 0])
    p = 1 / (1 + np.exp(-3.0))
    assert network.outputs["out"].value[0, 0] == pytest.approx(p, rel=1e-6)
    network.backward()
    gradient = table["w"].gradient_matrix(3, 2)
    assert gradient[1, 0] == pytest.approx(3 * (p - 1), rel=1e-5)
    assert not gradient[[0, 2]].any()
    assert table["b"].gradient[0] == pytest.approx(p - 1, rel=1e-5)


def test_coeff_scales_the_gradient_but_not_the_cost():
    plain, table = run(softmax_regression(), batch([0], labels=[0]))
    scaled, scaled_table = run(softmax_regression(coeff=0.25), batch([0], labels=[0]))
    assert scaled.cost() == plain.cost()
    plain.backward()
    scaled.backward()
    assert scaled_table.gradients.tolist() == (0.25 * table.gradients).tolist()


def test_coeff_scales_also_what_the_prediction_had_gathered_from_a_later_cost():
    config = softmax_regression(coeff=0.5)
    second = config.layers.add(name="second", type="multi-class-cross-entropy", size=1)
    second.inputs.add(input_layer_name="out")
    second.inputs.add(input_layer_name="label")
    config.output_layer_names.append("second")
    both, table = run(config, batch([0], labels=[0]))
    one, table_one = run(softmax_regression(), batch([0], labels=[0]))
    both.backward()
    one.backward()
    assert table.gradients.tolist() == (0.5 * 2 * table_one.gradients).tolist()


def test_an_impossible_probability_is_found_by_name():
    config = softmax_regression()
    config.layers[1].active_type = ""
    with np.errstate(divide="ignore"):
        network, _ = run(config, batch([0], labels=[1]), [1, 0, 0, 0, 0, 0, 0, 0])
    assert network.cost() == np.inf
    assert network.find_bad_cost() == "cost"


def test_a_sure_error_costs_no_more_than_64_and_has_a_gradient():
    network, table = run(softmax_regression(), batch([0], labels=[1]), [500, -500, 0, 0, 0, 0, 0, 0])
    assert network.cost() == pytest.approx(64)
    network.backward()
    np.testing.assert_allclose(table["b"].gradient, [1, -1], rtol=1e-6)


@each(
    ("z", "kind", "y"),
    [
        (-1.5, "abs", 1.5),
        (30.0, "brelu", 24.0),
        (-1.0, "brelu", 0.0),
        (1.0, "exponential", np.e),
        (np.e, "log", 1.0),
        (4.0, "reciprocal", 0.25),
        (-2.0, "relu", 0.0),
        (0.0, "sigmoid", 0.5),
        (-800.0, "sigmoid", 0.0),
        (800.0, "sigmoid", 1 / (1 + np.exp(-13.0))),
        (20.0, "softrelu", np.log1p(np.exp(20.0))),
        (800.0, "softrelu", 40.0),
        (0.0, "softrelu", np.log(2)),
        (-3.0, "softsign", -0.75),
        (9.0, "sqrt", 3.0),
        (-3.0, "square", 9.0),
        (1.5, "stanh", 1.7159 * np.tanh(1.0)),
        (0.5, "tanh", np.tanh(0.5)),
        (0.7, "", 0.7),
    ],
)
def test_activations_have_their_textbook_values(z, kind, y):
    assert ACTIVATIONS[kind].forward(np.array([[z]]))[0, 0] == pytest.approx(y, abs=1e-12)


def test_softmax_survives_large_sums():
    assert ACTIVATIONS["softmax"].forward(np.array([[1000.0, 1000.0]])).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("kind", ["softmax", "sequence_softmax", "sigmoid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probability_of_which_a_cost_takes_the_logarithm_is_never_zero(kind, dtype):
    z = np.array([[1000.0], [0.0], [-1000.0]], dtype)
    y = ACTIVATIONS[kind].forward(z.T).T if kind == "softmax" else ACTIVATIONS[kind].forward(z, np.array([0, 3]))
    lowest = {"sigmoid": np.exp(-40.0)}.get(kind, np.exp(-64.0))
    np.testing.assert_allclose(y[2, 0], lowest, rtol=1e-5)
    if kind == "sigmoid":
        np.testing.assert_allclose(1 - y[0, 0], np.exp(-13.0), rtol=0.05)
    else:
        assert y[0, 0] == 1
        assert y[1, 0] == y[2, 0]


def test_activations_keep_float32():
    z = np.linspace(0.1, 1, 6, dtype=np.float32).reshape(2, 3)
    for name, activation in ACTIVATIONS.items():
        one, starts = (z.reshape(-1, 1), np.array([0, 2, 6])) if name == "sequence_softmax" else (z, None)
        y = activation.forward(one, starts)
        assert y.dtype == np.float32
        assert activation.backward(one, y, one, starts).dtype == np.float32


def test_sequence_softmax_adds_up_to_one_in_every_sequence():
    z = np.array([[1.0], [2.0], [1000.0], [3.0], [3.0]])
    starts = np.array([0, 2, 2, 3, 5])
    y = ACTIVATIONS["sequence_softmax"].forward(z, starts)
    e = np.exp([1.0, 2.0])
    np.testing.assert_allclose(y[:, 0], [*(e / e.sum()), 1, 0.5, 0.5], rtol=1e-12)
    g, step = np.array([[1.0], [-2.0], [5.0], [0.5], [3.0]]), 1e-6
    numbers = [
        (ACTIVATIONS["sequence_softmax"].forward(z + step * row[:, None], starts) - y).T @ g / step for row in np.eye(5)
    ]
    gradient = ACTIVATIONS["sequence_softmax"].backward(g, y, z, starts)
    np.testing.assert_allclose(gradient[:, 0], np.ravel(numbers), atol=1e-5)


def test_sequence_softmax_wants_sequences_of_numbers():
    with pytest.raises(ConfigError, match="size 1"):
        ACTIVATIONS["sequence_softmax"].forward(np.ones((3, 1)))


@pytest.mark.parametrize("kind", sorted(OVERWRITING))
def test_an_activation_in_place_gives_the_same(kind):
    z = np.array([[-2, -0.0, 0, 3, np.nan, np.inf, -np.inf]], np.float32)
    expected = ACTIVATIONS[kind].forward(z)
    y = find_activation(kind, "conv", overwrites=True).forward(z)
    np.testing.assert_array_equal(y, expected)
    assert y is z and find_activation(kind, "fc") is ACTIVATIONS[kind]


def test_the_softmax_of_a_fully_connected_layer_makes_no_copy(monkeypatch):
    """The scores of 10,000 words were copied before their softmax: 26 MB for 640 frames."""
    results = []
    forward = FullyConnectedLayer.forward
    monkeypatch.setattr(FullyConnectedLayer, "forward", lambda *given: results.append(forward(*given)) or results[-1])
    network, _ = run(softmax_regression(), batch([0], [1], labels=[0, 1]), [9, 9, 9, 9, 9, 9, 0, 0])
    assert network.outputs["out"].value is results[0].value


def test_a_batch_of_empty_rows_gives_the_bias():
    network, _ = run(softmax_regression(), batch([], [], labels=[0, 1]), [9, 9, 9, 9, 9, 9, 0, 0])
    assert network.outputs["out"].value.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_dropout_draws_one_number_per_element_row_by_row():
    config = softmax_regression()
    config.layers[1].active_type = ""
    config.layers[1].drop_rate = 0.4
    config.output_layer_names[:] = ["out"]
    table = ParameterTable(config.parameters)
    table["b"].value[:] = [1, 2]
    network, stream = Network(config, table), Stream(1)
    slots = batch([0], [1], [2], labels=[0, 0, 0])
    value = network.forward(slots, stream)["out"].value
    kept = (Stream(1).draws(6) / UPPER > 0.4).reshape(3, 2)
    assert value.tolist() == (kept * np.array([1, 2])).tolist()
    expected = Stream(1)
    expected.skip(6)
    assert stream.state == expected.state
    tested = network.forward(slots)["out"].value
    np.testing.assert_allclose(tested, np.tile([0.6, 1.2], (3, 1)), rtol=1e-6)


def test_static_parameters_get_no_gradient_and_lie_outside_the_flat_values():
    config = softmax_regression()
    config.parameters[0].is_static = True
    network, table = run(config, batch([0], labels=[0]))
    network.backward()
    assert table.values.size == 2
    assert table.gradients.tolist() == [-0.5, 0.5]


def change(config, what):
    exec(what, {"config": config})
    return config


@each(
    ("what", "message"),
    [
        (
            "config.layers[1].type = 'wizard'",
            "layer out: type 'wizard' is not supported yet",
        ),
        (
            "config.layers[1].active_type = 'steep'",
            "layer out: activation 'steep' is not supported yet",
        ),
        ("config.layers[1].drop_rate = .5", "layer out: drop_rate cannot be combined with the softmax"),
        ("config.type = 'mixture'", "model type 'mixture' is unknown; use one of 'nn', 'recurrent_nn' and 'multi_nn'"),
        ("config.output_layer_names.append('nowhere')", "nowhere as an output"),
        ("del config.output_layer_names[:]", "no output layer"),
        ("config.parameters[0].name = '_tower/fc.w0'", "'_tower/fc.w0' cannot be saved: its file has the name"),
        ("config.parameters[0].name = 'done'", "'done' cannot be saved"),
        ("config.layers[3].inputs.pop()", r"layer cost \(multi-class-cross-entropy\) has 1 inputs; it takes 2 to 3"),
        ("config.layers[1].inputs[0].input_layer_name = 'nobody'", "layer out has input nobody"),
    ],
)
def test_what_does_not_compute_is_refused_by_name(what, message):
    with pytest.raises(ConfigError, match=message):
        run(change(softmax_regression(), what), batch([0], labels=[0]))


def test_a_layer_that_nobody_reads_may_be_of_any_type():
    config = softmax_regression()
    config.layers.add(name="unused", type="mystery", size=7)
    network, _ = run(config, batch([0], labels=[0]))
    assert "unused" not in network.outputs


def test_gradients_are_kept_where_they_are_watched_and_clipping_is_logged(capsys):
    config = softmax_regression()
    config.layers[1].error_clipping_threshold = 0.75
    network, _ = run(config, batch([0], [1], labels=[0, 0]), [0, 0, 3, 0, 0, 0, 0, 0])
    network.backward()
    assert network.kept_gradients() == {}
    assert capsys.readouterr().err == ""
    network.watch(gradients_of=["out"], clipping=True)
    network.backward()
    p = 1 / (1 + np.exp(-3.0))
    # before the activation: the clipped -1/p (here -2 and -1/p are cut to -0.75) times the softmax's slope
    slope = np.array([0.25, p * (1 - p)])
    assert network.kept_gradients()["out"] == pytest.approx(0.75 * np.stack([-slope, slope], axis=1), rel=1e-5)
    mean = (2 + 1 / p) / 4
    assert capsys.readouterr().err.endswith(f"]  layer=out need clipping, max error=2 avg error={mean:g}\n")


def test_what_of_the_gradients_is_complete_is_told_layer_by_layer_also_where_layers_share_a_parameter():
    config = ModelConfig(type="nn", output_layer_names=["cost"], input_layer_names=["x", "label"])
    config.layers.add(name="x", type="data", size=2)
    for name, source, weight in (("a", "x", "w"), ("b", "a", "v"), ("c", "b", "w"), ("d", "c", "u")):
        layer = config.layers.add(name=name, type="fc", size=2, active_type="softmax", bias_parameter_name=f"{name}.b")
        layer.inputs.add(input_layer_name=source, input_parameter_name=weight)
    config.layers.add(name="label", type="data", size=2)
    layer = config.layers.add(name="cost", type="multi-class-cross-entropy", size=1)
    layer.inputs.add(input_layer_name="d")
    layer.inputs.add(input_layer_name="label")
    sizes = {"w": 4, "a.b": 2, "v": 4, "b.b": 2, "c.b": 2, "u": 4, "d.b": 2, "unused": 3}
    for name, size in sizes.items():
        config.parameters.add(name=name, size=size, dims=[size // 2, 2] if size != 3 else [1, 3])
    slots = {"x": Argument(np.ones((3, 2), np.float32)), "label": Argument(ids=np.array([0, 1, 1]))}
    network, table = run(config, slots, np.linspace(-1, 1, 23))
    table.gradients[:] = np.nan  # of an earlier batch
    table.clear_gradients()
    told = {}
    network.backward(lambda start: told.update({start: table.gradients_from(start)[start:].copy()}))
    assert not told  # who uses the last one is unknown, so nothing is complete before the end
    del config.parameters[-1]
    network, table = run(config, slots, np.linspace(-1, 1, 20))
    network.backward(lambda start: told.update({start: table.gradients_from(start)[start:].copy()}))
    # d (u, d.b), c (c.b; w is a's too), b (v, b.b), a
    assert list(told) == [14, 12, 6, 0]
    assert all(part.tobytes() == table.gradients[start:].tobytes() for start, part in told.items())
