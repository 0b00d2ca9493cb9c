"""Data layers, fully connected layers, and layers that only move values.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6.
"""

from __future__ import annotations

import copy
from typing import Any

from trainer.config.building.activations import TanhActivation
from trainer.config.building.argument_errors import ArgumentError, is_list, to_int, to_size, to_text, wrong
from trainer.config.building.attrs import ExtraLayerAttribute, ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import (
    LayerBuilder,
    LayerOutput,
    columns_of,
    to_activation,
    to_layer,
    to_layers,
    to_parameter_attr,
)
from trainer.config.language.maps.geometry import set_shape


@helper("layers")
def data_layer(
    name: str,
    size: int,
    height: int | None = None,
    width: int | None = None,
    layer_attr: Any = None,
    *,
    depth: int | None = None,
) -> LayerOutput:
    """Declare an input of the network with `size` columns; the data provider delivers its values under `name`."""
    to_text("name", name)
    layer = LayerBuilder(name, "data", size=to_size("size", size), extra=layer_attr)
    num_filters = None
    if height and width:
        layer.message.height = to_size("height", height)
        layer.message.width = to_size("width", width)
        pixels = int(width) * int(height) * int(depth or 1)
        num_filters, rest = divmod(int(size), pixels)
        if rest:
            raise wrong("size", size, f"it must be a multiple of width * height * depth, which is {pixels}")
    if depth:
        layer.message.depth = to_size("depth", depth)
    return layer.output([], num_filters=num_filters)


def weight_attrs(param_attr: Any, count: int) -> list[ParameterAttribute]:
    """Return a ParamAttr for each input: the user's list, or copies of the user's single ParamAttr.

    As in v0.10, all inputs share the parameter if the single ParamAttr has a name.
    """
    if is_list(param_attr):
        if len(param_attr) != count:
            raise ArgumentError(f"param_attr has {len(param_attr)} items for {count} inputs; give one per input")
        return [to_parameter_attr("param_attr", attr) for attr in param_attr]
    attr = to_parameter_attr("param_attr", param_attr)
    return [copy.deepcopy(attr) for _ in range(count)]


@helper("layers")
def fc_layer(
    input: Any,
    size: int,
    act: Any = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return act(sum of x_k W_k + b) for the inputs x_k; the default of act is tanh."""
    inputs = to_layers("input", input)
    columns = to_size("size", size)
    activation = to_activation("act", act, TanhActivation())
    layer = LayerBuilder(to_text("name", name), "fc", size=columns, act=activation, extra=layer_attr, supports="DE")
    for index, (source, attr) in enumerate(zip(inputs, weight_attrs(param_attr, len(inputs)), strict=True)):
        rows = columns_of(source)
        layer.add_input(source)
        layer.add_weight(index, rows * columns, [rows, columns], attr)
    layer.add_bias(bias_attr, default=True)
    return layer.output(inputs, activation=activation)


@helper("layers")
def selective_fc_layer(
    input: Any,
    size: int,
    select: Any = None,
    act: Any = None,
    name: str | None = None,
    pass_generation: bool = False,
    has_selected_colums: bool = True,
    mul_ratio: float = 0.02,
    param_attr: Any = None,
    bias_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Compute only the selected columns of a fully connected layer, whose weights are stored transposed."""
    inputs = to_layers("input", input)
    if isinstance(size, LayerOutput):  # v0.9's order of arguments
        size, select = select, size
    columns = to_size("size", size)
    selection = to_layer("select", select)
    if columns_of(selection) != columns:
        raise wrong("select", select, f"its size must be {columns}, the size of this layer")
    activation = to_activation("act", act, TanhActivation())
    layer = LayerBuilder(
        to_text("name", name), "selective_fc", size=columns, act=activation, extra=layer_attr, supports="DE"
    )
    for index, (source, attr) in enumerate(zip(inputs, weight_attrs(param_attr, len(inputs)), strict=True)):
        rows = columns_of(source)
        layer.add_input(source)
        # the original wrote `is_sparse` here, although it is false
        layer.add_weight(index, rows * columns, [columns, rows], attr, is_sparse=False)
    layer.add_input(selection)
    layer.add_bias(bias_attr, default=True)
    layer.message.selective_fc_pass_generation = pass_generation
    layer.message.has_selected_colums = has_selected_colums
    layer.message.selective_fc_full_mul_ratio = mul_ratio
    return layer.output([*inputs, selection], activation=activation)


@helper("layers", prefix="addto")
def addto_layer(
    input: Any, act: Any = None, name: str | None = None, bias_attr: Any = None, layer_attr: Any = None
) -> LayerOutput:
    """Add layers of equal size."""
    inputs = to_layers("input", input)
    size = columns_of(inputs[0])
    activation = to_activation("act", act)
    layer = LayerBuilder(to_text("name", name), "addto", size=size, act=activation, extra=layer_attr, supports="DE")
    shape = (0, 0, 1)
    num_filters = None
    for source in inputs:
        if columns_of(source) != size:
            raise wrong("input", source, f"its size must be {size}, the size of the first input")
        layer.add_input(source)
        if source.height:
            shape = (source.height, source.width, source.depth)
        num_filters = num_filters if source.num_filters is None else source.num_filters
    set_shape(layer, shape)
    layer.add_bias(bias_attr, default=False)
    return layer.output(inputs, activation=activation, num_filters=num_filters)


@helper("layers", prefix="dropout")
def dropout_layer(input: Any, dropout_rate: float, name: str | None = None) -> LayerOutput:
    """In training, set a random share of the values to zero; in tests, scale all values down instead."""
    dropout = ExtraLayerAttribute(drop_rate=dropout_rate)
    return addto_layer(to_layer("input", input), name=name, bias_attr=False, layer_attr=dropout)


@helper("layers")
def maxid_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the id of the first maximum of each row."""
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "maxid", size=columns_of(source), extra=layer_attr, supports="DE")
    layer.add_input(source)
    if layer.parse.sub_model.HasField("generator"):
        layer.message.beam_size = layer.parse.sub_model.generator.beam_size
    return layer.output([source])


@helper("layers")
def trans_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Transpose the matrix that the rows of a batch form."""
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "trans", size=columns_of(source), extra=layer_attr)
    layer.add_input(source)
    return layer.output([source])


