"""The part of the message that describes a convolution, for layers and projections.

Source: legacy config_parser.py, parse_conv() and parse_conv3d().
"""

from __future__ import annotations

from dataclasses import dataclass

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.argument_errors import ArgumentError
from trainer.config.building.layer import LayerOutput
from trainer.config.language.maps.geometry import grow, map_of, shrink, volume_of


@dataclass(frozen=True)
class Filters:
    """The filters of a convolution; each tuple has the form (x, y) or (x, y, z).

    Attributes: dilation: the distances between a filter's pixels; None if the message does not contain distances.
    """

    number: int
    channels: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int = 1
    dilation: tuple[int, ...] | None = None
    transposed: bool = False

    def check(self) -> None:
        """Raise ArgumentError if the channels cannot be divided into the groups."""
        for argument, number in (("num_channels", self.channels), ("num_filters", self.number)):
            if number % self.groups:
                raise ArgumentError(f"{argument} is {number}; it must be a multiple of groups ({self.groups})")

    @property
    def filter_channels(self) -> int:
        """The number of channels of a filter."""
        return (self.number if self.transposed else self.channels) // self.groups

    def produced(self, message: ModelConfig_pb2.ConvConfig) -> tuple[int, ...]:
        """Return (width, height) or (width, height, depth) of the result, from the message."""
        keys = ("img_size", "img_size_y", "img_size_z") if self.transposed else ("output_x", "output_y", "output_z")
        return tuple(getattr(message, key) for key in keys[: len(self.size)])


_SUFFIXES = ("", "_y", "_z")


def write_conv(message: ModelConfig_pb2.ConvConfig, source: LayerOutput, filters: Filters) -> tuple[int, ...]:
    """Fill the message and return (width, height) or (width, height, depth) of the result.

    For a transposed convolution, `output_*` are the sizes of the input and `img_size*` the sizes of the result.
    """
    filters.check()
    flat = len(filters.size) == 2
    given = map_of(source, filters.channels) if flat else volume_of(source, filters.channels)
    message.channels = filters.channels
    message.groups = filters.groups
    message.filter_channels = filters.filter_channels
    message.caffe_mode = True  # a window that extends past the end of the map is left out
    dilation = filters.dilation or (1,) * len(filters.size)
    output_keys = ("output_x", "output_y", "output_z")
    for axis, suffix in enumerate(_SUFFIXES[: len(filters.size)]):
        window, stride, padding = filters.size[axis], filters.stride[axis], filters.padding[axis]
        setattr(message, "filter_size" + suffix, window)
        setattr(message, "stride" + suffix, stride)
        setattr(message, "padding" + suffix, padding)
        if filters.dilation is not None:
            setattr(message, "dilation" + suffix, dilation[axis])
        resize = grow if filters.transposed else shrink
        made = resize("filter_size" + suffix, window, given[axis], padding, stride, dilation=dilation[axis])
        before, after = (made, given[axis]) if filters.transposed else (given[axis], made)
        setattr(message, "img_size" + suffix, before)
        setattr(message, output_keys[axis], after)
    return filters.produced(message)
