"""The types of numbers by the names that files and messages give them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_NAME = re.compile("[<>|=]?[biuf][1248]")  # as `dtype.str` writes it


def number_type(name: object) -> np.dtype[Any]:
    """Return the numpy type with a name from outside, such as `<f4`.

    numpy itself reads much more: a name with a comma is parsed as Python, and may raise a SyntaxError.
    Raises: ValueError: the name is not that of a type of numbers.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("it is not the name of a type of numbers")
    try:
        return np.dtype(name)
    except TypeError as error:  # such as f1
        raise ValueError("there is no type of numbers with this name") from error
