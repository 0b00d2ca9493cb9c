"""Layers that compute with rows: products, distances, norms, weighted means.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6, "Math".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.config.building.activations import BaseActivation
from trainer.config.building.argument_errors import to_float, to_size, to_text, wrong
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


def _build(
    name: str | None,
    kind: str,
    inputs: Sequence[LayerOutput],
    size: int | None,
    layer_attr: Any = None,
    act: BaseActivation | None = None,
    supports: str = "",
) -> LayerBuilder:
    layer = LayerBuilder(to_text("name", name), kind, size=size, act=act, extra=layer_attr, supports=supports)
    for source in inputs:
        layer.add_input(source)
    return layer


def _weight_and_input(weight: Any, input: Any) -> list[LayerOutput]:
    layers = [to_layer("weight", weight), to_layer("input", input)]
    if layers[0].size != 1:
        raise wrong("weight", weight, "its size must be 1")
    return layers


def _equal_pair(first: str, a: Any, second: str, b: Any) -> list[LayerOutput]:
    layers = [to_layer(first, a), to_layer(second, b)]
    if layers[0].size != layers[1].size:
        raise wrong(second, b, f"its size must be {layers[0].size}, the size of {first!r}")
    return layers


@helper("layers")
def interpolation_layer(input: Any, weight: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return w a + (1 - w) b, where a and b are the rows of two inputs, and w is the weight of the row."""
    pair = to_layers("input", input)
    if len(pair) != 2:
        raise wrong("input", input, "it must be two layers")
    inputs = [_weight_and_input(weight, pair[0])[0], *_equal_pair("input[0]", pair[0], "input[1]", pair[1])]
    return _build(name, "interpolation", inputs, columns_of(pair[0]), layer_attr).output(inputs)


