"""The network: built from a ModelConfig message and nothing else, runs batches forward and backward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from pserver.errors import BugError, ConfigError
from trainer.activations import Activation, find_activation
from trainer.arguments import Argument, Array
from trainer.layers import find_layer
from trainer.layers.base import Layer
from trainer.parameters import ParameterTable
from trainer.rng import UPPER, Stream

Batch = Mapping[str, Argument]  # data layer name -> its slot


class Network:
    """Layers in the order of the message, of which each runs after its inputs.

    Only what the outputs and the evaluators need is built: a layer nobody reads may be of any type.

    Args: config: the message.  parameters: its parameter table, whose gradients `backward` adds to.
    Raises: ConfigError: naming the layer type, activation or attribute that is not supported yet.
    """

    def __init__(self, config: ModelConfig, parameters: ParameterTable) -> None:
        _refuse_unsupported(config)
        self.config = config
        self.parameters = parameters
        needed = _find_needed(config)
        self._nodes = {one.name: _Node(one, parameters) for one in config.layers if one.name in needed}
        for node in self._nodes.values():
            node.link(self._nodes)
        self.data_names = [name for name, node in self._nodes.items() if node.config.type == "data"]
        self.output_names = list(config.output_layer_names)
        self.outputs: dict[str, Argument] = {}

    def forward(self, batch: Batch, stream: Stream | None = None) -> dict[str, Argument]:
        """Run a batch and return the output of every layer by name; they stay valid until the next call.

        Args: stream: draws the dropout masks in training; None means testing.
        """
        outputs: dict[str, Argument] = {}
        for name, node in self._nodes.items():
            slot = batch.get(name)
            outputs[name] = node.forward(outputs, stream) if slot is None else slot
        self.outputs = outputs
        return outputs

    def cost(self) -> float:
        """Return the cost of the last batch: the plain sum over all output layers, in double.

        Outputs that are ids have none.
        """
        values = (self.outputs[name].value for name in self.output_names)
        return float(sum(value.sum(dtype=np.float64) for value in values if value is not None))

    def find_bad_cost(self) -> str:
        """Return the name of the first output layer with a number that is infinite or no number, or ""."""
        for name in self.output_names:
            value = self.outputs[name].value
            if value is not None and not np.isfinite(value).all():
                return name
        return ""

    def backward(self) -> None:
        """Add the gradients of the last batch's cost to those of the parameters; sums over the samples."""
        gradients: dict[str, Array] = {}
        for name in self.output_names:
            value = self.outputs[name].value
            if value is not None:
                gradients[name] = np.ones_like(value)
        for node in reversed(self._nodes.values()):
            gradient = gradients.pop(node.name, None)
            if gradient is not None and node.layer.takes_gradient:
                node.backward(gradient, gradients)


class _Node:
    """A layer in its place: its inputs, and what happens to every layer's output (activation, dropout)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        self.config = config
        self.name: str = config.name
        self.layer: Layer = find_layer(config.type, config.name)(config, parameters)
        self.inputs: list[str] = [one.input_layer_name for one in config.inputs]
        self._activation: Activation = find_activation(config.active_type, config.name)
        self._drop_rate: float = config.drop_rate
        self._wanted: list[bool] = []
        self._mask: Array | None = None
        self._z: Array
        self._y: Array
        if self._drop_rate and config.active_type == "softmax":
            raise ConfigError(f"layer {self.name}: drop_rate does not go with the softmax activation")

    def link(self, nodes: Mapping[str, _Node]) -> None:
        """Find out which inputs take a gradient.

        Raises: ConfigError: if an input is missing or comes later in the message.
        """
        for name in self.inputs:
            if name not in nodes:
                raise ConfigError(f"layer {self.name} has input {name}, which is no layer of the config")
        self._wanted = [nodes[name].layer.takes_gradient for name in self.inputs]

    def forward(self, outputs: Mapping[str, Argument], stream: Stream | None) -> Argument:
        """Return the layer's output, after activation and dropout."""
        try:
            inputs = [outputs[name] for name in self.inputs]
        except KeyError as missing:
            raise ConfigError(f"layer {self.name} comes before its input {missing} in the message") from missing
        result = self.layer.forward(inputs)
        if result.value is None:
            return result
        self._z = result.value
        self._y = self._activation.forward(self._z)
        return Argument(value=self._drop(self._y, stream) if self._drop_rate else self._y)

    def _drop(self, y: Array, stream: Stream | None) -> Array:
        """Multiply by a fresh 0/1 mask in training, by the share that is kept in testing."""
        if stream is None:
            self._mask = None
            return y * y.dtype.type(1.0 - self._drop_rate)
        uniform = (stream.draws(y.size) * (1.0 / UPPER)).astype(np.float32)
        self._mask = (uniform > np.float32(self._drop_rate)).reshape(y.shape).astype(y.dtype)
        return y * self._mask

    def backward(self, gradient: Array, gradients: dict[str, Array]) -> None:
        """Run the layer backward and add what flows to its inputs into `gradients`."""
        if self._drop_rate:
            if self._mask is None:
                raise BugError(f"layer {self.name}: backward after a forward pass for testing")
            gradient = gradient * self._mask
        threshold = self.config.error_clipping_threshold
        if threshold > 0:
            gradient = np.clip(gradient, -threshold, threshold)
        flowing = self.layer.backward(self._activation.backward(gradient, self._y, self._z), self._wanted)
        for position, (name, part) in enumerate(zip(self.inputs, flowing, strict=True)):
            if part is None:
                continue
            total = gradients[name] + part if name in gradients else part
            if position == 0 and self.layer.is_cost and self.config.coeff != 1.0:
                # the legacy scales all that the prediction layer has gathered so far, of other costs too
                total = total * total.dtype.type(self.config.coeff)
            gradients[name] = total


def _find_needed(config: ModelConfig) -> set[str]:
    """Return the names of the layers that the outputs and evaluators depend on."""
    inputs = {one.name: [each.input_layer_name for each in one.inputs] for one in config.layers}
    waiting = [*config.output_layer_names, *(name for one in config.evaluators for name in one.input_layers)]
    for name in waiting:
        if name not in inputs:
            raise ConfigError(f"the config names {name} as an output or evaluator input, but has no such layer")
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += inputs.get(name, [])
    return needed


def _refuse_unsupported(config: ModelConfig) -> None:
    if config.type != "nn":
        raise ConfigError(f"model type '{config.type}' is not supported yet; supported is 'nn'")
    if not config.output_layer_names:
        raise ConfigError("the config has no output layer; name its cost in outputs(...)")
    for one in config.sub_models:
        if one.is_recurrent_layer_group:
            raise ConfigError(f"recurrent layer group {one.name} is not supported yet; supported are plain layers")
