"""Layers that normalise, crop, pad and rearrange maps.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; spec/config.md section 6.
"""

from __future__ import annotations

import math
from typing import Any

from trainer.config.building.activations import ReluActivation
from trainer.config.building.argument_errors import is_list, to_float, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import (
    LayerBuilder,
    LayerOutput,
    columns_of,
    message_of,
    to_activation,
    to_layer,
    to_layers,
    to_parameter_attr,
)
from trainer.config.language.maps.geometry import (
    channels_of,
    map_of,
    set_map,
    set_shape,
    set_volume,
    to_count,
    volume_of,
    whole_map,
    write_image,
)
from trainer.config.language.maps.image import is_asked, runs_on_gpu

_BATCH_NORM_TYPES = (None, "batch_norm", "cudnn_batch_norm")
_LEAST_EPSILON = 1e-5


@helper("layers", prefix="batch_norm")
def batch_norm_layer(
    input: Any,
    act: Any = None,
    name: str | None = None,
    num_channels: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    layer_attr: Any = None,
    batch_norm_type: str | None = None,
    moving_average_fraction: float = 0.9,
    use_global_stats: bool | None = None,
    mean_var_names: Any = None,
    *,
    img3D: bool = False,
    epsilon: float = 1e-5,
) -> LayerOutput:
    """Normalise each channel by its mean and variance in the batch, and then scale and shift the channel.

    If the input has no channels, each column is a channel.

    Args:
        moving_average_fraction: the weight of the old value in the moving mean and variance, which tests use.
        use_global_stats: whether to use the moving mean and variance; the default is to use them only in tests.
        mean_var_names: names of the two parameters that hold the moving mean and variance.
    """
    source = to_layer("input", input)
    channels = source.num_filters if num_channels is None else to_size("num_channels", num_channels)
    channels = channels or columns_of(source)
    if batch_norm_type not in _BATCH_NORM_TYPES:
        raise wrong("batch_norm_type", batch_norm_type, "it must be batch_norm or cudnn_batch_norm")
    if to_float("epsilon", epsilon) < _LEAST_EPSILON:
        raise wrong("epsilon", epsilon, f"it must be at least {_LEAST_EPSILON}")
    activation = to_activation("act", act, ReluActivation())
    layer = LayerBuilder(to_text("name", name), "batch_norm", act=activation, extra=layer_attr, supports="DE")
    if runs_on_gpu(layer) and batch_norm_type != "batch_norm":
        layer.message.type = "cudnn_batch_norm"
    image = layer.add_input(source).image_conf
    if img3D:
        image.channels = channels
        image.img_size, image.img_size_y, image.img_size_z = volume_of(source, channels)
    else:
        write_image(image, source, channels)
    # as in the original, a layer without a map gets no height and width, even if it has channels
    if message_of(source).width or message_of(source).height:
        _set_normalised_shape(layer, channels, image)
    else:
        layer.set_size(columns_of(source))
    _add_statistics(layer, source, channels, _to_scale(param_attr), mean_var_names)
    layer.add_bias(bias_attr, default=True, size=channels)
    layer.message.epsilon = epsilon
    layer.message.moving_average_fraction = to_float("moving_average_fraction", moving_average_fraction)
    if use_global_stats is not None:
        layer.message.use_global_stats = use_global_stats
    return layer.output([source], activation=activation, num_filters=channels)


def _to_scale(param_attr: Any) -> ParameterAttribute:
    if param_attr is None:  # the default initial scale is 1
        return ParameterAttribute(initial_mean=1.0, initial_std=0.0)
    return to_parameter_attr("param_attr", param_attr)


def _set_normalised_shape(layer: LayerBuilder, channels: int, image: Any) -> None:
    if image.img_size_z > 1:
        set_volume(layer, channels, image.img_size, image.img_size_y, image.img_size_z)
    else:
        set_map(layer, channels, image.img_size, image.img_size_y)
        layer.message.depth = 1


def _add_statistics(
    layer: LayerBuilder, source: LayerOutput, channels: int, scale: ParameterAttribute, names: Any
) -> None:
    """Add the scale, and the moving mean and variance.

    In the message, scale, mean and variance are the weights of three inputs, and each input names the same layer.
    """
    moving = [None, None] if names is None else to_list(names)
    if len(moving) != 2:
        raise wrong("mean_var_names", names, "it must be two names, one for the mean and one for the variance")
    layer.add_weight(0, channels, [], scale)
    for index, name in enumerate(moving, start=1):
        layer.add_input(source)
        attr = ParameterAttribute(name=name, initial_std=0.0, initial_mean=0.0)
        # with ParameterAttribute(is_static=True), the initial values would have no effect
        attr.attr["is_static"] = True
        # the threads of a trainer share the moving statistics; in v0.10 each GPU had its own statistics
        layer.add_weight(index, channels, [1, channels], attr, is_shared=not is_asked("use_gpu"))


