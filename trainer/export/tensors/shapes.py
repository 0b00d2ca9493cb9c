"""The shape that each parameter has in its layer. No I/O.

A parameter of v0.10 is a flat list of numbers; its ParameterConfig has dims, but many layers read the numbers in
another shape: the dims of a filter are [numbers of one filter, filters], and its numbers have the order [filters,
channels, height, width]. Some parameters are several matrices, one after the other; these are called parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paddle_base.proto.ModelConfig_pb2 import ConvConfig, LayerConfig, ModelConfig, ProjectionConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from trainer.arrays.sparse_storage import sparse_pattern

Shape = tuple[int, ...]
WEIGHT, BIAS, BOOT, FILTERS, PEEPHOLES = "weight", "bias", "boot bias", "filters", "peepholes"

PLANES = ("exconv", "cudnn_conv", "mkldnn_conv", "conv")
PLANES_BACK = ("exconvt", "cudnn_convt", "convt")
VOLUMES, VOLUMES_BACK = ("conv3d",), ("deconv3d",)
BATCH_NORMS = ("batch_norm", "cudnn_batch_norm", "mkldnn_batch_norm")


@dataclass(frozen=True)
class ShapePart:
    """A part of the numbers of a parameter, which a layer reads as one array."""

    role: str
    shape: Shape


@dataclass(frozen=True)
class Use:
    """A layer that reads a parameter, and as what."""

    layer: str
    type: str
    role: str


@dataclass(frozen=True)
class ParameterShape:
    """The shape of a parameter.

    Attributes: shape: of the array; with sparse storage that of the list of values. parts: the arrays that stand one
        after the other in an array of one dimension; empty if the parameter is one array. uses: the layers that read
        the parameter; the first gives the shape.
    """

    shape: Shape
    parts: tuple[ShapePart, ...] = ()
    uses: tuple[Use, ...] = ()


def find_shapes(model: ModelConfig) -> dict[str, ParameterShape]:
    """Return the layout of each parameter, by name, in the order of the message.

    A parameter whose size does not fit its layer has its dims as shape, or is flat if the dims do not fit it, either.
    """
    uses: dict[str, list[tuple[Use, tuple[ShapePart, ...]]]] = {}
    for name, use, parts in _list_uses(model):
        uses.setdefault(name, []).append((use, parts))
    return {one.name: _lay_out(one, uses.get(one.name, [])) for one in model.parameters}


def _lay_out(parameter: ParameterConfig, uses: Sequence[tuple[Use, tuple[ShapePart, ...]]]) -> ParameterShape:
    size, users = int(parameter.size), tuple(use for use, _ in uses)
    if sparse_pattern(parameter) is not None:
        return ParameterShape((size,), uses=users)
    fitting = (parts for _, parts in uses if sum(math.prod(one.shape) for one in parts) == size)
    parts = next(fitting, ())
    if len(parts) == 1:
        return ParameterShape(parts[0].shape, uses=users)
    if parts:
        return ParameterShape((size,), parts, users)
    dims = tuple(int(one) for one in parameter.dims)
    return ParameterShape(dims if dims and math.prod(dims) == size else (size,), uses=users)


@dataclass(frozen=True)
class _Reading:
    """A layer that reads a parameter of `size` values, as the weight of the input `position` (None: as its bias).

    Attributes: widths: the sizes of the input layers.
    """

    layer: LayerConfig
    position: int | None
    size: int
    widths: Sequence[int]

    @property
    def columns(self) -> int:
        """The size of the layer, at least 1."""
        return max(1, int(self.layer.size))

    def by_columns(self, columns: int, role: str = WEIGHT) -> tuple[ShapePart, ...]:
        """Return a matrix with so many columns."""
        return (ShapePart(role, (self.size // max(1, columns), columns)),)

    def by_rows(self, rows: int) -> tuple[ShapePart, ...]:
        """Return a matrix with so many rows."""
        return (ShapePart(WEIGHT, (rows, self.size // max(1, rows))),)

    def flat(self, role: str) -> tuple[ShapePart, ...]:
        """Return a list."""
        return (ShapePart(role, (self.size,)),)


def _list_uses(model: ModelConfig) -> Iterator[tuple[str, Use, tuple[ShapePart, ...]]]:
    sizes = {one.name: int(one.size) for one in model.parameters}
    widths = {one.name: int(one.size) for one in model.layers}
    for layer in model.layers:
        wide = [widths.get(one.input_layer_name, 0) for one in layer.inputs]
        for position, one in enumerate(layer.inputs):
            name = one.input_parameter_name
            if name:
                parts = _weight_parts(_Reading(layer, position, sizes.get(name, 0), wide))
                yield name, Use(layer.name, layer.type, ", ".join(one.role for one in parts) or WEIGHT), parts
        name = layer.bias_parameter_name
        if name:
            parts = _bias_parts(_Reading(layer, None, sizes.get(name, 0), wide))
            yield name, Use(layer.name, layer.type, ", ".join(one.role for one in parts)), parts
    for group in model.sub_models:
        for memory in group.memories:
            name = memory.boot_bias_parameter_name
            if name:
                yield name, Use(memory.link_name, "memory", BOOT), (ShapePart(BOOT, (sizes.get(name, 0),)),)


def filter_shape(conf: ConvConfig, filters: int, *, is_transposed: bool, dimensions: int = 2) -> Shape:
    """Return the shape of filters: (filters, channels of a group, height, width).

    Of a transposed convolution it is (channels, filters of a group, height, width). The depth comes before the height.
    """
    first, second = (conf.channels, filters) if is_transposed else (filters, conf.channels)
    windows = conf.filter_size_z, conf.filter_size_y or conf.filter_size, conf.filter_size
    return (first, second // max(1, conf.groups), *windows[3 - dimensions :])


def _weight_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    assert reader.position is not None
    one = reader.layer.inputs[reader.position]
    if one.HasField("proj_conf"):
        return _projection_parts(reader, one.proj_conf)
    find = _WEIGHTS.get(reader.layer.type)
    return find(reader) if find else ()


def _projection_parts(reader: _Reading, projection: ProjectionConfig) -> tuple[ShapePart, ...]:
    ends = int(projection.input_size), int(projection.output_size)
    if projection.type in ("fc", "table"):
        return (ShapePart("table" if projection.type == "table" else WEIGHT, ends),)
    if projection.type == "trans_fc":
        return (ShapePart(WEIGHT, ends[::-1]),)
    if projection.type in ("conv", "convt"):
        is_transposed = projection.type == "convt"
        return (
            ShapePart(FILTERS, filter_shape(projection.conv_conf, projection.num_filters, is_transposed=is_transposed)),
        )
    if projection.type == "context":
        return reader.by_columns(ends[0], "padding")
    return reader.flat("factors")


def _filter_parts(is_transposed: bool, dimensions: int) -> Callable[[_Reading], tuple[ShapePart, ...]]:
    def find(reader: _Reading) -> tuple[ShapePart, ...]:
        conf, filters = reader.layer.inputs[reader.position or 0].conv_conf, int(reader.layer.num_filters)
        return (ShapePart(FILTERS, filter_shape(conf, filters, is_transposed=is_transposed, dimensions=dimensions)),)

    return find


def _gru_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    width = reader.columns
    return ShapePart("update and reset gate", (width, 2 * width)), ShapePart("candidate", (width, width))


def _statistics_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    return reader.flat(("scale", "moving mean", "moving variance")[min(reader.position or 0, 2)])


def _tensor_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    return (ShapePart(WEIGHT, (reader.columns, *reader.widths[:2])),)


def _crf_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    return (ShapePart("start, end, transitions", (reader.columns + 2, reader.columns)),)


# Maps a type of layer to the function that finds the parts of its weights. Other types have the dims of the parameter.
_WEIGHTS: dict[str, Callable[[_Reading], tuple[ShapePart, ...]]] = {
    "fc": lambda reader: reader.by_columns(reader.columns),
    "recurrent": lambda reader: reader.by_columns(reader.columns),
    "lstmemory": lambda reader: reader.by_columns(4 * reader.columns),
    "mdlstmemory": lambda reader: reader.by_columns((3 + len(reader.layer.directions)) * reader.columns),
    "gated_recurrent": _gru_parts,
    "gru_step": _gru_parts,
    "tensor": _tensor_parts,
    "selective_fc": lambda reader: reader.by_rows(reader.columns),
    "nce": lambda reader: reader.by_rows(int(reader.layer.num_classes)),
    "hsigmoid": lambda reader: reader.by_rows(int(reader.layer.num_classes) - 1),
    "factorization_machine": lambda reader: reader.by_columns(int(reader.layer.factor_size), "factors"),
    "row_conv": lambda reader: reader.by_columns(reader.columns),
    "data_norm": lambda reader: reader.by_columns(reader.columns, "statistics"),
    "crf": _crf_parts,
    "crf_decoding": _crf_parts,
    "prelu": lambda reader: reader.flat("slopes"),
    "norm": lambda reader: reader.flat("scale"),
    "scale_shift": lambda reader: reader.flat("scale"),
    **dict.fromkeys(BATCH_NORMS, _statistics_parts),
    **dict.fromkeys(PLANES, _filter_parts(False, 2)),
    **dict.fromkeys(PLANES_BACK, _filter_parts(True, 2)),
    **dict.fromkeys(VOLUMES, _filter_parts(False, 3)),
    **dict.fromkeys(VOLUMES_BACK, _filter_parts(True, 3)),
}


def _bias_parts(reader: _Reading) -> tuple[ShapePart, ...]:
    width = reader.columns
    if reader.layer.type == "lstmemory":
        return ShapePart(BIAS, (4 * width,)), ShapePart(PEEPHOLES, (3, width))
    if reader.layer.type == "mdlstmemory":
        many = len(reader.layer.directions)
        return ShapePart(BIAS, ((3 + many) * width,)), ShapePart(PEEPHOLES, (2 + many, width))
    return reader.flat(PEEPHOLES if reader.layer.type == "lstm_step" else BIAS)
