"""Recurrent units of raw configs: LSTM and GRU as the step of a group, and as a whole group.

`inputs` are projections. The names of all parameters begin with `para_prefix`, by default the unit's name; units with
one prefix share their parameters. `out_memory` is the memory of the output, if the config has made it itself. The naive
units compute the same as the others, from simpler layers.

Source: python/paddle/trainer/recurrent_units.py of v0.10, from memory: spec/config.md has no facts about it, and no
recorded file has the names of its layers and parameters. The types of the layers are those of spec/config.md 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.config.v1.groups import Memory, RecurrentLayerGroupBegin, RecurrentLayerGroupEnd
from trainer.config.v1.inputs import (
    Bias,
    DotMulOperator,
    DotMulProjection,
    FullMatrixProjection,
    IdentityOffsetProjection,
    IdentityProjection,
    Input,
)
from trainer.config.v1.layers import ExpressionLayer, Layer

__all__ = [
    "GatedRecurrentLayerGroup",
    "GatedRecurrentUnit",
    "GatedRecurrentUnitNaive",
    "LstmRecurrentLayerGroup",
    "LstmRecurrentUnit",
    "LstmRecurrentUnitNaive",
]


def _lstm_gates(name: str, size: int, inputs: list[Any], prefix: str, clipping: float, output: str) -> str:
    """Add the layer with the columns of the candidate and of the input, forget and output gates."""
    gates = f"{name}_input_recurrent"
    Layer(
        name=gates,
        type="mixed",
        size=size * 4,
        error_clipping_threshold=clipping,
        bias=Bias(initial_std=0, parameter_name=f"{prefix}_input_recurrent.b"),
        inputs=[*inputs, FullMatrixProjection(output, parameter_name=f"{prefix}_input_recurrent.w")],
    )
    return gates


def LstmRecurrentUnit(
    name: str,
    size: int,
    active_type: str,
    state_active_type: str,
    gate_active_type: str,
    inputs: list[Any],
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    out_memory: str | None = None,
) -> None:
    """Add one step of an LSTM."""
    # units with the same prefix share their parameters
    prefix = para_prefix or name
    output = out_memory or Memory(name=name, size=size)
    state = Memory(name=f"{name}_state", size=size)
    gates = _lstm_gates(name, size, inputs, prefix, error_clipping_threshold, output)
    Layer(
        name=name,
        type="lstm_step",
        size=size,
        bias=Bias(parameter_name=f"{prefix}_check.b"),
        inputs=[gates, state],
        active_type=active_type,
        active_gate_type=gate_active_type,
        active_state_type=state_active_type,
    )
    # `state` refers to this layer by its name
    Layer(name=f"{name}_state", type="get_output", size=size, inputs=Input(name, input_layer_argument="state"))


def LstmRecurrentUnitNaive(
    name: str,
    size: int,
    active_type: str,
    state_active_type: str,
    gate_active_type: str,
    inputs: list[Any],
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    out_memory: str | None = None,
) -> None:
    """Add one step of an LSTM, as single layers; each gate has a parameter of its own for the state."""
    prefix = para_prefix or name
    output = out_memory or Memory(name=name, size=size)
    before = Memory(name=f"{name}_state", size=size)
    gates = _lstm_gates(name, size, inputs, prefix, error_clipping_threshold, output)

    def part(what: str, number: int, activation: str, state: str | None = None) -> str:
        added = [IdentityOffsetProjection(gates, offset=size * number)]
        if state is not None:
            added.append(DotMulProjection(state, parameter_name=f"{prefix}_{what.removesuffix('_gate')}_check.w"))
        ExpressionLayer(name=f"{name}_{what}", size=size, active_type=activation, inputs=added)
        return f"{name}_{what}"

    candidate = part("input_s", 0, active_type)
    input_gate = part("input_gate", 1, gate_active_type, before)
    forget_gate = part("forget_gate", 2, gate_active_type, before)
    state = f"{name}_state"
    ExpressionLayer(name=state, inputs=[DotMulOperator([candidate, input_gate]), DotMulOperator([before, forget_gate])])
    # only this gate reads the new state; the gates before decide what the new state is
    output_gate = part("output_gate", 3, gate_active_type, state)
    ExpressionLayer(name=f"{name}_state_atv", active_type=state_active_type, inputs=IdentityProjection(state))
    ExpressionLayer(name=name, inputs=DotMulOperator([f"{name}_state_atv", output_gate]))


def LstmRecurrentLayerGroup(
    name: str,
    size: int,
    active_type: str,
    state_active_type: str,
    gate_active_type: str,
    inputs: list[Any],
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    seq_reversed: bool = False,
) -> None:
    """Add an LSTM as a group, with the layer NAME_transform_input before it."""

    def step(given: str) -> None:
        LstmRecurrentUnit(
            name,
            size,
            active_type,
            state_active_type,
            gate_active_type,
            [IdentityProjection(given)],
            para_prefix,
            error_clipping_threshold,
        )

    _group(name, size * 4, inputs, False, seq_reversed, step)


def _gru_projections(name: str, size: int, inputs: Any, prefix: str, clipping: float) -> str:
    """Return the layer with the columns of the update gate, the reset gate and the candidate."""
    if isinstance(inputs, str):  # inside GatedRecurrentLayerGroup the layer is computed before the group
        return inputs
    Layer(
        name=f"{name}_input_proj",
        type="mixed",
        size=size * 3,
        error_clipping_threshold=clipping,
        bias=Bias(initial_std=0, parameter_name=f"{prefix}_input_proj.b"),
        inputs=inputs,
    )
    return f"{name}_input_proj"


def GatedRecurrentUnit(
    name: str,
    size: int,
    active_type: str,
    gate_active_type: str,
    inputs: Any,
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    out_memory: str | None = None,
) -> None:
    """Add one step of a GRU."""
    prefix = para_prefix or name
    output = out_memory or Memory(name=name, size=size)
    projections = _gru_projections(name, size, inputs, prefix, error_clipping_threshold)
    Layer(
        name=name,
        type="gru_step",
        size=size,
        bias=Bias(parameter_name=f"{prefix}_gate.b"),
        inputs=[Input(projections, parameter_name=f"{prefix}_gate.w"), output],
        active_type=active_type,
        active_gate_type=gate_active_type,
    )


def GatedRecurrentUnitNaive(
    name: str,
    size: int,
    active_type: str,
    gate_active_type: str,
    inputs: Any,
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    out_memory: str | None = None,
) -> None:
    """Add one step of a GRU, as single layers; each gate has parameters of its own."""
    prefix = para_prefix or name
    output = out_memory or Memory(name=name, size=size)
    projections = _gru_projections(name, size, inputs, prefix, error_clipping_threshold)

    def part(what: str, number: int, activation: str, remembered: str) -> str:
        Layer(
            name=f"{name}_{what}",
            type="mixed",
            size=size,
            active_type=activation,
            error_clipping_threshold=error_clipping_threshold,
            bias=Bias(initial_std=0, parameter_name=f"{prefix}_{what}.b"),
            inputs=[
                IdentityOffsetProjection(projections, offset=size * number),
                FullMatrixProjection(remembered, parameter_name=f"{prefix}_{what}.w"),
            ],
        )
        return f"{name}_{what}"

    update, reset = part("update_gate", 0, gate_active_type, output), part("reset_gate", 1, gate_active_type, output)
    ExpressionLayer(name=f"{name}_reset_output", inputs=DotMulOperator([output, reset]))
    candidate = part("output_candidate", 2, active_type, f"{name}_reset_output")
    ExpressionLayer(
        name=name,
        inputs=[
            IdentityProjection(output),
            DotMulOperator([output, update], scale=-1.0),  # h - u h + u c is (1 - u) h + u c
            DotMulOperator([candidate, update]),
        ],
    )


def GatedRecurrentLayerGroup(
    name: str,
    size: int,
    active_type: str,
    gate_active_type: str,
    inputs: list[Any],
    para_prefix: str | None = None,
    error_clipping_threshold: float = 0,
    seq_reversed: bool = False,
) -> None:
    """Add a GRU as a group, with the layer NAME_transform_input before it."""

    def step(given: str) -> None:
        GatedRecurrentUnit(name, size, active_type, gate_active_type, given, para_prefix, error_clipping_threshold)

    bias = Bias(initial_std=0, parameter_name=f"{para_prefix or name}_input_proj.b")
    _group(name, size * 3, inputs, bias, seq_reversed, step)


def _group(name: str, size: int, inputs: list[Any], bias: Any, seq_reversed: bool, step: Callable[[str], None]) -> None:
    given = f"{name}_transform_input"
    Layer(name=given, type="mixed", size=size, active_type="", bias=bias, inputs=inputs)
    RecurrentLayerGroupBegin(f"{name}_layer_group", in_links=[given], out_links=[name], seq_reversed=seq_reversed)
    step(given)
    RecurrentLayerGroupEnd(f"{name}_layer_group")
