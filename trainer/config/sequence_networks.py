"""Networks of several layers over sequences: convolution and pooling of texts, recurrent units, attention.

Source: legacy trainer_config_helpers/networks.py; the specification's section 9.
"""

from __future__ import annotations

import math
from typing import Any

from trainer.config.activations import IdentityActivation, SequenceSoftmaxActivation, TanhActivation
from trainer.config.declare import helper
from trainer.config.layer import LayerOutput, columns_of, to_layer
from trainer.config.layers.arithmetic import dot_prod_layer, scaling_layer, slope_intercept_layer
from trainer.config.layers.basic import fc_layer
from trainer.config.layers.groups import memory, recurrent_group
from trainer.config.layers.mixed import concat_layer, mixed_layer
from trainer.config.layers.projections import context_projection, full_matrix_projection, identity_projection
from trainer.config.layers.recurrent import (
    get_output_layer,
    gru_step_layer,
    gru_step_naive_layer,
    grumemory,
    lstm_step_layer,
    lstmemory,
)
from trainer.config.layers.sequence import expand_layer, first_seq, last_seq, pooling_layer
from trainer.config.misuse import to_size, wrong
from trainer.config.poolings import SumPooling


@helper("networks", prefix="sequence_conv_pooling", also="text_conv_pool")
def sequence_conv_pool(
    input: Any,
    context_len: int,
    hidden_size: int,
    name: str | None = None,
    context_start: int | None = None,
    pool_type: Any = None,
    context_proj_layer_name: str | None = None,
    context_proj_param_attr: Any = False,
    fc_layer_name: str | None = None,
    fc_param_attr: Any = None,
    fc_bias_attr: Any = None,
    fc_act: Any = None,
    pool_bias_attr: Any = None,
    fc_attr: Any = None,
    context_attr: Any = None,
    pool_attr: Any = None,
) -> LayerOutput:
    """Connect each window of context_len rows with hidden_size outputs, and pool them over the sequence."""
    source = to_layer("input", input)
    windows = mixed_layer(
        name=context_proj_layer_name or f"{name}_conv_proj",
        size=columns_of(source) * to_size("context_len", context_len),
        act=IdentityActivation(),
        layer_attr=context_attr,
        input=[
            context_projection(
                source, context_len=context_len, context_start=context_start, padding_attr=context_proj_param_attr
            )
        ],
    )
    hidden = fc_layer(
        name=fc_layer_name or f"{name}_conv_fc",
        input=windows,
        size=hidden_size,
        act=fc_act,
        layer_attr=fc_attr,
        param_attr=fc_param_attr,
        bias_attr=fc_bias_attr,
    )
    return pooling_layer(
        name=name, input=hidden, pooling_type=pool_type, bias_attr=pool_bias_attr, layer_attr=pool_attr
    )


@helper("networks", prefix="lstm")
def simple_lstm(
    input: Any,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mat_param_attr: Any = None,
    bias_param_attr: Any = None,
    inner_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    state_act: Any = None,
    mixed_layer_attr: Any = None,
    lstm_cell_attr: Any = None,
) -> LayerOutput:
    """Project the input and run a long short-term memory over it."""
    projected = mixed_layer(
        name=f"lstm_transform_{name}",
        size=to_size("size", size) * 4,
        act=IdentityActivation(),
        layer_attr=mixed_layer_attr,
        bias_attr=False,
        input=[full_matrix_projection(input, param_attr=mat_param_attr)],
    )
    return lstmemory(
        name=name,
        input=projected,
        reverse=reverse,
        bias_attr=bias_param_attr,
        param_attr=inner_param_attr,
        act=act,
        gate_act=gate_act,
        state_act=state_act,
        layer_attr=lstm_cell_attr,
    )


def _part(source: LayerOutput, parts: int, size: Any) -> int:
    if size is not None:
        return to_size("size", size)
    columns, rest = divmod(columns_of(source), parts)
    if rest:
        raise wrong("input", source, f"its size must be a multiple of {parts}")
    return columns


# v0.10's names of two arguments
_RENAMED = {"mixed_bias_attr": "input_proj_bias_attr", "mixed_layer_attr": "input_proj_layer_attr"}


