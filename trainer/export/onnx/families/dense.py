"""Layers that compute with the elements of rows: sums, products, norms, limits, selections. No I/O.

`trainer/layers/dense/` has the definitions.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from trainer.export.onnx.graph import INT64
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports, refuse
from trainer.export.onnx.values import Value
from trainer.layers.dense.data_norm import STRATEGIES

refuse("it draws random numbers", "sampling_id")
refuse("its frames form grids, whose sizes are no inputs of a file here", "mdlstmemory")


def total(call: LayerExport, parts: list[str]) -> str:
    """Return the sum of tensors."""
    return reduce(lambda left, right: call.graph.add("Add", left, right), parts)


def like_first(call: LayerExport, tensor: str) -> Value:
    """Return the output of the layer, with the sequences of its first input."""
    return call.inputs[0].with_name(tensor, call.size)


def sum_columns(call: LayerExport, tensor: str, *, keep: bool = True) -> str:
    """Return the sums over the last dimension."""
    return call.graph.add("ReduceSum", tensor, axes=[-1], keepdims=int(keep))


@exports("fc")
def _fc(call: LayerExport) -> Value:
    parts = []
    for position in range(len(call.inputs)):
        x = call.dense(position)
        parts.append(call.graph.add("MatMul", x.name, call.matrix(position, x.size, call.size)))
    return like_first(call, call.add_bias(total(call, parts)))


@exports("selective_fc")
def _selective_fc(call: LayerExport) -> Value:
    """A selection has ones in the columns to compute, and the result has these columns in ascending order."""
    graph, config = call.graph, call.config
    selects = config.has_selected_colums
    if selects and config.selective_fc_pass_generation:
        raise CannotExportError("with selective_fc_pass_generation, its rows have different numbers of columns")
    parts = []
    for position in range(len(call.inputs) - selects):
        x = call.dense(position)
        weight = call.matrix(position, call.size, x.size)
        parts.append(graph.add("MatMul", x.name, graph.add("Transpose", weight, perm=[1, 0])))
    result = like_first(call, call.add_bias(total(call, parts)))
    if not selects:
        return result
    if result.levels:
        raise CannotExportError("it selects columns for the frames of a sequence")
    places = graph.add("NonZero", call.dense(len(call.inputs) - 1).name)
    columns = graph.squeeze(graph.slice(places, 1, 2, axis=0), 0)
    shape = graph.add("Concat", graph.dim(result.name, 0), graph.integers([-1]), axis=0)
    return result.with_name(graph.add("GatherElements", result.name, graph.add("Reshape", columns, shape), axis=1))


@exports("addto")
def _addto(call: LayerExport) -> Value:
    names = [call.dense(position).name for position in range(len(call.inputs))]
    return like_first(call, call.add_bias(total(call, names)))


@exports("concat")
def _concat(call: LayerExport) -> Value:
    names = [call.dense(position).name for position in range(len(call.inputs))]
    return like_first(call, call.graph.add("Concat", *names, axis=-1))


@exports("slope_intercept")
def _slope_intercept(call: LayerExport) -> Value:
    graph = call.graph
    scaled = graph.add("Mul", call.dense(0).name, graph.constant(call.config.slope))
    return like_first(call, graph.add("Add", scaled, graph.constant(call.config.intercept)))


@exports("scaling")
def _scaling(call: LayerExport) -> Value:
    return like_first(call, call.graph.add("Mul", call.dense(0).name, call.dense(1).name))


@exports("interpolation")
def _interpolation(call: LayerExport) -> Value:
    graph = call.graph
    w, x, y = (call.dense(position).name for position in range(3))
    rest = graph.add("Mul", graph.add("Sub", graph.constant(1), w), y)
    return like_first(call, graph.add("Add", graph.add("Mul", w, x), rest))


@exports("power")
def _power(call: LayerExport) -> Value:
    return like_first(call, call.graph.add("Pow", call.dense(1).name, call.dense(0).name))


@exports("sum_to_one_norm")
def _sum_to_one(call: LayerExport) -> Value:
    x = call.dense(0).name
    return like_first(call, call.graph.add("Div", x, sum_columns(call, x)))


@exports("row_l2_norm")
def _row_norm(call: LayerExport) -> Value:
    x = call.dense(0).name
    return like_first(call, call.graph.add("Div", x, _length(call, x)))


def _length(call: LayerExport, x: str) -> str:
    """Return the Euclidean norm over the last dimension."""
    return call.graph.add("Sqrt", sum_columns(call, call.graph.add("Mul", x, x)))


@exports("clip")
def _clip(call: LayerExport) -> Value:
    conf, graph = call.config.inputs[0].clip_conf, call.graph
    return like_first(call, graph.add("Clip", call.dense(0).name, graph.constant(conf.min), graph.constant(conf.max)))


@exports("scale_shift")
def _scale_shift(call: LayerExport) -> Value:
    graph = call.graph
    y = graph.add("Mul", call.dense(0).name, call.tensor(call.weight(0), (1,)))
    bias = call.bias(1)
    return like_first(call, graph.add("Add", y, bias) if bias else y)


@exports("prelu")
def _prelu(call: LayerExport) -> Value:
    share = call.config.partial_sum or 1
    weight = call.weight(0)
    slopes = call.graph.parameter(weight.name, np.repeat(weight.value.reshape(-1), share))
    return like_first(call, call.graph.add("PRelu", call.dense(0).name, slopes))


@exports("data_norm")
def _data_norm(call: LayerExport) -> Value:
    graph, weight = call.graph, call.weight(0)
    rows = weight.value.reshape(5, call.size)
    subtracted, factor = STRATEGIES[call.config.data_norm_strategy]
    x = call.dense(0).name
    if subtracted is not None:
        x = graph.add("Sub", x, graph.parameter(weight.name, rows[subtracted]))
    return like_first(call, graph.add("Mul", x, graph.parameter(weight.name, rows[factor])))


# ----- Products of rows -----


@exports("dot_prod")
def _dot_product(call: LayerExport) -> Value:
    return like_first(call, sum_columns(call, call.graph.add("Mul", call.dense(0).name, call.dense(1).name)))


@exports("l2_distance")
def _distance(call: LayerExport) -> Value:
    return like_first(call, _length(call, call.graph.add("Sub", call.dense(0).name, call.dense(1).name)))


@exports("out_prod")
def _outer_product(call: LayerExport) -> Value:
    return like_first(call, _outer(call))


@exports("tensor")
def _tensor(call: LayerExport) -> Value:
    width = call.dense(0).size * call.dense(1).size
    weight = call.graph.add("Transpose", call.matrix(0, call.size, width), perm=[1, 0])
    return like_first(call, call.add_bias(call.graph.add("MatMul", _outer(call), weight)))


def _outer(call: LayerExport) -> str:
    """Return the products of all pairs of columns of the two inputs; the columns of the second vary fastest."""
    graph, x, y = call.graph, call.dense(0), call.dense(1)
    products = graph.add("Mul", graph.unsqueeze(x.name, -1), graph.unsqueeze(y.name, -2))
    return graph.reshape(products, [*[0] * (1 + x.levels), x.size * y.size])


@exports("conv_shift")
def _circular_convolution(call: LayerExport) -> Value:
    graph, x, y = call.graph, call.dense(0), call.dense(1)
    offsets = np.arange(y.size) - (y.size - 1) // 2
    windows = graph.take(x.name, (np.arange(x.size)[:, None] + offsets) % x.size)
    return like_first(call, sum_columns(call, graph.add("Mul", windows, graph.unsqueeze(y.name, -2)), keep=False))


@exports("convex_comb")
def _linear_combination(call: LayerExport) -> Value:
    graph, w, vectors = call.graph, call.dense(0), call.dense(1)
    product = graph.add("MatMul", graph.unsqueeze(w.name, -2), graph.split(vectors, w.size, call.size))
    return like_first(call, graph.squeeze(product, -2))


@exports("cos", "cos_vm")
def _cosine(call: LayerExport) -> Value:
    graph, x, y = call.graph, call.dense(0), call.dense(1)
    vectors = graph.split(y, call.size, x.size)
    products = sum_columns(call, graph.add("Mul", graph.unsqueeze(x.name, -2), vectors), keep=False)
    lengths = graph.squeeze(_length(call, vectors), -1)
    cosine = graph.add("Div", graph.add("Div", products, _length(call, x.name)), lengths)
    scale = call.config.cos_scale if call.config.HasField("cos_scale") else 1.0
    return like_first(call, cosine if scale == 1 else graph.add("Mul", cosine, graph.constant(scale)))


@exports("factorization_machine")
def _factorization_machine(call: LayerExport) -> Value:
    graph, x = call.graph, call.dense(0)
    weight = call.weight(0)
    factors = weight.value.reshape(x.size, call.config.factor_size)
    sums = graph.add("MatMul", x.name, graph.parameter(weight.name, factors))
    lengths = graph.parameter(weight.name, np.square(factors).sum(axis=1, keepdims=True))
    squares = graph.add("MatMul", graph.add("Mul", x.name, x.name), lengths)
    pairs = graph.add("Sub", sum_columns(call, graph.add("Mul", sums, sums)), squares)
    return like_first(call, graph.add("Mul", pairs, graph.constant(0.5)))


# ----- Selections, and rows in other shapes -----


@exports("maxid")
def _maxid(call: LayerExport) -> Value:
    graph, x, count = call.graph, call.dense(0), max(1, call.config.beam_size)
    if count == 1:
        return x.with_ids(graph.add("ArgMax", x.name, axis=-1, keepdims=0))
    ids = graph.add_several("TopK", x.name, graph.integers([count]), outputs=2, axis=-1, largest=1, sorted=1)[1]
    return x.with_ids(ids, choices=count)


@exports("eos_id")
def _end_of_sentence(call: LayerExport) -> Value:
    one = call.ids(0)
    is_end = call.graph.add("Equal", one.name, call.graph.integers(call.config.eos_id))
    return one.with_ids(call.graph.cast(is_end, INT64), 2)


@exports("multiplex")
def _multiplex(call: LayerExport) -> Value:
    graph, ids = call.graph, call.ids(0)
    numbers = graph.unsqueeze(ids.name, -1)
    chosen = call.dense(1).name
    for number in range(1, len(call.inputs) - 1):
        is_number = graph.add("Equal", numbers, graph.integers(number))
        chosen = graph.add("Where", is_number, call.dense(number + 1).name, chosen)
    return like_first(call, chosen)


@exports("featmap_expand")
def _repeat(call: LayerExport) -> Value:
    columns, times = np.arange(call.dense(0).size), call.config.num_filters
    by_element = call.config.user_arg == "as_col_vec"
    repeated = np.repeat(columns, times) if by_element else np.tile(columns, times)
    return like_first(call, call.graph.take(call.dense(0).name, repeated))


@exports("resize")
def _resize(call: LayerExport) -> Value:
    rows = call.graph.reshape(call.graph.packed(call.dense(0)), [-1, call.size])
    return Value(rows, call.size, is_batch=False)


@exports("trans")
def _transpose(call: LayerExport) -> Value:
    rows = call.graph.packed(call.dense(0))
    return Value(call.graph.add("Transpose", rows, perm=[1, 0]), call.size, is_batch=False)


@exports("get_output")
def _get_output(call: LayerExport) -> Value:
    name = call.config.inputs[0].input_layer_argument
    if not name:
        return call.inputs[0]
    if name not in call.inputs[0].extras:
        raise CannotExportError(f"its input has no output '{name}' in ONNX")
    return call.inputs[0].extras[name]


@exports("print")
def _print(call: LayerExport) -> Value:
    """Printing has no meaning here; the output is the first input."""
    return call.inputs[0]
