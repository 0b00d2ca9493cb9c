"""Attention: the layers that spell it out, against the two that the network makes of them."""

import numpy as np
import pytest

from paddle.trainer_config_helpers import *
from paddle_base import kernels
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config.scripts.parse import parse_network_config
from trainer.network import network

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="without the compiled module layers are not combined")
STARTS = np.array([0, 2, 2, 5, 9])


def attend(**more):
    encoded, projected, state = (data_layer(name, size) for name, size in SIZES.items())
    context = simple_attention(
        encoded_sequence=encoded, encoded_proj=projected, decoder_state=state, name="attention", **more
    )
    return fc_layer(context, 1, act=SquareActivation())


SIZES = {"encoded": 6, "projected": 4, "state": 4}
COMBINED = {"attention_expand", "attention_combine", "attention_scaling"}


def make_batch(dtype, starts=STARTS):
    draw = np.random.default_rng(1)
    frames = {"encoded": 6, "projected": 4}
    batch = {
        name: Argument(draw.normal(size=(STARTS[-1], n)).astype(dtype), starts=starts) for name, n in frames.items()
    }
    return {**batch, "state": Argument(draw.normal(size=(len(STARTS) - 1, 4)).astype(dtype))}


def build(make, dtype):
    def config():
        settings(batch_size=1, learning_rate=0.1)
        outputs(make())

    model = parse_network_config(config)
    table = ParameterTable(model.parameters, dtype)
    table.randomize(Stream(1))
    return network.Network(model, table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_two_layers_are_those_that_the_configuration_spells_out(dtype, monkeypatch):
    def make():
        return attend(transform_param_attr=ParamAttr(initial_std=0.5))

    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(network, "compiled", compiled)
        net = build(make, dtype)
        assert COMBINED.isdisjoint(net.forward(make_batch(dtype))) == (compiled is not None)
        net.parameters.clear_gradients()
        net.backward()
        results.append([net.outputs["attention_pooling"].value, net.parameters.gradients])
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_layers_whose_results_others_need_are_not_combined():
    def make():
        encoded, projected, state = (data_layer(name, size) for name, size in SIZES.items())
        expanded = expand_layer(state, expand_as=encoded, name="attention_expand")
        sums = mixed_layer(
            size=4, act=TanhActivation(), input=[identity_projection(expanded), identity_projection(projected)]
        )
        weights = fc_layer(sums, 1, act=SequenceSoftmaxActivation(), bias_attr=False)
        scaled = scaling_layer(weight=weights, input=encoded, name="attention_scaling")
        context = pooling_layer(scaled, pooling_type=SumPooling())
        return [fc_layer(context, 1), sum_cost(scaled), sum_cost(expanded)]

    outputs_of = build(make, np.float32).forward(make_batch(np.float32))
    assert {"attention_expand", "attention_scaling"} <= outputs_of.keys()


def test_an_attention_with_another_activation_is_not_combined():
    outputs_of = build(lambda: attend(weight_act=LinearActivation()), np.float32).forward(make_batch(np.float32))
    assert {"attention_expand", "attention_combine"} <= outputs_of.keys()


def test_a_state_for_each_sequence_and_a_frame_for_each_weight_are_needed():
    batch = make_batch(np.float32)
    net = build(attend, np.float32)
    with pytest.raises(DataError, match="4 rows for 3 sequences"):
        net.forward({**batch, "encoded": Argument(batch["encoded"].value, starts=np.array([0, 2, 5, 9]))})
    with pytest.raises(DataError, match="9 frames, but its sequences have 8 frames"):
        net.forward({**batch, "encoded": Argument(batch["encoded"].value[:8], starts=np.array([0, 2, 2, 5, 8]))})
