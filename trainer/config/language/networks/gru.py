"""Gated recurrent units (GRU), as layers over whole sequences and as recurrent groups.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import to_size
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, to_layer
from trainer.config.language.layers.groups import memory, recurrent_group
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import full_matrix_projection
from trainer.config.language.layers.recurrent import (
    gru_step_layer,
    gru_step_naive_layer,
    grumemory,
)
from trainer.config.language.networks.parts import columns_of_part, without


@helper("networks")
def gru_unit(
    input: Any,
    size: int | None = None,
    name: str | None = None,
    gru_bias_attr: Any = None,
    gru_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    gru_layer_attr: Any = None,
    naive: bool = False,
    *,
    memory_boot: Any = None,
) -> LayerOutput:
    """Compute one step of a GRU inside a recurrent group.

    The input holds the projections for the update gate, the reset gate and the candidate.
    """
    source = to_layer("input", input)
    columns = columns_of_part(source, 3, size)
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
    size: int | None = None,
    name: str | None = None,
    reverse: bool = False,
    gru_bias_attr: Any = None,
    gru_param_attr: Any = None,
    act: Any = None,
    gate_act: Any = None,
    gru_layer_attr: Any = None,
    naive: bool = False,
    *,
    memory_boot: Any = None,
) -> LayerOutput:
    """Run a gated recurrent unit as a recurrent group."""
    unit = without(locals(), "input", "reverse")

    def step(frame: LayerOutput) -> LayerOutput:
        return gru_unit(input=frame, **unit)

    group: LayerOutput = recurrent_group(name=f"{name}_recurrent_group", step=step, reverse=reverse, input=input)
    return group


def _project(input: Any, size: Any, name: str | None, param_attr: Any, bias_attr: Any, layer_attr: Any) -> LayerOutput:
    """Return the three projections of the input: for the update gate, the reset gate and the candidate."""
    return mixed_layer(
        name=f"{name}_transform",
        size=to_size("size", size) * 3,
        bias_attr=bias_attr,
        layer_attr=layer_attr,
        input=[full_matrix_projection(input, param_attr=param_attr)],
    )


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
    """Project the input, and run a gated recurrent unit over the projection as a recurrent group."""
    unit = without(locals(), "input", "mixed_param_attr", "mixed_bias_param_attr", "mixed_layer_attr")
    projected = _project(input, size, name, mixed_param_attr, mixed_bias_param_attr, mixed_layer_attr)
    return gru_group(input=projected, **unit)


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
    """Project the input, and run a gated recurrent unit over the projection as one layer (faster than simple_gru)."""
    projected = _project(input, size, name, mixed_param_attr, mixed_bias_attr, mixed_layer_attr)
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
