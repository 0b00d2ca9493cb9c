"""Image layers of Layer(type=...): the arguments are passed to the functions that newer configurations call.

Source: legacy config_parser.py; spec/config.md sections 6 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_list, to_size, to_text, wrong
from trainer.config.building.layer import LayerOutput
from trainer.config.language.layers import arithmetic, sequence
from trainer.config.language.maps import detection, image, maps
from trainer.config.language.poolings import (
    AvgPooling,
    BasePoolingType,
    CudnnAvgPooling,
    CudnnMaxPooling,
    MaxPooling,
    MaxWithMaskPooling,
)
from trainer.config.v1.inputs import V1Input, V1Layer, to_v1_bias

_POOLINGS: Mapping[str, Callable[[], BasePoolingType]] = {
    "max-projection": MaxPooling,
    "avg-projection": AvgPooling,
    "max-pool-with-mask": MaxWithMaskPooling,
    "cudnn-max-pool": CudnnMaxPooling,
    "cudnn-avg-pool": CudnnAvgPooling,
}


def _shape_of(declared: V1Layer, key: str) -> tuple[V1Input, Any]:
    if not declared.inputs or key not in declared.inputs[0].shapes:
        raise ArgumentError(f"type {declared.kind!r} needs an Input(..., {key}=...)")
    if not isinstance(declared.inputs[0].shapes[key], SimpleNamespace):
        raise wrong(key, declared.inputs[0].shapes[key], "it must be the shape that a function such as Conv() returns")
    return declared.inputs[0], declared.inputs[0].shapes[key]


def _rest(declared: V1Layer) -> dict[str, Any]:
    """Remove and return all options, to pass them to a function that rejects unknown options."""
    rest = dict(declared.options)
    declared.options.clear()
    return rest


def _pooling_type(name: str) -> BasePoolingType:
    if to_text("pool_type", name) not in _POOLINGS:
        raise wrong("pool_type", name, f"it must be one of {', '.join(_POOLINGS)}")
    return _POOLINGS[name]()


def _sides(shape: Any, *keys: str) -> dict[str, Any]:
    """Return the shape's values as arguments, for example `stride`, `stride_y` and `stride_z` for the key `stride`."""
    named = {key + suffix: getattr(shape, key + suffix, None) for key in keys for suffix in ("", "_y", "_z")}
    return {key: value for key, value in named.items() if value is not None}


def _convolution(declared: V1Layer) -> LayerOutput:
    entry, conv = _shape_of(declared, "conv")
    return image.img_conv_layer(
        input=entry.layer,
        name=declared.name,
        num_filters=declared.options.pop("num_filters", 0),
        num_channels=conv.channels,
        act=declared.activation,
        groups=conv.groups,
        dilation=conv.dilation or 1,
        dilation_y=conv.dilation_y,
        bias_attr=to_v1_bias(True if declared.bias is None else declared.bias),
        param_attr=entry.attr,
        shared_biases=declared.options.pop("shared_biases", False),
        trans=declared.kind.endswith("t"),
        layer_type=None if declared.kind in ("conv", "convt") else declared.kind,
        **_sides(conv, "filter_size", "stride", "padding"),
    )


def _convolution_3d(declared: V1Layer) -> LayerOutput:
    entry, conv = _shape_of(declared, "conv")

    def triple(key: str) -> list[Any]:
        sides = (getattr(conv, key + suffix) for suffix in ("_y", "_z"))
        return [getattr(conv, key), *(getattr(conv, key) if side is None else side for side in sides)]

    return image.img_conv3d_layer(
        input=entry.layer,
        name=declared.name,
        filter_size=triple("filter_size"),
        num_filters=declared.options.pop("num_filters", 0),
        num_channels=conv.channels,
        act=declared.activation,
        groups=conv.groups,
        stride=triple("stride"),
        padding=triple("padding"),
        bias_attr=to_v1_bias(True if declared.bias is None else declared.bias),
        param_attr=entry.attr,
        shared_biases=declared.options.pop("shared_biases", True),
        trans=declared.kind == "deconv3d",
        layer_type="deconv3d" if declared.kind == "deconv3d" else "conv3d",
    )


def _pooling(declared: V1Layer) -> LayerOutput:
    entry, pool = _shape_of(declared, "pool")
    make = image.img_pool3d_layer if declared.kind == "pool3d" else image.img_pool_layer
    return make(
        input=entry.layer,
        name=declared.name,
        num_channels=pool.channels,
        pool_type=_pooling_type(pool.pool_type),
        ceil_mode=declared.options.pop("ceil_mode", True),
        pool_size=pool.size_x,
        pool_size_y=pool.size_y,
        **({"pool_size_z": pool.size_z} if declared.kind == "pool3d" else {}),
        **_sides(pool, "stride", "padding"),
    )


