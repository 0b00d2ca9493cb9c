"""Finds the function that writes the nodes of a layer type, and gives it what it needs. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.export.onnx.graph import Graph
from trainer.export.onnx.values import Value
from trainer.layers.base import Layer
from trainer.layers.recurrent.subnetworks import Group

# modules of `families/`
FAMILIES = (
    "costs",
    "crf",
    "dense",
    "detection",
    "generation",
    "groups",
    "images",
    "mixed",
    "pooling",
    "recurrent",
    "sequences",
)
# writes the layers of a step of a recurrent group: (graph, model, values of its agents) -> values of all its layers
RunStep = Callable[[Graph, ModelConfig, Mapping[str, Value]], Mapping[str, Value]]


class CannotExportError(Exception):
    """A layer has no form in ONNX. The text is the end of the sentence "layer NAME (TYPE): ..."."""


def _run_no_step(graph: Graph, model: ModelConfig, values: Mapping[str, Value]) -> Mapping[str, Value]:
    raise CannotExportError("it is a recurrent group, which has no steps here")


@dataclass(frozen=True)
class LayerExport:
    """A layer whose nodes are to be written.

    Attributes: layer: the layer as this project computes it, whose making has checked config and parameters. inputs:
        the values of its input layers. input_configs: their configs. parameters: of the whole network. groups: the
        recurrent groups of this network, by the name of their layer. run: writes the layers of a step.
    """

    graph: Graph
    config: LayerConfig
    layer: Layer
    inputs: Sequence[Value]
    input_configs: Sequence[LayerConfig]
    parameters: ParameterTable
    groups: Mapping[str, Group] = field(default_factory=dict)
    run: RunStep = _run_no_step

    @property
    def size(self) -> int:
        """The size of the layer."""
        return int(self.layer.size)

    def dense(self, position: int) -> Value:
        """Return an input of dense values.

        Raises: CannotExportError: it has ids.
        """
        value = self.inputs[position]
        if value.is_ids:
            raise CannotExportError(f"its input {self.config.inputs[position].input_layer_name} has ids")
        return value

    def ids(self, position: int) -> Value:
        """Return an input of ids, one in each row.

        Raises: CannotExportError: it has dense values, or several ids in a row.
        """
        value = self.inputs[position]
        if not value.is_ids or value.choices != 1:
            raise CannotExportError(
                f"its input {self.config.inputs[position].input_layer_name} has no ids (--input_types says which have)"
            )
        return value

    def weight(self, position: int) -> Parameter:
        """Return the parameter of an input.

        Raises: CannotExportError: it has none.
        """
        name = self.config.inputs[position].input_parameter_name
        if not name:
            raise CannotExportError(f"its input {position} has no parameter")
        return self.parameters[name]

    def matrix(self, position: int, rows: int, columns: int) -> str:
        """Return the tensor of an input's parameter in this shape.

        Raises: CannotExportError: the parameter has another number of values.
        """
        return self.tensor(self.weight(position), (rows, columns))

    def tensor(self, parameter: Parameter, shape: tuple[int, ...]) -> str:
        """Return the tensor of a parameter in this shape; see `matrix`."""
        return self.graph.parameter(parameter.name, shaped(parameter, shape))

    def bias(self, *shape: int) -> str:
        """Return the tensor of the bias in this shape, or "" if the layer has no bias."""
        name = self.config.bias_parameter_name
        return self.tensor(self.parameters[name], shape) if name else ""

    def add_bias(self, rows: str, size: int | None = None) -> str:
        """Return values plus the bias; a shared bias has one number for each block of columns of equal size."""
        name = self.config.bias_parameter_name
        if not name:
            return rows
        values = self.parameters[name].value.reshape(-1)
        size = self.size if size is None else size
        if values.size != size:
            if not self.config.shared_biases or size % values.size:
                raise CannotExportError(f"its bias has {values.size} values for a size of {size}")
            values = values.repeat(size // values.size)
        return self.graph.add("Add", rows, self.graph.parameter(name, values))


def shaped(parameter: Parameter, shape: tuple[int, ...]) -> Array:
    """Return the values of a parameter in a shape.

    Raises: CannotExportError: the parameter has another number of values.
    """
    try:
        values: Array = parameter.value.reshape(shape)
    except ValueError as error:
        raise CannotExportError(
            f"its parameter {parameter.name} has {parameter.value.size} values; {'x'.join(map(str, shape))} are wanted"
        ) from error
    return values


Exporter = Callable[[LayerExport], Value]
_EXPORTERS: dict[str, Exporter] = {}
# types that have no meaning at inference or no form in ONNX, with the reason
_REFUSED: dict[str, str] = {}


def exports(*types: str) -> Callable[[Exporter], Exporter]:
    """Return a decorator of the function that writes the nodes of these types of layers, before the activation."""

    def register(function: Exporter) -> Exporter:
        _EXPORTERS.update(dict.fromkeys(types, function))
        return function

    return register


def refuse(reason: str, *types: str) -> None:
    """Register types that cannot be exported, with the reason."""
    _REFUSED.update(dict.fromkeys(types, reason))


def find_exporter(kind: str) -> Exporter:
    """Return the function of a layer type.

    Raises: CannotExportError: there is none.
    """
    _load()
    if kind not in _EXPORTERS:
        raise CannotExportError(_REFUSED.get(kind, "this type of layer has no form in ONNX here"))
    return _EXPORTERS[kind]


def why_refused(kind: str) -> str:
    """Return why a layer type cannot be exported, or "" if it can."""
    try:
        find_exporter(kind)
    except CannotExportError as error:
        return str(error)
    return ""


def _load() -> None:
    for family in FAMILIES:
        import_module(f"trainer.export.onnx.families.{family}")
