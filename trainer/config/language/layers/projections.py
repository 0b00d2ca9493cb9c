"""Projections and operators: the terms that mixed_layer adds up and concat_layer puts side by side.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; spec/config.md section 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.argument_errors import ArgumentError, is_list, to_float, to_int, to_size, wrong
from trainer.config.building.attrs import ParameterAttribute, to_bias
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, columns_of, message_of, to_layer, to_parameter_attr
from trainer.config.language.maps.convolution import Filters, write_conv
from trainer.config.language.maps.geometry import channels_of, initialise_filters, to_count, to_sizes

# A function from (columns of the input, columns of the result) to (number of values, dims) of the parameter. For a
# projection without a parameter, the number of values is 0.
Shape = Callable[[int, int], tuple[int, list[int]]]


def _no_parameter(_rows: int, _columns: int) -> tuple[int, list[int]]:
    return 0, []


def _matrix(rows: int, columns: int) -> tuple[int, list[int]]:
    return rows * columns, [rows, columns]


def _transposed_matrix(rows: int, columns: int) -> tuple[int, list[int]]:
    return rows * columns, [columns, rows]


def _vector(_rows: int, columns: int) -> tuple[int, list[int]]:
    return columns, [1, columns]


def _number(_rows: int, _columns: int) -> tuple[int, list[int]]:
    return 1, [1, 1]


@dataclass
class ProjectionTerm:
    """A function of one layer, with or without a parameter.

    Attributes: origin: the input layer. message: the message of the projection, without its name and sizes. size:
        columns of the result; 0 if the mixed layer determines it. attr: the attributes of the parameter. shape: a
        function that computes the shape of the parameter.
    """

    origin: LayerOutput
    message: ModelConfig_pb2.ProjectionConfig
    size: int
    attr: ParameterAttribute = field(default_factory=ParameterAttribute)
    shape: Shape = _no_parameter

    @property
    def parents(self) -> list[LayerOutput]:
        """The input layers."""
        return [self.origin]

    def __str__(self) -> str:
        return f"the projection {self.message.type!r} of {self.origin.name!r}"


@dataclass
class OperatorTerm:
    """A function of several layers, without a parameter.

    Attributes:
        origin: the input layers.
        message: the message of the operator, without indices and sizes.
        size: columns of the result.
    """

    origin: list[LayerOutput]
    message: ModelConfig_pb2.OperatorConfig
    size: int

    @property
    def parents(self) -> list[LayerOutput]:
        """The input layers."""
        return self.origin

    def __str__(self) -> str:
        names = " and ".join(repr(layer.name) for layer in self.origin)
        return f"the operator {self.message.type!r} of {names}"


def _projection(
    kind: str, source: LayerOutput, size: int, param_attr: Any = None, shape: Shape = _no_parameter
) -> ProjectionTerm:
    attr = to_parameter_attr("param_attr", param_attr)
    return ProjectionTerm(source, ModelConfig_pb2.ProjectionConfig(type=kind), size, attr, shape)


def _wanted_size(size: Any) -> int:
    return to_count("size", 0 if size is None else size)


@helper("layers")
def full_matrix_projection(input: Any, size: int = 0, param_attr: Any = None) -> ProjectionTerm:
    """Return x W."""
    return _projection("fc", to_layer("input", input), _wanted_size(size), param_attr, _matrix)


@helper("layers")
def trans_full_matrix_projection(input: Any, size: int = 0, param_attr: Any = None) -> ProjectionTerm:
    """Return x W^T; another layer that computes x W can share the weight W."""
    source = to_layer("input", input)
    return _projection("trans_fc", source, _wanted_size(size), param_attr, _transposed_matrix)


@helper("layers")
def table_projection(input: Any, size: int = 0, param_attr: Any = None) -> ProjectionTerm:
    """Return the row of W that the id of the input selects."""
    return _projection("table", to_layer("input", input), _wanted_size(size), param_attr, _matrix)


@helper("layers")
def identity_projection(input: Any, offset: int | None = None, size: int | None = None) -> ProjectionTerm:
    """Return x; with an offset, skip `offset` columns of x and return as many columns as the mixed layer has."""
    source = to_layer("input", input)
    columns = columns_of(source)
    if offset is None:
        return _projection("identity", source, columns)
    start = to_count("offset", offset)
    if start >= columns:
        raise wrong("offset", offset, f"it must be less than {columns}, the size of {source.name!r}")
    if size is not None and start + to_size("size", size) > columns:
        raise wrong("size", size, f"the layer {source.name!r} has {columns - start} columns from offset {start} on")
    part = _projection("identity_offset", source, 0)
    part.message.offset = start
    return part


@helper("layers")
def slice_projection(input: Any, slices: Any) -> ProjectionTerm:
    """Return some channels of a convolution; each slice is (first channel, last channel + 1)."""
    source = to_layer("input", input)
    message = message_of(source)
    if message.type not in ("exconv", "cudnn_conv"):
        raise wrong("input", input, "it must be an img_conv_layer")
    if not is_list(slices) or not slices:
        raise wrong("slices", slices, "it must be a list of pairs of channels")
    channels = int(message.num_filters)
    pixels = int(message.size) // channels
    projection = _projection("slice", source, 0)
    end = 0
    for item in slices:
        if not is_list(item) or len(item) != 2:
            raise wrong("slices", slices, "each of its items must be a pair of channels")
        start, stop = to_count("slices", item[0]), to_count("slices", item[1])
        if not end <= start <= stop <= channels:
            raise wrong("slices", slices, f"the pairs must be in ascending order and not exceed {channels} channels")
        projection.message.slices.add(start=start * pixels, end=stop * pixels)
        projection.size += (stop - start) * pixels
        end = stop
    return projection


@helper("layers")
def dotmul_projection(input: Any, param_attr: Any = None) -> ProjectionTerm:
    """Return x times w, column by column."""
    source = to_layer("input", input)
    return _projection("dot_mul", source, columns_of(source), param_attr, _vector)


@helper("layers")
def scaling_projection(input: Any, param_attr: Any = None) -> ProjectionTerm:
    """Return x times one trained number."""
    source = to_layer("input", input)
    return _projection("scaling", source, columns_of(source), param_attr, _number)


@helper("layers")
def context_projection(
    input: Any, context_len: int, context_start: int | None = None, padding_attr: Any = None
) -> ProjectionTerm:
    """Return, for each frame, all frames of the window around this frame, side by side.

    Args:
        input: a sequence.
        context_len: number of frames in the window.
        context_start: the position of the first frame relative to the current frame; default: the window is centred.
        padding_attr: the attributes of trained rows, which replace frames beyond the ends of a sequence. The default
            initial values of the rows are zero. If padding_attr is False, frames beyond the ends are always zero.
    """
    source = to_layer("input", input)
    length = to_size("context_len", context_len)
    start = -(length - 1) // 2 if context_start is None else to_int("context_start", context_start)
    padding = to_bias(padding_attr, default=True)
    rows = max(0, -start) + max(0, start + length - 1)

    def learnt_rows(columns: int, _result: int) -> tuple[int, list[int]]:
        return rows * columns, [rows, columns]

    columns = columns_of(source) * length
    projection = _projection("context", source, columns, padding, learnt_rows if padding else _no_parameter)
    projection.message.context_start = start
    projection.message.context_length = length
    projection.message.trainable_padding = padding is not None
    return projection


def _filters(
    source: LayerOutput,
    filter_size: Any,
    num_filters: int,
    num_channels: int | None,
    stride: Any,
    padding: Any,
    filter_size_y: int | None,
    stride_y: int | None,
    padding_y: int | None,
    groups: int,
    trans: bool,
) -> Filters:
    return Filters(
        to_size("num_filters", num_filters),
        channels_of(source, num_channels),
        to_sizes("filter_size", filter_size, filter_size_y),
        to_sizes("stride", stride, stride_y),
        to_sizes("padding", padding, padding_y, zero=True),
        groups=to_size("groups", groups),
        transposed=bool(trans),
    )


@helper("layers")
def conv_projection(
    input: Any,
    filter_size: Any,
    num_filters: int,
    num_channels: int | None = None,
    stride: Any = 1,
    padding: Any = 0,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    groups: int = 1,
    param_attr: Any = None,
    trans: bool = False,
) -> ProjectionTerm:
    """Convolve a map with trained filters; `trans` selects the transposed convolution."""
    source = to_layer("input", input)
    filters = _filters(
        source,
        filter_size,
        num_filters,
        num_channels,
        stride,
        padding,
        filter_size_y,
        stride_y,
        padding_y,
        groups,
        trans,
    )
    values = filters.number * filters.channels * math.prod(filters.size) // filters.groups
    attr = initialise_filters(to_parameter_attr("param_attr", param_attr), filters.size[0], filters.channels)
    # the original wrote no dims for filters
    projection = _projection("convt" if trans else "conv", source, 0, attr, lambda *_sizes: (values, []))
    made = write_conv(projection.message.conv_conf, source, filters)
    projection.message.num_filters = filters.number
    projection.size = filters.number * math.prod(made)
    return projection


@helper("layers")
def dotmul_operator(a: Any = None, b: Any = None, scale: float = 1, x: Any = None, y: Any = None) -> OperatorTerm:
    """Return scale times a times b, column by column; x and y are the old names of a and b."""
    sources = [to_layer("a", x if a is None else a), to_layer("b", y if b is None else b)]
    size = columns_of(sources[0])
    if columns_of(sources[1]) != size:
        raise ArgumentError(f"b has size {columns_of(sources[1])}; it must be {size}, the size of a")
    message = ModelConfig_pb2.OperatorConfig(type="dot_mul", dotmul_scale=to_float("scale", scale))
    return OperatorTerm(sources, message, size)


@helper("layers")
def conv_operator(
    img: Any,
    filter: Any,
    filter_size: Any,
    num_filters: int,
    num_channels: int | None = None,
    stride: Any = 1,
    padding: Any = 0,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    trans: bool = False,
) -> OperatorTerm:
    """Convolve the map of each sample with the sample's own filters; a row of the layer `filter` holds the filters."""
    sources = [to_layer("img", img), to_layer("filter", filter)]
    filters = _filters(
        sources[0],
        filter_size,
        num_filters,
        num_channels,
        stride,
        padding,
        filter_size_y,
        stride_y,
        padding_y,
        1,
        trans,
    )
    values = filters.number * filters.channels * math.prod(filters.size)
    if columns_of(sources[1]) != values:
        raise ArgumentError(f"filter has size {columns_of(sources[1])}, but the filters need {values} values")
    message = ModelConfig_pb2.OperatorConfig(type="convt" if trans else "conv", num_filters=filters.number)
    made = write_conv(message.conv_conf, sources[0], filters)
    return OperatorTerm(sources, message, filters.number * math.prod(made))
