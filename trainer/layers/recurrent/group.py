"""Recurrent layer groups: a user-defined network, the step, runs for each item of the sequences.

Step t processes item t (a row, or a sub-sequence of nested data) of all sequences of the batch with more than t items.
Sequences are ordered from the longest to the shortest, so the sequences that continue are always the first rows of the
previous step. A step gets items through scatter agents, and outputs of the previous step through memory agents. The
enclosing network gets the results of the group through gather agents. A layer keeps values for its backward pass, so
each step has its own layers; the layers of all steps share the parameters.

Source: spec/config.md 12; gserver/gradientmachines/RecurrentGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from paddle_base.kernels.rows import add_rows
from paddle_base.proto.ModelConfig_pb2 import LayerConfig, LinkConfig, MemoryConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.activations import find_activation
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Flowing, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.layers.base import Layer
from trainer.layers.ragged import PackedOrder, cut_ragged, find_rows, join_ragged, join_ranges, take_ragged
from trainer.layers.recurrent.agents import GroupOutput
from trainer.layers.recurrent.group_inputs import InLink, find_items, pack_inputs
from trainer.layers.recurrent.memories import GroupMemory
from trainer.layers.recurrent.subnetworks import Group, StepParts, split_step


class StepNetwork(Protocol):
    """The methods that the group calls on the network of one step."""

    def forward(
        self, batch: Mapping[str, Argument], stream: Stream | None = None, *, is_training: bool | None = None
    ) -> dict[str, Argument]:
        """Return the output of every layer."""

    def backward_from(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """Run the backward pass from the given gradients of layers; return the gradients of what `forward` received."""

    def watch(self, *, clipping: bool) -> None:
        """Set whether the network logs each layer whose gradient is clipped."""

    def carried(self) -> dict[str, Any]:
        """Return the state that the layers carry from batch to batch."""

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Continue from the given state."""


MakeNetwork = Callable[[ModelConfig, ParameterTable], StepNetwork]


@dataclass
class _Run:
    """The values of a batch that the backward pass needs.

    A step is split into parts; see `split_step`.

    Attributes: packed: for each layer that is an input or a result of a part, its rows in all steps. fed: the layers
        whose rows the steps take from `packed`. outputs: the outputs of each step. result_rows: for each result of the
        group, the packed row of each row of the result.
    """

    packing: PackedOrder
    in_links: list[InLink]
    memories: list[GroupMemory]
    packed: dict[str, Argument] = field(default_factory=dict)
    fed: list[str] = field(default_factory=list)
    outputs: list[dict[str, Argument]] = field(default_factory=list)
    result_rows: dict[str, Ids] = field(default_factory=dict)


