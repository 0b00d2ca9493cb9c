"""A layer in its network: its inputs, and the common processing of every layer's output.

`Node.backward` applies the chain rule. A reader may at first skip an optimisation: a layer with repeated rows returns
only its distinct rows (`_index`, `_keeps_distinct` and `_collect` of OutputStage).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paddle_base.kernels.samples import keep
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.activations import Activation, find_activation
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Ids, PickedGradient, sum_repeated
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.layers import find_layer
from trainer.layers.base import Layer

# key for the gradient of the default output's distinct rows; no output has this name
DISTINCT = "distinct rows"


class GradientFlows:
    """The gradients in a backward pass, by layer and by output name.

    Args: gradients: the initial gradients of the default outputs of some layers.
    Shapes: a gradient has the shape of its output; the gradient of distinct rows has the shape of the distinct rows.
    """

    def __init__(self, gradients: Mapping[str, Array]) -> None:
        self._gradients: dict[str, dict[str, Array]] = {name: {"": one} for name, one in gradients.items()}
        # by layer: the gradient of the default output, if it consists of only one PickedGradient
        self._picked: dict[str, PickedGradient] = {}

    def add(self, name: str, part: Array | DistinctGradient | PickedGradient, output: str = "") -> None:
        """Add a part to the gradient of a layer's output. The part itself is not changed."""
        if isinstance(part, PickedGradient):
            if not output and name not in self._gradients:
                self._gradients[name], self._picked[name] = {}, part
                return
            part = part.to_dense()
        self._spread(name)
        gradients = self._gradients.setdefault(name, {})
        if isinstance(part, DistinctGradient):
            part, output = part.rows, DISTINCT
        gradients[output] = gradients[output] + part if output in gradients else part

    def scale(self, name: str, factor: float) -> None:
        """Multiply the present gradient of a layer's default output by the factor."""
        gradients = self._gradients[name]
        picked = self._picked.get(name)
        if picked is not None:
            self._picked[name] = replace(picked, values=picked.values * picked.values.dtype.type(factor))
        for output in gradients.keys() & {"", DISTINCT}:
            gradients[output] = gradients[output] * gradients[output].dtype.type(factor)

    def begin(self, name: str, gradient: Array) -> None:
        """Set the gradient of a layer's default output, whatever has been added to it."""
        self._picked.pop(name, None)
        self._gradients.setdefault(name, {})[""] = gradient

    def reach(self, name: str) -> bool:
        """Return whether a gradient of a layer's output has been added."""
        return name in self._gradients

    def take_picked(self, name: str) -> PickedGradient | None:
        """Remove and return the gradient of the default output if it is a PickedGradient; otherwise return None."""
        return self._picked.pop(name, None)

    def take(self, name: str) -> dict[str, Array]:
        """Remove and return the gradients of a layer's outputs by name; "" is the default output."""
        self._spread(name)
        return self._gradients.pop(name)

    def _spread(self, name: str) -> None:
        """Replace a PickedGradient by a dense array."""
        picked = self._picked.pop(name, None)
        if picked is not None:
            self._gradients[name][""] = picked.to_dense()


