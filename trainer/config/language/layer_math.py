"""Arithmetic of layers, such as `layer_math.exp(x)`, `x + y` and `2 * x`; each expression creates further layers.

An expression of a layer and a number becomes a slope_intercept_layer. In a sum of two layers, the value of a layer of
size 1 is added to every column. In a product of two layers, one layer must have size 1; the value of this layer scales
the row of the other layer. `x - number` subtracts the number, although v0.10 added the number.

Source: legacy trainer_config_helpers/layer_math.py; spec/config.md section 13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.config.building import activations as acts
from trainer.config.building.argument_errors import ArgumentError, is_number
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, register_operators, size_of, to_layer
from trainer.config.building.state import current
from trainer.config.language.layers.arithmetic import scaling_layer, slope_intercept_layer
from trainer.config.language.layers.basic import repeat_layer
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import identity_projection

__all__ = ["abs", "exp", "log", "reciprocal", "relu", "sigmoid", "sqrt", "square", "tanh"]


def _unary(name: str, activation: type[Any]) -> Callable[..., LayerOutput]:
    def function(input: Any, name: str | None = None) -> LayerOutput:
        return mixed_layer(input=[identity_projection(input)], name=name, act=activation())

    function.__name__ = function.__qualname__ = name
    function.__doc__ = activation.__doc__
    return helper("layer_math")(function)


abs = _unary("abs", acts.AbsActivation)
exp = _unary("exp", acts.ExpActivation)
log = _unary("log", acts.LogActivation)
reciprocal = _unary("reciprocal", acts.ReciprocalActivation)
relu = _unary("relu", acts.ReluActivation)
sigmoid = _unary("sigmoid", acts.SigmoidActivation)
sqrt = _unary("sqrt", acts.SqrtActivation)
square = _unary("square", acts.SquareActivation)
tanh = _unary("tanh", acts.TanhActivation)


def _other(sign: str, value: Any) -> LayerOutput:
    if not isinstance(value, LayerOutput):
        raise ArgumentError(f"a layer {sign} {value!r}: only layers and numbers can be combined with a layer")
    return to_layer(f"the layer after {sign}", value)


def add(layer: LayerOutput, other: Any) -> LayerOutput:
    """Return layer + other."""
    if is_number(other):
        return slope_intercept_layer(input=layer, intercept=other)
    second = _other("+", other)
    if layer.size != second.size:
        if 1 not in (layer.size, second.size):
            raise ArgumentError(
                f"{layer.name!r} + {second.name!r}: the sizes {layer.size} and {second.size} must be equal, or one of "
                "them must be 1"
            )
        layer, single = (second, layer) if layer.size == 1 else (layer, second)
        second = repeat_layer(single, size_of(layer))
    return mixed_layer(input=[identity_projection(input=layer), identity_projection(input=second)])


def sub(layer: LayerOutput, other: Any) -> LayerOutput:
    """Return layer - other."""
    if not is_number(other):
        return add(layer, mul(_other("-", other), -1.0))
    result = add(layer, -other)
    current().marks.subtracted.add(result.full_name)
    return result


def rsub(layer: LayerOutput, other: Any) -> LayerOutput:
    """Return other - layer."""
    return add(mul(layer, -1.0), other)


def mul(layer: LayerOutput, other: Any) -> LayerOutput:
    """Return layer * other."""
    if is_number(other):
        return slope_intercept_layer(input=layer, slope=other)
    second = _other("*", other)
    if layer.size == 1:
        return scaling_layer(input=second, weight=layer)
    if second.size == 1:
        return scaling_layer(input=layer, weight=second)
    raise ArgumentError(
        f"{layer.name!r} * {second.name!r}: one of the sizes {layer.size} and {second.size} must be 1; for a product "
        "column by column use dotmul_operator in a mixed_layer"
    )


register_operators({"+": add, "-": sub, "reversed -": rsub, "*": mul})
