"""Writes the nodes of all layers that outputs need. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.parameters import ParameterTable
from trainer.data.input_types import DataType, InputType
from trainer.export.onnx.activations import activate
from trainer.export.onnx.graph import FLOAT, INT64, OPSET, Graph
from trainer.export.onnx.registry import CannotExportError, LayerExport, find_exporter, require_size, why_refused
from trainer.export.onnx.values import Value
from trainer.export.predictions import find_inner_predictions, find_predictions
from trainer.layers import find_layer
from trainer.layers.recurrent.generator import SCORES
from trainer.layers.recurrent.subnetworks import Group, find_ancestors, separate_groups
from trainer.network.several import join_networks

LENGTHS, INNER = ".lengths", ".inner_lengths"  # ends of the names of the lengths of a sequence


def build(
    model: ModelConfig,
    parameters: ParameterTable,
    types: Mapping[str, InputType],
    outputs: Sequence[str],
    opset: int = OPSET,
) -> Graph:
    """Return the graph that computes the outputs from the data layers that they need.

    Args: types: of the data layers. outputs: names of layers; a cost stands for its predictions.
    Raises: ConfigError: layers cannot be exported; the text lists all of them, each with the reason.
    """
    separated, groups = separate_groups(join_networks(model))
    separated, outputs = find_inner_predictions(separated, groups, outputs)
    configs = {one.name: one for one in separated.layers}
    names = find_predictions(configs, outputs)
    _refuse_equal_names(configs)
    graph = Graph(opset=opset)
    for name in configs:
        graph.reserve(name)
        graph.reserve(name + LENGTHS)
        graph.reserve(name + INNER)
        graph.reserve(f"{name}.{SCORES}")
    needed = find_ancestors(names, {one: _list_inputs(config) for one, config in configs.items()})
    values: dict[str, Value] = {}
    failures: list[str] = []
    for name, config in configs.items():
        if name in needed and config.type == "data":
            kind = types.get(name, InputType(0, 0, DataType.Dense))
            values[name] = declare(graph, name, replace(kind, dim=int(config.size)))
    add_layers(graph, separated, parameters, groups, needed, values, failures)
    if failures:
        raise ConfigError("these layers have no form in ONNX: " + "; ".join(failures))
    for name in names:
        _give(graph, name, values[name])
    return graph


def _refuse_equal_names(names: Collection[str]) -> None:
    for name in names:
        for end in (LENGTHS, INNER, f".{SCORES}"):
            if name.removesuffix(end) != name and name.removesuffix(end) in names:
                raise ConfigError(
                    f"the layer {name} has the name of the {end[1:]} of the layer {name.removesuffix(end)}; rename it"
                )


def add_layers(
    graph: Graph,
    model: ModelConfig,
    parameters: ParameterTable,
    groups: Mapping[str, Group],
    needed: Collection[str],
    values: dict[str, Value],
    failures: list[str],
) -> None:
    """Write the nodes of the needed layers of a network, or of the step of a recurrent group, in order.

    Args: values: the values that exist, by layer; those of the layers are added. failures: gets a text for each layer
        that cannot be exported; layers that need such a layer are left out.
    """
    configs = {one.name: one for one in model.layers}

    def run(inner: Graph, step: ModelConfig, given: Mapping[str, Value]) -> Mapping[str, Value]:
        return _add_step(inner, step, parameters, given, failures)

    for name, config in configs.items():
        if name not in needed or name in values:
            continue
        sources = _list_inputs(config)
        try:
            exporter = find_exporter(config.type)
            refused = _list_refused(groups[name]) if name in groups else []
            failures += refused
            if refused or any(one not in values for one in sources):
                continue
            graph.prefix = name
            require_size(config.size)
            layer = find_layer(config)(config, parameters)
            layer.input_configs = [configs[one] for one in sources]
            call = LayerExport(
                graph,
                config,
                layer,
                [values[one] for one in sources],
                layer.input_configs,
                parameters,
                groups,
                run,
            )
            values[name] = finish(call, exporter(call))
        except CannotExportError as error:
            failures.append(f"layer {name} ({config.type}): {error}")


def _list_refused(group: Group) -> list[str]:
    """Return a text for each layer that a group's step needs, also in groups inside it, whose type is not exported."""
    separated, groups = separate_groups(group.step)
    needed = find_ancestors(group.step.output_layer_names, {one.name: _list_inputs(one) for one in separated.layers})
    found = []
    for one in separated.layers:
        reason = why_refused(one.type) if one.name in needed else ""
        found += [f"layer {one.name} ({one.type}): {reason}"] if reason else []
        found += _list_refused(groups[one.name]) if one.name in needed and one.name in groups else []
    return found


