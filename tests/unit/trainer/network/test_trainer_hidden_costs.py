"""As in v0.10, backward begins at every cost: at costs that are no output, that other layers read, and in steps."""

import numpy as np
import pytest
from layer_checks import make_network

from paddle.trainer_config_helpers import *
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.config.scripts.parse import parse_network_config

STARTS = np.array([0, 2, 3])
SUB_STARTS = np.array([0, 1, 2, 3])
FRAMES = np.random.default_rng(3).normal(size=(3, 2))
BATCH = {
    "x": Argument(value=FRAMES, starts=STARTS),
    "y": Argument(value=-FRAMES, starts=STARTS),
    "label": Argument(ids=np.array([1, 0, 1]), starts=STARTS),
}
NESTED = {name: Argument(one.value, one.ids, None, STARTS, SUB_STARTS) for name, one in BATCH.items()}


def train(make, batch=BATCH, without=()):
    """Run a batch, and return the network and its gradients. The data layers in `without` are no inputs."""

    def config():
        settings(batch_size=1, learning_rate=0.1)
        data = [data_layer(name=name, size=2) for name in batch]
        given = make(*data)
        inputs(*(one for one in data if one.name not in without))
        outputs(*given)

    network, table = make_network(parse_network_config(config))
    network.forward({name: one for name, one in batch.items() if name not in without}, is_training=True)
    network.backward()
    return network, {one.name: one.gradient.copy() for one in table.trained()}


def same(one, other):
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        assert gradient.any(), name
        np.testing.assert_allclose(gradient, other[name], rtol=1e-12)


def shared(x):
    return fc_layer(x, 2, act=SoftmaxActivation(), name="p", param_attr=ParamAttr(name="w"))


@pytest.mark.parametrize(
    "hidden",
    [
        lambda p, y, label: cross_entropy(p, label, coeff=0.5),
        lambda p, y, label: smooth_l1_cost(p, y),
        lambda p, y, label: crf_layer(p, label, size=2),
        lambda p, y, label: nce_layer(p, label, num_classes=2),
    ],
)
def test_a_cost_that_is_no_output_is_trained_and_not_logged(hidden):
    def make(x, y, label, is_output):
        p = shared(x)
        second, first = hidden(p, y, label), square_error_cost(p, y)
        return [first, second] if is_output else [first]

    one, ours = train(lambda *data: make(*data, is_output=False))
    both, theirs = train(lambda *data: make(*data, is_output=True))
    same(ours, theirs)
    assert one.cost() < both.cost()


def test_a_cost_whose_data_are_no_input_is_left_out():
    def make(x, y, label):
        p = shared(x)
        cross_entropy(p, label, name="hidden")
        return [square_error_cost(p, y)]

    network, _ = train(make, without=["label"])
    assert "hidden" not in network.outputs


def test_what_reads_a_cost_does_not_change_its_gradient():
    def make(x, y, label, factor):
        p = shared(x)
        return [factor * cross_entropy(p, label), square_error_cost(p, y)]

    (weighted, ours), (_, theirs) = (train(lambda *data, f=f: make(*data, f)) for f in (0.3, 1))
    same(ours, theirs)
    assert weighted.cost() < train(lambda *data: make(*data, 1))[0].cost()


def step(x, target, is_result, coeff=1.0):
    h = fc_layer([x, memory("h", 2)], 2, act=TanhActivation(), name="h")
    cost = square_error_cost(h, target, coeff=coeff)
    return [h, cost] if is_result else h


@pytest.mark.parametrize("coeff", [1.0, 0.5], ids=["all steps at once", "step by step"])
def test_a_cost_in_a_step_is_trained(coeff):
    def make(x, y, label, is_result):
        found = recurrent_group(lambda *given: step(*given, is_result, coeff), [x, y], name="g")
        return [square_error_cost(found[0], x), found[1]] if is_result else [square_error_cost(found, x)]

    same(*(train(lambda *data, f=flag: make(*data, f))[1] for flag in (False, True)))


def test_a_cost_of_a_step_whose_results_are_pooled_has_the_gradient_of_every_frame():
    def make(x, y, label, pool):
        cost = recurrent_group(lambda *given: step(*given, True)[1], [x, y], name="g")
        return [pooling_layer(cost, AvgPooling()) if pool else cost]

    same(*(train(lambda *data, f=flag: make(*data, f))[1] for flag in (False, True)))


def test_a_group_is_run_for_its_cost_alone_also_inside_another_group():
    def make(x, y, label, group):
        if group:
            outer = lambda *given: recurrent_group(lambda *inner: step(*inner, False), given, name="inner")  # noqa: E731
            recurrent_group(outer, [SubsequenceInput(x), SubsequenceInput(y)], name="outer")
        return [square_error_cost(shared(x), y)]

    network, gradients = train(lambda *data: make(*data, True), NESTED)
    assert gradients["_h@inner@outer.w0"].any() and gradients["w"].any()
    assert not any("inner" in name for name in network.outputs)


def test_unread_layers_draw_their_masks_and_move_their_averages():
    def make(x, y, label):
        batch_norm_layer(dropout_layer(x, 0.5, name="dropped"), name="norm")
        return [square_error_cost(shared(x), y)]

    network, _ = train(make)
    moving = network.parameters["_norm.w1"].value
    before, stream = moving.copy(), Stream(1)
    network.forward(BATCH, stream)
    expected = Stream(1)
    expected.skip(FRAMES.size)
    assert stream.state == expected.state
    assert (moving != before).any()
