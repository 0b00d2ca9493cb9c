"""Attention: the weighted sum of a sequence's rows, with weights that depend on a decoder's state.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

import math
from typing import Any

from trainer.config.building.activations import SequenceSoftmaxActivation, TanhActivation
from trainer.config.building.argument_errors import to_size, wrong
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, columns_of, to_layer
from trainer.config.language.layers.arithmetic import dot_prod_layer, scaling_layer, slope_intercept_layer
from trainer.config.language.layers.basic import fc_layer
from trainer.config.language.layers.mixed import concat_layer, mixed_layer
from trainer.config.language.layers.projections import full_matrix_projection, identity_projection
from trainer.config.language.layers.sequence import expand_layer, pooling_layer
from trainer.config.language.poolings import SumPooling


def _weighted_sum(
    name: str | None, number: str, scores: LayerOutput, sequence: LayerOutput, softmax_param_attr: Any
) -> LayerOutput:
    """Return the weighted sum of a sequence's rows; the weights are the softmax of a trained fc_layer of the scores."""
    weights = fc_layer(
        input=scores,
        act=SequenceSoftmaxActivation(),
        size=1,
        name=f"{name}_softmax{number}",
        param_attr=softmax_param_attr,
        bias_attr=False,
    )
    scaled = scaling_layer(weight=weights, input=sequence, name=f"{name}_scaling{number}")
    return pooling_layer(input=scaled, pooling_type=SumPooling(), name=f"{name}_pooling{number}")


@helper("networks")
def simple_attention(
    encoded_sequence: Any,
    encoded_proj: Any,
    decoder_state: Any,
    transform_param_attr: Any = None,
    softmax_param_attr: Any = None,
    weight_act: Any = None,
    name: str | None = None,
) -> LayerOutput:
    """Return the weighted sum of the rows of encoded_sequence (additive attention of Bahdanau).

    The weight of a row depends on the row of encoded_proj and on the decoder's state.
    """
    sequence, projected = to_layer("encoded_sequence", encoded_sequence), to_layer("encoded_proj", encoded_proj)
    state = to_layer("decoder_state", decoder_state)
    if projected.size != state.size:
        raise wrong("decoder_state", state, f"its size must be {projected.size}, the size of encoded_proj")
    transformed = mixed_layer(
        size=columns_of(projected),
        name=f"{name}_transform",
        input=[full_matrix_projection(state, param_attr=transform_param_attr)],
    )
    expanded = expand_layer(input=transformed, expand_as=sequence, name=f"{name}_expand")
    scores = mixed_layer(
        size=columns_of(projected),
        act=TanhActivation() if weight_act is None else weight_act,
        name=f"{name}_combine",
        input=[identity_projection(expanded), identity_projection(projected)],
    )
    return _weighted_sum(name, "", scores, sequence, softmax_param_attr)


@helper("networks")
def dot_product_attention(
    encoded_sequence: Any,
    attended_sequence: Any,
    transformed_state: Any,
    softmax_param_attr: Any = None,
    name: str | None = None,
) -> LayerOutput:
    """Return the weighted sum of the rows of attended_sequence.

    The weights are the softmax of w s, where w is a trained number and s is the scalar product of a row of
    encoded_sequence and transformed_state.
    """
    encoded, state = to_layer("encoded_sequence", encoded_sequence), to_layer("transformed_state", transformed_state)
    attended = to_layer("attended_sequence", attended_sequence)
    if state.size != encoded.size:
        raise wrong("transformed_state", state, f"its size must be {encoded.size}, the size of encoded_sequence")
    expanded = expand_layer(input=state, expand_as=encoded, name=f"{name}_expand")
    scores = dot_prod_layer(input1=expanded, input2=encoded, name=f"{name}_dot-product")
    return _weighted_sum(name, "", scores, attended, softmax_param_attr)


_DOT_PRODUCT = "dot-product attention"
_ADDITIVE = "additive attention"


@helper("networks")
def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    key_proj_size: int,
    value_proj_size: int,
    head_num: int,
    attention_type: str,
    softmax_param_attr: Any = None,
    name: str | None = None,
) -> LayerOutput:
    """Project query, key and value, apply attention to each of head_num parts, and put the results side by side."""
    if attention_type not in (_DOT_PRODUCT, _ADDITIVE):
        raise wrong("attention_type", attention_type, f"it must be {_DOT_PRODUCT!r} or {_ADDITIVE!r}")
    heads = to_size("head_num", head_num)
    key_size, value_size = to_size("key_proj_size", key_proj_size), to_size("value_proj_size", value_proj_size)

    def project(what: str, layer: Any, size: int) -> LayerOutput:
        terms = [full_matrix_projection(layer)]
        return mixed_layer(size=size * heads, name=f"{name}_{what}_proj", input=terms)

    def part(layer: LayerOutput, size: int, head: int) -> LayerOutput:
        return mixed_layer(size=size, input=[identity_projection(layer, offset=size * head, size=size)])

    queries = expand_layer(input=project("query", query, key_size), expand_as=key)
    keys, values = project("key", key, key_size), project("value", value, value_size)
    results = []
    for head in range(heads):
        # the parts have automatic names, which follow from the order of these calls
        query_part, key_part = part(queries, key_size, head), part(keys, key_size, head)
        value_part = part(values, value_size, head)
        if attention_type == _DOT_PRODUCT:
            product = dot_prod_layer(input1=query_part, input2=key_part, name=f"{name}_dot-product_{head}")
            scores = slope_intercept_layer(
                input=product, slope=math.sqrt(1 / key_size), name=f"{name}_dot-product_scaling_{head}"
            )
        else:
            scores = mixed_layer(
                size=key_size,
                act=TanhActivation(),
                name=f"{name}_combine_{head}",
                input=[identity_projection(query_part), identity_projection(key_part)],
            )
        results.append(_weighted_sum(name, f"_{head}", scores, value_part, softmax_param_attr))
    return concat_layer(results)
