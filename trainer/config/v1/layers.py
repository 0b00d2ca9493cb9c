"""Layer(name=, type=, inputs=, ...), which creates a layer of any type, for the oldest configurations.

layer_types.py describes the layer types. For image layers, Layer calls the functions that newer configurations call.
A function with a class name for each type calls Layer: FCLayer(...) is Layer(type="fc", ...). Evaluator(...) adds an
evaluator.

Source: legacy config_parser.py; spec/config.md sections 6 and 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.config.building.activations import BaseActivation
from trainer.config.building.argument_errors import (
    ArgumentError,
    set_field,
    to_float,
    to_int,
    to_list,
    to_size,
    to_text,
    wrong,
)
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, columns_of
from trainer.config.building.names import public
from trainer.config.building.state import current
from trainer.config.language.evaluators import add_evaluator
from trainer.config.language.layers.mixed import Term, concat_layer, mixed_layer
from trainer.config.language.layers.projections import OperatorTerm, ProjectionTerm
from trainer.config.v1 import images
from trainer.config.v1.inputs import Input, V1Input, V1Layer, layer_called, to_v1_bias
from trainer.config.v1.layer_types import LAYER_TYPES, REQUIRED, RULES, SizeRule

# for sequence layers of these types without an activation, v0.10 wrote the activation "linear"
_LINEAR = frozenset({"seqconcat", "subseq"})

# types of Layer() that are another type with a fixed option
_VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {"seqfirstins": ("seqlastins", {"select_first": True})}

# in v0.10 only these types read the `format` of an input
_STORED_SPARSELY = ("fc", "selective_fc")


def _to_inputs(inputs: Any) -> tuple[list[V1Input], list[Term]]:
    given = [] if inputs is None else to_list(inputs)
    terms = [item for item in given if isinstance(item, ProjectionTerm | OperatorTerm)]
    if terms and len(terms) != len(given):
        raise wrong("inputs", inputs, "either all or none of the inputs must be projections and operators")
    return [] if terms else [item if isinstance(item, V1Input) else _input_called(item) for item in given], terms


def _input_called(name: Any) -> V1Input:
    layer_called(name, "inputs")
    return Input(name)


@helper("v1")
def Layer(
    name: str,
    type: str,
    inputs: Any = None,
    size: int | None = None,
    active_type: str | None = None,
    bias: Any = None,
    device: int | None = None,
    drop_rate: float | None = None,
    coeff: float | None = None,
    error_clipping_threshold: float | None = None,
    **options: Any,
) -> LayerOutput:
    """Add a layer of any type.

    Args:
        name: the layer's name.
        type: the layer type, as it is written to the message.
        inputs: names of layers, Input()s, or projections and operators.
        size: number of columns; required if the type does not determine this number.
        active_type: name of the activation; the default is no activation.
        bias: True, False or a Bias(); the default depends on the type.
        device, drop_rate, coeff, error_clipping_threshold: fields of the message.
        options: further arguments, which depend on the type.
    """
    read, terms = _to_inputs(inputs)
    kind = to_text("type", type)
    kind, fixed = _VARIANTS.get(kind, (kind, {}))
    options.update(fixed)
    columns = None if not size else to_size("size", size)
    activation = BaseActivation("" if active_type is None else to_text("active_type", active_type), True)
    if coeff is not None and "coeff" in (RULES[kind].fields if kind in RULES else ()):
        options["coeff"], coeff = coeff, None
    declared = V1Layer(to_text("name", name), kind, read, terms, columns, activation, bias, options)
    if kind in BY_FUNCTION:
        layer = BY_FUNCTION[kind](declared)
        if options:  # options that the function of the type did not accept
            raise ArgumentError(f"type {kind!r} has no argument {min(options)!r}")
    elif kind in RULES:
        layer = _by_rule(declared, RULES[kind])
    else:
        known = ", ".join(sorted({*RULES, *BY_FUNCTION, *_VARIANTS}))
        raise wrong("type", type, f"the types of Layer() are {known}; other layers have functions of their own")
    numbers = {"drop_rate": drop_rate, "coeff": coeff, "error_clipping_threshold": error_clipping_threshold}
    message = current().layers[layer.full_name]
    if active_type is None and kind in _LINEAR:
        current().marks.linear.add(message.name)
    for key, value in numbers.items():
        if value is not None:
            setattr(message, key, to_float(key, value))
    if device is not None:
        message.device = to_int("device", device)
    return layer


def _set_defaults(declared: V1Layer, rule: SizeRule) -> None:
    for older, key in rule.renamed.items():
        if older in declared.options:
            declared.options[key] = declared.options.pop(older)
    unknown = sorted(set(declared.options) - set(rule.fields))
    if unknown:
        there = ", ".join(sorted(rule.fields)) or "none"
        raise ArgumentError(f"type {declared.kind!r} has no argument {unknown[0]!r}; its own arguments are {there}")
    for key, default in rule.fields.items():
        if default is REQUIRED and declared.options.get(key) is None:
            raise ArgumentError(f"type {declared.kind!r} needs {key}=")
        declared.options.setdefault(key, default)


def _by_rule(declared: V1Layer, rule: SizeRule) -> LayerOutput:
    _set_defaults(declared, rule)
    size = None if rule.size is None else rule.size(declared)
    if size is not None and declared.size not in (None, size):
        raise wrong("size", declared.size, f"it must be {size}")
    layer = LayerBuilder(declared.name, declared.kind, size=size, act=declared.activation)
    for entry in declared.inputs:
        written = layer.add_input(entry.layer)
        if entry.argument is not None:
            set_field(written, "input_layer_argument", entry.argument)
    for index, entry in enumerate(declared.inputs):
        dims = rule.dims(declared, size or 0, index, columns_of(entry.layer)) if size else None
        if dims and declared.kind in _STORED_SPARSELY and entry.storage is not None:
            form, values = entry.storage
            if declared.kind != "fc":
                raise wrong("format", form, "sparse storage is for layers of type fc; leave format and nnz out")
            layer.add_weight(index, values, dims, entry.attr, is_sparse=True, format=form)
        elif dims:
            layer.add_weight(index, math.prod(dims), dims, entry.attr, **rule.weight)
    for key, value in declared.options.items():
        if value is not None:
            set_field(layer.message, key, value)
    if rule.bias is not None and size:
        bias = to_v1_bias(rule.has_bias if declared.bias is None else declared.bias)
        layer.add_bias(bias, default=False, size=rule.bias(declared, size))
    return layer.output([entry.layer for entry in declared.inputs], activation=declared.activation)


def _mixed(declared: V1Layer) -> LayerOutput:
    bias = to_v1_bias(True if declared.bias is None else declared.bias)
    return mixed_layer(
        name=declared.name, size=declared.size or 0, input=declared.terms, act=declared.activation, bias_attr=bias
    )


def _concat2(declared: V1Layer) -> LayerOutput:
    bias = to_v1_bias(False if declared.bias is None else declared.bias)
    return concat_layer(name=declared.name, input=declared.terms, act=declared.activation, bias_attr=bias)


BY_FUNCTION: Mapping[str, Callable[[V1Layer], LayerOutput]] = {
    "mixed": _mixed,
    "concat2": _concat2,
    **images.TYPES,
}


def _named(*, is_constant: bool) -> dict[str, str]:
    """Return the names of types in old scripts, with the types: the constants of LayerType, or the functions."""
    names = [(name, one.type) for one in LAYER_TYPES.values() for name in one.names.split()]
    return {name: kind for name, kind in names if name.isupper() == is_constant}


# names of v0.10 that are no type of a layer in the message
_OTHER_CONSTANTS = {"COST": "cost", "MEMORY": "memory", "SEQUENCE_FIRST_INSTANCE": "seqfirstins"}
_OTHER_CLASSES = {"SequenceFirstInstanceLayer": "seqfirstins"}


def _class_of(class_name: str, kind: str) -> Callable[..., LayerOutput]:
    def make(name: str, inputs: Any = None, **options: Any) -> LayerOutput:
        return Layer(name, kind, inputs=inputs, **options)

    make.__name__ = make.__qualname__ = class_name
    make.__doc__ = f"Add a layer of type {kind!r}; see Layer."
    return make


for _class_name, _type in (_named(is_constant=False) | _OTHER_CLASSES).items():
    public("v1")(_class_of(_class_name, _type))


@public("layers")
class LayerType:
    """The layer types; the attributes have the names that old scripts use."""

    @staticmethod
    def is_layer_type(type_name: str) -> bool:
        """Return whether a string is the name of a layer type."""
        return type_name in {value for name, value in vars(LayerType).items() if name.isupper()}


for _constant, _type in (_named(is_constant=True) | _OTHER_CONSTANTS).items():
    setattr(LayerType, _constant, _type)


@helper("v1")
def ExpressionLayer(name: str, inputs: Any, **options: Any) -> LayerOutput:
    """Add a mixed layer without a bias."""
    return Layer(name, "mixed", inputs=inputs, bias=False, **options)


@helper("v1")
def Evaluator(name: str, type: str, inputs: Any, **fields: Any) -> None:
    """Add an evaluator; `inputs` are the names of the layers that the evaluator reads."""
    unknown = sorted(set(fields) - set(EvaluatorConfig.DESCRIPTOR.fields_by_name))
    if unknown:
        raise ArgumentError(f"an evaluator has no argument {unknown[0]!r}")
    add_evaluator(name, type, [layer_called(layer) for layer in to_list(inputs)], fields)
