"""Layers that measure in the place of a cost: they change no other number, and speak at the end of a pass."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, VolumeError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.evaluators import Accumulator
from trainer.evaluators.validation import make_validations
from trainer.network.network import Network


def model(*validations):
    """A scored batch with a cost, and layers (name, type, inputs) beside it."""
    config = ModelConfig(type="nn", output_layer_names=["cost"])
    for name, size in (("x", 2), ("label", 2), ("query", 4)):
        config.layers.add(name=name, type="data", size=size)
    scores = config.layers.add(name="p", type="fc", size=2, active_type="softmax")
    scores.inputs.add(input_layer_name="x", input_parameter_name="w")
    config.parameters.add(name="w", size=4, dims=[2, 2])
    cost = config.layers.add(name="cost", type="multi-class-cross-entropy", size=1, coeff=1)
    for name in ("p", "label"):
        cost.inputs.add(input_layer_name=name)
    for name, kind, inputs in validations:
        layer = config.layers.add(name=name, type=kind, size=1)
        for one in inputs:
            layer.inputs.add(input_layer_name=one)
        config.output_layer_names.append(name)
    return config


AREA = ("area", "auc-validation", ["p", "label"])
PAIRS = ("pairs", "pnpair-validation", ["p", "label", "query"])
BATCH = {
    "x": Argument(value=np.array([[0, 1], [0, 3], [0, 2], [1, 0]], np.float32)),
    "label": Argument(ids=np.array([0, 1, 1, 0])),
    "query": Argument(ids=np.array([0, 0, 1, 1])),
}


def measure(config, *options):
    """Return the network after a batch, and the sums of its validation layers."""
    table = ParameterTable(config.parameters)
    table.values[:] = [0, 0, 0, -1]  # the score of class 1 falls with the second column of x
    network, evaluators = Network(config, table), make_validations(config.layers, *options)
    network.forward(BATCH, is_training=True)
    total = Accumulator(evaluators)
    total.add(0.0, 4, [one.measure(network.outputs) for one in evaluators])
    return network, table, total


def test_cost_and_gradients_are_those_of_the_network_without_them():
    (plain, plain_table, _), (network, table, _) = measure(model()), measure(model(AREA, PAIRS))
    assert network.cost() == plain.cost() != 0
    for one in (plain, network):
        one.backward()
    assert table.gradients.tolist() == plain_table.gradients.tolist()


def test_they_say_at_the_end_of_a_pass_what_they_measured_and_in_no_other_line(capsys):
    """They were refused at the start. By hand: of four pairs none is in order, of two pairs of one query neither.

    Recorded: case eval_validation, which has the words.
    """
    total = measure(model(AREA, PAIRS))[2]
    assert total.text() == ""
    total.finish()
    assert capsys.readouterr().err == ""
    total.finish_pass()
    lines = [line.split("] ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "area=0",
        " calc total pos pair: 0 calc total neg pair: 2 calc total special pair: 0",
        " pos/neg=0",
    ]


@pytest.mark.parametrize(
    ("layer", "lines"),
    [
        (AREA, ["0.268941 0", "0.0474259 1", "0.119203 1", "0.5 0"]),
        (PAIRS, ["0.268941 0 0", "0.0474259 1 0", "0.119203 1 1", "0.5 0 1"]),
    ],
)
def test_the_predict_file_has_the_scores_of_a_pass_also_after_a_checkpoint(tmp_path, layer, lines):
    """It had no effect."""
    path = tmp_path / "scores"
    config = model(layer)
    total = measure(config, str(path))[2]
    again = Accumulator(make_validations(config.layers, str(path)))
    again.put_back(total.state())
    for one in (total, again):
        one.finish_pass()
        assert path.read_text().splitlines() == lines
    with pytest.raises(VolumeError, match="--predict_file: cannot write"):
        measure(config, str(tmp_path / "nowhere" / "scores"))[2].finish_pass()


def test_an_evaluator_of_data_that_are_no_input_is_refused():
    """It ended as a bug, 70; v0.10 crashed."""
    config = model()
    config.layers.add(name="w", type="data", size=1)
    config.evaluators.add(name="e", type="sum", input_layers=["w"])
    with pytest.raises(ConfigError, match=r"data layer w gets no data.*name all data layers in inputs"):
        measure(config)


def test_a_layer_that_no_output_names_measures_too():
    config = model(AREA)
    del config.output_layer_names[1:]
    assert "area" in measure(config)[0].outputs


def test_a_wrong_number_of_inputs_is_refused():
    with pytest.raises(ConfigError, match="has 2 inputs; it takes 3 to 4"):
        make_validations(model(("pairs", "pnpair-validation", ["p", "label"])).layers)