class GroupLayer(Layer):
    """The layer that represents a recurrent group in the enclosing network.

    The enclosing network calls `open` before the first batch.
    """

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._parameters = parameters
        self._sources = {one.input_layer_name: number for number, one in enumerate(config.inputs)}
        self._group: Group
        self._make_network: MakeNetwork
        self._parts: StepParts
        self._before: StepNetwork | None = None
        self._steps: list[StepNetwork] = []
        self._after: StepNetwork | None = None
        self._logs_clipping = False
        self._sizes: dict[str, int] = {}
        self._run: _Run
        self._inputs: Sequence[Argument] = ()

    def open(self, group: Group, make_network: MakeNetwork) -> None:
        """Set the group that the layer runs.

        Args: group: the record of the group and the model of a step.  make_network: builds the network of a step.
        Raises: ConfigError: a step cannot be run.
        """
        if not group.record.in_links:
            raise ConfigError(f"{self} has no sequence among its inputs")
        self.prepare(group)
        self._make_network = make_network
        self._parts = parts = split_step(group)
        self._before, first_step, self._after = (
            make_network(one, self._parameters) if one.output_layer_names else None
            for one in (parts.before, parts.steps, parts.after)
        )
        self._steps = [] if first_step is None else [first_step]

    def carried(self) -> Any:
        """Return the state that the layers of the parts and of each step carry from batch to batch."""
        parts = [one.carried() if one is not None else {} for one in (self._before, self._after)]
        steps = [one.carried() for one in self._steps]
        return [*parts, steps] if any((*parts, *steps)) else None

    def carry_on(self, state: Any) -> None:
        """Continue from the given state. If the group has fewer steps than the state, the missing steps are made."""
        before, after, steps = state
        for network, part in ((self._before, before), (self._after, after)):
            if network is not None:
                network.carry_on(part)
        self._make_steps(len(steps))
        for network, step in zip(self._steps, steps, strict=False):
            network.carry_on(step)

    def watch(self, *, clipping: bool) -> None:
        """Set whether the group logs each of its layers whose gradient is clipped."""
        self._logs_clipping = clipping
        for network in (self._before, *self._steps, self._after):
            if network is not None:
                network.watch(clipping=clipping)

    def prepare(self, group: Group) -> None:
        """Store the group, and check the activations of the biases with which the group's memories begin.

        Raises: ConfigError: an activation is not known.
        """
        for memory in group.record.memories:
            find_activation(memory.boot_bias_active_type, memory.link_name)
        self._group = group
        self._sizes = {one.name: int(one.size) for one in group.step.layers}

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Run all steps and return the results."""
        self._inputs = inputs
        packing, in_links, packed = pack_inputs(self, self._group.record, self._sources, inputs)
        order = packing.order[: packing.live[0] if packing.steps else 0]
        memories = [self.boot(one, inputs, order) for one in self._group.record.memories]
        self._run = _Run(packing, in_links, memories, packed)
        if packing.steps:
            self._run_whole(self._before, self._parts.before)
            if self._steps:
                with self._parameters.joined_products():
                    self._run_steps()
            self._run_whole(self._after, self._parts.after)
        item_starts, _ = find_items(inputs[in_links[0].source])
        links = {link.link_name: self._gather(link, item_starts) for link in self._links()}
        return GroupOutput(links, np.zeros((0, 0), self._dtype))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Run the steps from the last to the first.

        `extra_gradients` contains the gradient of each result of the group. `gradient` is empty and is not used.
        """
        gradients = self._scatter()
        if self._run.packing.steps:
            _flow_back(self._after, self._parts.after, gradients)
            if self._steps:
                with self._parameters.joined_products():
                    self._run_steps_back(gradients)
            _flow_back(self._before, self._parts.before, gradients)
        return self._collect(gradients, wanted)

    # ----- Forward -----

    @property
    def _dtype(self) -> np.dtype[np.floating[Any]]:
        return self._parameters.values.dtype

    def _links(self) -> Sequence[LinkConfig]:
        links: Sequence[LinkConfig] = self._group.record.out_links
        return links

    def boot(self, record: MemoryConfig, inputs: Sequence[Argument], order: Ids) -> GroupMemory:
        """Return a memory with its rows for the first step."""
        size = self._sizes[record.link_name]
        if record.boot_layer_name:
            source = self._sources[record.boot_layer_name]
            starts = inputs[source].starts
            if inputs[source].sequences <= order.max(initial=-1):
                raise DataError(f"{self}: boot layer {record.boot_layer_name} has a row for only some of the sequences")
            rows = order if starts is None else join_ranges(starts.take(order), np.diff(starts).take(order))
            return GroupMemory(record, size, take_ragged(inputs[source], starts, order), source=source, rows=rows)
        if record.HasField("boot_with_const_id"):
            return GroupMemory(record, size, Argument(ids=np.full(len(order), record.boot_with_const_id, np.int64)))
        value = np.zeros((len(order), size), self._dtype)
        bias = None
        if record.boot_bias_parameter_name:
            bias = self._parameters[record.boot_bias_parameter_name]
            activation = find_activation(record.boot_bias_active_type, record.link_name)
            value += activation.forward(bias.matrix(1, size))
        return GroupMemory(record, size, Argument(value=value), bias=bias)

    def _run_whole(self, network: StepNetwork | None, model: ModelConfig) -> None:
        """Run a part of the step on the rows of all steps at once."""
        if network is not None:
            packed = self._run.packed
            outputs = network.forward(dict(packed), self.stream, is_training=self.is_training)
            packed.update((name, outputs[name]) for name in model.output_layer_names)

    def _make_steps(self, count: int) -> None:
        while len(self._steps) < count:
            self._steps.append(self._make_network(self._parts.steps, self._parameters))
            self._steps[-1].watch(clipping=self._logs_clipping)

    def _run_steps(self) -> None:
        """Run the part that depends on previous steps, step by step."""
        run, packing, model = self._run, self._run.packing, self._parts.steps
        run.fed = [one.name for one in model.layers if one.name in run.packed]
        self._make_steps(packing.steps)
        for step, network in enumerate(self._steps[: packing.steps]):
            begin, end = packing.begins[step], packing.begins[step + 1]
            rows = {name: cut_ragged(run.packed[name], begin, end) for name in run.fed}
            for memory in run.memories:
                before = memory.boot if memory.is_static or not step else run.outputs[-1][memory.record.layer_name]
                rows[memory.record.link_name] = cut_ragged(before, 0, end - begin)
            run.outputs.append(network.forward(rows, self.stream, is_training=self.is_training))
        results = {link.layer_name for link in self._links()} | {one.name for one in self._parts.after.layers}
        for name in model.output_layer_names:
            if name in results and name not in run.packed:
                run.packed[name] = join_ragged([outputs[name] for outputs in run.outputs])

    def _gather(self, link: LinkConfig, item_starts: Ids) -> Argument:
        """Return a result in the order of the input."""
        run, packed = self._run, self._run.packed.get(link.layer_name)
        places = run.packing.places
        if packed is None or not run.packing.steps:
            run.result_rows[link.link_name] = places
            return Argument(value=np.zeros((0, self._sizes[link.layer_name]), self._dtype), starts=item_starts)
        result = take_ragged(packed, packed.starts, places)
        if packed.starts is None or result.starts is None:
            run.result_rows[link.link_name] = places
            return Argument(value=result.value, ids=result.ids, starts=item_starts)
        run.result_rows[link.link_name] = join_ranges(packed.starts.take(places), packed.lengths.take(places))
        return Argument(value=result.value, ids=result.ids, starts=result.starts[item_starts], sub_starts=result.starts)

    # ----- Backward -----

    def _scatter(self) -> dict[str, Array]:
        """Return the gradients of the results by layer, in packed order."""
        gradients: dict[str, Array] = {}
        for link in self._links():
            gradient = self.extra_gradients.get(link.link_name)
            if gradient is not None and link.layer_name not in self._group.costs:  # a cost's own gradient is 1
                packed = np.empty_like(gradient)
                packed[self._run.result_rows[link.link_name]] = gradient
                _add(gradients, link.layer_name, packed)
        return gradients

    def _run_steps_back(self, gradients: dict[str, Array]) -> None:
        """Run the steps from the last to the first; `gradients` receives the gradients of the inputs of the steps."""
        run, model = self._run, self._parts.steps
        taken: dict[str, Array] = {}
        given = [name for name in model.output_layer_names if name in gradients and name not in run.fed]
        ends = {name: np.cumsum([0, *(outputs[name].rows for outputs in run.outputs)]).tolist() for name in given}
        for step in reversed(range(run.packing.steps)):
            begin, end = run.packing.begins[step], run.packing.begins[step + 1]
            parts = {name: gradients[name][ends[name][step] : ends[name][step + 1]] for name in given}
            for memory in run.memories:
                memory.add_gradient(parts, run.outputs[step])
            flowing = self._steps[step].backward_from(parts)
            for memory in run.memories:
                memory.take_gradient(flowing.pop(memory.record.link_name, None))
            for name, part in flowing.items():
                first, last = find_rows(run.packed[name], begin, end)
                if name not in taken:
                    taken[name] = np.zeros((run.packed[name].rows, part.shape[1]), part.dtype)
                taken[name][first:last] = part
        for name in given:
            del gradients[name]
        for name, total in taken.items():
            _add(gradients, name, total)

    def _collect(self, gradients: Mapping[str, Array], wanted: Sequence[bool]) -> list[Flowing]:
        """Return the gradients of the inputs, in order, and add to the gradients of the biases of the memories."""
        run, packing = self._run, self._run.packing
        totals: list[Array | None] = [None] * len(wanted)

        def add(source: int, rows: Ids, part: Array) -> None:
            if not wanted[source]:
                return
            total, given = totals[source], self._inputs[source]
            if total is None:
                height = given.rows if given.distinct is None else len(given.distinct)
                totals[source] = total = np.zeros((height, part.shape[1]), part.dtype)
            add_rows(total, rows if given.index is None else given.index.take(rows), part)

        for link in run.in_links:
            if link.agent in gradients:
                rows = packing.rows
                if link.sub_starts is not None:
                    rows = join_ranges(link.sub_starts.take(rows), np.diff(link.sub_starts).take(rows))
                add(link.source, rows, gradients[link.agent])
        for memory in run.memories:
            if memory.gradient is None:
                continue
            if memory.source is not None and memory.rows is not None:
                add(memory.source, memory.rows, memory.gradient)
            elif memory.bias is not None and not memory.bias.is_static:
                activation = find_activation(memory.record.boot_bias_active_type, memory.record.link_name)
                z = memory.bias.matrix(1, memory.size)
                summed = memory.gradient.sum(axis=0, keepdims=True)
                memory.bias.add_gradient(activation.backward(summed, activation.forward(z), z))
        return [
            total if total is None or given.index is None else DistinctGradient(total)
            for total, given in zip(totals, self._inputs, strict=True)
        ]


def _flow_back(network: StepNetwork | None, model: ModelConfig, gradients: dict[str, Array]) -> None:
    """Replace the gradients of a part's results by the gradients of its inputs."""
    if network is not None:
        given = {name: gradients.pop(name) for name in model.output_layer_names if name in gradients}
        for name, part in network.backward_from(given).items():
            _add(gradients, name, part)


def _add(gradients: dict[str, Array], name: str, part: Array) -> None:
    gradients[name] = gradients[name] + part if name in gradients else part
