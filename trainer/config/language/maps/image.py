"""Layers that slide windows over maps and volumes: convolution and pooling.

The columns of a layer are ordered by channels, then rows, then pixels of a row. If the last window extends past the end
of a map, convolution omits this window, and pooling includes it.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; spec/config.md sections 4.7 and 6, "Image".
"""

from __future__ import annotations

import math
from typing import Any

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.activations import ReluActivation
from trainer.config.building.argument_errors import ArgumentError, is_list, to_size, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, to_activation, to_layer, to_parameter_attr
from trainer.config.building.state import current
from trainer.config.language.maps.convolution import Filters, write_conv
from trainer.config.language.maps.geometry import (
    channels_of,
    initialise_filters,
    map_of,
    set_map,
    set_volume,
    shrink,
    to_count,
    to_sizes,
    volume_of,
    whole_map,
    write_image,
)
from trainer.config.language.poolings import (
    AvgPooling,
    BasePoolingType,
    CudnnAvgPooling,
    CudnnMaxPooling,
    MaxPooling,
    MaxWithMaskPooling,
)


def is_asked(argument: str) -> bool:
    """Return whether --config_args sets a switch, such as `use_gpu=1`."""
    return current().args.get(argument, "0") not in ("", "0", "False")


def runs_on_gpu(layer: LayerBuilder) -> bool:
    """Return whether the layer gets the type that v0.10 used on a GPU."""
    return is_asked("use_gpu") and (not is_asked("parallel_nn") or layer.message.device > -1)


def _conv_kind(trans: bool, layer_type: str | None) -> str:
    """Return the layer_type of a convolution's LayerOutput; the message has a different type."""
    suffix = "convt" if trans else "conv"
    if layer_type is None:
        return suffix
    kinds = (f"ex{suffix}", f"cudnn_{suffix}")
    if layer_type not in kinds:
        raise wrong("layer_type", layer_type, f"with trans={trans} it must be one of {', '.join(kinds)}")
    return layer_type


def _add_filters(layer: LayerBuilder, source: LayerOutput, filters: Filters, param_attr: Any) -> tuple[int, ...]:
    message = layer.add_input(source)
    made = write_conv(message.conv_conf, source, filters)
    values = math.prod(filters.size) * filters.filter_channels
    values *= filters.channels if filters.transposed and len(filters.size) == 2 else filters.number
    attr = initialise_filters(to_parameter_attr("param_attr", param_attr), filters.size[0], filters.channels)
    layer.add_weight(0, values, [], attr)
    return made


def _add_filter_bias(layer: LayerBuilder, filters: Filters, bias_attr: Any, shared_biases: bool) -> None:
    layer.message.num_filters = filters.number
    layer.message.shared_biases = bool(shared_biases)
    size = filters.number if shared_biases else layer.size
    layer.add_bias(bias_attr, default=True, size=size, dims=[size or 0, 1])


@helper("layers", prefix="conv")
def img_conv_layer(
    input: Any,
    filter_size: Any,
    num_filters: int,
    name: str | None = None,
    num_channels: int | None = None,
    act: Any = None,
    groups: int = 1,
    stride: Any = 1,
    padding: Any = 0,
    bias_attr: Any = None,
    param_attr: Any = None,
    shared_biases: bool = True,
    layer_attr: Any = None,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    trans: bool = False,
    layer_type: str | None = None,
    *,
    dilation: Any = 1,
    dilation_y: int | None = None,
) -> LayerOutput:
    """Convolve maps with trained filters; act is relu by default, and `trans` selects the transposed convolution."""
    source = to_layer("input", input)
    activation = to_activation("act", act, ReluActivation())
    filters = Filters(
        to_size("num_filters", num_filters),
        channels_of(source, num_channels),
        to_sizes("filter_size", filter_size, filter_size_y),
        to_sizes("stride", stride, stride_y),
        to_sizes("padding", padding, padding_y, zero=True),
        groups=to_size("groups", groups),
        dilation=to_sizes("dilation", dilation, dilation_y),
        transposed=bool(trans),
    )
    kind = _conv_kind(filters.transposed, layer_type)
    layer = LayerBuilder(to_text("name", name), kind, act=activation, extra=layer_attr, supports="D")
    # as in the original, the message names the implementation, although here both types are the same layer
    takes_cudnn = runs_on_gpu(layer) and not kind.startswith("ex")
    layer.message.type = ("cudnn_conv" if takes_cudnn else "exconv") + ("t" if filters.transposed else "")
    width, height = _add_filters(layer, source, filters, param_attr)
    set_map(layer, filters.number, width, height)
    _add_filter_bias(layer, filters, bias_attr, shared_biases)
    return layer.output([source], activation=activation, num_filters=filters.number)


