"""The network, which is built only from a ModelConfig message and runs batches forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ContextDecorator
from dataclasses import replace
from typing import Any

import numpy as np

from paddle_base.kernels import compiled
from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.layers import LAYERS
from trainer.layers.base import Layer
from trainer.layers.recurrent.group import GroupLayer
from trainer.layers.recurrent.state import StatefulLayer
from trainer.layers.recurrent.subnetworks import Group, find_ancestors, separate_groups
from trainer.network.batch_states import STATES_KEY, BatchStates
from trainer.network.fusion import fuse
from trainer.network.groups import simplify_groups
from trainer.network.node import GradientFlows, Node
from trainer.network.several import SEVERAL, join_networks

Batch = Mapping[str, Argument]  # maps the name of a data layer to its slot
OnFinal = Callable[[int], None]


class Network:
    """The layers of a model, in the order of the message. Each layer runs after its inputs.

    Only layers that outputs, evaluators or training need are built, so an unused layer may have any type.

    Args: config: the message. parameters: the parameter table of the message; `backward` adds to the table's gradients.
        further: names of further layers to compute, whose outputs a caller reads.
    Raises: ConfigError: the text names a layer type, activation or attribute that is not supported.
    """

    def __init__(self, config: ModelConfig, parameters: ParameterTable, further: Collection[str] = ()) -> None:
        self.config = config
        self.parameters = parameters
        config = join_networks(config)
        _refuse_unsupported(config)
        config, groups = separate_groups(config)
        groups = {name: replace(one, costs=_list_costs(one.step)) for name, one in groups.items()}
        config, groups = simplify_groups(config, groups)
        asked = {
            *config.output_layer_names,
            *(name for one in config.evaluators for name in one.input_layers),
            *further,
        }
        needed = _find_needed(config, groups, asked)
        layers: Sequence[LayerConfig] = [one for one in config.layers if one.name in needed]
        if compiled is not None:  # in numpy, fused layers are slower, because they compute many small products
            layers = fuse(layers, asked)
        self._nodes = {one.name: Node(one, parameters) for one in layers}
        for node in self._nodes.values():
            node.link(self._nodes)
        for node in self._nodes.values():
            readers = [one.layer for one in self._nodes.values() if node.name in one.inputs]
            node.layer.may_repeat = node.name not in asked and all(one.takes_repeats for one in readers)
        for name, group in groups.items():
            layer = self._nodes[name].layer if name in self._nodes else None
            if isinstance(layer, GroupLayer):
                layer.open(group, Network)
        every = [node.layer for node in self._nodes.values()]
        # few layers have such a state; it is asked for after each batch
        carrying = [one for one in self._nodes.values() if type(one.layer).carried is not Layer.carried]
        self._carrying = [(one.name, one.layer) for one in carrying]
        self.states = BatchStates([one for one in every if isinstance(one, StatefulLayer)])
        self.output_names = list(config.output_layer_names)
        costs = _list_costs(config) | {name for name, group in groups.items() if group.costs}
        self._begins = [name for name in self._nodes if name in costs]
        self.replicas: Sequence[Network] = (self,)  # the networks whose joined outputs are the outputs of the batch
        self.outputs: dict[str, Argument] = {}
        self._given: Collection[str] = ()
        self._final_from = self._find_final([_list_parameters(one.config, groups) for one in self._nodes.values()])

    def _find_final(self, used: Sequence[set[str]]) -> dict[str, int]:
        """Return, for each layer, a position in the flat array of all gradients.

        After the layer's backward pass, all gradients from this position on are complete.

        Args: used: the names of the parameters of each layer, in the order of the layers.
        """
        sizes = [one.size for one in self.parameters.trained()]
        ends = dict(zip((one.name for one in self.parameters.trained()), itertools.accumulate(sizes), strict=True))
        # a parameter that no layer uses is complete only after the whole backward pass
        unknown = ends.keys() - set().union(*used)
        final, start = {}, max((ends[name] for name in unknown), default=0)
        for layer, names in zip(self._nodes, used, strict=True):
            final[layer] = start
            start = max([start, *(ends[name] for name in names if name in ends)])
        return final

    def watch(self, *, gradients_of: Collection[str] = (), clipping: bool = False) -> None:
        """Store the gradients of the given layers for `kept_gradients`. With `clipping`, log clipped gradients."""
        for name, node in self._nodes.items():
            node.output.keeps_gradient, node.output.logs_clipping = name in gradients_of, clipping
            if isinstance(node.layer, GroupLayer):
                node.layer.watch(clipping=clipping)

    def time_layers(self, measure: Callable[[str], ContextDecorator]) -> None:
        """Begin to measure the passes of every layer.

        The passes are named `forward <layer> (<type>)` and `backward <layer> (<type>)`. The time of a recurrent group's
        layer includes all layers of the group.

        Args: measure: takes a name, and returns a decorator that measures a function under this name.
        """
        for node in self._nodes.values():
            for way in ("forward", "backward"):
                name = f"{way} {node.name} ({node.config.type})"
                setattr(node, way, measure(name)(getattr(node, way)))

    def carried(self) -> dict[str, Any]:
        """Return, by layer, the state that the layer carries from batch to batch, in a JSON-compatible form.

        Parameters are not included.
        """
        states = {name: layer.carried() for name, layer in self._carrying}
        if self.states.is_on:
            states[STATES_KEY] = self.states.carried()
        return {name: state for name, state in states.items() if state is not None}

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Restore states that `carried` returned, for example in another process."""
        for name, one in state.items():
            if name == STATES_KEY:
                self.states.carry_on(one)
            elif name in self._nodes:
                self._nodes[name].layer.carry_on(one)

    def kept_gradients(self) -> dict[str, Array]:
        """Return, by layer, the gradients of the values before the activation, which the last backward pass stored."""
        kept = {name: node.output.kept_gradient for name, node in self._nodes.items()}
        return {name: gradient for name, gradient in kept.items() if gradient is not None}

    def is_data_or_cost(self, name: str) -> bool:
        """Return whether a layer is a data layer or a cost."""
        node = self._nodes[name]
        return node.config.type == "data" or node.layer.is_cost

    def forward(
        self, batch: Batch, stream: Stream | None = None, *, is_training: bool | None = None
    ) -> dict[str, Argument]:
        """Run a batch, and return the output of every layer by name. The outputs stay valid until the next call.

        Args: stream: random stream of the dropout masks in training.
            is_training: whether the layers run in training mode; the default is true if a stream is given. Gradient
                checks use training mode without a stream. Dropout then has no effect, and no random number is drawn.
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
        """Return the cost of the last batch: the sum over all output layers, in double precision.

        Outputs that contain only ids are left out of the sum.
        """
        values = (self.outputs[name].value for name in self.output_names)
        return float(sum(value.sum(dtype=np.float64) for value in values if value is not None))

    def find_bad_cost(self) -> str:
        """Return the name of the first output layer or cost that returned a number that is not finite, or ""."""
        for name in [*self.output_names, *self._begins]:
            value = self.outputs[name].value
            if value is not None and not np.isfinite(value).all():
                return name
        return ""

    def backward(self, on_final: OnFinal | None = None) -> None:
        """Add the gradients of the last batch's cost, summed over the samples, to the gradients of the parameters.

        Args: on_final: a function that is called repeatedly during the pass with a position in the flat array of all
            gradients. All gradients from this position on are complete.
        """
        values = {name: self.outputs[name].value for name in self.output_names}
        self.backward_from({name: np.ones_like(value) for name, value in values.items() if value is not None}, on_final)

    def backward_from(self, gradients: Mapping[str, Array], on_final: OnFinal | None = None) -> dict[str, Array]:
        """Run the backward pass, and add to the gradients of the parameters.

        As in v0.10, the pass begins at every cost, also if the cost is no output or if other layers read it.

        Args: gradients: the gradients of layers' outputs, with which the pass begins. on_final: see `backward`.
        Returns: the gradients of the data layers of the last batch, by name.
        """
        flows, given = GradientFlows(gradients), {}
        final = self.parameters.values.size
        for node in reversed(self._nodes.values()):  # the chain rule, from the last layer to the first
            if node.name in self._begins and node.name not in gradients:
                flows.begin(node.name, np.ones_like(self.outputs[node.name].value))
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


def _list_parameters(layer: LayerConfig, groups: Mapping[str, Group]) -> set[str]:
    """Return the names of the parameters that a layer uses. A group's layer uses the parameters of its inner layers."""
    names = {one.input_parameter_name for one in layer.inputs} | {layer.bias_parameter_name}
    if layer.name in groups:
        step = groups[layer.name].step
        names = names.union(*(_list_parameters(one, {}) for one in step.layers))
        records = [groups[layer.name].record, *step.sub_models]
        names |= {one.boot_bias_parameter_name for record in records for one in record.memories}
    return names - {""}