def _add_step(
    graph: Graph, step: ModelConfig, parameters: ParameterTable, given: Mapping[str, Value], failures: list[str]
) -> Mapping[str, Value]:
    """Write the nodes of the layers that the outputs of a group's step need. Args: given: the values of its agents.

    Raises: CannotExportError: layers of the step cannot be exported; `failures` has them.
    """
    separated, groups = separate_groups(step)
    inputs = {one.name: _list_inputs(one) for one in separated.layers}
    values = dict(given)
    add_layers(graph, separated, parameters, groups, find_ancestors(step.output_layer_names, inputs), values, failures)
    missing = [name for name in step.output_layer_names if name not in values]
    if missing:
        raise CannotExportError(f"its step needs {', '.join(missing)}")
    return values


def finish(call: LayerExport, result: Value) -> Value:
    """Return the result of a layer after its activation, and after dropout as it is outside training."""
    config = call.config
    kind = "" if call.layer.applies_activation else config.active_type
    if result.is_ids:
        return result
    value = activate(call.graph, kind, result)
    if config.drop_rate:
        scale = call.graph.constant(1.0 - config.drop_rate)
        value = value.with_name(call.graph.add("Mul", value.name, scale, word="dropout"))
    return replace(value, extras=result.extras)


def declare(graph: Graph, name: str, kind: InputType) -> Value:
    """Declare the inputs of the graph that a data layer stands for, and return its value."""
    is_ids = kind.type == DataType.Index
    symbols = [f"{name}.time"] if kind.seq_type == 1 else [f"{name}.outer", f"{name}.inner"][: kind.seq_type]
    dims: list[int | str | None] = ["batch", *symbols, *([] if is_ids else [kind.dim])]
    graph.input(name, INT64 if is_ids else FLOAT, dims)
    lengths = inner = ""
    if kind.seq_type:
        lengths = graph.input(name + LENGTHS, INT64, ["batch"])
    if kind.seq_type == 2:
        inner = graph.input(name + INNER, INT64, ["batch", f"{name}.outer"])
    value = _fill(graph, Value(name, kind.dim, is_ids, lengths, inner))
    # whatever a caller pads with, the padding of ids is 0, so that every id can be looked up
    return replace(value, name=graph.masked(value)) if is_ids and kind.seq_type else value


def _fill(graph: Graph, value: Value) -> Value:
    """Return a sequence whose axes of time have at least one place, because Scan and maxima need one."""
    if not value.levels:
        return value
    graph.prefix = value.name
    axes = range(1, 1 + value.levels)
    missing = [graph.cast(graph.add("Equal", graph.dim(value.name, axis), graph.integers(0)), INT64) for axis in axes]
    begin, columns = [0] * (2 + value.levels + (not value.is_ids)), [] if value.is_ids else [graph.integers([0])]
    tensor = graph.add("Pad", value.name, graph.add("Concat", graph.integers(begin), *missing, *columns, axis=0))
    inner = value.inner
    if inner:
        inner = graph.add("Pad", inner, graph.add("Concat", graph.integers([0, 0, 0]), missing[0], axis=0))
    return replace(value, name=tensor, inner=inner)


def _give(graph: Graph, name: str, value: Value) -> None:
    """Declare the outputs of the graph that a layer stands for."""
    graph.prefix = "outputs"
    tensor = graph.masked(value) if value.levels else value.name
    batch = "batch" if value.is_batch else None
    dims: list[int | str | None] = [batch, *([None] * value.levels)]
    width = value.choices if value.is_ids else value.size
    if tensor != name:
        graph.identity(tensor, name)
    graph.output(name, INT64 if value.is_ids else FLOAT, dims if value.is_ids and width == 1 else [*dims, width])
    if SCORES in value.extras:
        scores = value.extras[SCORES]
        graph.output(graph.identity(scores.name, f"{name}.{SCORES}"), FLOAT, ["batch", scores.size])
    if value.lengths and value.lengths != name + LENGTHS:
        graph.output(graph.identity(value.lengths, name + LENGTHS), INT64, [batch])
    if value.inner and value.inner != name + INNER:
        graph.output(graph.identity(value.inner, name + INNER), INT64, [batch, None])


def _list_inputs(config: LayerConfig) -> list[str]:
    return [one.input_layer_name for one in config.inputs]
