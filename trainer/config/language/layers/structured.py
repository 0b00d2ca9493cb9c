"""Costs for sequences of labels, for alignments of labels with frames, and for large numbers of classes.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6, "Costs and structured outputs".
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.activations import SigmoidActivation
from trainer.config.building.argument_errors import to_float, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import attr_and_coeff
from trainer.config.building.declare import helper
from trainer.config.building.layer import (
    LayerBuilder,
    LayerOutput,
    columns_of,
    size_of,
    to_activation,
    to_layer,
    to_layers,
    to_parameter_attr,
)
from trainer.config.language.layers.basic import weight_attrs


def _add_transitions(layer: LayerBuilder, classes: int, param_attr: Any) -> None:
    # Row 0 has the score of each class as the first class of a sequence. Row 1 has the score of each class as the last
    # class. The further rows have the scores of the transitions from each class to each class.
    layer.add_weight(0, classes * (classes + 2), [classes + 2, classes], to_parameter_attr("param_attr", param_attr))


def _optional_weight(weight: Any) -> list[LayerOutput]:
    if weight is None:
        return []
    layer = to_layer("weight", weight)
    if layer.size != 1:
        raise wrong("weight", weight, "its size must be 1")
    return [layer]


@helper("layers")
def crf_layer(
    input: Any,
    label: Any,
    size: int | None = None,
    weight: Any = None,
    param_attr: Any = None,
    name: str | None = None,
    layer_attr: Any = None,
    coeff: float = 1.0,
) -> LayerOutput:
    """Return the negative log likelihood of a sequence of labels in a linear-chain conditional random field."""
    layer_attr, coeff = attr_and_coeff(layer_attr, coeff)
    inputs = [to_layer("input", input), to_layer("label", label), *_optional_weight(weight)]
    classes = size_of(inputs[0]) if size is None else to_size("size", size)
    if inputs[0].size != classes or inputs[1].size != classes:
        raise wrong("label", label, f"the sizes of input and label must both be {classes}")
    layer = LayerBuilder(to_text("name", name), "crf", size=classes, extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    _add_transitions(layer, classes, param_attr)
    layer.message.coeff = to_float("coeff", coeff)
    return layer.output(inputs, size=1)


@helper("layers")
def crf_decoding_layer(
    input: Any, size: int, label: Any = None, param_attr: Any = None, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Return the best labels of a linear-chain conditional random field.

    With a label input, return 1 where the best label is wrong, else 0.
    """
    inputs = [to_layer("input", input)]
    if label is not None:
        inputs.append(to_layer("label", label))
    layer = LayerBuilder(to_text("name", name), "crf_decoding", size=to_size("size", size), extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    _add_transitions(layer, int(size), param_attr)
    return layer.output(inputs, size=1)


def _alignment(
    kind: str, input: Any, label: Any, size: int | None, name: str | None, norm_by_times: bool, layer_attr: Any
) -> tuple[LayerBuilder, list[LayerOutput]]:
    inputs = [to_layer("input", input), to_layer("label", label)]
    classes = size_of(inputs[1]) + 1  # number of classes, including the blank
    if size is not None and to_size("size", size) != classes:
        raise wrong("size", size, f"it must be {classes}, the size of the label plus one for the blank")
    layer = LayerBuilder(to_text("name", name), kind, size=classes, extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    layer.message.norm_by_times = norm_by_times
    return layer, inputs


@helper("layers")
def ctc_layer(
    input: Any,
    label: Any,
    size: int | None = None,
    name: str | None = None,
    norm_by_times: bool = False,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the cost of connectionist temporal classification; the last class is the blank."""
    layer, inputs = _alignment("ctc", input, label, size, name, norm_by_times, layer_attr)
    return layer.output(inputs)


@helper("layers")
def warp_ctc_layer(
    input: Any,
    label: Any,
    size: int | None = None,
    name: str | None = None,
    blank: int = 0,
    norm_by_times: bool = False,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the cost of connectionist temporal classification of a linear layer; the blank is the class `blank`."""
    layer, inputs = _alignment("warp_ctc", input, label, size, name, norm_by_times, layer_attr)
    layer.message.blank = to_int("blank", blank)
    return layer.output(inputs)


@helper("layers")
def nce_layer(
    input: Any,
    label: Any,
    num_classes: int | None = None,
    act: Any = None,
    param_attr: Any = None,
    weight: Any = None,
    num_neg_samples: int = 10,
    neg_distribution: Any = None,
    name: str | None = None,
    bias_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the cost of noise-contrastive estimation with num_neg_samples random classes; act defaults to sigmoid."""
    sources = to_layers("input", input)
    target = to_layer("label", label)
    classes = size_of(target) if num_classes is None else to_size("num_classes", num_classes)
    inputs = [*sources, target, *_optional_weight(weight)]
    activation = to_activation("act", act, SigmoidActivation())
    layer = LayerBuilder(to_text("name", name), "nce", size=1, act=activation, extra=layer_attr)
    layer.message.num_classes = classes
    layer.message.num_neg_samples = to_size("num_neg_samples", num_neg_samples)
    if neg_distribution is not None:
        shares = [to_float("neg_distribution", share) for share in to_list(neg_distribution)]
        if len(shares) != classes or abs(sum(shares) - 1) > 1e-5:
            raise wrong("neg_distribution", neg_distribution, f"it must have {classes} items whose sum is 1")
        layer.message.neg_sampling_dist.extend(shares)
    for source in inputs:
        layer.add_input(source)
    attrs = weight_attrs(param_attr, len(sources))
    for index, (source, attr) in enumerate(zip(sources, attrs, strict=True)):
        if param_attr is None:  # nce_layer of v0.10 had no default ParamAttr, so the default_initial_* values applied
            attr.attr["plain_in_jobs"] = True
        layer.add_weight(index, classes * columns_of(source), [classes, columns_of(source)], attr)
    layer.add_bias(bias_attr, default=True, size=classes)
    return layer.output(inputs, activation=layer.act)


@helper("layers")
def hsigmoid(
    input: Any,
    label: Any,
    num_classes: int | None = None,
    name: str | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the cost of a hierarchical sigmoid, with one decision for each level of a binary tree of classes."""
    sources = to_layers("input", input)
    target = to_layer("label", label)
    classes = size_of(target) if num_classes is None else to_size("num_classes", num_classes)
    if target.layer_type != "data":
        raise wrong("label", label, "it must be a data_layer")
    if classes <= 2:
        raise wrong("num_classes", classes, "it must be greater than 2")
    inputs = [*sources, target]
    layer = LayerBuilder(to_text("name", name), "hsigmoid", size=1, extra=layer_attr)
    layer.message.num_classes = classes
    for source in inputs:
        layer.add_input(source)
    for index, (source, attr) in enumerate(zip(sources, weight_attrs(param_attr, len(sources)), strict=True)):
        # a binary tree with a leaf for each class has one inner node less
        layer.add_weight(index, (classes - 1) * columns_of(source), [classes - 1, columns_of(source)], attr)
    layer.add_bias(bias_attr, default=True, size=classes - 1)
    return layer.output(inputs)