@helper("layers", prefix="conv3d")
def img_conv3d_layer(
    input: Any,
    filter_size: Any,
    num_filters: int,
    name: str | None = None,
    num_channels: int | None = None,
    act: Any = None,
    groups: int = 1,
    stride: Any = 1,
    padding: Any = 0,
    bias_attr: Any = None,
    param_attr: Any = None,
    shared_biases: bool = True,
    layer_attr: Any = None,
    trans: bool = False,
    layer_type: str | None = None,
) -> LayerOutput:
    """Convolve volumes with trained filters; an argument that is a list has the form (x, y, z)."""
    source = to_layer("input", input)
    activation = to_activation("act", act, ReluActivation())
    filters = Filters(
        to_size("num_filters", num_filters),
        channels_of(source, num_channels),
        to_sizes("filter_size", filter_size, None, None),
        to_sizes("stride", stride, None, None),
        to_sizes("padding", padding, None, None, zero=True),
        groups=to_size("groups", groups),
        transposed=bool(trans),
    )
    kind = "deconv3d" if trans else "conv3d"
    if layer_type not in (None, kind):
        raise wrong("layer_type", layer_type, f"with trans={trans} it must be {kind}")
    layer = LayerBuilder(to_text("name", name), kind, act=activation, extra=layer_attr, supports="D")
    width, height, depth = _add_filters(layer, source, filters, param_attr)
    # The last version of PaddlePaddle wrote a number of weights that is correct only for equal numbers of channels and
    # filters. The message of a job gets the correct number.
    if filters.transposed:
        parameter = layer.parse.parameters[layer.message.inputs[0].input_parameter_name]
        values = math.prod(filters.size) * filters.filter_channels * filters.channels
        layer.parse.in_jobs.append(lambda: setattr(parameter, "size", values))
    set_volume(layer, filters.number, width, height, depth)
    _add_filter_bias(layer, filters, bias_attr, shared_biases)
    return layer.output([source], activation=activation, num_filters=filters.number)


_POOLINGS = (MaxPooling, AvgPooling, MaxWithMaskPooling, CudnnMaxPooling, CudnnAvgPooling)


def pool_name(pool_type: Any, kinds: tuple[type[BasePoolingType], ...] = _POOLINGS) -> str:
    """Return the name that a pooling of maps has in the message. The default pooling is MaxPooling."""
    pooling = MaxPooling() if pool_type is None else pool_type
    if type(pooling) not in kinds:
        raise wrong("pool_type", pool_type, f"it must be one of {', '.join(f'{kind.__name__}()' for kind in kinds)}")
    if isinstance(pooling, AvgPooling):
        return "avg-projection"
    return "max-projection" if isinstance(pooling, MaxPooling) else str(pooling.name)


def _write_pool(
    message: ModelConfig_pb2.PoolConfig,
    given: tuple[int, ...],
    windows: tuple[int, ...],
    strides: tuple[int, ...],
    paddings: tuple[int, ...],
    ceil: bool,
) -> tuple[int, ...]:
    made: list[int] = []
    for axis, size, window, stride, padding in zip("xyz", given, windows, strides, paddings, strict=False):
        suffix = "" if axis == "x" else f"_{axis}"
        made.append(shrink(f"pool_size{suffix}", window, size, padding, stride, ceil=ceil))
        for field, value in ((f"size_{axis}", window), (f"output_{axis}", made[-1])):
            setattr(message, field, value)
        for field, value in (("img_size", size), ("stride", stride), ("padding", padding)):
            setattr(message, field + suffix, value)
    return tuple(made)