@helper("networks", prefix="lstm_unit", renamed=_RENAMED)
def lstmemory_unit(
    input: Any,
    out_memory: Any = None,
    name: str | None = None,
    size: int | None = None,
    param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    state_act: Any = None,
    input_proj_bias_attr: Any = None,
    input_proj_layer_attr: Any = None,
    lstm_bias_attr: Any = None,
    lstm_layer_attr: Any = None,
    get_output_layer_attr: Any = None,
) -> LayerOutput:
    """One step of a long short-term memory inside of a recurrent group; the input holds the four projections.

    get_output_layer_attr is of v0.10.
    """
    source = to_layer("input", input)
    columns = _part(source, 4, size)
    last_output = memory(name=name, size=columns) if out_memory is None else to_layer("out_memory", out_memory)
    last_state = memory(name=f"{name}_state", size=columns)
    gates = mixed_layer(
        name=f"{name}_input_recurrent",
        size=columns * 4,
        bias_attr=input_proj_bias_attr,
        layer_attr=input_proj_layer_attr,
        act=IdentityActivation(),
        input=[identity_projection(source), full_matrix_projection(last_output, param_attr=param_attr)],
    )
    output = lstm_step_layer(
        name=name,
        input=gates,
        state=last_state,
        size=columns,
        bias_attr=lstm_bias_attr,
        act=act,
        gate_act=gate_act,
        state_act=state_act,
        layer_attr=lstm_layer_attr,
    )
    get_output_layer(name=f"{name}_state", input=output, arg_name="state", layer_attr=get_output_layer_attr)
    return output


@helper("networks", prefix="lstm_group", renamed=_RENAMED)
def lstmemory_group(
    input: Any,
    size: int | None = None,
    name: str | None = None,
    out_memory: Any = None,
    reverse: bool = False,
    param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    state_act: Any = None,
    input_proj_bias_attr: Any = None,
    input_proj_layer_attr: Any = None,
    lstm_bias_attr: Any = None,
    lstm_layer_attr: Any = None,
    get_output_layer_attr: Any = None,
) -> LayerOutput:
    """Run a long short-term memory as a recurrent group, whose parts other layers of the group could use."""

    def step(frame: LayerOutput) -> LayerOutput:
        return lstmemory_unit(
            input=frame,
            name=name,
            size=size,
            out_memory=out_memory,
            param_attr=param_attr,
            act=act,
            gate_act=gate_act,
            state_act=state_act,
            input_proj_bias_attr=input_proj_bias_attr,
            input_proj_layer_attr=input_proj_layer_attr,
            lstm_bias_attr=lstm_bias_attr,
            lstm_layer_attr=lstm_layer_attr,
            get_output_layer_attr=get_output_layer_attr,
        )

    group: LayerOutput = recurrent_group(name=f"{name}_recurrent_group", step=step, reverse=reverse, input=input)
    return group


@helper("networks")
def gru_unit(
    input: Any,
    memory_boot: Any = None,
    size: int | None = None,
    name: str | None = None,
    gru_bias_attr: Any = None,
    gru_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    gru_layer_attr: Any = None,
    naive: bool = False,
) -> LayerOutput:
    """One step of a gated recurrent unit inside of a recurrent group; the input holds the three projections."""
    source = to_layer("input", input)
    columns = _part(source, 3, size)
    last_output = memory(name=name, size=columns, boot_layer=memory_boot)
    step = gru_step_naive_layer if naive else gru_step_layer
    return step(
        name=name,
        input=source,
        output_mem=last_output,
        size=columns,
        bias_attr=gru_bias_attr,
        param_attr=gru_param_attr,
        act=act,
        gate_act=gate_act,
        layer_attr=gru_layer_attr,
    )


@helper("networks")
def gru_group(
    input: Any,
    memory_boot: Any = None,
    size: int | None = None,
    name: str | None = None,
    reverse: bool = False,
    gru_bias_attr: Any = None,
    gru_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    gru_layer_attr: Any = None,
    naive: bool = False,
) -> LayerOutput:
    """Run a gated recurrent unit as a recurrent group."""

    def step(frame: LayerOutput) -> LayerOutput:
        return gru_unit(
            input=frame,
            memory_boot=memory_boot,
            name=name,
            size=size,
            gru_bias_attr=gru_bias_attr,
            gru_param_attr=gru_param_attr,
            act=act,
            gate_act=gate_act,
            gru_layer_attr=gru_layer_attr,
            naive=naive,
        )

    group: LayerOutput = recurrent_group(name=f"{name}_recurrent_group", step=step, reverse=reverse, input=input)
    return group


