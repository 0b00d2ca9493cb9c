"""Layers of images: convolutions, poolings, norms, and layers that move pixels. No I/O.

`trainer/layers/image/` has the definitions, and the geometry that is used here.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from trainer.export.onnx.families.dense import like_first
from trainer.export.onnx.graph import FLOAT, INT64, Graph
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value
from trainer.export.onnx.windows import convolve, convolve_back, pool_largest, pool_mean, unfold
from trainer.layers.image.convolution import conv_windows
from trainer.layers.image.norm import CROSS_CHANNEL_EPSILON
from trainer.layers.image.pixel_values import interpolation_matrix
from trainer.layers.image.places import count_upsampled, image_blocks, turned_shape
from trainer.layers.image.pool import MASK, WITH_MASK, bin_axis, is_mean_pool, pool_windows
from trainer.layers.image.shape import image_shape, input_shape
from trainer.layers.image.windows import ImageWindows


def to_images(call: LayerExport, position: int, *shape: int) -> str:
    """Return the rows of an input as [rows, *shape]; the frames of a sequence are rows, too.

    Raises: CannotExportError: the rows have another size.
    """
    value = call.dense(position)
    if value.size != math.prod(shape):
        raise CannotExportError(
            f"its input {call.config.inputs[position].input_layer_name} has {value.size} columns, which are not "
            f"{' x '.join(map(str, shape))}"
        )
    return call.graph.reshape(call.graph.rows(value), [-1, *shape])


def to_rows(call: LayerExport, images: str, size: int = 0) -> Value:
    """Return images as rows, with the sequences of the first input."""
    rows = call.graph.reshape(images, [-1, size or call.size])
    return call.graph.like(call.inputs[0], rows, size or call.size)


# ----- Convolution -----


def _convolution(call: LayerExport, dimensions: int, *, is_transposed: bool) -> Value:
    config, graph = call.config, call.graph
    parts: list[str] = []
    bias = call.bias(config.num_filters) if config.shared_biases else ""
    for position, one in enumerate(config.inputs):
        conf = one.conv_conf
        windows = conv_windows(conf, dimensions)
        extents = windows.grid if is_transposed else windows.image
        images = to_images(call, position, conf.channels, *extents)
        ends = (conf.channels, config.num_filters) if is_transposed else (config.num_filters, conf.channels)
        weight = call.tensor(call.weight(position), (ends[0], ends[1] // conf.groups, *windows.sizes))
        apply = convolve_back if is_transposed else convolve
        parts.append(apply(graph, images, weight, "" if parts else bias, windows, conf.groups))
    result = to_rows(call, reduce(lambda left, right: graph.add("Add", left, right), parts))
    return result if bias else result.with_name(call.add_bias(result.name))


@exports("conv", "exconv", "cudnn_conv", "mkldnn_conv")
def _conv(call: LayerExport) -> Value:
    return _convolution(call, 2, is_transposed=False)


@exports("convt", "exconvt", "cudnn_convt")
def _convt(call: LayerExport) -> Value:
    return _convolution(call, 2, is_transposed=True)


@exports("conv3d")
def _conv3d(call: LayerExport) -> Value:
    return _convolution(call, 3, is_transposed=False)


@exports("deconv3d")
def _deconv3d(call: LayerExport) -> Value:
    return _convolution(call, 3, is_transposed=True)


# ----- Pooling -----


def _pool(call: LayerExport, dimensions: int) -> Value:
    conf = call.config.inputs[0].pool_conf
    windows = pool_windows(conf, dimensions)
    images = to_images(call, 0, conf.channels, *windows.image)
    if is_mean_pool(conf.pool_type):
        counts_padding = not conf.exclude_mode if conf.HasField("exclude_mode") else dimensions == 2
        counts_padding = counts_padding or conf.pool_type == "cudnn-avg-incl-pad-pool"
        return to_rows(call, pool_mean(call.graph, images, windows, counts_padding=counts_padding))
    values, places = pool_largest(call.graph, images, windows, with_mask=conf.pool_type == WITH_MASK)
    result = to_rows(call, values)
    return result.with_extras({MASK: to_rows(call, places)}) if places else result


@exports("pool")
def _pool_planes(call: LayerExport) -> Value:
    return _pool(call, 2)


@exports("pool3d")
def _pool_volumes(call: LayerExport) -> Value:
    return _pool(call, 3)


@exports("spp")
def _pyramid(call: LayerExport) -> Value:
    conf, graph = call.config.inputs[0].spp_conf, call.graph
    channels, height, width = image_shape(conf.image_conf)
    images = to_images(call, 0, channels, height, width)
    parts = []
    for level in range(conf.pyramid_height):
        windows = ImageWindows((bin_axis(height, 2**level), bin_axis(width, 2**level)))
        if is_mean_pool(conf.pool_type):
            pooled = pool_mean(graph, images, windows, counts_padding=True)
        else:
            pooled, _ = pool_largest(graph, images, windows)
        parts.append(graph.reshape(pooled, [-1, channels * windows.places]))
    return to_rows(call, graph.add("Concat", *parts, axis=-1), sum_of_bins(channels, conf.pyramid_height))


def sum_of_bins(channels: int, levels: int) -> int:
    """Return the number of values of a pyramid."""
    return sum(channels << (2 * level) for level in range(levels))


@exports("upsample")
def _upsample(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].upsample_conf
    channels, height, width = image_shape(conf.image_conf)
    if MASK not in call.inputs[1].extras:
        raise CannotExportError("its second input has no mask; it must be a max-pool-with-mask layer")
    pixels = count_upsampled(conf)
    values = to_images(call, 0, channels, height * width)
    places = graph.reshape(graph.rows(call.inputs[1].extras[MASK]), [-1, channels, height * width])
    shape = graph.add("Concat", graph.dim(values, 0), graph.integers([channels, pixels]), axis=0)
    zeros = graph.add("Expand", graph.constant(0), shape)
    larger = graph.add("ScatterElements", zeros, graph.cast(places, INT64), values, axis=2)
    return to_rows(call, larger, channels * pixels)


# ----- Norms -----


@exports("norm")
def _norm(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].norm_conf
    width = call.dense(0).size
    images = to_images(call, 0, conf.channels, width // conf.channels)
    if conf.norm_type == "cross-channel-norm":
        squares = graph.add("ReduceSum", graph.add("Mul", images, images), axes=[1], keepdims=1)
        length = graph.add("Sqrt", graph.add("Add", squares, graph.constant(CROSS_CHANNEL_EPSILON)))
        weight = call.tensor(call.weight(0), (conf.channels, 1))
        return to_rows(call, graph.add("Mul", graph.add("Div", images, length), weight), width)
    sums = _sum_channels(graph, graph.add("Mul", images, images), conf.size)
    scaled = graph.add("Add", graph.add("Mul", sums, graph.constant(conf.scale)), graph.constant(1))
    divisor = graph.add("Pow", scaled, graph.constant(-conf.pow))
    return to_rows(call, graph.add("Mul", images, divisor), width)


def _sum_channels(graph: Graph, images: str, size: int) -> str:
    """Return the sums of `size` channels around each channel. Shapes: [n, channels, pixels]."""
    before = (size - 1) // 2
    padded = graph.add("Pad", images, graph.integers([0, before, 0, 0, size - 1 - before, 0]), graph.constant(0))
    planes = graph.unsqueeze(padded, 1)
    means = graph.add("AveragePool", planes, kernel_shape=[size, 1], strides=[1, 1])
    return graph.add("Mul", graph.squeeze(means, 1), graph.constant(size))


@exports("batch_norm", "cudnn_batch_norm", "mkldnn_batch_norm")
def _batch_norm(call: LayerExport) -> Value:
    graph, config = call.graph, call.config
    channels, width = config.inputs[0].image_conf.channels, call.dense(0).size
    images = to_images(call, 0, channels, width // channels)
    scale = call.tensor(call.weight(0), (channels,))
    bias = call.bias(channels) or graph.constant(np.zeros(channels))
    if config.HasField("use_global_stats") and not config.use_global_stats:
        return to_rows(call, _normalise_by_batch(call, images, scale, bias), width)
    variance = call.weight(2)
    moving = graph.parameter(variance.name, np.maximum(variance.value.reshape(-1), 0))
    mean = call.tensor(call.weight(1), (channels,))
    normal = graph.add("BatchNormalization", images, scale, bias, mean, moving, epsilon=config.epsilon)
    return to_rows(call, normal, width)


def _normalise_by_batch(call: LayerExport, images: str, scale: str, bias: str) -> str:
    """Return images that are normalised by mean and variance of the batch; padding of sequences does not count."""
    graph, value = call.graph, call.dense(0)
    pixels = graph.cast(graph.dim(images, 2), FLOAT)
    if value.levels:
        frames = graph.reshape(graph.is_frame(value), [-1, 1, 1])
        images = graph.add("Where", frames, images, graph.constant(0))
        count = graph.add("Mul", graph.add("ReduceSum", graph.cast(frames, FLOAT), axes=[0, 1, 2], keepdims=1), pixels)
    else:
        count = graph.add("Mul", graph.cast(graph.dim(images, 0), FLOAT), pixels)
    mean = graph.add("Div", graph.add("ReduceSum", images, axes=[0, 2], keepdims=1), count)
    centred = graph.add("Sub", images, mean)
    if value.levels:
        centred = graph.add("Where", frames, centred, graph.constant(0))
    squares = graph.add("ReduceSum", graph.add("Mul", centred, centred), axes=[0, 2], keepdims=1)
    variance = graph.add("Add", graph.add("Div", squares, count), graph.constant(call.config.epsilon))
    normal = graph.add("Div", centred, graph.add("Sqrt", variance))
    return graph.add("Add", graph.add("Mul", normal, graph.unsqueeze(scale, -1)), graph.unsqueeze(bias, -1))


# ----- Values of pixels -----


@exports("maxout")
def _maxout(call: LayerExport) -> Value:
    conf = call.config.inputs[0].maxout_conf
    channels, height, width = image_shape(conf.image_conf)
    images = to_images(call, 0, channels // conf.groups, conf.groups, height * width)
    size = channels // conf.groups * height * width
    return to_rows(call, call.graph.add("ReduceMax", images, axes=[2], keepdims=0), size)


@exports("bilinear_interp")
def _bilinear(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].bilinear_interp_conf
    channels, height, width = image_shape(conf.image_conf)
    rows, columns = (
        interpolation_matrix(height, conf.out_size_y),
        interpolation_matrix(width, conf.out_size_x),
    )
    images = graph.add("MatMul", graph.constant(rows), to_images(call, 0, channels, height, width))
    larger = graph.add("MatMul", images, graph.constant(columns.T))
    return to_rows(call, larger, channels * len(rows) * len(columns))


@exports("scale_sub_region")
def _scale_sub_region(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].scale_sub_region_conf
    shape = image_shape(conf.image_conf)
    images = to_images(call, 0, *shape)
    bounds = graph.add("Floor", graph.rows(call.dense(1)))
    inside = ""
    for axis, length in enumerate(shape):
        extents = [1, 1, 1]
        extents[axis] = length
        places = graph.constant(np.arange(1, length + 1).reshape(extents))
        first, last = (
            graph.reshape(graph.slice(bounds, 2 * axis + one, 2 * axis + one + 1), [-1, 1, 1, 1]) for one in (0, 1)
        )
        between = graph.add("And", graph.add("GreaterOrEqual", places, first), graph.add("LessOrEqual", places, last))
        inside = graph.add("And", inside, between) if inside else between
    factor = graph.add("Where", inside, graph.constant(conf.value), graph.constant(1))
    return to_rows(call, graph.add("Mul", images, factor), math.prod(shape))


# ----- Places of pixels -----


@exports("pad")
def _pad(call: LayerExport) -> Value:
    conf = call.config.inputs[0].pad_conf
    shape = image_shape(conf.image_conf)
    pads = [tuple(one) if len(one) else (0, 0) for one in (conf.pad_c, conf.pad_h, conf.pad_w)]
    images = to_images(call, 0, *shape)
    ends = [0, *(one for one, _ in pads), 0, *(one for _, one in pads)]
    padded = call.graph.add("Pad", images, call.graph.integers(ends), call.graph.constant(0))
    return to_rows(call, padded, math.prod(n + sum(pair) for n, pair in zip(shape, pads, strict=True)))


@exports("crop")
def _crop(call: LayerExport) -> Value:
    graph, config = call.graph, call.config
    shape = image_shape(config.inputs[0].image_conf)
    target = tuple(config.shape)[1:] if len(config.inputs) == 1 else input_shape(call.layer, 1)
    axes = list(range(config.axis, 4))
    offsets = list(config.offset) * (len(axes) if len(config.offset) == 1 else 1)
    ends = [offset + target[axis - 1] for axis, offset in zip(axes, offsets, strict=True)]
    images = to_images(call, 0, *shape)
    piece = graph.add("Slice", images, graph.integers(offsets), graph.integers(ends), graph.integers(axes))
    return to_rows(call, piece, math.prod(shape[: config.axis - 1]) * math.prod(target[config.axis - 1 :]))


@exports("rotate")
def _rotate(call: LayerExport) -> Value:
    height, width = call.config.height, call.config.width
    places = np.arange(call.size).reshape(-1, height, width)
    return like_first(call, call.graph.take(call.dense(0).name, np.rot90(places, k=-1, axes=(1, 2)).reshape(-1)))


@exports("switch_order")
def _switch_order(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.reshape_conf
    shape = turned_shape(call.layer)
    turned = np.arange(math.prod(shape)).reshape(shape).transpose(1, 2, 0)
    axes = list(conf.height_axis) or [0]
    rows = graph.take(call.dense(0).name, turned.reshape(-1))
    if axes == [0]:
        return call.inputs[0].with_name(rows, turned.size)
    width = math.prod(turned.shape[axis - 1] for axis in range(1, 4) if axis not in axes)
    rows = graph.packed(call.inputs[0].with_name(rows, turned.size))
    return Value(graph.reshape(rows, [-1, width]), width, is_batch=False)


@exports("blockexpand")
def _block_expand(call: LayerExport) -> Value:
    """Each image becomes a sequence of its blocks."""
    graph, conf = call.graph, call.config.inputs[0].block_expand_conf
    if call.dense(0).levels:
        raise CannotExportError("its input is a sequence of images")
    windows = image_blocks(call.layer, conf)
    columns = unfold(graph, call.dense(0).name, conf.channels, windows)
    frames = graph.add("Transpose", columns, perm=[0, 2, 1])
    lengths = graph.add("Expand", graph.integers([windows.places]), graph.dim(frames, 0))
    return Value(frames, conf.channels * windows.elements, lengths=lengths, is_batch=call.inputs[0].is_batch)
