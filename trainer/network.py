"""The network: built from a ModelConfig message and nothing else, runs batches forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kernels import compiled
from kernels.draws import keep
from proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from pserver import glog
from pserver.errors import ConfigError
from trainer.activations import Activation, find_activation
from trainer.arguments import Argument, Array, DistinctGradient, Ids, sum_repeated
from trainer.fusion import fuse
from trainer.groups import Group, separate_groups
from trainer.layers import find_layer
from trainer.layers.base import Layer
from trainer.layers.group import GroupLayer
from trainer.parameters import ParameterTable
from trainer.rng import Stream

Batch = Mapping[str, Argument]  # data layer name -> its slot
OnFinal = Callable[[int], None]


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
        config, groups = separate_groups(config)
        needed = _find_needed(config)
        asked = {*config.output_layer_names, *(name for one in config.evaluators for name in one.input_layers)}
        layers: Sequence[LayerConfig] = [one for one in config.layers if one.name in needed]
        if compiled is not None:  # numpy is faster at one large product than at sums of rows of many small ones
            layers = fuse(layers, asked)
        self._nodes = {one.name: _Node(one, parameters) for one in layers}
        for node in self._nodes.values():
            node.link(self._nodes)
        for node in self._nodes.values():
            readers = [one.layer for one in self._nodes.values() if node.name in one.inputs]
            node.layer.may_repeat = node.name not in asked and all(one.takes_repeats for one in readers)
        for name, group in groups.items():
            layer = self._nodes[name].layer if name in self._nodes else None
            if isinstance(layer, GroupLayer):
                layer.open(group, Network)
        self.data_names = [name for name, node in self._nodes.items() if node.config.type == "data"]
        self.output_names = list(config.output_layer_names)
        self.shares: Sequence[Network] = (self,)  # the networks whose outputs are those of a batch, one after the other
        self.outputs: dict[str, Argument] = {}
        self._given: Collection[str] = ()
        self._final_from = self._find_final([_list_parameters(one.config, groups) for one in self._nodes.values()])

    def _find_final(self, used: Sequence[set[str]]) -> dict[str, int]:
        """Return, by layer, from which element on the trained gradients are complete once it ran backward.

        Args: used: the parameters that each layer uses, in the order of the layers.
        """
        sizes = [one.size for one in self.parameters.trained()]
        ends = dict(zip((one.name for one in self.parameters.trained()), itertools.accumulate(sizes), strict=True))
        unknown = ends.keys() - set().union(*used)  # whoever uses them, they are complete in the end only
        final, start = {}, max((ends[name] for name in unknown), default=0)
        for layer, names in zip(self._nodes, used, strict=True):
            final[layer] = start
            start = max([start, *(ends[name] for name in names if name in ends)])
        return final

    def watch(self, *, gradients_of: Collection[str] = (), clipping: bool = False) -> None:
        """Keep the gradients of some layers' outputs for `kept_gradients`, and log where errors are clipped."""
        for name, node in self._nodes.items():
            node.keeps_gradient, node.logs_clipping = name in gradients_of, clipping
            if isinstance(node.layer, GroupLayer):
                node.layer.watch(clipping=clipping)

    def carried(self) -> dict[str, Any]:
        """Return what layers take from batch to batch, but for parameters, by name: as JSON can hold it."""
        states = {name: node.layer.carried() for name, node in self._nodes.items()}
        return {name: state for name, state in states.items() if state is not None}

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Go on from what the network of another process took from batch to batch."""
        for name, one in state.items():
            if name in self._nodes:
                self._nodes[name].layer.carry_on(one)

    def kept_gradients(self) -> dict[str, Array]:
        """Return the gradients, before the activation, that the backward pass of the last batch kept, by layer."""
        return {name: node.kept_gradient for name, node in self._nodes.items() if node.kept_gradient is not None}

    def is_data_or_cost(self, name: str) -> bool:
        """Return whether a layer neither computes values of its own nor is read by others."""
        node = self._nodes[name]
        return node.config.type == "data" or node.layer.is_cost

    def forward(
        self, batch: Batch, stream: Stream | None = None, *, is_training: bool | None = None
    ) -> dict[str, Argument]:
        """Run a batch and return the output of every layer by name; they stay valid until the next call.

        Args: stream: draws the dropout masks in training.
            is_training: by default, whether there is a stream. True without one is for checking gradients: as in
            training, but nothing is drawn and nothing dropped.
        """
        outputs: dict[str, Argument] = {}
        training = stream is not None if is_training is None else is_training
        for name, node in self._nodes.items():
            slot = batch.get(name)
            outputs[name] = node.forward(outputs, training, stream) if slot is None else slot
        self.outputs = outputs
        self._given = batch.keys()
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

    def backward(self, on_final: OnFinal | None = None) -> None:
        """Add the gradients of the last batch's cost to those of the parameters; sums over the samples.

        Args: on_final: called now and then with a number of elements: from there on the flat gradients are complete.
        """
        values = {name: self.outputs[name].value for name in self.output_names}
        self.backward_from({name: np.ones_like(value) for name, value in values.items() if value is not None}, on_final)

    def backward_from(self, gradients: Mapping[str, Array], on_final: OnFinal | None = None) -> dict[str, Array]:
        """Add to the gradients of the parameters what follows from those of some layers.

        Args: on_final: as of `backward`.
        Returns: the gradients of the layers that the last batch had the rows of, by name.
        """
        flows, given = _Flows(), {}
        final = self.parameters.values.size
        for name, gradient in gradients.items():
            flows.add(name, gradient)
        for node in reversed(self._nodes.values()):
            if not node.layer.takes_gradient or not flows.reach(node.name):
                continue
            if node.name in self._given:
                given[node.name] = flows.take(node.name)[""]
            else:
                node.backward(flows)
            if on_final is not None and self._final_from[node.name] < final:
                final = self._final_from[node.name]
                on_final(final)
        return given


_DISTINCT = "distinct rows"


class _Flows:
    """The gradients on their way back, by layer and, where a layer has several outputs, by the output's name."""

    def __init__(self) -> None:
        self._gradients: dict[str, dict[str, Array]] = {}

    def add(self, name: str, part: Array | DistinctGradient, output: str = "") -> None:
        """Add a part, which the caller may still use, to the gradient of a layer's output."""
        gradients = self._gradients.setdefault(name, {})
        if isinstance(part, DistinctGradient):
            part, output = part.rows, _DISTINCT
        gradients[output] = gradients[output] + part if output in gradients else part

    def scale(self, name: str, factor: float) -> None:
        """Multiply all that a layer's output has gathered so far."""
        gradients = self._gradients[name]
        for output in gradients.keys() & {"", _DISTINCT}:
            gradients[output] = gradients[output] * gradients[output].dtype.type(factor)

    def reach(self, name: str) -> bool:
        """Return whether anything flows back to the layer."""
        return name in self._gradients

    def take(self, name: str) -> dict[str, Array]:
        """Return and forget the gradients of a layer's outputs; "" is the default one."""
        return self._gradients.pop(name)