@helper("networks")
def simple_gru(
    input: Any,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: Any = None,
    mixed_bias_param_attr: Any = None,
    mixed_layer_attr: Any = None,
    gru_bias_attr: Any = None,
    gru_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    gru_layer_attr: Any = None,
    naive: bool = False,
) -> LayerOutput:
    """Project the input and run a gated recurrent unit over it, as a recurrent group."""
    projected = mixed_layer(
        name=f"{name}_transform",
        size=to_size("size", size) * 3,
        bias_attr=mixed_bias_param_attr,
        layer_attr=mixed_layer_attr,
        input=[full_matrix_projection(input, param_attr=mixed_param_attr)],
    )
    return gru_group(
        name=name,
        size=size,
        input=projected,
        reverse=reverse,
        gru_bias_attr=gru_bias_attr,
        gru_param_attr=gru_param_attr,
        act=act,
        gate_act=gate_act,
        gru_layer_attr=gru_layer_attr,
        naive=naive,
    )


@helper("networks")
def simple_gru2(
    input: Any,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: Any = None,
    mixed_bias_attr: Any = None,
    gru_param_attr: Any = None,
    gru_bias_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    mixed_layer_attr: Any = None,
    gru_cell_attr: Any = None,
) -> LayerOutput:
    """Project the input and run a gated recurrent unit over it, as one layer (faster than simple_gru)."""
    projected = mixed_layer(
        name=f"{name}_transform",
        size=to_size("size", size) * 3,
        bias_attr=mixed_bias_attr,
        layer_attr=mixed_layer_attr,
        input=[full_matrix_projection(input, param_attr=mixed_param_attr)],
    )
    return grumemory(
        name=name,
        input=projected,
        reverse=reverse,
        bias_attr=gru_bias_attr,
        param_attr=gru_param_attr,
        act=act,
        gate_act=gate_act,
        layer_attr=gru_cell_attr,
    )


def _join_directions(
    name: str | None,
    forward: LayerOutput,
    backward: LayerOutput,
    return_seq: bool,
    last_seq_attr: Any,
    first_seq_attr: Any,
    concat_attr: Any,
    concat_act: Any,
) -> LayerOutput:
    """Put both directions side by side: their sequences, or the row of each that has seen the whole sequence."""
    ends = [forward, backward]
    if not return_seq:
        ends = [
            last_seq(name=f"{name}_fw_last", input=forward, layer_attr=last_seq_attr),
            first_seq(name=f"{name}_bw_last", input=backward, layer_attr=first_seq_attr),
        ]
    return concat_layer(name=name, input=ends, layer_attr=concat_attr, act=concat_act)