class Node:
    """A layer in its network: the layer, its input layers, and the inputs that need a gradient.

    Raises: ConfigError: the layer has an unknown type or invalid attributes.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        self.config = config
        self.name: str = config.name
        self.layer: Layer = find_layer(config)(config, parameters)
        self.output = OutputStage(config, self.layer)
        self.inputs: list[str] = [one.input_layer_name for one in config.inputs]
        self._arguments: list[str] = [one.input_layer_argument for one in config.inputs]
        self._wanted: list[bool] = []
        self._coeff: float = config.coeff if self.layer.is_cost and not self.layer.applies_coeff else 1.0

    def link(self, nodes: Mapping[str, Node]) -> None:
        """Determine which inputs need a gradient.

        Raises: ConfigError: the network has no layer with the name of an input.
        """
        for name in self.inputs:
            if name not in nodes:
                raise ConfigError(f"layer {self.name} has input {name}, which is no layer of the config")
        self.layer.input_configs = [nodes[name].config for name in self.inputs]
        self._wanted = [nodes[name].layer.takes_gradient for name in self.inputs]

    def forward(self, outputs: Mapping[str, Argument], is_training: bool, stream: Stream | None) -> Argument:
        """Return the layer's output, after activation and dropout.

        Raises: ConfigError: an input comes after this layer in the message.
        """
        try:
            inputs = [outputs[name] for name in self.inputs]
        except KeyError as missing:
            raise ConfigError(f"layer {self.name} comes before its input {missing} in the model config") from missing
        self.layer.is_training, self.layer.stream = is_training, stream
        result = self.layer.forward(inputs)
        if result.index is not None and any(result is one for one in inputs):
            # The `backward` of a layer that returns its input object as its result accepts only gradients with all
            # rows. The output of such a layer must therefore have all rows.
            result = result.with_value(result.value)
        return self.output.forward(result, is_training, stream)

    def backward(self, flows: GradientFlows) -> None:
        """Apply the chain rule: compute the gradients of the inputs and parameters from the gradient of the output.

        The output is y = drop(activation(z)) with z = layer(x of every input). The gradients are therefore computed in
        this order: dy, dz, dx of every input.
        """
        picked = flows.take_picked(self.name) if self.output.takes_picked else None
        dy = flows.take(self.name)
        dz = self.output.backward(dy) if picked is None else self.output.backward_picked(picked)
        self.layer.extra_gradients = dy  # the remaining entries of dy are the gradients of further outputs
        flowing = self.layer.backward(dz, self._wanted)
        for position, (name, output, dx) in enumerate(zip(self.inputs, self._arguments, flowing, strict=True)):
            if dx is not None:
                flows.add(name, dx, output)
                if position == 0 and self._coeff != 1.0:
                    # As in v0.10, the cost's coefficient multiplies the whole present gradient of the prediction
                    # layer. This gradient includes the parts that other costs have added.
                    flows.scale(name, self._coeff)


class OutputStage:
    """The processing of every layer's output: activation and dropout forward, error clipping backward.

    Attributes: keeps_gradient: whether `kept_gradient` stores the last batch's gradient of the values before the
        activation, which an evaluator prints. logs_clipping: whether to log when a gradient is clipped.
    Raises: ConfigError: the activation is unknown or cannot be combined with dropout.
    """

    def __init__(self, config: LayerConfig, layer: Layer) -> None:
        self._name: str = config.name
        # each field of the message is read only once, because reading a field takes longer than a small layer's pass
        kind = "" if layer.applies_activation else config.active_type
        self._activation: Activation = find_activation(kind, config.name, overwrites=layer.owns_result)
        self._drop_rate: float = config.drop_rate
        self._threshold: float = config.error_clipping_threshold
        self._mask: Array | None = None
        self._z: Array
        self._y: Array
        self._starts: Ids | None = None
        self._index: Ids | None = None  # for each row, the number of its distinct row; None if no row is repeated
        self.keeps_gradient = self.logs_clipping = False
        self.kept_gradient: Array | None = None
        if self._drop_rate and config.active_type == "softmax":
            raise ConfigError(f"layer {config.name}: drop_rate cannot be combined with the softmax activation")

    def forward(self, result: Argument, is_training: bool, stream: Stream | None) -> Argument:
        """Compute the output of the layer from the result of the layer's own `forward`."""
        self.kept_gradient = None
        self._index = result.index
        if self._keeps_distinct and result.distinct is not None:
            self._z = result.distinct
            self._y = self._activation.forward(self._z)
            return result if self._y is self._z else result.with_distinct(self._y)
        if result.value is None:
            return result
        self._z, self._starts = result.value, result.starts
        self._y = self._activation.forward(self._z, self._starts)
        y = self._drop(self._y, is_training, stream) if self._drop_rate else self._y
        if y is result.value and self._index is None:
            return result
        return Argument(y, result.ids, None, result.starts, result.sub_starts, result.extras, grids=result.grids)

    def backward(self, gradients: dict[str, Array]) -> Array:
        """Return the gradient of the layer's result. Remove the gradient of the output from `gradients`."""
        dy = self._clip(self._undrop(self._collect(gradients)))
        dz = self._activation.backward(dy, self._y, self._z, self._starts)
        if self.keeps_gradient:
            self.kept_gradient = dz.copy()
        if self._index is not None and not self._keeps_distinct:
            return sum_repeated(dz, self._index)
        return dz

    @property
    def takes_picked(self) -> bool:
        """Whether `backward_picked` can be called instead of `backward`."""
        is_plain = not (self._drop_rate or self._threshold or self.keeps_gradient) and self._index is None
        return is_plain and self._activation.backward_picked is not None

    def backward_picked(self, gradient: PickedGradient) -> Array:
        """Return the gradient of the layer's result. The given gradient of the output has one number in each row."""
        assert self._activation.backward_picked is not None  # takes_picked
        return self._activation.backward_picked(gradient, self._y)

    @property
    def _keeps_distinct(self) -> bool:
        """Return whether z and y contain only the distinct rows.

        With dropout, clipping or a kept gradient, z and y contain all rows.
        """
        return self._index is not None and not (self._drop_rate or self._threshold or self.keeps_gradient)

    def _drop(self, y: Array, is_training: bool, stream: Stream | None) -> Array:
        """Multiply y in training by a new mask of zeros and ones, and in testing by 1 - drop_rate."""
        self._mask = None
        if not is_training:
            return y * y.dtype.type(1.0 - self._drop_rate)
        if stream is None:
            return y
        self._mask = keep(stream.draws(y.size).reshape(y.shape), self._drop_rate, y.dtype)
        return y * self._mask

    def _undrop(self, gradient: Array) -> Array:
        """Return the gradient of the values before dropout."""
        return gradient if self._mask is None else gradient * self._mask

    def _clip(self, gradient: Array) -> Array:
        """Return the gradient with every element limited to [-error_clipping_threshold, error_clipping_threshold]."""
        threshold = self._threshold
        if threshold <= 0:
            return gradient
        if self.logs_clipping:
            _log_clipping(self._name, gradient, threshold)
        return np.clip(gradient, -threshold, threshold)

    def _collect(self, gradients: dict[str, Array]) -> Array:
        """Remove the gradient of the default output from `gradients`, and return the gradient of y."""
        full, distinct = gradients.pop("", None), gradients.pop(DISTINCT, None)
        if not self._keeps_distinct:
            return np.zeros_like(self._y) if full is None else full
        if self._index is not None and full is not None:
            summed = sum_repeated(full, self._index)
            return summed if distinct is None else np.add(summed, distinct, out=summed)
        return np.zeros_like(self._y) if distinct is None else distinct


def _log_clipping(name: str, gradient: Array, threshold: float) -> None:
    errors = np.abs(gradient)
    if errors.size and errors.max() > threshold:
        glog.info(f" layer={name} need clipping, max error={errors.max():g} avg error={errors.mean():g}")
