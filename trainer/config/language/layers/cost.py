"""Cost layers: the values that training minimises. Inputs come in the order input, label, weight.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6, "Costs and structured outputs".
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.activations import SigmoidActivation, SoftmaxActivation
from trainer.config.building.argument_errors import is_number, to_float, to_int, to_list, to_text, wrong
from trainer.config.building.attrs import ExtraLayerAttribute, attr_and_coeff
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, to_layer
from trainer.config.building.log import logger
from trainer.config.language.evaluators import classification_error_evaluator, is_for_classification

COST = "cost"  # the type of the layers that v0.10's outputs() looks for among the ancestors; other costs have their own


def _inputs(input: Any, label: Any, weight: Any = None) -> list[LayerOutput]:
    layers = [to_layer("input", input), to_layer("label", label)]
    if weight is not None:
        layers.append(to_layer("weight", weight))
        _check_width("weight", layers[-1])
    return layers


def _check_width(argument: str, layer: LayerOutput) -> None:
    if layer.size != 1:
        raise wrong(argument, layer, "its size must be 1")


def _cost(
    name: str | None, kind: str, inputs: list[LayerOutput], coeff: float | None, layer_attr: Any, size: int | None = 1
) -> LayerBuilder:
    layer = LayerBuilder(to_text("name", name), kind, size=size, extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    if coeff is not None:
        layer.message.coeff = to_float("coeff", coeff)
    return layer


@helper("layers", prefix="cost")
def classification_cost(
    input: Any,
    label: Any,
    weight: Any = None,
    name: str | None = None,
    top_k: Any = None,
    evaluator: Any = classification_error_evaluator,
    layer_attr: Any = None,
    *,
    coeff: float = 1.0,
) -> LayerOutput:
    """Return the cross entropy of a softmax layer against the ids of a data layer, and add evaluators for the log.

    The function passes top_k, which only v0.10 had, to the evaluators. Without it, the evaluator is the 5th argument.
    """
    if top_k is not None and not is_number(top_k):
        given = evaluator if isinstance(evaluator, ExtraLayerAttribute) else layer_attr
        top_k, evaluator, layer_attr = None, top_k, given
    inputs = _inputs(input, label, weight)
    if not isinstance(inputs[0].activation, SoftmaxActivation):
        raise wrong("input", inputs[0], "its activation must be SoftmaxActivation()")
    if inputs[1].layer_type != "data":
        raise wrong("label", inputs[1], "it must be a data_layer")
    layer = _cost(name, "multi-class-cross-entropy", inputs, coeff, layer_attr)
    for evaluate in to_list(evaluator):
        if not is_for_classification(evaluate):
            raise wrong("evaluator", evaluate, "it must be an evaluator of classification")
        further = {} if top_k is None else {"top_k": top_k}
        # the plain name, as in the original: with several costs, several evaluators have it
        evaluate(input=inputs[0], label=inputs[1], weight=weight, name=evaluate.__name__, **further)
    return layer.output(inputs, layer_type=COST)


@helper("layers")
def cross_entropy(
    input: Any, label: Any, name: str | None = None, coeff: float = 1.0, weight: Any = None, layer_attr: Any = None
) -> LayerOutput:
    """Return -ln of the probability that the input gives to the id of the label."""
    inputs = _inputs(input, label, weight)
    return _cost(name, "multi-class-cross-entropy", inputs, coeff, layer_attr).output(inputs)


@helper("layers", also="regression_cost")
def square_error_cost(
    input: Any, label: Any, weight: Any = None, name: str | None = None, layer_attr: Any = None, coeff: float = 1.0
) -> LayerOutput:
    """Return the sum of the squared differences over a row; regression_cost is a second name."""
    layer_attr, coeff = attr_and_coeff(layer_attr, coeff)
    inputs = _inputs(input, label, weight)
    return _cost(name, "square_error", inputs, coeff, layer_attr).output(inputs, layer_type=COST)


@helper("layers")
def mse_cost(
    input: Any, label: Any, weight: Any = None, name: str | None = None, layer_attr: Any = None, coeff: float = 1.0
) -> LayerOutput:
    """Do what square_error_cost does; v0.10 had the name mse_cost, and automatic layer names contain this name."""
    layer_attr, coeff = attr_and_coeff(layer_attr, coeff)
    inputs = _inputs(input, label, weight)
    return _cost(name, "square_error", inputs, coeff, layer_attr).output(inputs, layer_type=COST)


@helper("layers")
def smooth_l1_cost(
    input: Any, label: Any, name: str | None = None, coeff: float = 1.0, layer_attr: Any = None
) -> LayerOutput:
    """Return a cost that is quadratic for small differences and linear for large differences."""
    inputs = _inputs(input, label)
    if inputs[0].size != inputs[1].size:
        raise wrong("label", label, f"its size must be {inputs[0].size}, the size of the input")
    return _cost(name, "smooth_l1", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def cross_entropy_with_selfnorm(
    input: Any,
    label: Any,
    name: str | None = None,
    coeff: float = 1.0,
    softmax_selfnorm_alpha: float = 0.1,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the cross entropy of unnormalised outputs plus alpha (ln Z)^2, where Z is the sum of the outputs."""
    inputs = _inputs(input, label)
    layer = _cost(name, "multi_class_cross_entropy_with_selfnorm", inputs, coeff, layer_attr, size=None)
    layer.message.softmax_selfnorm_alpha = to_float("softmax_selfnorm_alpha", softmax_selfnorm_alpha)
    return layer.output(inputs)


