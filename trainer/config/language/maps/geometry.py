"""The sizes of maps: how the columns of a layer form channels, rows and pixels, and the sizes after a convolution.

Source: legacy config_parser.py, get_img_size() and cnn_output_size(); spec/config.md section 4.7.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.argument_errors import ArgumentError, is_list, to_int, to_size, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.handed_on import handed_on_maps
from trainer.config.building.layer import LayerBuilder, LayerOutput, columns_of, message_of
from trainer.config.building.log import log
from trainer.config.building.state import current


def to_count(argument: str, value: Any) -> int:
    """Return an integer that is not negative."""
    number = to_int(argument, value)
    if number < 0:
        raise wrong(argument, value, "it must not be negative")
    return number


def to_sizes(argument: str, value: Any, *others: Any, zero: bool = False) -> tuple[int, ...]:
    """Return a number for each dimension, x first, from a list or from a number and the `_y` and `_z` arguments.

    Args: argument: the name of the argument. value: a number, or a list with a number for each dimension. others: the
        numbers of the further dimensions; None means the number of x. zero: whether 0 is allowed.
    """
    check = to_count if zero else to_size
    if is_list(value):
        if len(value) != len(others) + 1:
            raise wrong(argument, value, f"it must be a number or a list of {len(others) + 1} numbers")
        value, *others_of_list = value
        # the `_y` and `_z` arguments have precedence over the list
        others = tuple(b if a is None else a for a, b in zip(others, others_of_list, strict=True))
    first = check(argument, value)
    return (
        first,
        *(
            first if other is None else check(f"{argument}_{axis}", other)
            for axis, other in zip("yz", others, strict=False)
        ),
    )


def channels_of(layer: LayerOutput, num_channels: Any) -> int:
    """Return the user's num_channels; if the user gave no num_channels, return the layer's number of channels."""
    if num_channels is not None:
        return to_size("num_channels", num_channels)
    if layer.num_filters is None:
        raise ArgumentError(f"give num_channels: the number of channels of the layer {layer.name!r} is unknown")
    return layer.num_filters


def map_of(layer: LayerOutput, channels: int) -> tuple[int, int]:
    """Return (width, height) of a layer's maps.

    Maps have the height and width of the layer. In a job, as in v0.10, a layer without height and width takes over the
    height and width of its first input if these fit the number of pixels. All other maps are square.

    Raises: ArgumentError: width times height is not the number of pixels of the layer.
    """
    message = message_of(layer)
    pixels = columns_of(layer) // channels
    known = int(message.height), int(message.width)
    if current().has_data and not any(known) and message.type != "data":
        handed_on = handed_on_maps(current().model).get(message.name, known)
        known = handed_on if math.prod(handed_on) == pixels else known  # v0.10 required equal numbers of pixels
    width = known[1] or math.isqrt(pixels)
    height = known[0] or (pixels // width if width else 0)
    if width * height != pixels or pixels == 0:
        raise ArgumentError(
            f"the layer {layer.name!r} of size {columns_of(layer)} has {pixels} pixels in each of {channels} channels; "
            f"maps of width {width} and height {height} have a different number of pixels; give num_channels, or the "
            "height and width of the data"
        )
    return width, height


def volume_of(layer: LayerOutput, channels: int) -> tuple[int, int, int]:
    """Return (width, height, depth) of a layer's volumes.

    Raises: ArgumentError: the layer has no width, height and depth, or the size of the layer is not the product of
        width, height, depth and channels.
    """
    message = message_of(layer)
    width, height, depth = int(message.width), int(message.height), int(message.depth)
    if width * height * depth * channels != columns_of(layer):
        raise ArgumentError(
            f"the layer {layer.name!r} of size {columns_of(layer)} has width {width}, height {height} and depth "
            f"{depth}, which do not fit {channels} channels"
        )
    return width, height, depth


def whole_map(source: LayerOutput) -> tuple[int, int, int]:
    """Return (channels, width, height) of a layer with a height and a width.

    Raises: ArgumentError: the layer has no height and width, or its size is not a multiple of height times width.
    """
    width, height = source.width, source.height
    if not width or not height:
        raise ArgumentError(f"the layer {source.name!r} has no height and width; give them to its data_layer")
    size = columns_of(source)
    if size % (width * height):
        raise ArgumentError(
            f"the size {size} of the layer {source.name!r} is not a multiple of its map size, {width} x {height}"
        )
    return size // (width * height), width, height


def write_image(message: ModelConfig_pb2.ImageConfig, source: LayerOutput, channels: int) -> tuple[int, int]:
    """Fill the message that describes the maps of an input, and return (width, height)."""
    message.channels = channels
    message.img_size, message.img_size_y = map_of(source, channels)
    return message.img_size, message.img_size_y


def shrink(
    argument: str, window: int, size: int, padding: int, stride: int, *, dilation: int = 1, ceil: bool = False
) -> int:
    """Return the number of windows in a line of `size` pixels.

    Args: argument: the name of the user's argument for the window; an error message contains this name. ceil: whether
        the last window may extend past the end of the line, which is the default of pooling.
    """
    room = 2 * padding + size - ((window - 1) * dilation + 1)
    result = 1 + (-(-room // stride) if ceil else room // stride)
    if result <= 0:
        raise wrong(argument, window, f"a window of this size does not fit into {size} pixels with padding {padding}")
    return result


def grow(argument: str, window: int, size: int, padding: int, stride: int, *, dilation: int = 1) -> int:
    """Return the length of a line that a transposed convolution produces from `size` pixels."""
    result = (size - 1) * stride + (window - 1) * dilation + 1 - 2 * padding
    if result <= 0:
        raise wrong(argument, window, f"a transposed convolution of {size} pixels with padding {padding} has no pixels")
    return result


def initialise_filters(attr: ParameterAttribute, filter_size: int, channels: int) -> ParameterAttribute:
    """Replace the "smart" initialisation by normal(0, sqrt(2 / (filter_size^2 channels))).

    As in v0.10, the function changes the user's object. If several convolutions share the object, the first convolution
    determines the initialisation.
    """
    if attr.attr.get("initial_smart"):
        attr.attr.update(
            initial_mean=0.0,
            initial_std=math.sqrt(2.0 / (filter_size**2 * channels)),
            initial_strategy=0,
            initial_smart=False,
        )
    return attr


def set_map(layer: LayerBuilder, channels: int, width: int, height: int, *, is_told: bool = True) -> None:
    """Write the size and the map of a layer into the message; with `is_told`, log the size and the map, too."""
    layer.set_size(channels * height * width)
    layer.message.height, layer.message.width = height, width
    if is_told:
        _tell(layer, f"c = {channels}, h = {height}, w = {width}")


def set_volume(layer: LayerBuilder, channels: int, width: int, height: int, depth: int) -> None:
    """Write the size and the volume of a layer into the message, and log the size and the volume."""
    layer.set_size(channels * depth * height * width)
    layer.message.height, layer.message.width, layer.message.depth = height, width, depth
    _tell(layer, f"c = {channels}, d = {depth}, h = {height}, w = {width}")


def _tell(layer: LayerBuilder, shape: str) -> None:
    log(logging.INFO, f"output for {layer.name}: {shape}, size = {layer.size}", "layers.py:2539")


def set_shape(layer: LayerBuilder, shape: tuple[int, int, int]) -> None:
    """Write (height, width, depth) into the message of a layer."""
    layer.message.height, layer.message.width, layer.message.depth = shape