class _Node:
    """A layer in its place: its inputs, and what happens to every layer's output (activation, dropout)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        self.config = config
        self.name: str = config.name
        self.layer: Layer = find_layer(config)(config, parameters)
        self.inputs: list[str] = [one.input_layer_name for one in config.inputs]
        self._arguments: list[str] = [one.input_layer_argument for one in config.inputs]
        active_type = "" if self.layer.applies_activation else config.active_type
        self._activation: Activation = find_activation(active_type, config.name)
        # fields of the message are read here, once: in every batch they would cost more than a small layer
        self._drop_rate: float = config.drop_rate
        self._threshold: float = config.error_clipping_threshold
        self._coeff: float = config.coeff
        self._wanted: list[bool] = []
        self._mask: Array | None = None
        self._z: Array
        self._y: Array
        self._starts: Ids | None = None
        self._index: Ids | None = None  # how the rows that the layer made repeat
        self._keeps_distinct = False  # z and y are the distinct rows; dropout and clipping need all of them
        self.keeps_gradient = self.logs_clipping = False
        self.kept_gradient: Array | None = None
        if self._drop_rate and config.active_type == "softmax":
            raise ConfigError(f"layer {self.name}: drop_rate does not go with the softmax activation")

    def link(self, nodes: Mapping[str, _Node]) -> None:
        """Find out which inputs take a gradient.

        Raises: ConfigError: if an input is missing or comes later in the message.
        """
        for name in self.inputs:
            if name not in nodes:
                raise ConfigError(f"layer {self.name} has input {name}, which is no layer of the config")
        self.layer.input_configs = [nodes[name].config for name in self.inputs]
        self._wanted = [nodes[name].layer.takes_gradient for name in self.inputs]

    def forward(self, outputs: Mapping[str, Argument], is_training: bool, stream: Stream | None) -> Argument:
        """Return the layer's output, after activation and dropout."""
        try:
            inputs = [outputs[name] for name in self.inputs]
        except KeyError as missing:
            raise ConfigError(f"layer {self.name} comes before its input {missing} in the message") from missing
        self.kept_gradient = None
        self.layer.is_training, self.layer.stream = is_training, stream
        result = self.layer.forward(inputs)
        if result.index is not None and any(result is one for one in inputs):
            result = result.with_value(result.value)  # a layer that hands its input on knows nothing of distinct rows
        self._index = result.index
        self._keeps_distinct = self._index is not None and not self._needs_all_rows()
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
        return Argument(y, result.ids, None, result.starts, result.sub_starts, result.extras)

    def _needs_all_rows(self) -> bool:
        return bool(self._drop_rate or self._threshold or self.keeps_gradient)

    def _drop(self, y: Array, is_training: bool, stream: Stream | None) -> Array:
        """Multiply by a fresh 0/1 mask in training, by the share that is kept in testing."""
        self._mask = None
        if not is_training:
            return y * y.dtype.type(1.0 - self._drop_rate)
        if stream is None:
            return y
        self._mask = keep(stream.draws(y.size).reshape(y.shape), self._drop_rate, y.dtype)
        return y * self._mask

    def backward(self, flows: _Flows) -> None:
        """Run the layer backward and add what flows to its inputs."""
        extras = flows.take(self.name)
        gradient = self._collect(extras)
        if self._mask is not None:
            gradient = gradient * self._mask
        threshold = self._threshold
        if threshold > 0:
            if self.logs_clipping:
                _log_clipping(self.name, gradient, threshold)
            gradient = np.clip(gradient, -threshold, threshold)
        self.layer.extra_gradients = extras
        gradient = self._activation.backward(gradient, self._y, self._z, self._starts)
        if self.keeps_gradient:
            self.kept_gradient = gradient.copy()
        if self._index is not None and not self._keeps_distinct:
            gradient = sum_repeated(gradient, self._index)
        flowing = self.layer.backward(gradient, self._wanted)
        for position, (name, output, part) in enumerate(zip(self.inputs, self._arguments, flowing, strict=True)):
            if part is None:
                continue
            flows.add(name, part, output)
            is_scaled = self.layer.is_cost and not self.layer.applies_coeff
            if position == 0 and is_scaled and self._coeff != 1.0:
                # the legacy scales all that the prediction layer has gathered so far, of other costs too
                flows.scale(name, self._coeff)

    def _collect(self, extras: dict[str, Array]) -> Array:
        """Take the gradient of the default output, of its distinct rows where these were computed."""
        full, distinct = extras.pop("", None), extras.pop(_DISTINCT, None)
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