@helper("layers", prefix="pool")
def img_pool_layer(
    input: Any,
    pool_size: Any,
    name: str | None = None,
    num_channels: int | None = None,
    pool_type: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    layer_attr: Any = None,
    pool_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    ceil_mode: bool = True,
    exclude_mode: bool | None = None,
) -> LayerOutput:
    """Reduce each window to one pixel, by default to its maximum.

    Args:
        ceil_mode: whether the last window may extend past the end of the map.
        exclude_mode: whether an average excludes the padding; None is not written to the message.
    """
    source = to_layer("input", input)
    channels = channels_of(source, num_channels)
    layer = LayerBuilder(to_text("name", name), "pool", extra=layer_attr)
    message = layer.add_input(source).pool_conf
    message.pool_type = pool_name(pool_type)
    message.channels = channels
    width, height = _write_pool(
        message,
        map_of(source, channels),
        to_sizes("pool_size", pool_size, pool_size_y),
        to_sizes("stride", stride, stride_y),
        to_sizes("padding", padding, padding_y, zero=True),
        ceil_mode,
    )
    if exclude_mode is not None:
        message.exclude_mode = exclude_mode
    set_map(layer, channels, width, height)
    return layer.output([source], num_filters=channels)


@helper("layers", prefix="pool3d")
def img_pool3d_layer(
    input: Any,
    pool_size: Any,
    name: str | None = None,
    num_channels: int | None = None,
    pool_type: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    layer_attr: Any = None,
    pool_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    pool_size_z: int | None = None,
    stride_z: int | None = None,
    padding_z: int | None = None,
    ceil_mode: bool = True,
) -> LayerOutput:
    """Reduce each window of a volume to one number, by default its maximum; a list has the form (x, y, z)."""
    source = to_layer("input", input)
    channels = channels_of(source, num_channels)
    layer = LayerBuilder(to_text("name", name), "pool3d", extra=layer_attr)
    message = layer.add_input(source).pool_conf
    message.pool_type = pool_name(pool_type)
    message.channels = channels
    if is_list(padding):
        if len(padding) != 3:
            raise wrong("padding", padding, "it must be a number or a list of 3 numbers")
        padding, _unread, padding_y = padding  # as in v0.10, a padding list has the form (x and z, unused, y)
    width, height, depth = _write_pool(
        message,
        volume_of(source, channels),
        to_sizes("pool_size", pool_size, pool_size_y, pool_size_z),
        to_sizes("stride", stride, stride_y, stride_z),
        to_sizes("padding", padding, padding_y, padding_z, zero=True),
        ceil_mode,
    )
    set_volume(layer, channels, width, height, depth)
    result = layer.output([source], num_filters=channels)
    result.layer_type = "pool"  # as in the original, only the message says pool3d
    return result


