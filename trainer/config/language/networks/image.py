"""Networks for images: convolution with pooling, and VGG.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.config.building.activations import LinearActivation, ReluActivation, SoftmaxActivation
from trainer.config.building.argument_errors import is_list, to_size, wrong
from trainer.config.building.attrs import ExtraLayerAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, to_layer
from trainer.config.language.layers.basic import dropout_layer, fc_layer
from trainer.config.language.maps.image import img_conv_layer, img_pool_layer
from trainer.config.language.maps.maps import batch_norm_layer
from trainer.config.language.poolings import MaxPooling


def _convolve(given: Mapping[str, Any], act: Any, bias_attr: Any, param_attr: Any) -> LayerOutput:
    """Return the convolution described by the arguments of a network.

    Args: given: the arguments of the network, by name.
    """
    return img_conv_layer(
        name=f"{given['name']}_conv",
        input=given["input"],
        filter_size=given["filter_size"],
        num_filters=given["num_filters"],
        num_channels=given["num_channel"],
        act=act,
        groups=given["groups"],
        stride=given["conv_stride"],
        padding=given["conv_padding"],
        bias_attr=bias_attr,
        param_attr=param_attr,
        shared_biases=given["shared_bias"],
        layer_attr=given["conv_layer_attr"],
    )


def _pool(given: Mapping[str, Any], source: LayerOutput) -> LayerOutput:
    """Return the pooling described by the `pool_*` arguments of a network."""
    return img_pool_layer(
        name=f"{given['name']}_pool",
        input=source,
        pool_size=given["pool_size"],
        pool_type=given["pool_type"],
        stride=given["pool_stride"],
        padding=given["pool_padding"],
        layer_attr=given["pool_layer_attr"],
    )


@helper("networks", prefix="conv_pool")
def simple_img_conv_pool(
    input: Any,
    filter_size: Any,
    num_filters: int,
    pool_size: Any,
    name: str | None = None,
    pool_type: Any = None,
    act: Any = None,
    groups: int = 1,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    bias_attr: Any = None,
    num_channel: int | None = None,
    param_attr: Any = None,
    shared_bias: bool = True,
    conv_layer_attr: Any = None,
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    pool_layer_attr: Any = None,
) -> LayerOutput:
    """Convolve and pool."""
    given = locals()
    return _pool(given, _convolve(given, act, bias_attr, param_attr))


@helper("networks", prefix="conv_bn_pool")
def img_conv_bn_pool(
    input: Any,
    filter_size: Any,
    num_filters: int,
    pool_size: Any,
    name: str | None = None,
    pool_type: Any = None,
    act: Any = None,
    groups: int = 1,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_bias_attr: Any = None,
    num_channel: int | None = None,
    conv_param_attr: Any = None,
    shared_bias: bool = True,
    conv_layer_attr: Any = None,
    bn_param_attr: Any = None,
    bn_bias_attr: Any = None,
    bn_layer_attr: Any = None,
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    pool_layer_attr: Any = None,
) -> LayerOutput:
    """Convolve, normalise the batch, and pool."""
    given = locals()
    normalised = batch_norm_layer(
        name=f"{name}_bn",
        input=_convolve(given, LinearActivation(), conv_bias_attr, conv_param_attr),
        act=act,
        bias_attr=bn_bias_attr,
        param_attr=bn_param_attr,
        layer_attr=bn_layer_attr,
    )
    return _pool(given, normalised)


def _one_each(argument: str, value: Any, count: int) -> list[Any]:
    """Return an item for each convolution: the user's list, or the user's single value repeated."""
    if not is_list(value):
        return [value] * count
    if len(value) != count:
        raise wrong(argument, value, f"it must be one value, or a list with a value for each of {count} convolutions")
    return list(value)


_LEAST_DROP_RATE = 1e-5  # v0.10 ignored smaller rates


@helper("networks")
def img_conv_group(
    input: Any,
    conv_num_filter: Any,
    pool_size: Any,
    num_channels: int | None = None,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0,
    pool_stride: Any = 1,
    pool_type: Any = None,
    param_attr: Any = None,
) -> LayerOutput:
    """Convolve several times, optionally with batch normalisation, and pool.

    An argument that is a list has one value per convolution.
    """
    if not is_list(conv_num_filter) or not conv_num_filter:
        raise wrong("conv_num_filter", conv_num_filter, "it must be a list with the num_filters of each convolution")
    count = len(conv_num_filter)
    paddings = _one_each("conv_padding", conv_padding, count)
    sizes = _one_each("conv_filter_size", conv_filter_size, count)
    acts = _one_each("conv_act", conv_act, count)
    are_normalised = _one_each("conv_with_batchnorm", conv_with_batchnorm, count)
    drop_rates = _one_each("conv_batchnorm_drop_rate", conv_batchnorm_drop_rate, count)
    layer = to_layer("input", input)
    for index, number in enumerate(conv_num_filter):
        layer = img_conv_layer(
            input=layer,
            num_channels=num_channels if index == 0 else None,
            padding=paddings[index],
            filter_size=sizes[index],
            num_filters=to_size("conv_num_filter", number),
            act=LinearActivation() if are_normalised[index] else acts[index],  # the normalisation comes first
            param_attr=param_attr,
        )
        if are_normalised[index]:
            has_dropout = abs(drop_rates[index]) >= _LEAST_DROP_RATE
            dropout = ExtraLayerAttribute(drop_rate=drop_rates[index]) if has_dropout else None
            layer = batch_norm_layer(input=layer, act=acts[index], layer_attr=dropout)
    return img_pool_layer(input=layer, stride=pool_stride, pool_size=pool_size, pool_type=pool_type)


@helper("networks", prefix="separable_conv")
def img_separable_conv(
    input: Any,
    num_channels: int,
    num_out_channels: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    depth_multiplier: int = 1,
    act: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    shared_bias: bool = True,
    layer_type: str | None = "exconv",
    name: str | None = None,
) -> LayerOutput:
    """Convolve each channel separately, then combine the channels at each pixel."""
    depth = to_size("num_channels", num_channels) * to_size("depth_multiplier", depth_multiplier)
    by_channel = img_conv_layer(
        name=f"{name}_depthwise_conv",
        input=input,
        num_channels=num_channels,
        num_filters=depth,
        groups=num_channels,
        filter_size=filter_size,
        stride=stride,
        padding=padding,
        act=LinearActivation(),
        bias_attr=bias_attr,
        param_attr=param_attr,
        shared_biases=shared_bias,
        layer_type=layer_type,
    )
    return img_conv_layer(
        name=f"{name}_pointwise_conv",
        input=by_channel,
        num_channels=depth,
        num_filters=num_out_channels,
        filter_size=1,
        stride=1,
        padding=0,
        act=act,
        bias_attr=bias_attr,
        param_attr=param_attr,
        shared_biases=shared_bias,
    )


@helper("networks")
def small_vgg(input_image: Any, num_channels: int, num_classes: int) -> LayerOutput:
    """Build four groups of convolutions and two fully connected layers, for images of about 32 x 32 pixels."""
    layer = to_layer("input_image", input_image)
    for number, drop_rates in ((64, [0.3, 0]), (128, [0.4, 0]), (256, [0.4, 0.4, 0]), (512, [0.4, 0.4, 0])):
        layer = img_conv_group(
            input=layer,
            num_channels=num_channels if number == 64 else None,
            pool_size=2,
            pool_stride=2,
            conv_num_filter=[number] * len(drop_rates),
            conv_filter_size=3,
            conv_act=ReluActivation(),
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=drop_rates,
            pool_type=MaxPooling(),
        )
    layer = img_pool_layer(input=layer, stride=2, pool_size=2, pool_type=MaxPooling())
    layer = dropout_layer(input=layer, dropout_rate=0.5)
    layer = fc_layer(input=layer, size=512, layer_attr=ExtraLayerAttribute(drop_rate=0.5), act=LinearActivation())
    layer = batch_norm_layer(input=layer, act=ReluActivation())
    return fc_layer(input=layer, size=num_classes, act=SoftmaxActivation())


@helper("networks")
def vgg_16_network(input_image: Any, num_channels: int, num_classes: int = 1000) -> LayerOutput:
    """Build thirteen convolutions in five groups and three fully connected layers (VGG-16)."""
    layer = to_layer("input_image", input_image)
    for index, (number, times) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        layer = img_conv_group(
            input=layer,
            num_channels=num_channels if index == 0 else None,
            conv_padding=1,
            conv_num_filter=[number] * times,
            conv_filter_size=3,
            conv_act=ReluActivation(),
            pool_size=2,
            pool_stride=2,
            pool_type=MaxPooling(),
        )
    for _ in range(2):
        dropout = ExtraLayerAttribute(drop_rate=0.5)
        layer = fc_layer(input=layer, size=4096, act=ReluActivation(), layer_attr=dropout)
    return fc_layer(input=layer, size=num_classes, act=SoftmaxActivation())