def _normalisation(declared: V1Layer) -> LayerOutput:
    entry, norm = _shape_of(declared, "norm")
    if norm.norm_type == "cross-channel-norm":
        entry.layer.num_filters = to_size("channels", norm.channels)
        return maps.cross_channel_norm_layer(input=entry.layer, name=declared.name, param_attr=entry.attr)
    return maps.img_cmrnorm_layer(
        input=entry.layer,
        name=declared.name,
        size=norm.size,
        scale=norm.scale,
        power=norm.pow,
        num_channels=norm.channels,
    )


def _batch_normalisation(declared: V1Layer) -> LayerOutput:
    entry, shape = _shape_of(declared, "image")
    return maps.batch_norm_layer(
        input=entry.layer,
        name=declared.name,
        act=declared.activation,
        num_channels=shape.channels,
        bias_attr=to_v1_bias(True if declared.bias is None else declared.bias),
        param_attr=entry.attr,
        **_rest(declared),
    )


def _pyramid(declared: V1Layer) -> LayerOutput:
    entry, spp = _shape_of(declared, "spp")
    return image.spp_layer(
        input=entry.layer,
        name=declared.name,
        num_channels=spp.channels,
        pool_type=_pooling_type(spp.pool_type),
        pyramid_height=spp.pyramid_height,
    )


def _maxout(declared: V1Layer) -> LayerOutput:
    entry, maxout = _shape_of(declared, "maxout")
    return maps.maxout_layer(input=entry.layer, name=declared.name, groups=maxout.groups, num_channels=maxout.channels)


def _blocks(declared: V1Layer) -> LayerOutput:
    entry, block = _shape_of(declared, "block_expand")
    keys = ("block_x", "block_y", "stride_x", "stride_y", "padding_x", "padding_y")
    sides = {key: getattr(block, key) for key in keys}
    return image.block_expand_layer(input=entry.layer, name=declared.name, num_channels=block.channels, **sides)


def _interpolation(declared: V1Layer) -> LayerOutput:
    entry, shape = _shape_of(declared, "bilinear_interp")
    entry.layer.layer_type, entry.layer.num_filters = "conv", to_size("channels", shape.channels)
    return image.bilinear_interp_layer(
        input=entry.layer, name=declared.name, out_size_x=shape.out_size_x, out_size_y=shape.out_size_y
    )


def _padding(declared: V1Layer) -> LayerOutput:
    entry, pad = _shape_of(declared, "pad")
    entry.layer.num_filters = to_size("channels", pad.channels)
    sides = {key: to_list(getattr(pad, key)) for key in ("pad_c", "pad_h", "pad_w")}
    return maps.pad_layer(input=entry.layer, name=declared.name, **sides)


def _row_convolution(declared: V1Layer) -> LayerOutput:
    entry, shape = _shape_of(declared, "row_conv")
    return sequence.row_conv_layer(
        input=entry.layer,
        name=declared.name,
        context_len=shape.context_length,
        act=declared.activation,
        param_attr=entry.attr,
    )


def _with_arguments(function: Callable[..., LayerOutput], *arguments: str) -> Callable[[V1Layer], LayerOutput]:
    """Return the builder of a layer type whose inputs and options become the arguments of a function."""

    def build(declared: V1Layer) -> LayerOutput:
        if len(declared.inputs) != len(arguments):
            needed = f"{len(arguments)} input{'s' * (len(arguments) > 1)} ({', '.join(arguments)})"
            raise ArgumentError(f"type {declared.kind!r} needs {needed}; there are {len(declared.inputs)}")
        layers = {argument: entry.layer for argument, entry in zip(arguments, declared.inputs, strict=True)}
        return function(name=declared.name, **layers, **_rest(declared))

    return build


TYPES: Mapping[str, Callable[[V1Layer], LayerOutput]] = {
    **dict.fromkeys(("conv", "exconv", "cudnn_conv", "convt", "exconvt", "cudnn_convt"), _convolution),
    **dict.fromkeys(("conv3d", "conv_3d", "deconv3d"), _convolution_3d),
    **dict.fromkeys(("pool", "pool3d"), _pooling),
    "norm": _normalisation,
    "batch_norm": _batch_normalisation,
    "spp": _pyramid,
    "maxout": _maxout,
    "blockexpand": _blocks,
    "bilinear_interp": _interpolation,
    "pad": _padding,
    "row_conv": _row_convolution,
    "clip": _with_arguments(arithmetic.clip_layer, "input"),
    "crop": _with_arguments(maps.crop_layer, "input"),
    "priorbox": _with_arguments(detection.priorbox_layer, "input", "image"),
    "roi_pool": _with_arguments(detection.roi_pool_layer, "input", "rois"),
    "scale_sub_region": _with_arguments(maps.scale_sub_region_layer, "input", "indices"),
}