@helper("layers", prefix="resize")
def resize_layer(input: Any, size: int, name: str | None = None) -> LayerOutput:
    """Reshape the values of a batch to rows of `size` values.

    As in v0.10, the LayerOutput has the size of the input; only the message has the new size.
    """
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "resize", size=to_size("size", size))
    layer.add_input(source)
    return layer.output([source], size=source.size)


@helper("layers")
def repeat_layer(
    input: Any,
    num_repeats: int,
    name: str | None = None,
    layer_attr: Any = None,
    *,
    as_row_vector: bool = True,
    act: Any = None,
) -> LayerOutput:
    """Repeat each whole row num_repeats times; with as_row_vector=False, repeat each value num_repeats times."""
    source = to_layer("input", input)
    times = to_size("num_repeats", num_repeats)
    activation = to_activation("act", act)
    layer = LayerBuilder(
        to_text("name", name), "featmap_expand", size=columns_of(source) * times, act=activation, extra=layer_attr
    )
    layer.add_input(source)
    layer.message.num_filters = times
    if not as_row_vector:
        layer.message.user_arg = "as_col_vec"
    return layer.output([source], activation=activation)


@helper("layers")
def sampling_id_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Draw an id for each row; the row holds the probabilities of the ids."""
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "sampling_id", size=columns_of(source), extra=layer_attr)
    layer.add_input(source)
    return layer.output([source])


@helper("layers")
def multiplex_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Copy each row from one of several layers; row i of the first input is the number of the layer for row i."""
    inputs = to_layers("input", input)
    if len(inputs) < 3:
        raise wrong("input", input, "it must be an index layer and at least two layers to choose from")
    size = columns_of(inputs[1])
    for source in inputs[2:]:
        if columns_of(source) != size:
            raise wrong("input", source, f"its size must be {size}, the size of the second input")
    layer = LayerBuilder(to_text("name", name), "multiplex", size=size, extra=layer_attr, supports="DE")
    for source in inputs:
        layer.add_input(source)
    return layer.output(inputs)


@helper("layers", prefix="print")
def print_layer(input: Any, name: str | None = None, *, format: str | None = None) -> None:
    """Write the values of layers to the log, batch by batch."""
    inputs = to_layers("input", input)
    layer = LayerBuilder(to_text("name", name), "print")
    for source in inputs:
        layer.add_input(source)
    lines = [f"layer={source.name} %s" for source in inputs]
    layer.message.user_arg = "\n".join(lines) if format is None else format


@helper("layers", prefix="print")
def printer_layer(input: Any, format: str | None = None, name: str | None = None) -> None:
    """Do what print_layer does, with the arguments in the order of v0.11."""
    print_layer(input=input, format=format, name=name)


@helper("layers")
def eos_layer(input: Any, eos_id: int, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return 1 where the input's id is `eos_id`, else 0."""
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "eos_id", size=2, extra=layer_attr, supports="DE")
    layer.add_input(source)
    layer.message.eos_id = to_int("eos_id", eos_id)
    return layer.output([source])
