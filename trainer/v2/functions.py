"""The layer functions of programs, which are made from those of the config language."""

from __future__ import annotations

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_text
from trainer.config.building.names import closest
from trainer.config.language.layers import mixed as language
from trainer.config.language.layers.basic import data_layer
from trainer.data.input_types import InputType, to_input_type
from trainer.v2.errors import DATA_LAYER
from trainer.v2.graph import LayerCall, Made, program_name

_LANGUAGE = "function_of_the_config_language"  # the attribute of a function of programs that has the other function


class NetworkCall(LayerCall):
    """A call of a function that makes several layers."""

    is_network = True


class Data(LayerCall):
    """A data layer. Attributes: type: the type of the column that it takes."""

    def __init__(self, name: str, type: InputType, arguments: Mapping[str, Any]) -> None:
        self.type = to_input_type(name, type, DATA_LAYER)
        super().__init__(data_layer, {**arguments, "name": name, "size": self.type.dim}, name=name)

    def make(self, made: Made, counts: Counter[str]) -> Any:
        """Make the layer. As in a notebook a cell runs again, an equal data layer may exist already; then return it.

        Raises: ConfigError: there is a data layer of this name and of another type.
        """
        for other, result in made.items():
            if isinstance(other, Data) and other.name == self.name and other.arguments == self.arguments:
                if other.type != self.type:
                    raise ArgumentError(
                        f"data(name={self.name!r}) has the type {self.type} here, and {other.type} elsewhere in the "
                        "network"
                    )
                return result
        return super().make(made, counts)

    def _call(self, made: Made) -> Any:
        shape = made.shapes.get(self.name)
        if shape is None:
            return super()._call(made)
        height, width = shape[-2:]
        given = {**self.arguments, "size": math.prod(shape), "height": height, "width": width}
        return self.function(**given)


class Mixed(LayerCall):
    """The sum of projections and operators, which are an argument or are added by `+=`, in a `with` block or not."""

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, Any], *, name: str, prefix: str) -> None:
        super().__init__(function, arguments, name=name, prefix=prefix)
        self._is_open = self.arguments.get("input") is None
        if self._is_open:
            self.arguments["input"] = []

    def __iadd__(self, other: Any) -> Any:
        if not self._is_open:
            return NotImplemented  # Python then tries the operator `+`
        self.arguments["input"].append(other)
        return self

    def __enter__(self) -> Mixed:
        return self

    def __exit__(self, *error: object) -> None:
        self._is_open = False


def data(name: str, type: InputType, **more: Any) -> Data:
    """Declare an input of the network; the reader's samples have its values in one of their columns.

    Args: type: the type of the column, for example data_type.dense_vector(13). more: height, width, depth, layer_attr.
    Raises: TypeError: the type is no input type.
    """
    return Data(to_text("name", name), type, more)


def lazy(function: Callable[..., Any], prefix: str = "") -> Callable[..., LayerCall]:
    """Return the function of programs for a layer function of the config language: it returns a `LayerCall`.

    Args: prefix: the prefix of automatic names; by default the name of the function, as in v0.10.
    """
    kind = Mixed if function is language.mixed_layer else LayerCall
    return _delay(function, kind, prefix)


def lazy_network(function: Callable[..., Any]) -> Callable[..., LayerCall]:
    """Return the function of programs for a function of the config language that makes several layers."""
    return _delay(function, NetworkCall)


def lazy_child(function: Callable[..., Any]) -> Callable[..., LayerCall]:
    """Return the function of programs for an evaluator or print layer, which is made with the layers that it reads."""
    call = _delay(function, LayerCall)

    @functools.wraps(function)
    def attach(*args: Any, **kwargs: Any) -> LayerCall:
        child = call(*args, **kwargs)
        for parent in dict.fromkeys(child.parents()):
            # in a notebook, a cell that runs again replaces its evaluator
            parent.children = [one for one in parent.children if not child.replaces(one)] + [child]
        return child

    setattr(attach, _LANGUAGE, function)
    return attach


def _delay(function: Callable[..., Any], kind: type[LayerCall], prefix: str = "") -> Callable[..., LayerCall]:
    takes_name = "name" in inspect.signature(function).parameters
    prefix = (prefix or function.__name__) if takes_name else ""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> LayerCall:
        arguments = bind_arguments(function, args, kwargs)
        name = arguments.pop("name", None)
        arguments = {key: _of_language(value) for key, value in arguments.items()}
        return kind(function, arguments, name="" if name is None else str(name), prefix=prefix)

    setattr(call, _LANGUAGE, function)
    return call


def bind_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str = ""
) -> dict[str, Any]:
    """Return the arguments of a call of a function of the config language by name.

    Args: what: what the program called; by default the name of the function for programs.
    Raises: ConfigError: the function does not have such arguments; the text has the nearest name.
    """
    signature = inspect.signature(function)
    renamed: Mapping[str, str] = getattr(function, "renamed", {})
    given = {renamed.get(key, key): value for key, value in kwargs.items()}
    takes_rest = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    unknown = [] if takes_rest else [key for key in given if key not in signature.parameters]
    if unknown:  # before Python says that the argument is missing whose name is written wrongly
        raise ArgumentError(
            f"{what or program_name(function)}(): {unknown[0]!r} is no argument{_advice(signature, given)}"
        )
    try:
        return _flatten(signature, signature.bind(*args, **given).arguments)
    except TypeError as error:
        raise ArgumentError(f"{what or program_name(function)}(): {error}{_advice(signature, given)}") from None


def _of_language(value: Any) -> Any:
    """Return an argument with the function of the config language in place of one of programs: an evaluator."""
    if isinstance(value, list | tuple):
        return [_of_language(one) for one in value]
    return getattr(value, _LANGUAGE, value) if callable(value) else value


def _flatten(signature: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by keyword, without the level of **kwargs."""
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        is_rest = signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD
        found.update(value if is_rest else {key: value})
    return found


def _advice(signature: inspect.Signature, given: Mapping[str, Any]) -> str:
    unknown = next((key for key in given if key not in signature.parameters), "")
    close = closest(unknown, signature.parameters)
    if close:
        return f"; did you mean {close!r}?"
    return f"; its arguments are {', '.join(signature.parameters)}"
