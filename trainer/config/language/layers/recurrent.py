"""Recurrent layers over sequences, and the layers of a single step.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6, "Recurrent".
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.activations import BaseActivation, SigmoidActivation, TanhActivation
from trainer.config.building.argument_errors import to_flag, to_size, to_text, wrong
from trainer.config.building.attrs import to_bias
from trainer.config.building.declare import helper
from trainer.config.building.layer import (
    LayerBuilder,
    LayerOutput,
    columns_of,
    to_activation,
    to_layer,
    to_parameter_attr,
)
from trainer.config.building.log import logger
from trainer.config.building.state import current
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import dotmul_operator, full_matrix_projection, identity_projection

_TANH = TanhActivation()
_SIGMOID = SigmoidActivation()


def _inner_activation(argument: str, value: Any, default: BaseActivation) -> BaseActivation:
    activation = to_activation(argument, value, default)
    if not activation.support_hppl:
        raise wrong(argument, activation, "it must be TanhActivation(), SigmoidActivation() or ReluActivation()")
    return activation


def _part_of(argument: str, source: LayerOutput, parts: int, size: Any, name: str | None) -> int:
    """Return the width of a recurrent layer whose input has `parts` times as many columns."""
    columns, rest = divmod(columns_of(source), parts)
    if rest:
        raise wrong(argument, source, f"its size must be a multiple of {parts}")
    if size is not None:
        if to_size("size", size) != columns:
            raise wrong("size", size, f"it must be {columns}, the size of {argument} divided by {parts}")
        logger.warning("%s: size is always the size of the input divided by %d and need not be given", name, parts)
    return columns


@helper("layers")
def recurrent_layer(
    input: Any,
    act: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    name: str | None = None,
    reverse: bool = False,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the sequence of h_t = act(x_t + h_{t-1} W + b), where x_t is the input."""
    source = to_layer("input", input)
    size = columns_of(source)
    activation = to_activation("act", act, _TANH)
    layer = LayerBuilder(to_text("name", name), "recurrent", size=size, act=activation, extra=layer_attr, supports="D")
    layer.add_input(source)
    layer.add_weight(0, size * size, [size, size], to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True)
    layer.message.reversed = to_flag("reverse", reverse)
    output = layer.output([source], activation=activation)
    output.reverse = layer.message.reversed
    return output


