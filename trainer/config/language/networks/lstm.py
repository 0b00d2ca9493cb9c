"""Long short-term memories (LSTM), as layers over whole sequences and as recurrent groups.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.activations import IdentityActivation
from trainer.config.building.argument_errors import to_size
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, to_layer
from trainer.config.language.layers.groups import memory, recurrent_group
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import full_matrix_projection, identity_projection
from trainer.config.language.layers.recurrent import (
    get_output_layer,
    lstm_step_layer,
    lstmemory,
)
from trainer.config.language.networks.parts import columns_of_part, without


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
    """Project the input, and run a long short-term memory over the projection."""
    projected = mixed_layer(
        name=f"lstm_transform_{name}",
        size=to_size("size", size) * 4,
        act=IdentityActivation(),
        layer_attr=mixed_layer_attr,
        bias_attr=False,  # lstmemory has the biases of the gates
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


# two arguments of v0.10, with their present names
_RENAMED = {"mixed_bias_attr": "input_proj_bias_attr", "mixed_layer_attr": "input_proj_layer_attr"}


@helper("networks", prefix="lstm_unit", renamed=_RENAMED)
def lstmemory_unit(
    input: Any,
    name: str | None = None,
    size: int | None = None,
    param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    state_act: Any = None,
    input_proj_bias_attr: Any = None,
    lstm_bias_attr: Any = None,
    input_proj_layer_attr: Any = None,
    lstm_layer_attr: Any = None,
    get_output_layer_attr: Any = None,
    *,
    out_memory: Any = None,
) -> LayerOutput:
    """Compute one step of an LSTM inside a recurrent group.

    The input holds the projections for the candidate and the three gates. get_output_layer_attr, an argument of v0.10,
    has the attributes of the layer that outputs the state.
    """
    source = to_layer("input", input)
    columns = columns_of_part(source, 4, size)
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
    # `last_state` refers to this layer by its name
    get_output_layer(name=f"{name}_state", input=output, arg_name="state", layer_attr=get_output_layer_attr)
    return output


@helper("networks", prefix="lstm_group", renamed=_RENAMED)
def lstmemory_group(
    input: Any,
    size: int | None = None,
    name: str | None = None,
    reverse: bool = False,
    param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    state_act: Any = None,
    input_proj_bias_attr: Any = None,
    lstm_bias_attr: Any = None,
    input_proj_layer_attr: Any = None,
    lstm_layer_attr: Any = None,
    get_output_layer_attr: Any = None,
    *,
    out_memory: Any = None,
) -> LayerOutput:
    """Run an LSTM as a recurrent group, so that other layers can use its parts."""
    unit = without(locals(), "input", "reverse")

    def step(frame: LayerOutput) -> LayerOutput:
        return lstmemory_unit(input=frame, **unit)

    group: LayerOutput = recurrent_group(name=f"{name}_recurrent_group", step=step, reverse=reverse, input=input)
    return group