@helper("layers", prefix="spp")
def spp_layer(
    input: Any,
    name: str | None = None,
    num_channels: int | None = None,
    pool_type: Any = None,
    pyramid_height: int | None = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Pool a map as a whole, in 4 parts, in 16 parts and so on; maps of any size give the same number of columns."""
    source = to_layer("input", input)
    channels = channels_of(source, num_channels)
    levels = to_size("pyramid_height", pyramid_height)
    layer = LayerBuilder(to_text("name", name), "spp", extra=layer_attr)
    message = layer.add_input(source).spp_conf
    message.pool_type = pool_name(pool_type, (MaxPooling, AvgPooling))
    message.pyramid_height = levels
    write_image(message.image_conf, source, channels)
    set_map(layer, channels, (4**levels - 1) // 3, 1)
    return layer.output([source], num_filters=channels)


@helper("layers")
def bilinear_interp_layer(
    input: Any,
    out_size_x: int | None = None,
    out_size_y: int | None = None,
    name: str | None = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Resize the maps of an img_conv_layer with linear activation."""
    source = to_layer("input", input)
    if source.layer_type != "conv" or source.num_filters is None:
        raise wrong("input", input, "it must be an img_conv_layer")
    if source.activation is not None and source.activation.name:
        raise wrong("input", input, f"its activation must be linear, not {source.activation.name}")
    width, height = to_size("out_size_x", out_size_x), to_size("out_size_y", out_size_y)
    layer = LayerBuilder(to_text("name", name), "bilinear_interp", extra=layer_attr)
    message = layer.add_input(source).bilinear_interp_conf
    write_image(message.image_conf, source, source.num_filters)
    message.out_size_x, message.out_size_y = width, height
    set_map(layer, source.num_filters, width, height)
    return layer.output([source], num_filters=source.num_filters)


@helper("layers")
def block_expand_layer(
    input: Any,
    block_x: int = 0,
    block_y: int = 0,
    stride_x: int = 0,
    stride_y: int = 0,
    padding_x: int = 0,
    padding_y: int = 0,
    num_channels: int | None = None,
    name: str | None = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Turn a map into the sequence of its blocks; the number of blocks is known only at run time.

    As in v0.10, a network with blocks or strides of 0 pixels can be declared, but not computed.
    """
    source = to_layer("input", input)
    channels = channels_of(source, num_channels)
    block = to_count("block_x", block_x), to_count("block_y", block_y)
    layer = LayerBuilder(to_text("name", name), "blockexpand", size=channels * math.prod(block), extra=layer_attr)
    message = layer.add_input(source).block_expand_conf
    message.channels = channels
    message.block_x, message.block_y = block
    message.stride_x, message.stride_y = to_count("stride_x", stride_x), to_count("stride_y", stride_y)
    message.padding_x, message.padding_y = to_count("padding_x", padding_x), to_count("padding_y", padding_y)
    message.output_x = message.output_y = message.img_size_x = message.img_size_y = 0
    return layer.output([source])


@helper("layers", prefix="upsample")
def upsample_layer(
    input: Any,
    name: str | None = None,
    scale: int | None = None,
    scale_y: int | None = None,
    upsample_size: int | None = None,
    upsample_size_y: int | None = None,
    pad_out_x: bool = False,
    pad_out_y: bool = False,
    layer_attr: Any = None,
) -> LayerOutput:
    """Enlarge pooled maps: put each pixel at the position of its maximum, which the mask of the second input holds."""
    if not is_list(input) or len(input) != 2:
        raise wrong("input", input, "it must be the layer to be enlarged and the img_pool_layer with its mask")
    source, mask = (to_layer("input", item) for item in input)
    if mask.layer_type != "pool":
        raise wrong("input", mask, "the second input must be an img_pool_layer with MaxWithMaskPooling()")
    if scale is None and upsample_size is None:
        raise ArgumentError("give scale or upsample_size")
    layer = LayerBuilder(to_text("name", name), "upsample", extra=layer_attr)
    message = layer.add_input(source).upsample_conf
    layer.add_input(mask)
    channels, width, height = whole_map(source)
    message.image_conf.channels = channels
    message.image_conf.img_size, message.image_conf.img_size_y = width, height
    if scale is not None:
        message.scale, message.scale_y = to_sizes("scale", scale, scale_y)
        width, height = width * message.scale, height * message.scale_y
    message.pad_out_x, message.pad_out_y = pad_out_x, pad_out_y
    if upsample_size is not None:
        message.upsample_size, message.upsample_size_y = to_sizes("upsample_size", upsample_size, upsample_size_y)
        width, height = message.upsample_size, message.upsample_size_y
    set_map(layer, channels, width, height, is_told=False)
    layer.message.depth = source.depth
    return layer.output([source, mask])
