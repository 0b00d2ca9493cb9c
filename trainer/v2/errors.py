"""Errors of wrong use that are errors of this project and also of the type that v0.10 raised."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from paddle_base.runtime.errors import ConfigError
from trainer.config.building.names import closest

P = ParamSpec("P")
R = TypeVar("R")
DATA_LAYER = "data layer"  # what programs call a slot


class WrongTypeError(ConfigError, TypeError):
    """An argument of a program has a wrong type."""


class WrongValueError(ConfigError, ValueError):
    """An argument of a program has a wrong value."""


class WrongKeyError(ConfigError, KeyError):
    """A name of a program is unknown."""

    __str__ = Exception.__str__  # a KeyError shows its text in quotes


def advising(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of programs whose error about an unknown argument has the nearest name."""
    known = [one for one in inspect.signature(function).parameters if one != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = next((key for key in kwargs if key not in known), None)
        if unknown is not None:
            near = closest(unknown, known)
            advice = f"did you mean {near!r}?" if near else f"its arguments are {', '.join(known)}"
            name = function.__qualname__.removesuffix(".__init__")
            raise WrongTypeError(f"{name}(): {unknown!r} is no argument; {advice}")
        return function(*args, **kwargs)

    return call
