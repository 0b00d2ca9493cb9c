"""The note of INITIALISE: a description of the model, written by the client and read by the server. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.wire.notes import show

# the errors that reading an invalid note may raise
SETUP_ERRORS = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)

_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "float": (float, int),
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
}
_LARGEST = float(np.finfo(np.float32).max)
Settings = TypeVar("Settings", Optimization, ParameterSpec)


def describe_setup(parameters: Sequence[ParameterSpec], optimization: Optimization) -> dict[str, Any]:
    """Return the note of INITIALISE."""
    return {
        "optimization": dataclasses.asdict(optimization),
        "fields": [field.name for field in dataclasses.fields(ParameterSpec)],
        "parameters": [list(dataclasses.astuple(parameter)) for parameter in parameters],
    }


def read_setup(setup: Mapping[str, Any]) -> tuple[list[ParameterSpec], Optimization]:
    """Return the parameters and the optimization from a note of INITIALISE.

    Raises: SETUP_ERRORS: the note is invalid.
    """
    fields = setup["fields"]
    parameters = [_read_settings(ParameterSpec, dict(zip(fields, row, strict=True))) for row in setup["parameters"]]
    return parameters, _read_settings(Optimization, setup["optimization"])


def _read_settings(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Return settings with the values in a note.

    Raises: TypeError, ValueError: a value does not have the type of its field.
    """
    for field in dataclasses.fields(kind):
        value: Any = given.get(field.name, field.default)
        is_wide = isinstance(value, float | int) and not -_LARGEST <= value <= _LARGEST
        wanted = str(field.type)
        if not isinstance(value, _TYPES[wanted]) or isinstance(value, bool) != (wanted == "bool"):
            raise TypeError(f"{field.name} is {show(value)}, not of type {wanted}")
        if wanted == "float" and is_wide:
            raise ValueError(f"{field.name} is {show(value)}, which is too large for float32")
    return kind(**given)


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of a contiguous array without copying them."""
    return array.reshape(-1).view(np.uint8).data