@helper("networks")
def bidirectional_lstm(
    input: Any,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mat_param_attr: Any = None,
    fwd_bias_param_attr: Any = None,
    fwd_inner_param_attr: Any = None,
    fwd_act: Any = None,
    fwd_gate_act: Any = None,
    fwd_state_act: Any = None,
    fwd_mixed_layer_attr: Any = None,
    fwd_lstm_cell_attr: Any = None,
    bwd_mat_param_attr: Any = None,
    bwd_bias_param_attr: Any = None,
    bwd_inner_param_attr: Any = None,
    bwd_act: Any = None,
    bwd_gate_act: Any = None,
    bwd_state_act: Any = None,
    bwd_mixed_layer_attr: Any = None,
    bwd_lstm_cell_attr: Any = None,
    last_seq_attr: Any = None,
    first_seq_attr: Any = None,
    concat_attr: Any = None,
    concat_act: Any = None,
) -> LayerOutput:
    """Run a simple_lstm in each direction; with return_seq the result is a sequence."""
    forward = simple_lstm(
        name=f"{name}_fw",
        input=input,
        size=size,
        mat_param_attr=fwd_mat_param_attr,
        bias_param_attr=fwd_bias_param_attr,
        inner_param_attr=fwd_inner_param_attr,
        act=fwd_act,
        gate_act=fwd_gate_act,
        state_act=fwd_state_act,
        mixed_layer_attr=fwd_mixed_layer_attr,
        lstm_cell_attr=fwd_lstm_cell_attr,
    )
    backward = simple_lstm(
        name=f"{name}_bw",
        input=input,
        size=size,
        reverse=True,
        mat_param_attr=bwd_mat_param_attr,
        bias_param_attr=bwd_bias_param_attr,
        inner_param_attr=bwd_inner_param_attr,
        act=bwd_act,
        gate_act=bwd_gate_act,
        state_act=bwd_state_act,
        mixed_layer_attr=bwd_mixed_layer_attr,
        lstm_cell_attr=bwd_lstm_cell_attr,
    )
    return _join_directions(name, forward, backward, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


@helper("networks")
def bidirectional_gru(
    input: Any,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mixed_param_attr: Any = None,
    fwd_mixed_bias_attr: Any = None,
    fwd_gru_param_attr: Any = None,
    fwd_gru_bias_attr: Any = None,
    fwd_act: Any = None,
    fwd_gate_act: Any = None,
    fwd_mixed_layer_attr: Any = None,
    fwd_gru_cell_attr: Any = None,
    bwd_mixed_param_attr: Any = None,
    bwd_mixed_bias_attr: Any = None,
    bwd_gru_param_attr: Any = None,
    bwd_gru_bias_attr: Any = None,
    bwd_act: Any = None,
    bwd_gate_act: Any = None,
    bwd_mixed_layer_attr: Any = None,
    bwd_gru_cell_attr: Any = None,
    last_seq_attr: Any = None,
    first_seq_attr: Any = None,
    concat_attr: Any = None,
    concat_act: Any = None,
) -> LayerOutput:
    """Run a simple_gru2 in each direction; with return_seq the result is a sequence."""
    forward = simple_gru2(
        name=f"{name}_fw",
        input=input,
        size=size,
        mixed_param_attr=fwd_mixed_param_attr,
        mixed_bias_attr=fwd_mixed_bias_attr,
        gru_param_attr=fwd_gru_param_attr,
        gru_bias_attr=fwd_gru_bias_attr,
        act=fwd_act,
        gate_act=fwd_gate_act,
        mixed_layer_attr=fwd_mixed_layer_attr,
        gru_cell_attr=fwd_gru_cell_attr,
    )
    backward = simple_gru2(
        name=f"{name}_bw",
        input=input,
        size=size,
        reverse=True,
        mixed_param_attr=bwd_mixed_param_attr,
        mixed_bias_attr=bwd_mixed_bias_attr,
        gru_param_attr=bwd_gru_param_attr,
        gru_bias_attr=bwd_gru_bias_attr,
        act=bwd_act,
        gate_act=bwd_gate_act,
        mixed_layer_attr=bwd_mixed_layer_attr,
        gru_cell_attr=bwd_gru_cell_attr,
    )
    return _join_directions(name, forward, backward, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


def _weighted_sum(
    name: str | None, number: str, scores: LayerOutput, sequence: LayerOutput, softmax_param_attr: Any
) -> LayerOutput:
    """Add up the rows of a sequence, each times its share in the softmax of its score."""
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
    """Return the rows of encoded_sequence, weighted by how they fit the decoder's state (Bahdanau)."""
    sequence, projected = to_layer("encoded_sequence", encoded_sequence), to_layer("encoded_proj", encoded_proj)
    state = to_layer("decoder_state", decoder_state)
    if projected.size != state.size:
        raise wrong("decoder_state", state, f"its size must be {projected.size}, that of encoded_proj")
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
    """Return the rows of attended_sequence, weighted by the products of encoded_sequence and a state."""
    encoded, state = to_layer("encoded_sequence", encoded_sequence), to_layer("transformed_state", transformed_state)
    attended = to_layer("attended_sequence", attended_sequence)
    if state.size != encoded.size:
        raise wrong("transformed_state", state, f"its size must be {encoded.size}, that of encoded_sequence")
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
    """Attend head_num times to parts of the projected keys and values, and put the results side by side."""
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