def _list_costs(config: ModelConfig) -> set[str]:
    """Return the names of the costs among the layers of a model."""
    classes = {kind: LAYERS[kind] for kind in {one.type for one in config.layers} if kind in LAYERS}
    types = {kind for kind, layer in classes.items() if layer.is_cost or layer.is_likelihood}
    return {one.name for one in config.layers if one.type in types}


def _find_needed(config: ModelConfig, groups: Mapping[str, Group], asked: Collection[str]) -> set[str]:
    """Return the names of the layers that must be computed.

    These are the layers in `asked` (the outputs, the inputs of evaluators, and what the caller reads), the layers that
    print or validate values, the layers by which training changes although nothing reads them, and the inputs of all
    these layers.
    """
    inputs = {one.name: [each.input_layer_name for each in one.inputs] for one in config.layers}
    for name in asked:
        if name not in inputs:
            raise ConfigError(f"the config names {name} as an output or evaluator input, but has no such layer")
    waiting = list(asked)
    waiting += [one.name for one in config.layers if one.type in ("print", "auc-validation", "pnpair-validation")]
    needed = find_ancestors(waiting, inputs)
    computable = _find_computable(config)
    with_costs = {name for name, group in groups.items() if group.costs}
    effective = {one.name for one in config.layers if one.type in LAYERS and LAYERS[one.type].has_effects(one)}
    return needed | find_ancestors((effective | with_costs) & computable, inputs)


def _find_computable(config: ModelConfig) -> set[str]:
    """Return the layers that have a supported type, and whose data layers are inputs of the network."""
    found: set[str] = set()
    for layer in config.layers:
        is_fed = layer.type != "data" or layer.name in config.input_layer_names
        if is_fed and layer.type in LAYERS and all(one.input_layer_name in found for one in layer.inputs):
            found.add(layer.name)
    return found


def _refuse_unsupported(config: ModelConfig) -> None:
    if config.type not in ("nn", "recurrent_nn"):
        raise ConfigError(f"model type '{config.type}' is unknown; use one of 'nn', 'recurrent_nn' and '{SEVERAL}'")
    if not config.output_layer_names:
        raise ConfigError("the config has no output layer; name its cost in outputs(...)")
