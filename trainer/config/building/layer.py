"""The base parts of the layer functions: `LayerOutput` for users, `LayerBuilder` for writing the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_base.proto import ModelConfig_pb2
from trainer.config.building.activations import BaseActivation, IdentityActivation
from trainer.config.building.argument_errors import ArgumentError, to_list, wrong
from trainer.config.building.attrs import ExtraLayerAttribute, ParameterAttribute, to_bias
from trainer.config.building.names import public
from trainer.config.building.parameters import add_parameter
from trainer.config.building.state import current

_LINEAR = IdentityActivation()


@public("layers")
class LayerOutput:
    """The object that a layer function returns; other layer functions accept it as an input.

    Attributes: full_name: the layer's name in the message. parents: the layers that outputs() visits from this layer.
        outputs: the names of the layer's outputs. width, height and depth are read from the message. All other
        attributes have the values that the layer function has set.
    """

    absence = "this layer belongs to another config"  # the error's text if the message lacks the layer

    def __init__(
        self,
        name: str,
        layer_type: str,
        parents: Any = None,
        activation: BaseActivation | None = None,
        num_filters: int | None = None,
        img_norm_type: str | None = None,
        size: int | None = None,
        outputs: Sequence[str] | None = None,
        reverse: bool | None = None,
    ):
        self.name = name
        self.full_name = current().full_name(name)
        self.layer_type = layer_type
        self.parents: list[LayerOutput] = [] if parents is None else to_list(parents)
        self.activation = activation
        self.num_filters = num_filters
        self.img_norm_type = img_norm_type
        self.size = size
        self.outputs = ["default"] if outputs is None else list(outputs)
        self.reverse = reverse

    @property
    def width(self) -> int:
        """Width of the map in pixels; 0 if the layer has no map."""
        return int(current().layers[self.full_name].width)

    @property
    def height(self) -> int:
        """Height of the map in pixels; 0 if the layer has no map."""
        return int(current().layers[self.full_name].height)

    @property
    def depth(self) -> int:
        """Depth of the map; 1 if the layer has no depth."""
        return int(current().layers[self.full_name].depth)

    def __repr__(self) -> str:
        return f"<layer {self.name!r} of type {self.layer_type}, size {self.size}>"

    def __add__(self, other: Any) -> LayerOutput:
        return _OPERATORS["+"](self, other)

    def __sub__(self, other: Any) -> LayerOutput:
        return _OPERATORS["-"](self, other)

    def __rsub__(self, other: Any) -> LayerOutput:
        return _OPERATORS["reversed -"](self, other)

    def __mul__(self, other: Any) -> LayerOutput:
        return _OPERATORS["*"](self, other)

    def __neg__(self) -> LayerOutput:
        return _OPERATORS["*"](self, -1.0)

    __radd__ = __add__
    __rmul__ = __mul__


LayerOperator = Callable[[LayerOutput, Any], LayerOutput]
_OPERATORS: dict[str, LayerOperator] = {}


def register_operators(operators: Mapping[str, LayerOperator]) -> None:
    """Set the functions that compute `layer + x`, `layer - x`, `number - layer` and `layer * x`.

    The operators call layer functions, and the modules of layer functions import this module. This module therefore
    cannot import the operators; `layer_math`, which defines the operators, calls this function instead.
    """
    _OPERATORS.update(operators)


def to_layer(argument: str, value: Any) -> LayerOutput:
    """Return the value, which must be a layer of this parse."""
    if not isinstance(value, LayerOutput):
        raise wrong(argument, value, "it must be a layer, the result of a layer function")
    if value.full_name not in current().layers:
        raise wrong(argument, value, value.absence)
    return value


def to_layers(argument: str, value: Any) -> list[LayerOutput]:
    """Return a non-empty list of layers of this parse; a single layer becomes a list of one layer."""
    layers = [to_layer(argument, layer) for layer in to_list(value)]
    if not layers:
        raise wrong(argument, value, "it must have at least one layer")
    return layers


def size_of(layer: LayerOutput) -> int:
    """Return the size of a layer; for a layer without a size, raise ArgumentError."""
    if not layer.size:
        raise ArgumentError(f"the layer {layer.name!r} has no size")
    return layer.size


def message_of(layer: LayerOutput) -> ModelConfig_pb2.LayerConfig:
    """Return the message of an input layer; inside a recurrent group, return the message of the layer's agent."""
    return current().layers[input_name(layer)]


def columns_of(layer: LayerOutput) -> int:
    """Return the size that a layer has in the message; for a few layers, `LayerOutput.size` is different."""
    columns = int(message_of(layer).size)
    if not columns:
        raise ArgumentError(f"the layer {layer.name!r} has no size")
    return columns


