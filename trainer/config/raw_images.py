"""Layers of images by type: what Layer(...) says of them goes to the functions that newer configs call.

Source: legacy config_parser.py; the specification's sections 6 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer.config.layer import LayerOutput
from trainer.config.layers import arithmetic, detection, image, maps, sequence
from trainer.config.misuse import Misuse, to_list, wrong
from trainer.config.poolings import (
    AvgPooling,
    BasePoolingType,
    CudnnAvgPooling,
    CudnnMaxPooling,
    MaxPooling,
    MaxWithMaskPooling,
)
from trainer.config.raw_inputs import RawInput, RawLayer, to_raw_bias

_POOLINGS: Mapping[str, Callable[[], BasePoolingType]] = {
    "max-projection": MaxPooling,
    "avg-projection": AvgPooling,
    "max-pool-with-mask": MaxWithMaskPooling,
    "cudnn-max-pool": CudnnMaxPooling,
    "cudnn-avg-pool": CudnnAvgPooling,
}


def _shape_of(raw: RawLayer, key: str) -> tuple[RawInput, Any]:
    if not raw.inputs or key not in raw.inputs[0].shapes:
        raise Misuse(f"type {raw.kind!r} needs an Input(..., {key}=...)")
    return raw.inputs[0], raw.inputs[0].shapes[key]


def _rest(raw: RawLayer) -> dict[str, Any]:
    """Take all options, to hand them to a function that refuses unknown ones."""
    rest = dict(raw.options)
    raw.options.clear()
    return rest


def _pooling_type(name: str) -> BasePoolingType:
    if name not in _POOLINGS:
        raise wrong("pool_type", name, f"it must be one of {', '.join(_POOLINGS)}")
    return _POOLINGS[name]()


def _sides(shape: Any, *keys: str) -> dict[str, Any]:
    """Return the arguments for x, y and z that the shape says."""
    named = {key + suffix: getattr(shape, key + suffix, None) for key in keys for suffix in ("", "_y", "_z")}
    return {key: value for key, value in named.items() if value is not None}


def _convolution(raw: RawLayer) -> LayerOutput:
    entry, conv = _shape_of(raw, "conv")
    return image.img_conv_layer(
        input=entry.layer,
        name=raw.name,
        num_filters=raw.options.pop("num_filters", 0),
        num_channels=conv.channels,
        act=raw.activation,
        groups=conv.groups,
        dilation=conv.dilation or 1,
        dilation_y=conv.dilation_y,
        bias_attr=to_raw_bias(True if raw.bias is None else raw.bias),
        param_attr=entry.attr,
        shared_biases=raw.options.pop("shared_biases", False),
        trans=raw.kind.endswith("t"),
        layer_type=None if raw.kind in ("conv", "convt") else raw.kind,
        **_sides(conv, "filter_size", "stride", "padding"),
    )


def _convolution_3d(raw: RawLayer) -> LayerOutput:
    entry, conv = _shape_of(raw, "conv")

    def triple(key: str) -> list[Any]:
        sides = (getattr(conv, key + suffix) for suffix in ("_y", "_z"))
        return [getattr(conv, key), *(getattr(conv, key) if side is None else side for side in sides)]

    return image.img_conv3d_layer(
        input=entry.layer,
        name=raw.name,
        filter_size=triple("filter_size"),
        num_filters=raw.options.pop("num_filters", 0),
        num_channels=conv.channels,
        act=raw.activation,
        groups=conv.groups,
        stride=triple("stride"),
        padding=triple("padding"),
        bias_attr=to_raw_bias(True if raw.bias is None else raw.bias),
        param_attr=entry.attr,
        shared_biases=raw.options.pop("shared_biases", True),
        trans=raw.kind == "deconv3d",
        layer_type="deconv3d" if raw.kind == "deconv3d" else "conv3d",
    )


def _pooling(raw: RawLayer) -> LayerOutput:
    entry, pool = _shape_of(raw, "pool")
    make = image.img_pool3d_layer if raw.kind == "pool3d" else image.img_pool_layer
    return make(
        input=entry.layer,
        name=raw.name,
        num_channels=pool.channels,
        pool_type=_pooling_type(pool.pool_type),
        ceil_mode=raw.options.pop("ceil_mode", True),
        pool_size=pool.size_x,
        pool_size_y=pool.size_y,
        **({"pool_size_z": pool.size_z} if raw.kind == "pool3d" else {}),
        **_sides(pool, "stride", "padding"),
    )


def _normalisation(raw: RawLayer) -> LayerOutput:
    entry, norm = _shape_of(raw, "norm")
    if norm.norm_type == "cross-channel-norm":
        entry.layer.num_filters = norm.channels
        return maps.cross_channel_norm_layer(input=entry.layer, name=raw.name, param_attr=entry.attr)
    return maps.img_cmrnorm_layer(
        input=entry.layer, name=raw.name, size=norm.size, scale=norm.scale, power=norm.pow, num_channels=norm.channels
    )


def _batch_normalisation(raw: RawLayer) -> LayerOutput:
    entry, shape = _shape_of(raw, "image")
    return maps.batch_norm_layer(
        input=entry.layer,
        name=raw.name,
        act=raw.activation,
        num_channels=shape.channels,
        bias_attr=to_raw_bias(True if raw.bias is None else raw.bias),
        param_attr=entry.attr,
        **_rest(raw),
    )


def _pyramid(raw: RawLayer) -> LayerOutput:
    entry, spp = _shape_of(raw, "spp")
    return image.spp_layer(
        input=entry.layer,
        name=raw.name,
        num_channels=spp.channels,
        pool_type=_pooling_type(spp.pool_type),
        pyramid_height=spp.pyramid_height,
    )


def _maxout(raw: RawLayer) -> LayerOutput:
    entry, maxout = _shape_of(raw, "maxout")
    return maps.maxout_layer(input=entry.layer, name=raw.name, groups=maxout.groups, num_channels=maxout.channels)


def _blocks(raw: RawLayer) -> LayerOutput:
    entry, block = _shape_of(raw, "block_expand")
    keys = ("block_x", "block_y", "stride_x", "stride_y", "padding_x", "padding_y")
    sides = {key: getattr(block, key) for key in keys}
    return image.block_expand_layer(input=entry.layer, name=raw.name, num_channels=block.channels, **sides)


def _interpolation(raw: RawLayer) -> LayerOutput:
    entry, shape = _shape_of(raw, "bilinear_interp")
    entry.layer.layer_type, entry.layer.num_filters = "conv", shape.channels
    return image.bilinear_interp_layer(
        input=entry.layer, name=raw.name, out_size_x=shape.out_size_x, out_size_y=shape.out_size_y
    )


def _padding(raw: RawLayer) -> LayerOutput:
    entry, pad = _shape_of(raw, "pad")
    entry.layer.num_filters = pad.channels
    sides = {key: to_list(getattr(pad, key)) for key in ("pad_c", "pad_h", "pad_w")}
    return maps.pad_layer(input=entry.layer, name=raw.name, **sides)


def _row_convolution(raw: RawLayer) -> LayerOutput:
    entry, shape = _shape_of(raw, "row_conv")
    return sequence.row_conv_layer(
        input=entry.layer, name=raw.name, context_len=shape.context_length, act=raw.activation, param_attr=entry.attr
    )


def _clip(raw: RawLayer) -> LayerOutput:
    return arithmetic.clip_layer(input=raw.inputs[0].layer, name=raw.name, **_rest(raw))


def _with_arguments(function: Callable[..., LayerOutput], *arguments: str) -> Callable[[RawLayer], LayerOutput]:
    """Return the builder of a type whose inputs and options are the function's arguments."""

    def build(raw: RawLayer) -> LayerOutput:
        if len(raw.inputs) != len(arguments):
            raise Misuse(f"type {raw.kind!r} has {len(arguments)} inputs: {', '.join(arguments)}")
        layers = {argument: entry.layer for argument, entry in zip(arguments, raw.inputs, strict=True)}
        return function(name=raw.name, **layers, **_rest(raw))

    return build


TYPES: Mapping[str, Callable[[RawLayer], LayerOutput]] = {
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
    "clip": _clip,
    "crop": _with_arguments(maps.crop_layer, "input"),
    "priorbox": _with_arguments(detection.priorbox_layer, "input", "image"),
    "roi_pool": _with_arguments(detection.roi_pool_layer, "input", "rois"),
    "scale_sub_region": _with_arguments(maps.scale_sub_region_layer, "input", "indices"),
}
