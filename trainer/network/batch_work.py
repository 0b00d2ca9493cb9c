"""Estimate the work of a batch, to decide whether several threads should compute parts of the batch.

Each part repeats the Python overhead of every layer, and has the overhead of passing the part to a thread. On the other
hand, the parts divide the arithmetic among the threads. The estimates use only the config and the sizes of the batch.
The estimates use no clock, so training is reproducible bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, LayerInputConfig, ModelConfig
from trainer.arrays.arguments import Argument
from trainer.config.v1.layer_types import LAYER_TYPES

# A batch with fewer than LEAST_OF_LAYER operations per layer is not cut into parts. With LEAST_OF_LAYER operations per
# layer, a cut batch is as fast as a whole batch (measured by bench/threads.py).
LEAST_OF_LAYER = 8e6
ELEMENTWISE = 10  # approximate number of operations for each number that a layer returns: activation, bias, copies
# ratio of the operations of a training step to those of a forward pass; a backward pass has twice as many operations
PASSES = 3


@dataclass(frozen=True)
class Work:
    """An upper estimate of the operations of a batch.

    Attributes: per_row: number of operations of all layers for one row, without the products in `of_data`.
        of_data: a tuple (name of the data layer, size of the result, products of a dense row) for each product of a
        data layer with a parameter. layers: number of layers that are not data layers.
    """

    per_row: int
    of_data: tuple[tuple[str, int, int], ...]
    layers: int

    def operations(self, batch: Mapping[str, Argument]) -> float:
        """Return the estimated number of additions and multiplications of a training step on the batch."""
        rows = max((slot.rows for slot in batch.values()), default=0)
        found = self.per_row * rows
        for name, size, products in self.of_data:
            slot = batch.get(name)
            if slot is None:
                continue
            if slot.sparse is not None:
                found += 2 * size * len(slot.sparse.ids)
            else:
                found += (size if slot.ids is not None else 2 * products) * slot.rows
        return PASSES * found

    def is_small(self, batch: Mapping[str, Argument]) -> bool:
        """Return whether one thread computes the batch faster than several threads compute its parts."""
        return self.operations(batch) < LEAST_OF_LAYER * self.layers


def estimate(config: ModelConfig) -> Work | None:
    """Return the estimate for a network; None if the results of parts would differ from those of the whole batch.

    The results differ if a layer combines several samples (batch_norm) or draws random numbers (dropout, nce).
    """
    if any(one.is_recurrent_layer_group for one in config.sub_models):
        return None
    if not all(_is_separate(layer) for layer in config.layers):
        return None
    sizes = {one.name: one.size for one in config.parameters}
    data = {layer.name for layer in config.layers if layer.type == "data"}
    layers = [layer for layer in config.layers if layer.type != "data"]
    per_row = sum(ELEMENTWISE * layer.size + _dense_work(layer, sizes, data) for layer in layers)
    of_data = tuple(
        (one.input_layer_name, layer.size, _products(one, sizes))
        for layer in layers
        for one in layer.inputs
        if one.input_layer_name in data and one.input_parameter_name
    )
    return Work(int(per_row), of_data, max(1, len(layers)))


def _is_separate(layer: LayerConfig) -> bool:
    """Return whether the parts of a batch give the same results as the whole batch."""
    record = LAYER_TYPES.get(layer.type)
    return record is not None and not record.is_coupled and not layer.drop_rate


def _dense_work(layer: LayerConfig, sizes: Mapping[str, int], data: set[str]) -> int:
    """Return the number of operations, for one row, of the products of a layer's inputs with its parameters.

    Inputs that are data layers are not counted.
    """
    return sum(2 * _products(one, sizes) for one in layer.inputs if one.input_layer_name not in data)


def _products(one: LayerInputConfig, sizes: Mapping[str, int]) -> int:
    """Return the number of products of one row with an input's parameter: a convolution uses it at every pixel."""
    conv = one.conv_conf if one.HasField("conv_conf") else one.proj_conf.conv_conf
    pixels = conv.output_x * (conv.output_y or conv.output_x) * conv.output_z
    return sizes.get(one.input_parameter_name, 0) * max(1, pixels)
