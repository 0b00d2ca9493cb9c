"""Cost layers: what training makes smaller. Inputs come in the order input, label, weight.

Source: legacy trainer_config_helpers/layers.py; the specification's section 6, "Costs and structured outputs".
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.config.activations import SoftmaxActivation
from trainer.config.declare import helper
from trainer.config.evaluators import classification_error_evaluator, is_for_classification
from trainer.config.layer import LayerBuilder, LayerOutput, to_layer
from trainer.config.misuse import to_float, to_list, to_text, wrong


def _inputs(input: Any, label: Any, weight: Any = None) -> list[LayerOutput]:
    layers = [to_layer("input", input), to_layer("label", label)]
    if weight is not None:
        layers.append(to_layer("weight", weight))
        if layers[-1].size != 1:
            raise wrong("weight", weight, "its size must be 1")
    return layers


def _cost(name: str | None, kind: str, inputs: list[LayerOutput], coeff: float, layer_attr: Any,
          size: int | None = 1) -> LayerBuilder:
    layer = LayerBuilder(to_text("name", name), kind, size=size, extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    layer.message.coeff = to_float("coeff", coeff)
    return layer


@helper("layers", prefix="cost")
def classification_cost(input: Any, label: Any, weight: Any = None, name: str | None = None,
                        evaluator: Callable[..., None] | list[Callable[..., None]] = classification_error_evaluator,
                        layer_attr: Any = None, coeff: float = 1.0) -> LayerOutput:
    """Cross entropy of a softmax layer against the ids of a data layer, with evaluators for the log."""
    inputs = _inputs(input, label, weight)
    if not isinstance(inputs[0].activation, SoftmaxActivation):
        raise wrong("input", inputs[0], "its activation must be SoftmaxActivation()")
    if inputs[1].layer_type != "data":
        raise wrong("label", inputs[1], "it must be a data_layer")
    layer = _cost(name, "multi-class-cross-entropy", inputs, coeff, layer_attr)
    for evaluate in to_list(evaluator):
        if not is_for_classification(evaluate):
            raise wrong("evaluator", evaluate, "it must be an evaluator of classification")
        evaluate(input=inputs[0], label=inputs[1], weight=weight, name=evaluate.__name__)
    return layer.output(inputs)


@helper("layers")
def cross_entropy(input: Any, label: Any, name: str | None = None, coeff: float = 1.0, weight: Any = None,
                  layer_attr: Any = None) -> LayerOutput:
    """Return -ln of the probability that the input gives to the label's id."""
    inputs = _inputs(input, label, weight)
    return _cost(name, "multi-class-cross-entropy", inputs, coeff, layer_attr).output(inputs)


@helper("layers", also="regression_cost")
def square_error_cost(input: Any, label: Any, weight: Any = None, name: str | None = None, coeff: float = 1.0,
                      layer_attr: Any = None) -> LayerOutput:
    """Sum of squared differences over a row; regression_cost is the same function."""
    inputs = _inputs(input, label, weight)
    return _cost(name, "square_error", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def mse_cost(input: Any, label: Any, weight: Any = None, name: str | None = None, coeff: float = 1.0,
             layer_attr: Any = None) -> LayerOutput:
    """Return the same as square_error_cost, under the name of v0.10 and with automatic names by that name."""
    inputs = _inputs(input, label, weight)
    return _cost(name, "square_error", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def smooth_l1_cost(input: Any, label: Any, name: str | None = None, coeff: float = 1.0,
                   layer_attr: Any = None) -> LayerOutput:
    """Quadratic for small differences, linear for large ones."""
    inputs = _inputs(input, label)
    if inputs[0].size != inputs[1].size:
        raise wrong("label", label, f"its size must be {inputs[0].size}, the input's")
    return _cost(name, "smooth_l1", inputs, coeff, layer_attr).output(inputs)
