"""Recurrent networks that run over a sequence in both directions.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput
from trainer.config.language.layers.mixed import concat_layer
from trainer.config.language.layers.sequence import first_seq, last_seq
from trainer.config.language.networks.gru import simple_gru2
from trainer.config.language.networks.lstm import simple_lstm
from trainer.config.language.networks.parts import with_prefix


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
    """Put the results of both directions side by side: all rows with return_seq, else each direction's final row."""
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
    """Run a simple_lstm in each direction; return one row per sequence, or with return_seq the whole sequences."""
    given = locals()
    forward = simple_lstm(name=f"{name}_fw", input=input, size=size, **with_prefix(given, "fwd_"))
    backward = simple_lstm(name=f"{name}_bw", input=input, size=size, reverse=True, **with_prefix(given, "bwd_"))
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
    """Run a simple_gru2 in each direction; return one row per sequence, or with return_seq the whole sequences."""
    given = locals()
    forward = simple_gru2(name=f"{name}_fw", input=input, size=size, **with_prefix(given, "fwd_"))
    backward = simple_gru2(name=f"{name}_bw", input=input, size=size, reverse=True, **with_prefix(given, "bwd_"))
    return _join_directions(name, forward, backward, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)
