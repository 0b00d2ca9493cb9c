"""Errors of wrong use that are errors of this project and also of the type that v0.10 raised."""

from __future__ import annotations

from paddle_base.runtime.errors import ConfigError


class WrongTypeError(ConfigError, TypeError):
    """An argument of a program has a wrong type."""


class WrongValueError(ConfigError, ValueError):
    """An argument of a program has a wrong value."""


class WrongKeyError(ConfigError, KeyError):
    """A name of a program is unknown."""

    __str__ = Exception.__str__  # a KeyError shows its text in quotes
