"""What a checkpoint must have besides parameters: sums of evaluators, generators in layers, streams of shares."""

import json

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig, ModelConfig
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.evaluators import Accumulator, Evaluator
from trainer.evaluators.auc import Histogram
from trainer.evaluators.base import Share, Sums
from trainer.evaluators.detection import Matches
from trainer.evaluators.pnpair import Judgements
from trainer.network.data_parallel import DataParallelNetwork
from trainer.network.network import Network


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


class Fixed(Evaluator):
    """Measures of a kind that the test names."""

    least_inputs = 0

    def __init__(self, kind):
        super().__init__(EvaluatorConfig(name=f"one of {kind.__name__}"))
        self.nothing = lambda: kind(np.zeros(0, np.int64), np.zeros((0, 2))) if kind is Histogram else kind()

    def text(self, total):
        return json.dumps(total.state())


def matches(random):
    one = Matches()
    one.boxes = {1: int(random.integers(3)), 2: 1}
    one.detections = {int(random.integers(1, 3)): [(random.random(), np.bool_(True))]}
    return one


MAKERS = {
    Share: lambda random: Share(random.random(), 1 / 3),
    Sums: lambda random: Sums(random.random((2, 3))),
    Histogram: lambda random: Histogram(random.integers(0, 9000, 4000), random.random((4000, 2))),
    Judgements: lambda random: Judgements(random.random((5, 4))),
    Matches: matches,
}


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_sums_go_on_as_if_nothing_had_happened(kind):
    random = np.random.default_rng(7)
    evaluators = [Fixed(kind)]
    whole, cut = Accumulator(evaluators), Accumulator(evaluators)
    for _ in range(5):
        cut.put_back(through_json(cut.state()))
        measure, cost = MAKERS[kind](random), float(random.random())
        for one in (whole, cut):
            one.add(cost, 3, [measure])
        following = Accumulator(evaluators)
        following.put_back(through_json(cut.state()))
        cut = following
    assert cut.text() == whole.text()
    assert (cut.samples, cut.average_cost()) == (15, whole.average_cost())


def sampling_model(groups=False):
    model = ModelConfig(type="nn", input_layer_names=["x"], output_layer_names=["out"])
    model.layers.add(name="x", type="data", size=4)
    layer = model.layers.add(name="out", type="sampling_id", size=4)
    layer.inputs.add(input_layer_name="x")
    return model


ROWS = {"x": Argument(value=np.full((50, 4), 0.25, np.float32))}


def ids(network):
    network.forward(ROWS, Stream(1))
    return np.concatenate([replica.outputs["out"].ids for replica in network.replicas]).tolist()


def build(count):
    model = sampling_model()
    table = ParameterTable(model.parameters)
    return (
        Network(model, table)
        if count == 1
        else DataParallelNetwork(model, table, [Stream(n) for n in range(count)], always=True)
    )


@pytest.mark.parametrize("count", [1, 3])
def test_another_network_goes_on_with_the_random_numbers_of_the_layers(count):
    first, other = build(count), build(count)
    ids(first)
    assert ids(first) != ids(other)
    other.carry_on(through_json(first.carried()))
    assert ids(other) == ids(first)


def test_streams_of_shares_go_on():
    first, other = build(2), build(2)
    first._streams[1].draw()
    other.carry_on(through_json(first.carried()))
    assert [one.state for one in other._streams] == [one.state for one in first._streams]


def test_another_number_of_shares_is_warned_of(capsys):
    build(2).carry_on(through_json(build(3).carried()))
    assert "checkpoint was written with --trainer_count=3" in capsys.readouterr().err
