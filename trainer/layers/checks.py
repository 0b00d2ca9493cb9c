"""Common checks of the parameters and inputs of layers, with messages that name the layer."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import Parameter
from trainer.arrays.text import ROWS_ADVICE
from trainer.layers.base import Layer


def require_weight(layer: Layer, position: int, size: int) -> Parameter:
    """Return the parameter of an input; the parameter must have `size` values.

    Raises: ConfigError: the parameter is missing or has a different size.
    """
    weight = layer.weights[position]
    if weight is None:
        raise ConfigError(f"{layer}: its input {position} has no parameter")
    if weight.size != size:
        raise ConfigError(f"{layer}: parameter {weight.name} has {weight.size} values instead of {size}")
    return weight


def require_bias(layer: Layer, size: int) -> Parameter | None:
    """Return the bias, which must have `size` values, or None if the layer has no bias.

    Raises: ConfigError: the bias has a different size.
    """
    if layer.bias is not None and layer.bias.size != size:
        raise ConfigError(f"{layer}: bias {layer.bias.name} has {layer.bias.size} values instead of {size}")
    return layer.bias


def require_matrix(layer: Layer, argument: Argument, width: int) -> Array:
    """Return the dense rows of an input, with `width` numbers each.

    Raises: ConfigError: the input has ids, sparse rows or a different width.
    """
    if argument.value is None:
        raise ConfigError(f"{layer} needs an input of dense numbers, not of ids or sparse vectors")
    if argument.value.shape[1] != width:
        raise ConfigError(f"{layer}: an input has width {argument.value.shape[1]} instead of {width}")
    return argument.value


def require_repeated_matrix(layer: Layer, argument: Argument, width: int) -> tuple[Array, Ids | None]:
    """Return the dense rows of an input; if rows repeat, return the distinct rows and the index of each row.

    Raises: ConfigError: the input has ids, sparse rows or a different width.
    """
    if argument.distinct is None:
        return require_matrix(layer, argument, width), None
    return require_matrix(layer, Argument(value=argument.distinct), width), argument.index


def require_starts(layer: Layer, argument: Argument, position: int = 0) -> Ids:
    """Return the starts of the sequences of an input.

    Args: position: the position of the input in the layer.
    Raises: ConfigError: the input has no sequences.
    """
    if argument.starts is None:
        raise ConfigError(f"{layer} needs an input of sequences; {_describe_rows(layer, position)}")
    return argument.starts


def _describe_rows(layer: Layer, position: int) -> str:
    """Return the part of an error message that says how to give sequences to an input that has none."""
    source = layer.input_configs[position] if position < len(layer.input_configs) else None
    if source is None or source.type == "data":
        which = f" of data layer {source.name}" if source is not None else ""
        return f"declare the data{which} as a sequence type"
    return (
        f"its input, layer {source.name} ({source.type}), has no sequences; if an earlier layer returns only its last "
        "state, give that layer return_seq=True; otherwise give the data a sequence type"
    )


def require_sub_starts(layer: Layer, argument: Argument) -> Ids:
    """Return the starts of the sub-sequences of an input.

    Raises: ConfigError: the input has no sub-sequences.
    """
    if argument.sub_starts is None or argument.starts is None:
        raise ConfigError(f"{layer} needs an input of sub-sequences; declare its data as a sub-sequence type")
    return argument.sub_starts


def require_rows(layer: Layer, argument: Argument) -> Array:
    """Return the dense rows of an input, of any width.

    Raises: ConfigError: the input has ids or sparse rows.
    """
    if argument.value is None:
        raise ConfigError(f"{layer} needs an input of dense numbers, not of ids or sparse vectors")
    return argument.value


def require_ids(layer: Layer, argument: Argument) -> Ids:
    """Return the ids of an input.

    Raises: ConfigError: the input has no ids.
    """
    if argument.ids is None:
        raise ConfigError(f"{layer} needs an input of ids; declare its data as integer_value")
    return argument.ids


def require_same_rows(layer: Layer, inputs: Sequence[Array | Ids]) -> None:
    """Check that all inputs have the same number of rows.

    Raises: DataError: the numbers of rows differ.
    """
    _compare_rows(layer, [len(one) for one in inputs])


def require_aligned(layer: Layer, inputs: Sequence[Argument]) -> None:
    """Check that all inputs, dense or sparse, have the same number of rows; repeated rows count each time.

    Raises: DataError: the numbers of rows differ.
    """
    _compare_rows(layer, [one.rows for one in inputs])


def _compare_rows(layer: Layer, numbers: Sequence[int]) -> None:
    if len(set(numbers)) > 1:
        shown = ", ".join(map(str, numbers))
        raise DataError(f"{layer}: its inputs have {shown} rows; these numbers must be equal; {ROWS_ADVICE}")
