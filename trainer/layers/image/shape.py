"""Functions for layers over images.

A row of an image layer has the order channels, height, width (or channels, depth, height, width); the last axis is
contiguous.
"""

from __future__ import annotations

import math

from paddle_base.proto.ModelConfig_pb2 import ImageConfig
from paddle_base.runtime.errors import ConfigError
from trainer.layers.base import Layer


def image_shape(conf: ImageConfig) -> tuple[int, int, int]:
    """Return (channels, height, width); an image without a height is square."""
    return conf.channels, conf.img_size_y if conf.HasField("img_size_y") else conf.img_size, conf.img_size


def input_shape(layer: Layer, position: int, channels: int = 0) -> tuple[int, int, int]:
    """Return (channels, height, width) of an input; the message holds only the sizes of the input layer.

    Args: channels: number of channels; 0 computes the number from the size.
    Raises: ConfigError: the sizes contradict each other.
    """
    source = layer.input_configs[position]
    height, width = source.height, source.width
    if not (height and width):
        pixels = source.size // (channels or 1)
        width = math.isqrt(pixels)
        height = width
    channels = channels or source.size // max(1, height * width)
    if channels * height * width != source.size:
        raise ConfigError(
            f"{layer}: its input {source.name} has {source.size} values, which are not {channels} channels of "
            f"{height} x {width}; give {source.name} a height and a width"
        )
    return channels, int(height), int(width)