@helper("layers")
def power_layer(input: Any, weight: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Raise each value of a row to the power of the row's weight; outputs() visits the input before the weight."""
    inputs = _weight_and_input(weight, input)
    return _build(name, "power", inputs, columns_of(inputs[1]), layer_attr).output(inputs[::-1])


@helper("layers")
def scaling_layer(input: Any, weight: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Multiply a row by the weight of the row."""
    inputs = _weight_and_input(weight, input)
    return _build(name, "scaling", inputs, columns_of(inputs[1]), layer_attr).output(inputs)


@helper("layers")
def slope_intercept_layer(
    input: Any, name: str | None = None, slope: float = 1.0, intercept: float = 0.0, layer_attr: Any = None
) -> LayerOutput:
    """Return slope x + intercept."""
    inputs = [to_layer("input", input)]
    layer = _build(name, "slope_intercept", inputs, columns_of(inputs[0]), layer_attr)
    layer.message.slope = to_float("slope", slope)
    layer.message.intercept = to_float("intercept", intercept)
    return layer.output(inputs)


@helper("layers")
def sum_to_one_norm_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Divide a row by the sum of its values."""
    inputs = [to_layer("input", input)]
    return _build(name, "sum_to_one_norm", inputs, columns_of(inputs[0]), layer_attr).output(inputs)


@helper("layers")
def row_l2_norm_layer(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Divide a row by its Euclidean norm."""
    inputs = [to_layer("input", input)]
    return _build(name, "row_l2_norm", inputs, columns_of(inputs[0]), layer_attr).output(inputs)


@helper("layers")
def cos_sim(
    a: Any, b: Any, scale: float = 1, size: int = 1, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Return `scale` times the cosine of each row of `a` and the corresponding row of `b`.

    If `size` is n > 1, the row of `b` is cut into n equal parts. The result has a cosine for each part.
    """
    inputs = [to_layer("a", a), to_layer("b", b)]
    parts = to_size("size", size)
    if parts > 1 and columns_of(inputs[1]) != parts * columns_of(inputs[0]):
        raise wrong("b", b, f"its size must be {parts * columns_of(inputs[0])}, {parts} times the size of 'a'")
    layer = _build(name, "cos" if parts == 1 else "cos_vm", inputs, parts, layer_attr)
    layer.message.cos_scale = to_float("scale", scale)
    return layer.output(inputs)


@helper("layers")
def l2_distance_layer(x: Any, y: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the Euclidean distance of two rows."""
    inputs = [to_layer("x", x), to_layer("y", y)]
    return _build(name, "l2_distance", inputs, 1, layer_attr).output(inputs)


@helper("layers")
def dot_prod_layer(input1: Any, input2: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the scalar product of two rows."""
    inputs = _equal_pair("input1", input1, "input2", input2)
    return _build(name, "dot_prod", inputs, 1, layer_attr, supports="DE").output(inputs)


@helper("layers")
def out_prod_layer(input1: Any, input2: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the outer product of two rows."""
    inputs = [to_layer("input1", input1), to_layer("input2", input2)]
    size = columns_of(inputs[0]) * columns_of(inputs[1])
    return _build(name, "out_prod", inputs, size, layer_attr, supports="DE").output(inputs)


@helper("layers")
def tensor_layer(
    a: Any,
    b: Any,
    size: int,
    act: Any = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the product a W_i b for each output i, where a and b are the input rows and W_i is a trained matrix."""
    inputs = [to_layer("a", a), to_layer("b", b)]
    columns = to_size("size", size)
    activation = to_activation("act", act)
    layer = _build(name, "tensor", inputs, columns, layer_attr, activation, "DE")
    dims = [columns_of(inputs[0]), columns_of(inputs[1]), columns]
    layer.add_weight(0, dims[0] * dims[1] * columns, dims, to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True)
    return layer.output(inputs, activation=activation)


@helper("layers")
def conv_shift_layer(a: Any, b: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the circular convolution of each row of `a` with the row of `b`, which is a kernel of odd size."""
    inputs = [to_layer("a", a), to_layer("b", b)]
    if columns_of(inputs[1]) % 2 == 0:
        raise wrong("b", b, "its size must be odd")
    return _build(name, "conv_shift", inputs, columns_of(inputs[0]), layer_attr).output(inputs)


@helper("layers", also="convex_comb_layer")
def linear_comb_layer(
    weights: Any, vectors: Any, size: int | None = None, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Return the sum of the vectors in each row, weighted by `weights`; convex_comb_layer is a second name."""
    inputs = [to_layer("weights", weights), to_layer("vectors", vectors)]
    columns, rest = divmod(columns_of(inputs[1]), columns_of(inputs[0]))
    if rest or (size is not None and to_size("size", size) != columns):
        need = f"its size must be {size or 'a whole number'} times {inputs[0].size}, the size of weights"
        raise wrong("vectors", vectors, need)
    return _build(name, "convex_comb", inputs, columns, layer_attr).output(inputs)


@helper("layers", prefix="clip")
def clip_layer(input: Any, min: float, max: float, name: str | None = None) -> LayerOutput:
    """Limit the values to [min, max]."""
    source = to_layer("input", input)
    low, high = to_float("min", min), to_float("max", max)
    if low >= high:
        raise wrong("min", min, f"it must be less than max, {high:g}")
    layer = _build(name, "clip", [source], columns_of(source))
    layer.message.inputs[0].clip_conf.min = low
    layer.message.inputs[0].clip_conf.max = high
    return layer.output([source])


@helper("layers", prefix="scale_shift")
def scale_shift_layer(
    input: Any, name: str | None = None, param_attr: Any = None, bias_attr: Any = None
) -> LayerOutput:
    """Return w x + b, where w and b are trained numbers."""
    source = to_layer("input", input)
    layer = _build(name, "scale_shift", [source], columns_of(source))
    layer.add_weight(0, 1, [1, 1], to_parameter_attr("param_attr", param_attr))
    layer.add_bias(bias_attr, default=True, size=1)
    return layer.output([source])


@helper("layers")
def factorization_machine(
    input: Any,
    factor_size: int,
    act: Any = None,
    name: str | None = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the sum of the interactions of all pairs of columns.

    Each column has a trained vector of factor_size numbers. The interaction of two columns is the product of both
    values, times the scalar product of both vectors.
    """
    source = to_layer("input", input)
    factors = to_size("factor_size", factor_size)
    activation = to_activation("act", act)
    layer = _build(name, "factorization_machine", [source], 1, layer_attr, activation)
    rows = columns_of(source)
    layer.add_weight(0, rows * factors, [rows, factors], to_parameter_attr("param_attr", param_attr))
    layer.message.factor_size = factors
    return layer.output([source], activation=activation)