@helper("layers")
def multi_binary_label_cross_entropy(
    input: Any, label: Any, name: str | None = None, coeff: float = 1.0, layer_attr: Any = None
) -> LayerOutput:
    """Return the cross entropy of probabilities against labels of 0 or 1, summed over the columns."""
    inputs = _inputs(input, label)
    if not isinstance(inputs[0].activation, SigmoidActivation):
        logger.warning(
            "%r is not a recommended activation for multi_binary_label_cross_entropy, sigmoid is better",
            inputs[0].activation,
        )
    return _cost(name, "multi_binary_label_cross_entropy", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def huber_regression_cost(
    input: Any, label: Any, name: str | None = None, delta: float = 1.0, coeff: float = 1.0, layer_attr: Any = None
) -> LayerOutput:
    """Return half the squared difference for differences up to delta, and a linear cost for larger differences."""
    inputs = _inputs(input, label)
    layer = _cost(name, "huber_regression", inputs, coeff, layer_attr)
    layer.message.delta = to_float("delta", delta)
    return layer.output(inputs)


@helper("layers")
def huber_classification_cost(
    input: Any, label: Any, name: str | None = None, coeff: float = 1.0, layer_attr: Any = None
) -> LayerOutput:
    """Return Huber's cost of a score against a label of 0 or 1."""
    inputs = _inputs(input, label)
    _check_width("input", inputs[0])
    return _cost(name, "huber_classification", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def huber_cost(
    input: Any, label: Any, name: str | None = None, coeff: float = 1.0, layer_attr: Any = None
) -> LayerOutput:
    """Return the cost of huber_classification_cost, in a layer of the type `huber`, as in v0.9 and v0.10."""
    inputs = _inputs(input, label)
    _check_width("input", inputs[0])
    return _cost(name, "huber", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def sum_cost(input: Any, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Return the sum of each row."""
    inputs = [to_layer("input", input)]
    return _cost(name, "sum_cost", inputs, 1.0, layer_attr).output(inputs)


@helper("layers")
def rank_cost(
    left: Any,
    right: Any,
    label: Any,
    weight: Any = None,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return a cost of the order of two scores; the label determines which score should be greater."""
    first = to_layer("left", left)
    inputs = [first, *_inputs(right, label, weight)]
    for argument, layer in zip(("left", "right", "label"), inputs, strict=False):
        _check_width(argument, layer)
    return _cost(name, "rank-cost", inputs, coeff, layer_attr).output(inputs)


@helper("layers")
def lambda_cost(
    input: Any, score: Any, name: str | None = None, NDCG_num: int = 5, max_sort_size: int = -1, layer_attr: Any = None
) -> LayerOutput:
    """Return the NDCG of a sequence's scores, computed from the NDCG_num items with the highest scores."""
    inputs = [to_layer("input", input), to_layer("score", score)]
    _check_width("score", inputs[1])
    layer = _cost(name, "lambda_cost", inputs, None, layer_attr)
    layer.message.NDCG_num = to_int("NDCG_num", NDCG_num)
    layer.message.max_sort_size = to_int("max_sort_size", max_sort_size)
    return layer.output(inputs)