def _list_parameters(layer: LayerConfig, groups: Mapping[str, Group]) -> set[str]:
    """Return the names of the parameters that a layer uses; one for a group uses those of the group's layers."""
    names = {one.input_parameter_name for one in layer.inputs} | {layer.bias_parameter_name}
    if layer.name in groups:
        step = groups[layer.name].step
        names = names.union(*(_list_parameters(one, {}) for one in step.layers))
        records = [groups[layer.name].record, *step.sub_models]
        names |= {one.boot_bias_parameter_name for record in records for one in record.memories}
    return names - {""}


def _find_needed(config: ModelConfig) -> set[str]:
    """Return the names of the layers that the outputs and evaluators depend on, or that print something."""
    inputs = {one.name: [each.input_layer_name for each in one.inputs] for one in config.layers}
    waiting = [*config.output_layer_names, *(name for one in config.evaluators for name in one.input_layers)]
    for name in waiting:
        if name not in inputs:
            raise ConfigError(f"the config names {name} as an output or evaluator input, but has no such layer")
    waiting += [one.name for one in config.layers if one.type == "print"]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += inputs.get(name, [])
    return needed


def _refuse_unsupported(config: ModelConfig) -> None:
    if config.type not in ("nn", "recurrent_nn"):
        raise ConfigError(f"model type '{config.type}' is not supported yet; supported are 'nn' and 'recurrent_nn'")
    if not config.output_layer_names:
        raise ConfigError("the config has no output layer; name its cost in outputs(...)")
