"""Arguments of earlier versions (specification 19)."""

import pytest

from paddle_base.runtime.errors import ConfigError

LAYERS = "x, ids, id = data_layer('x', 4), data_layer('ids', 3), data_layer('id', 1)\n"

# a call as some version had it: the same call today
CALLS = {
    "pnpair_evaluator(x, ids, info=id)": "pnpair_evaluator(x, ids, query_id=id)",
    "chunk_evaluator([x, ids], chunk_scheme='IOB', num_chunk_types=2)": "chunk_evaluator(x, ids, 'IOB', 2)",
    "lstmemory_group(x, mixed_bias_attr=True)": "lstmemory_group(x, input_proj_bias_attr=True)",
    "lstmemory_group(x, mixed_layer_attr=ExtraAttr(drop_rate=0.5))": (
        "lstmemory_group(x, input_proj_layer_attr=ExtraAttr(drop_rate=0.5))"
    ),
    "nce_layer(x, ids, act=SigmoidActivation())": "nce_layer(x, ids)",
    "recurrent_group(lambda f: fc_layer(f, 1), x, is_generating=False)": "recurrent_group(lambda f: fc_layer(f, 1), x)",
}


@pytest.mark.parametrize("call", CALLS)
def test_an_earlier_version_s_call_is_today_s(parse_text, call):
    end = "\nfc_layer(x, 1)"
    assert parse_text(LAYERS + call + end) == parse_text(LAYERS + CALLS[call] + end)


def test_top_k_of_a_classification_cost_goes_to_its_evaluator(parse_text):
    config = parse_text(LAYERS + "classification_cost(fc_layer(x, 3, act=SoftmaxActivation()), ids, top_k=2)")
    assert config.model_config.evaluators[0].top_k == 2


def test_a_chunk_evaluator_needs_a_label(parse_text):
    with pytest.raises(ConfigError, match="label is None; it must be a layer"):
        parse_text(LAYERS + "chunk_evaluator(x, chunk_scheme='IOB', num_chunk_types=2)")


@pytest.mark.parametrize("kind, size", [("lstmemory", 8), ("grumemory", 6)])
def test_dropout_of_recurrent_layers_is_accepted_as_until_v0_10(parse_text, kind, size):
    config = parse_text(f"{kind}(data_layer('x', {size}), name='l', layer_attr=ExtraAttr(drop_rate=0.25))")
    assert config.model_config.layers[1].drop_rate == 0.25
