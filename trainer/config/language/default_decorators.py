"""Decorators that give functions of old scripts the same default arguments as the functions of the language.

Source: legacy trainer_config_helpers/default_decorators.py and utils.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from trainer.config.building.activations import BaseActivation, TanhActivation
from trainer.config.building.attrs import ZERO_BIAS, ParameterAttribute
from trainer.config.building.log import logger
from trainer.config.building.state import current

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


def _is_none(value: Any) -> bool:
    return value is None


def wrap_param_default(
    param_names: Sequence[str],
    default_factory: Callable[[Function], Any],
    not_set: Callable[[Any], bool] = _is_none,
) -> Decorator:
    """Give arguments a default that is created at each call.

    Args: param_names: the names of the arguments, which the decorator passes by keyword. default_factory: takes the
        decorated function, and returns the default. not_set: takes the value of an argument (None if it is missing),
        and returns whether the default replaces the value.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            by_position = list(signature.parameters)[: len(args)]
            for name in param_names:
                if name not in by_position and not_set(kwargs.get(name)):
                    kwargs[name] = default_factory(function)
            return function(*args, **kwargs)

        return call

    return decorate


def wrap_name_default(name_prefix: str | None = None, name_param: str = "name") -> Decorator:
    """Give the argument `name` the automatic name `__<prefix>_<n>__`; the default prefix is the function's name."""
    return wrap_param_default([name_param], lambda function: current().auto_name(name_prefix or function.__name__))


def wrap_param_attr_default(
    param_names: Sequence[str] | None = None, default_factory: Callable[[Function], Any] | None = None
) -> Decorator:
    """Give the argument `param_attr`, or the arguments param_names, the default ParamAttr()."""
    return wrap_param_default(param_names or ["param_attr"], default_factory or (lambda _: ParameterAttribute()))


def wrap_bias_attr_default(
    param_names: Sequence[str] | None = None,
    default_factory: Callable[[Function], Any] | None = None,
    has_bias: bool = True,
) -> Decorator:
    """Give the argument `bias_attr`, or the arguments param_names, a bias that is initially zero.

    The decorator replaces the value True by this bias, and with has_bias also the value None.
    """
    return wrap_param_default(
        param_names or ["bias_attr"],
        default_factory or (lambda _: ZERO_BIAS),
        lambda value: value is True or (has_bias and value is None),
    )


def wrap_act_default(param_names: Sequence[str] | None = None, act: BaseActivation | None = None) -> Decorator:
    """Give the argument `act`, or the arguments param_names, a default activation: `act`, or TanhActivation()."""
    return wrap_param_default(param_names or ["act"], lambda _: TanhActivation() if act is None else act)


def deprecated(instead: str) -> Decorator:
    """Log a warning when the decorated function is called; the warning names the function to use instead."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            logger.warning("the interface %s is deprecated, please use %s instead", function.__name__, instead)
            return function(*args, **kwargs)

        return call

    return decorate
