"""Layers that consist of projections and operators: mixed_layer, concat_layer, and functions that call these two.

Source: legacy trainer_config_helpers/layers.py and config_parser.py, MixedLayer and ConcatenateLayer2;
spec/config.md sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from trainer.config.building.activations import BaseActivation, SigmoidActivation
from trainer.config.building.argument_errors import ArgumentError, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, columns_of, to_activation, to_layers
from trainer.config.building.state import current
from trainer.config.language.layers.basic import fc_layer
from trainer.config.language.layers.projections import OperatorTerm, ProjectionTerm, dotmul_operator, table_projection
from trainer.config.language.maps.geometry import set_shape, to_count

Term = ProjectionTerm | OperatorTerm


def _to_terms(argument: str, value: Any) -> list[Term]:
    terms = to_list(value)
    for term in terms:
        if not isinstance(term, ProjectionTerm | OperatorTerm):
            raise wrong(argument, term, "it must be a projection or an operator, for example full_matrix_projection(x)")
    if not terms:
        raise wrong(argument, value, "it must have at least one projection or operator")
    return terms


def _common_size(terms: Sequence[Term], size: int) -> int:
    """Return the size of the layer. Each term must have this size; the operators are checked before the projections."""
    decided = f"the layer's size is {size}"
    for term in sorted(terms, key=lambda term: isinstance(term, ProjectionTerm)):
        if term.size and not size:
            size, decided = term.size, f"the size of {term} is {term.size}"
        elif term.size and term.size != size:
            raise ArgumentError(f"the size of {term} is {term.size}, but {decided}; all sizes must be equal")
    if not size:
        raise ArgumentError("the layer's size is not set: give size=... to the layer or to one of its projections")
    return size


def _add_terms(layer: LayerBuilder, terms: Sequence[Term], sizes: Sequence[int]) -> None:
    """Write the inputs: the first input of each term, in order, and then the further inputs of the operators."""
    for term in terms:
        layer.add_input(term.parents[0])
    operators = [(index, term) for index, term in enumerate(terms) if isinstance(term, OperatorTerm)]
    for index, operator in operators:
        operator.message.input_indices[:] = [index]
        for source in operator.origin[1:]:
            operator.message.input_indices.append(len(layer.message.inputs))
            layer.add_input(source)
    for index, (term, size) in enumerate(zip(terms, sizes, strict=True)):
        if isinstance(term, ProjectionTerm):
            _add_projection(layer, index, term, size)
    for index, operator in operators:
        operator.message.input_sizes[:] = [columns_of(source) for source in operator.origin]
        operator.message.output_size = sizes[index]
        layer.message.operator_confs.append(operator.message)


def _add_projection(layer: LayerBuilder, index: int, projection: ProjectionTerm, size: int) -> None:
    rows = columns_of(projection.origin)
    message = layer.message.inputs[index].proj_conf
    message.CopyFrom(projection.message)
    # this is the projection's name even if its parameter is missing or has a different name
    message.name = f"_{layer.name}.w{index}"
    message.input_size = rows
    message.output_size = size
    if message.type == "identity_offset" and message.offset + size > rows:
        raise ArgumentError(f"{projection} begins at {message.offset} and needs {size} columns; its input has {rows}")
    values, dims = projection.shape(rows, size)
    if values:
        layer.add_weight(index, values, dims, projection.attr)


def _add_bias(layer: LayerBuilder, terms: Sequence[Term], bias_attr: Any) -> None:
    """Add the bias of the layer: a value for each column or, if the terms are convolutions, for each filter."""
    size = layer.size
    if isinstance(terms[0], ProjectionTerm) and terms[0].message.type == "conv":
        layer.message.shared_biases = True
        size = sum(term.message.num_filters for term in terms)
    layer.add_bias(bias_attr, default=False, size=size)
    if layer.message.bias_parameter_name and size:
        layer.message.bias_size = size


class MixedLayerOutput(LayerOutput):
    """A sum of projections and operators.

    The message of the layer is written at the end of the `with` block; if input= is given, it is written at once.

    Example: `with mixed_layer(size=10) as m: m += full_matrix_projection(x)`
    """

    absence = "this layer was never finished: call mixed_layer with input=, or use `with mixed_layer(...) as m:`"

    def __init__(self, name: str, size: int, activation: BaseActivation, bias_attr: Any, layer_attr: Any):
        super().__init__(name, "mixed", size=size, activation=activation)
        self.inputs: list[Term] = []
        self._bias_attr = bias_attr
        self._layer_attr = layer_attr
        self._is_finished = False

    def __iadd__(self, other: Any) -> Any:
        if self._is_finished:
            if isinstance(other, ProjectionTerm | OperatorTerm):
                raise self._named(ArgumentError("the layer is finished; add projections inside of its `with` block"))
            return NotImplemented  # Python then tries the operator `+`, which adds a layer or a number
        try:
            (term,) = _to_terms("input", [other])
        except ArgumentError as wrong_use:
            raise self._named(wrong_use) from None
        self.inputs.append(term)
        self.parents.extend(term.parents)
        return self

    def __enter__(self) -> MixedLayerOutput:
        if self.inputs or self._is_finished:
            raise self._named(
                ArgumentError("the layer has projections already; add all projections inside of its `with` block")
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        try:
            self.finish()
        except ArgumentError as wrong_use:
            raise self._named(wrong_use) from None

    def finish(self) -> None:
        """Write the layer's message and set its size."""
        terms = _to_terms("input", self.inputs)
        self.size = _common_size(terms, self.size or 0)
        layer = LayerBuilder(
            self.name, "mixed", size=self.size, act=self.activation, extra=self._layer_attr, supports="DE"
        )
        _add_terms(layer, terms, [self.size] * len(terms))
        _add_bias(layer, terms, self._bias_attr)
        self._is_finished = True

    def _named(self, error: ArgumentError) -> ArgumentError:
        error.enter(f"mixed_layer(name={self.name!r})")
        return error


