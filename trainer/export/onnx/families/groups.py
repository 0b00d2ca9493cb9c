"""Recurrent groups: the layers that must run step by step become the body of a Scan over the items. No I/O.

An item is a frame, or a sub-sequence of nested sequences. Layers that no earlier step changes run on the items of all
steps at once, before or after the Scan (`split_step`); there each item is a sample, and (batch, time, ...) becomes
(batch * time, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paddle_base.proto.ModelConfig_pb2 import MemoryConfig, ModelConfig
from trainer.export.onnx.activations import activate_rows
from trainer.export.onnx.families.recurrent import zero_rows
from trainer.export.onnx.graph import FLOAT, INT64
from trainer.export.onnx.padding import count_up, rank_of, sequence_like, unsqueeze
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.scan import Scan
from trainer.export.onnx.values import Value
from trainer.layers.recurrent.subnetworks import GROUP, Group, split_step


@exports(GROUP)
def _group(call: LayerExport) -> Value:
    """The results of a group, as further outputs by the names of their gather agents."""
    group = call.groups[call.config.name]
    if not group.record.in_links:
        raise CannotExportError("it has no sequence among its inputs")
    return Value("", 0, extras=_GroupExport(call, group).results())


@exports("gather_agent")
def _gather(call: LayerExport) -> Value:
    """A result of a group."""
    name = call.config.inputs[0].input_layer_argument if call.config.inputs else ""
    found = call.inputs[0].extras.get(name) if name else None
    if found is None:
        raise CannotExportError("it is a further result of a step that generates, which gives only its ids")
    return found


def boot(call: LayerExport, group: Group, memory: MemoryConfig, batch: str) -> Value:
    """Return a memory before the first step. Args: batch: the number of samples, int64 [1]."""
    graph = call.graph
    size = next(int(one.size) for one in group.step.layers if one.name == memory.link_name)
    if memory.boot_layer_name:
        sources = [one.input_layer_name for one in call.config.inputs]
        return call.inputs[sources.index(memory.boot_layer_name)]
    if memory.HasField("boot_with_const_id"):
        return Value(graph.add("Expand", graph.integers([memory.boot_with_const_id]), batch), size, is_ids=True)
    if not memory.boot_bias_parameter_name:
        return Value(zero_rows(graph, batch, size), size)
    bias = call.tensor(call.parameters[memory.boot_bias_parameter_name], (1, size))
    rows = graph.add("Add", activate_rows(graph, memory.boot_bias_active_type, bias), zero_rows(graph, batch, size))
    return Value(rows, size)


def is_static(group: Group, memory: MemoryConfig) -> bool:
    """Return whether a memory has its first value at every step: it remembers itself, or a copy of itself."""
    if memory.layer_name == memory.link_name:
        return True
    layer = next((one for one in group.step.layers if one.name == memory.layer_name), None)
    if layer is None or layer.type != "mixed" or len(layer.inputs) != 1 or layer.operator_confs:
        return False
    one = layer.inputs[0]
    changes = layer.bias_parameter_name or layer.drop_rate or layer.active_type not in ("", "linear")
    return one.proj_conf.type == "identity" and one.input_layer_name == memory.link_name and not changes


class _GroupExport:
    """The nodes of a group."""

    def __init__(self, call: LayerExport, group: Group) -> None:
        self._call = call
        self._graph = call.graph
        self._group = group
        self._record = group.record
        sources = {one.input_layer_name: value for one, value in zip(call.config.inputs, call.inputs, strict=True)}
        self._links = {one.link_name: sources[one.layer_name] for one in self._record.in_links}
        first = next(iter(self._links.values()))
        for link in self._record.in_links:
            if not sources[link.layer_name].levels:
                raise CannotExportError(f"its input {link.layer_name} has no sequences (--input_types)")
        self._lengths = first.lengths
        self._shape = self._graph.add("Shape", first.name, start=0, end=2)
        self._batch = self._graph.dim(first.name, 0)

    def results(self) -> dict[str, Value]:
        """Return the results by the names of their gather agents."""
        parts = split_step(self._group)
        packed = {name: self._as_samples(one) for name, one in self._links.items()}
        self._run_whole(parts.before, packed)
        if parts.steps.output_layer_names:
            packed |= self._scan(parts.steps, packed)
        self._run_whole(parts.after, packed)
        return {link.link_name: self._as_sequences(packed[link.layer_name]) for link in self._record.out_links}

    def _run_whole(self, model: ModelConfig, packed: dict[str, Value]) -> None:
        """Add the outputs of the layers that run on the items of all steps at once."""
        if model.output_layer_names:
            outputs = self._call.run(self._graph, model, packed)
            packed |= {name: outputs[name] for name in model.output_layer_names}

    # ----- Items as samples -----

    def _turn(self, name: str) -> str:
        """Return the items of each sequence in the order of the steps, or back."""
        if not self._record.reversed:
            return name
        return self._graph.add("ReverseSequence", name, self._lengths, batch_axis=0, time_axis=1)

    def _as_samples(self, one: Value) -> Value:
        graph = self._graph
        merged = graph.add("Concat", graph.integers([-1]), graph.add("Shape", one.name, start=2), axis=0)
        name = graph.add("Reshape", self._turn(one.name), merged)
        return sequence_like(one, name, graph.reshape(self._turn(one.inner), [-1]) if one.inner else "")

    def _as_sequences(self, one: Value) -> Value:
        graph = self._graph
        if one.levels > 1:
            raise CannotExportError("a step returns nested sequences")
        name, inner = self._turn(self._split(one.name)), ""
        if one.lengths:
            # a sub-sequence that is padding has no frames
            kept = graph.add("Less", count_up(graph, graph.dim(name, 1)), unsqueeze(graph, self._lengths, 1))
            inner = graph.add("Where", kept, self._turn(self._split(one.lengths)), graph.integers(0))
        return sequence_like(one, name, self._lengths, inner)

    def _split(self, name: str) -> str:
        """Return samples as items: (batch * time, ...) -> (batch, time, ...)."""
        graph = self._graph
        return graph.add("Reshape", name, graph.add("Concat", self._shape, graph.add("Shape", name, start=1), axis=0))

    # ----- Step by step -----

    def _scan(self, model: ModelConfig, packed: Mapping[str, Value]) -> dict[str, Value]:
        """Return the outputs of all steps that are results of the group, or that other parts read, as samples."""
        scan = Scan(self._graph)
        boots = {one.link_name: boot(self._call, self._group, one, self._batch) for one in self._record.memories}
        values = {one.link_name: boots[one.link_name] for one in self._record.memories if is_static(self._group, one)}
        carried = [one for one in self._record.memories if not is_static(self._group, one)]
        for memory in carried:
            first = boots[memory.link_name]
            refuse_sequence(memory, first)
            values[memory.link_name] = replace(first, name=scan.state(first.name, rank_of(first), _kind(first)))
        for one in model.layers:
            if one.name in packed:
                values[one.name] = self._take_item(scan, packed[one.name])
        outputs = self._call.run(scan.body, model, values)
        for memory in carried:
            refuse_sequence(memory, outputs[memory.layer_name])
        wanted = {link.layer_name for link in self._record.out_links} | {
            one.name for one in split_step(self._group).after.layers
        }
        names = [name for name in model.output_layer_names if name in wanted and name not in packed]
        given = []
        for name in names:
            value = outputs[name]
            given.append((value.name, rank_of(value), _kind(value)))
            if value.lengths:
                given.append((value.lengths, 1, INT64))
        _, results = scan.run([outputs[one.layer_name].name for one in carried], given)
        return self._collect([outputs[name] for name in names], names, results)

    def _take_item(self, scan: Scan, one: Value) -> Value:
        name = scan.item(self._split(one.name), rank_of(one) + 1, _kind(one))
        return sequence_like(one, name, scan.item(self._split(one.lengths), 2, INT64) if one.lengths else "")

    def _collect(self, values: Sequence[Value], names: Sequence[str], results: Sequence[str]) -> dict[str, Value]:
        """Return the outputs of all steps as samples, from the tensors that the Scan returned."""
        graph, found = self._graph, {}
        left = iter(results)
        for name, one in zip(names, values, strict=True):
            tensor = next(left)
            merged = graph.add("Concat", graph.integers([-1]), graph.add("Shape", tensor, start=2), axis=0)
            lengths = graph.reshape(next(left), [-1]) if one.lengths else ""
            found[name] = sequence_like(one, graph.add("Reshape", tensor, merged), lengths)
        return found


def _kind(one: Value) -> int:
    return INT64 if one.is_ids else FLOAT


def refuse_sequence(memory: MemoryConfig, one: Value) -> None:
    """Raise CannotExportError if a memory remembers a sequence."""
    if one.levels:
        raise CannotExportError(
            f"its memory of {memory.layer_name} remembers a sequence, whose length may change from step to step"
        )
