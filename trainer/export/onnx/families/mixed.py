"""Mixed layers: sums of projections and operators; and concat2, which joins projections. No I/O.

`trainer/layers/mixed/` has the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ConvConfig, OperatorConfig, ProjectionConfig
from trainer.export.onnx.families.dense import like_first, total
from trainer.export.onnx.families.images import to_images
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value
from trainer.export.onnx.windows import convolve, convolve_back, fold, unfold
from trainer.layers.image.convolution import conv_windows

# (call, the message, the position of the input) -> the tensor of the projected rows
Project = Callable[[LayerExport, ProjectionConfig, int], str]
PROJECTIONS: dict[str, Project] = {}


def projects(*types: str) -> Callable[[Project], Project]:
    """Return a decorator of the function that writes the nodes of these types of projections."""

    def register(function: Project) -> Project:
        PROJECTIONS.update(dict.fromkeys(types, function))
        return function

    return register


@exports("mixed")
def _mixed(call: LayerExport) -> Value:
    parts = [_project(call, position) for position, one in enumerate(call.config.inputs) if one.HasField("proj_conf")]
    parts += [_operate(call, one) for one in call.config.operator_confs]
    return like_first(call, call.add_bias(total(call, parts)))


@exports("concat2")
def _concat(call: LayerExport) -> Value:
    parts = [_project(call, position) for position in range(len(call.inputs))]
    return like_first(call, call.add_bias(call.graph.add("Concat", *parts, axis=-1)))


def _project(call: LayerExport, position: int) -> str:
    conf = call.config.inputs[position].proj_conf
    if conf.type not in PROJECTIONS:
        raise CannotExportError(f"its {conf.type} projection has no form in ONNX here")
    return PROJECTIONS[conf.type](call, conf, position)


@projects("fc")
def _full_matrix(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    weight = call.matrix(position, conf.input_size, conf.output_size)
    return call.graph.add("MatMul", call.dense(position).name, weight)


@projects("trans_fc")
def _transposed_matrix(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    weight = call.matrix(position, conf.output_size, conf.input_size)
    turned = call.graph.add("Transpose", weight, perm=[1, 0])
    return call.graph.add("MatMul", call.dense(position).name, turned)


@projects("table")
def _table(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    """Look up the row of each id; the id -1 gives a row of zeros."""
    graph, ids = call.graph, call.ids(position)
    table = call.matrix(position, conf.input_size, conf.output_size)
    rows = graph.add("Gather", table, graph.add("Max", ids.name, graph.integers(0)), axis=0)
    is_known = graph.unsqueeze(graph.add("GreaterOrEqual", ids.name, graph.integers(0)), -1)
    return graph.add("Where", is_known, rows, graph.constant(0))


@projects("identity")
def _identity(call: LayerExport, _conf: ProjectionConfig, position: int) -> str:
    return call.dense(position).name


@projects("identity_offset")
def _offset(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    return call.graph.slice(call.dense(position).name, conf.offset, conf.offset + conf.output_size)


@projects("slice")
def _slices(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    graph, x = call.graph, call.dense(position).name
    parts = [graph.slice(x, one.start, one.end) for one in conf.slices]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=-1)


@projects("dot_mul", "scaling")
def _multiply(call: LayerExport, _conf: ProjectionConfig, position: int) -> str:
    weight = call.weight(position)
    return call.graph.add("Mul", call.dense(position).name, call.tensor(weight, (weight.size,)))


@projects("conv")
def _convolution(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    return _slide(call, conf, position, is_transposed=False)


@projects("convt")
def _transposed_convolution(call: LayerExport, conf: ProjectionConfig, position: int) -> str:
    return _slide(call, conf, position, is_transposed=True)


def _slide(call: LayerExport, conf: ProjectionConfig, position: int, *, is_transposed: bool) -> str:
    one, groups = conf.conv_conf, max(1, conf.conv_conf.groups)
    windows = conv_windows(one, 2)
    images = to_images(call, position, one.channels, *(windows.grid if is_transposed else windows.image))
    ends = (one.channels, conf.num_filters) if is_transposed else (conf.num_filters, one.channels)
    weight = call.tensor(call.weight(position), (ends[0], ends[1] // groups, *windows.sizes))
    apply = convolve_back if is_transposed else convolve
    rows = call.graph.reshape(apply(call.graph, images, weight, "", windows, groups), [-1, conf.output_size])
    return call.graph.like(call.inputs[position], rows, conf.output_size).name


# ----- Operators -----


def _operate(call: LayerExport, conf: OperatorConfig) -> str:
    operators: dict[str, Any] = {"dot_mul": _dot_multiply, "conv": _convolve_by_row, "convt": _convolve_back_by_row}
    if conf.type not in operators:
        raise CannotExportError(f"its {conf.type} operator has no form in ONNX here")
    result: str = operators[conf.type](call, conf)
    return result


def _dot_multiply(call: LayerExport, conf: OperatorConfig) -> str:
    graph = call.graph
    first, second = (call.dense(position).name for position in conf.input_indices)
    product = graph.add("Mul", first, second)
    return product if conf.dotmul_scale == 1 else graph.add("Mul", product, graph.constant(conf.dotmul_scale))


def _convolve_by_row(call: LayerExport, conf: OperatorConfig) -> str:
    """Convolve the image of each row with the filters of the same row."""
    graph, one = call.graph, conf.conv_conf
    windows, (images, filters) = conv_windows(one, 2), (call.dense(position) for position in conf.input_indices)
    columns = unfold(graph, graph.rows(images), one.channels, windows)
    weight = _filters_of_rows(call, filters, conf.num_filters, one, windows.elements)
    maps = graph.reshape(graph.add("MatMul", weight, columns), [-1, conf.output_size])
    return graph.like(images, maps, conf.output_size).name


def _convolve_back_by_row(call: LayerExport, conf: OperatorConfig) -> str:
    graph, one = call.graph, conf.conv_conf
    windows, (maps, filters) = conv_windows(one, 2), (call.dense(position) for position in conf.input_indices)
    # the filters of a transposed convolution go from `channels` maps to `num_filters` channels of the image
    weight = graph.reshape(graph.rows(filters), [-1, one.channels, conf.num_filters * windows.elements])
    values = graph.reshape(graph.rows(maps), [-1, one.channels, windows.places])
    columns = graph.add("MatMul", graph.add("Transpose", weight, perm=[0, 2, 1]), values)
    return graph.like(maps, fold(graph, columns, conf.num_filters, windows), conf.output_size).name


def _filters_of_rows(call: LayerExport, filters: Value, many: int, conf: ConvConfig, elements: int) -> str:
    return call.graph.reshape(call.graph.rows(filters), [-1, many, conf.channels * elements])