@helper("layers", prefix="mixed")
def mixed_layer(
    size: int = 0,
    input: Any = None,
    name: str | None = None,
    act: Any = None,
    bias_attr: Any = False,
    layer_attr: Any = None,
) -> MixedLayerOutput:
    """Return the sum of projections and operators, which are given as `input` or added in a `with` block.

    Args: size: number of columns; 0 if the projections determine the number.
    """
    layer = MixedLayerOutput(
        to_text("name", name), to_count("size", size), to_activation("act", act), bias_attr, layer_attr
    )
    if input is not None:
        for term in _to_terms("input", input):
            layer += term
        layer.finish()
    return layer


@helper("layers", prefix="embedding")
def embedding_layer(
    input: Any, size: int, name: str | None = None, param_attr: Any = None, layer_attr: Any = None
) -> LayerOutput:
    """Return the row of a trained table that the id of the input selects."""
    table = table_projection(input=input, size=to_size("size", size), param_attr=param_attr)
    return mixed_layer(name=name, size=size, input=[table], layer_attr=layer_attr)


@helper("layers")
def gated_unit_layer(
    input: Any,
    size: int,
    act: Any = None,
    name: str | None = None,
    gate_attr: Any = None,
    gate_param_attr: Any = None,
    gate_bias_attr: Any = True,
    inproj_attr: Any = None,
    inproj_param_attr: Any = None,
    inproj_bias_attr: Any = True,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the product of act(x W + b) and sigmoid(x V + c), column by column."""
    projected = fc_layer(
        input=input,
        size=size,
        act=to_activation("act", act),
        name=f"{name}_input_proj",
        param_attr=inproj_param_attr,
        bias_attr=inproj_bias_attr,
        layer_attr=inproj_attr,
    )
    gate = fc_layer(
        input=input,
        size=size,
        act=SigmoidActivation(),
        name=f"{name}_gate",
        param_attr=gate_param_attr,
        bias_attr=gate_bias_attr,
        layer_attr=gate_attr,
    )
    return mixed_layer(name=f"{name}_gated_act", input=[dotmul_operator(projected, gate)], layer_attr=layer_attr)


@helper("layers", prefix="concat")
def concat_layer(
    input: Any, act: Any = None, name: str | None = None, layer_attr: Any = None, bias_attr: Any = None
) -> LayerOutput:
    """Put the columns of layers, or of projections, side by side.

    Only the result of projections can have a bias, and only if bias_attr is a ParamAttr.
    """
    activation = to_activation("act", act)
    if any(isinstance(item, ProjectionTerm | OperatorTerm) for item in to_list(input)):
        return _concat_projections(to_text("name", name), input, activation, layer_attr, bias_attr)
    inputs = to_layers("input", input)
    if bias_attr not in (None, False):
        raise wrong("bias_attr", bias_attr, "concat_layer has no bias if its inputs are layers")
    size = sum(columns_of(source) for source in inputs)
    layer = LayerBuilder(to_text("name", name), "concat", size=size, act=activation, extra=layer_attr, supports="DE")
    shapes = [(source.height, source.width, source.depth) for source in inputs]
    for source, shape in zip(inputs, shapes, strict=True):
        if shape != shapes[0] and not current().has_data:  # v0.10 does not require equal maps
            raise wrong("input", source, f"its height, width and depth are {shape} instead of {shapes[0]}")
        layer.add_input(source)
    set_shape(layer, shapes[0])
    return layer.output(inputs, activation=activation)


def _concat_projections(
    name: str, input: Any, activation: BaseActivation, layer_attr: Any, bias_attr: Any
) -> LayerOutput:
    projections = _to_terms("input", input)
    convolves = isinstance(projections[0], ProjectionTerm) and projections[0].message.type == "conv"
    for term in projections:
        if isinstance(term, OperatorTerm):
            raise wrong("input", str(term), "concat_layer takes layers or projections, but not operators")
        if not term.size:
            raise ArgumentError(
                f"{term} has no size of its own: give it size=..., or put it into a mixed_layer that has a size"
            )
        if convolves and term.message.type != "conv":
            raise ArgumentError(
                f"{term} and {projections[0]} cannot be combined: all projections must be conv_projections, or none"
            )
    sizes = [term.size for term in projections]
    layer = LayerBuilder(name, "concat2", size=sum(sizes), act=activation, extra=layer_attr, supports="DE")
    _add_terms(layer, projections, sizes)
    # only a ParamAttr creates a bias of this layer
    _add_bias(layer, projections, bias_attr if isinstance(bias_attr, ParameterAttribute) else False)
    return layer.output([parent for term in projections for parent in term.parents], activation=activation)