def to_activation(argument: str, value: Any, default: BaseActivation = _LINEAR) -> BaseActivation:
    """Return the user's activation object; if the user gave no activation, return `default`."""
    if value is None:
        return default
    if not isinstance(value, BaseActivation):
        raise wrong(argument, value, "it must be an activation, for example SoftmaxActivation()")
    return value


def to_parameter_attr(argument: str, value: Any) -> ParameterAttribute:
    """Return the user's ParamAttr, or a ParamAttr with all defaults."""
    if value is None:
        return ParameterAttribute()
    if not isinstance(value, ParameterAttribute):
        raise wrong(argument, value, "it must be a ParamAttr")
    return value


def input_name(layer: LayerOutput) -> str:
    """Return the name that an input layer has in the message.

    Raises: ArgumentError: a recurrent group reads an outer layer that is not an input of the group, or a layer outside
        a group reads a layer inside the group.
    """
    parse = current()
    name = parse.full_name(layer.name)
    if name not in parse.layers and not parse.opened:
        raise ArgumentError(
            f"the layer {layer.full_name!r} is inside of a recurrent group; let its step function return this layer"
        )
    if name not in parse.layers:
        raise ArgumentError(
            f"the layer {layer.name!r} is not in the recurrent group {parse.sub_model.name!r}; make it an input of the "
            "group, and use StaticInput(...) if it is not a sequence to be read step by step"
        )
    return name


class LayerBuilder:
    """Writes one layer into the message of the current parse.

    Args: name: the layer's name. kind: the layer's type in the message. size: number of columns of the result; 0 and
        None are not written. act: the activation, which is written as active_type. extra: the user's layer_attr.
        supports: the attributes of `extra` that the layer supports: "D" for drop_rate, "E" for
        error_clipping_threshold, "DE" for both.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        size: int | None = None,
        act: BaseActivation | None = None,
        extra: Any = None,
        supports: str = "",
    ):
        self.parse = current()
        self.kind = kind
        self.name = name
        self.size = size
        self.act = act
        self.message = self.parse.add_layer(name, kind)
        # the names of parameters contain the full name, which is `name@group` inside a group
        self.full_name = self.message.name
        if size:
            self.message.size = size
        if act is not None:
            self.message.active_type = act.name
        if self.parse.defaults.device is not None:
            self.message.device = self.parse.defaults.device
        self._set_extra(extra, supports)

    def _set_extra(self, extra: Any, supports: str) -> None:
        if extra is None:
            return
        if not isinstance(extra, ExtraLayerAttribute):
            raise wrong("layer_attr", extra, "it must be an ExtraAttr")
        for letter, key in (("D", "drop_rate"), ("E", "error_clipping_threshold")):
            if key in extra.attr and letter not in supports:
                raise ArgumentError(f"layer_attr has {key}, which this layer does not support")
        for key, value in extra.attr.items():
            if key != "drop_rate" or value != 0:
                setattr(self.message, key, value)

    def set_size(self, size: int) -> None:
        """Write the number of columns of a layer whose size was unknown when the builder was made."""
        self.size = size
        self.message.size = size

    def add_input(self, layer: LayerOutput) -> ModelConfig_pb2.LayerInputConfig:
        """Append an input and return its message; inside a recurrent group, the input is a layer of the group."""
        return self.message.inputs.add(input_layer_name=input_name(layer))

    def add_weight(self, index: int, size: int, dims: Sequence[int], attr: ParameterAttribute, **more: Any) -> None:
        """Add the parameter of an input. Without a name in `attr`, the parameter is called `_<layer>.w<index>`."""
        name = attr.name or f"_{self.full_name}.w{index}"
        add_parameter(self.parse, name, size, dims, {**attr.attr, **more}, self._device())
        self.message.inputs[index].input_parameter_name = name

    def add_bias(
        self, bias_attr: Any, *, default: bool, size: int | None = None, dims: Sequence[int] | None = None
    ) -> None:
        """Add the bias `_<layer>.wbias` if the user's attribute or the layer's default requests a bias."""
        attr = to_bias(bias_attr, default=default)
        size = self.size if size is None else size
        if attr is None or not size:
            return
        name = attr.name or f"_{self.full_name}.wbias"
        if name not in self.parse.parameters:  # as in v0.10, the size of a shared bias is not checked
            add_parameter(self.parse, name, size, [1, size] if dims is None else dims, attr.attr, self._device())
        self.message.bias_parameter_name = name

    def output(
        self,
        parents: Sequence[LayerOutput],
        *,
        size: int | None = None,
        activation: BaseActivation | None = None,
        num_filters: int | None = None,
        layer_type: str | None = None,
    ) -> LayerOutput:
        """Return the LayerOutput for the user. Args: layer_type: its type, if the message has another type."""
        return LayerOutput(
            self.name,
            layer_type or self.kind,
            parents=parents,
            activation=activation,
            num_filters=num_filters,
            size=self.size if size is None else size,
        )

    def _device(self) -> int | None:
        return self.message.device if self.message.HasField("device") else None
