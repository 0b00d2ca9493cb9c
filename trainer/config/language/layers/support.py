"""layer_support, a decorator of the layer functions of v0.10 that old scripts could import.

Source: legacy trainer_config_helpers/layers.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trainer.config.building.argument_errors import ArgumentError
from trainer.config.building.attrs import ExtraLayerAttribute
from trainer.config.building.names import public

P = ParamSpec("P")
R = TypeVar("R")


@public("layers")
def layer_support(*attrs: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Raise an error if an ExtraAttr has an attribute that is neither in `attrs` nor `device`."""
    supported = {*attrs, "device"}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for value in [*args, *kwargs.values()]:
                unsupported = sorted(value.attr.keys() - supported) if isinstance(value, ExtraLayerAttribute) else []
                if unsupported:
                    error = ArgumentError(f"layer_attr has {unsupported[0]}, which this layer does not support")
                    error.enter(f"{function.__name__}()")
                    raise error
            return function(*args, **kwargs)

        return call

    return decorate