def _add_norm(
    name: str | None, kind: str, source: LayerOutput, channels: int, size: int, layer_attr: Any = None
) -> LayerBuilder:
    layer = LayerBuilder(to_text("name", name), "norm", extra=layer_attr)
    message = layer.add_input(source).norm_conf
    message.norm_type = kind
    message.channels = channels
    message.size = size
    message.blocked = False
    width, height = map_of(source, channels)
    message.output_x = message.img_size = width
    message.output_y = message.img_size_y = height
    set_map(layer, channels, width, height, is_told=False)
    return layer


@helper("layers", prefix="crmnorm")
def img_cmrnorm_layer(
    input: Any,
    size: int,
    scale: float = 0.0128,
    power: float = 0.75,
    name: str | None = None,
    num_channels: int | None = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Divide each value by (1 + scale/size * s)^power; s is the sum of the squares of `size` neighbouring channels."""
    source = to_layer("input", input)
    channels = channels_of(source, num_channels)
    neighbours = to_size("size", size)
    layer = _add_norm(name, "cmrnorm-projection", source, channels, neighbours, layer_attr)
    layer.message.inputs[0].norm_conf.scale = to_float("scale", scale) / neighbours
    layer.message.inputs[0].norm_conf.pow = to_float("power", power)
    result = layer.output([source], num_filters=channels)
    result.img_norm_type = "cmrnorm-projection"
    return result


@helper("layers", prefix="cross_channel_norm")
def cross_channel_norm_layer(input: Any, name: str | None = None, param_attr: Any = None) -> LayerOutput:
    """Divide the channels of each pixel by their Euclidean norm, then multiply each channel by a trained number."""
    source = to_layer("input", input)
    channels = channels_of(source, None)
    if param_attr is None:
        raise wrong("param_attr", param_attr, "give a ParamAttr, for example ParamAttr(initial_mean=20, initial_std=0)")
    layer = _add_norm(name, "cross-channel-norm", source, channels, columns_of(source))
    layer.message.inputs[0].norm_conf.scale = layer.message.inputs[0].norm_conf.pow = 0.0
    layer.add_weight(0, channels, [channels, 1], to_parameter_attr("param_attr", param_attr))
    return layer.output([source], num_filters=channels)


@helper("layers")
def maxout_layer(
    input: Any, groups: int, num_channels: int | None = None, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Take the maximum of each group of `groups` neighbouring channels."""
    source = to_layer("input", input)
    if source.activation is None or source.activation.name:
        raise wrong("input", input, "it must be a layer with linear activation, such as an img_conv_layer")
    channels = channels_of(source, num_channels)
    if to_size("groups", groups) == 1 or channels % int(groups):
        raise wrong("groups", groups, f"it must be greater than 1 and divide the {channels} channels")
    layer = LayerBuilder(to_text("name", name), "maxout", extra=layer_attr)
    message = layer.add_input(source).maxout_conf
    message.groups = int(groups)
    width, height = write_image(message.image_conf, source, channels)
    set_map(layer, channels // message.groups, width, height)
    return layer.output([source])


def _to_margins(argument: str, value: Any) -> tuple[int, int]:
    if value is None:
        return 0, 0
    if not is_list(value) or len(value) != 2:
        raise wrong(argument, value, "it must be a list of two numbers: the numbers of zeros before and after")
    return to_count(argument, value[0]), to_count(argument, value[1])


@helper("layers", prefix="pad")
def pad_layer(
    input: Any,
    pad_c: Any = None,
    pad_h: Any = None,
    pad_w: Any = None,
    name: str | None = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Put zeros before and after the channels, the rows and the columns of maps."""
    source = to_layer("input", input)
    channels = channels_of(source, None)
    layer = LayerBuilder(to_text("name", name), "pad", extra=layer_attr)
    message = layer.add_input(source).pad_conf
    width, height = write_image(message.image_conf, source, channels)
    margins = [_to_margins("pad_c", pad_c), _to_margins("pad_h", pad_h), _to_margins("pad_w", pad_w)]
    message.pad_c.extend(margins[0])
    message.pad_h.extend(margins[1])
    message.pad_w.extend(margins[2])
    channels += sum(margins[0])
    set_map(layer, channels, width + sum(margins[2]), height + sum(margins[1]))
    return layer.output([source], num_filters=channels)


@helper("layers")
def crop_layer(
    input: Any, offset: Any, axis: int = 2, shape: Any = None, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Crop maps to a shape, or to the shape of a second input.

    Args:
        offset: the first position, one number per dimension from `axis` on.
        axis: the first dimension to crop: 0 batch, 1 channels, 2 height, 3 width.
        shape: the four dimensions of the result; not needed with two inputs.
    """
    inputs = to_layers("input", input)
    if len(inputs) > 2:
        raise wrong("input", input, "it must be one layer, or two layers of which the second gives the shape")
    channels, width, height = whole_map(inputs[0])
    layer = LayerBuilder(to_text("name", name), "crop", extra=layer_attr)
    for source in inputs:
        layer.add_input(source)
    image = layer.message.inputs[0].image_conf
    image.channels, image.img_size, image.img_size_y = channels, width, height
    layer.message.axis = to_int("axis", axis)
    layer.message.offset.extend(to_count("offset", item) for item in to_list(offset))
    if shape is not None:
        layer.message.shape.extend(to_size("shape", item) for item in to_list(shape))
    if len(inputs) == 2:
        layer.set_size(columns_of(inputs[1]))
        layer.message.height, layer.message.width = inputs[1].height, inputs[1].width
    elif len(layer.message.shape) != 4:
        raise wrong("shape", shape, "with one input it must be four numbers: batch, channels, height and width")
    else:
        layer.set_size(math.prod(layer.message.shape[1:]))
        layer.message.height, layer.message.width = layer.message.shape[2:]
    return layer.output(inputs)


@helper("layers")
def prelu_layer(
    input: Any,
    name: str | None = None,
    partial_sum: int = 1,
    channel_shared: bool | None = None,
    num_channels: int | None = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return x where it is positive, else x times a trained slope.

    Args:
        partial_sum: number of neighbouring columns that share a slope.
        channel_shared: True for a single slope, False for one slope per channel. With True or False, partial_sum has no
            effect.
    """
    source = to_layer("input", input)
    channels = channels_of(source, num_channels or None)
    size = columns_of(source)
    if channel_shared is not None:
        if not source.height or not source.width:
            raise wrong("channel_shared", channel_shared, f"the layer {source.name!r} must have height and width")
        partial_sum = source.height * source.width * (channels if channel_shared else 1)
    if size % to_size("partial_sum", partial_sum):
        raise wrong("partial_sum", partial_sum, f"it must divide {size}, the size of {source.name!r}")
    slopes = size // int(partial_sum)
    layer = LayerBuilder(to_text("name", name), "prelu", size=size, extra=layer_attr)
    layer.add_input(source)
    layer.message.partial_sum = int(partial_sum)
    attr = ParameterAttribute(initial_mean=0.25, initial_std=0.0) if param_attr is None else param_attr
    layer.add_weight(0, slopes, [1, slopes], to_parameter_attr("param_attr", attr))
    set_shape(layer, (source.height, source.width, source.depth))
    return layer.output([source], num_filters=channels)


@helper("layers", prefix="scale_sub_region")
def scale_sub_region_layer(input: Any, indices: Any, value: float, name: str | None = None) -> LayerOutput:
    """Multiply a box in the maps of each sample by a number; a second layer has the six indices of the box."""
    source, box = to_layer("input", input), to_layer("indices", indices)
    if columns_of(box) != 6:
        raise wrong("indices", indices, "its size must be 6: first and last channel, row and column, from 1")
    channels, width, height = whole_map(source)
    layer = LayerBuilder(to_text("name", name), "scale_sub_region")
    message = layer.add_input(source).scale_sub_region_conf
    layer.add_input(box)
    message.value = to_float("value", value)
    message.image_conf.channels, message.image_conf.img_size, message.image_conf.img_size_y = channels, width, height
    set_map(layer, channels, width, height)
    return layer.output([source, box], num_filters=source.num_filters)


@helper("layers")
def rotate_layer(input: Any, height: int, width: int, name: str | None = None, layer_attr: Any = None) -> LayerOutput:
    """Rotate each map by 90 degrees clockwise; height and width are the height and width of the input."""
    source = to_layer("input", input)
    layer = LayerBuilder(to_text("name", name), "rotate", size=columns_of(source), extra=layer_attr)
    layer.add_input(source)
    layer.message.height, layer.message.width = to_size("height", height), to_size("width", width)
    return layer.output([source])


@helper("layers", prefix="switch_order")
def switch_order_layer(
    input: Any, name: str | None = None, reshape_axis: int | None = None, act: Any = None, layer_attr: Any = None
) -> LayerOutput:
    """Reorder the dimensions to batch, height, width, channels; the first reshape_axis dimensions form the rows.

    The function of v0.10 always failed; this function does what the documentation of v0.10 says.
    """
    source = to_layer("input", input)
    rows = to_size("reshape_axis", reshape_axis)
    if rows > 3:
        raise wrong("reshape_axis", reshape_axis, "it must be 1, 2 or 3")
    channels, width, height = whole_map(source)
    activation = to_activation("act", act)
    columns = math.prod([1, height, width, channels][rows:])
    layer = LayerBuilder(to_text("name", name), "switch_order", size=columns, act=activation, extra=layer_attr)
    layer.add_input(source)
    layer.message.reshape_conf.height_axis.extend(range(rows))
    layer.message.reshape_conf.width_axis.extend(range(rows, 4))
    return layer.output([source], activation=activation)