@helper("layers")
def lstmemory(
    input: Any,
    name: str | None = None,
    reverse: bool = False,
    act: Any = None,
    gate_act: Any = None,
    size: int | None = None,
    state_act: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Run an LSTM over sequences. The input has columns for the candidate, input gate, forget gate and output gate.

    The bias parameter holds the biases of these four parts, and then the peephole weights of the three gates.
    """
    source = to_layer("input", input)
    columns = _part_of("input", source, 4, size, name)
    activation = _inner_activation("act", act, _TANH)
    gate = _inner_activation("gate_act", gate_act, _SIGMOID)
    state = _inner_activation("state_act", state_act, _TANH)
    layer = LayerBuilder(
        to_text("name", name), "lstmemory", size=columns, act=activation, extra=layer_attr, supports="D"
    )
    layer.add_input(source)
    layer.add_weight(0, columns * columns * 4, [columns, columns, 4], to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True, size=columns * 7)
    layer.message.reversed = to_flag("reverse", reverse)
    layer.message.active_gate_type = gate.name
    layer.message.active_state_type = state.name
    output = layer.output([source])
    output.reverse = layer.message.reversed
    return output


@helper("layers", prefix="gru")
def grumemory(
    input: Any,
    name: str | None = None,
    reverse: bool = False,
    act: Any = None,
    gate_act: Any = None,
    size: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Run a GRU over sequences; the input has columns for the update gate, the reset gate and the candidate."""
    source = to_layer("input", input)
    columns = _part_of("input", source, 3, size, name)
    activation = _inner_activation("act", act, _TANH)
    gate = _inner_activation("gate_act", gate_act, _SIGMOID)
    layer = LayerBuilder(
        to_text("name", name), "gated_recurrent", size=columns, act=activation, extra=layer_attr, supports="D"
    )
    layer.add_input(source)
    layer.add_weight(0, columns * columns * 3, [columns, columns * 3], to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True, size=columns * 3)
    layer.message.reversed = to_flag("reverse", reverse)
    layer.message.active_gate_type = gate.name
    output = layer.output([source])
    output.reverse = layer.message.reversed
    return output


@helper("layers", prefix="lstm_step")
def lstm_step_layer(
    input: Any,
    state: Any,
    size: int | None = None,
    act: Any = None,
    name: str | None = None,
    gate_act: Any = None,
    state_act: Any = None,
    bias_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Compute one step of an LSTM; get_output_layer(..., "state") returns the state of its cell.

    The bias parameter of the layer holds the peephole weights of the three gates.
    """
    inputs = [to_layer("input", input), to_layer("state", state)]
    columns = columns_of(inputs[1]) if size is None else to_size("size", size)
    if inputs[1].size != columns:
        raise wrong("state", state, f"its size must be {columns}")
    if inputs[0].size != 4 * columns:
        raise wrong("input", input, f"its size must be {4 * columns}, four times the size of the state")
    activation = to_activation("act", act, _TANH)
    layer = LayerBuilder(
        to_text("name", name), "lstm_step", size=columns, act=activation, extra=layer_attr, supports="D"
    )
    for source in inputs:
        layer.add_input(source)
    layer.add_bias(bias_attr, default=True, size=columns * 3)
    layer.message.active_gate_type = to_activation("gate_act", gate_act, _SIGMOID).name
    message = layer.message
    message.active_state_type = to_activation("state_act", state_act, _TANH).name
    if state_act is None:  # the default of v0.10
        current().in_jobs.append(lambda: setattr(message, "active_state_type", _SIGMOID.name))
    output = layer.output(inputs, activation=activation)
    output.outputs = ["default", "state"]
    return output


def _third_of(source: LayerOutput, memory: LayerOutput, size: Any) -> int:
    columns, rest = divmod(columns_of(source), 3)
    if rest or (size is not None and to_size("size", size) != columns):
        raise wrong("input", source, f"its size must be three times {size or 'the size of output_mem'}")
    if memory.size != columns:
        raise wrong("output_mem", memory, f"its size must be {columns}, a third of the input's size")
    return columns


@helper("layers", prefix="gru_step")
def gru_step_layer(
    input: Any,
    output_mem: Any,
    size: int | None = None,
    act: Any = None,
    name: str | None = None,
    gate_act: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Compute one step of a GRU; `output_mem` is a memory of the output of this layer."""
    inputs = [to_layer("input", input), to_layer("output_mem", output_mem)]
    columns = _third_of(inputs[0], inputs[1], size)
    activation = to_activation("act", act, _TANH)
    layer = LayerBuilder(
        to_text("name", name), "gru_step", size=columns, act=activation, extra=layer_attr, supports="D"
    )
    for source in inputs:
        layer.add_input(source)
    layer.add_weight(0, columns * columns * 3, [columns, columns * 3], to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True, size=columns * 3)
    layer.message.active_gate_type = to_activation("gate_act", gate_act, _SIGMOID).name
    return layer.output(inputs, activation=activation)


@helper("layers", prefix="gru_step_naive")
def gru_step_naive_layer(
    input: Any,
    output_mem: Any,
    size: int | None = None,
    name: str | None = None,
    act: Any = None,
    gate_act: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Compute one step of a GRU with mixed layers, which support dropout and error clipping."""
    source, memory = to_layer("input", input), to_layer("output_mem", output_mem)
    columns = _third_of(source, memory, size)
    bias = to_bias(bias_attr, default=True)
    if bias is not None and bias.name is not None:
        raise wrong("bias_attr", bias.name, "three layers would share this parameter; remove its name")

    def part(what: str, offset: int, remembered: LayerOutput, activation: BaseActivation) -> LayerOutput:
        return mixed_layer(
            name=f"{name}_{what}",
            size=columns,
            layer_attr=layer_attr,
            bias_attr=bias or False,
            act=activation,
            input=[
                identity_projection(source, offset=offset),
                full_matrix_projection(remembered, param_attr=param_attr),
            ],
        )

    gate = to_activation("gate_act", gate_act, _SIGMOID)
    update, reset = part("update", 0, memory, gate), part("reset", columns, memory, gate)
    kept = mixed_layer(name=f"{name}_reset_output", input=[dotmul_operator(a=memory, b=reset)], bias_attr=False)
    candidate = part("output_candidate", 2 * columns, kept, to_activation("act", act, _TANH))
    return mixed_layer(
        name=name,
        input=[
            identity_projection(memory),
            dotmul_operator(a=memory, b=update, scale=-1.0),  # h - u h + u c is (1 - u) h + u c
            dotmul_operator(a=candidate, b=update),
        ],
    )


@helper("layers")
def get_output_layer(input: Any, arg_name: str, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return one of the additional outputs of a layer, by its name."""
    source = to_layer("input", input)
    if arg_name not in source.outputs:
        raise wrong("arg_name", arg_name, f"{source.name!r} has the outputs {', '.join(source.outputs)}")
    layer = LayerBuilder(to_text("name", name), "get_output", size=source.size, extra=layer_attr)
    layer.add_input(source).input_layer_argument = arg_name
    return layer.output([source])
