"""The decorator of all functions that users call in a configuration."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from trainer.config.building.argument_errors import ArgumentError, wrong
from trainer.config.building.names import public
from trainer.config.building.state import current

P = ParamSpec("P")
R = TypeVar("R")
_BEYOND_MESSAGE = re.compile(r"Value out of range: (-?\d+)")  # the text of the error that protobuf raises


def helper(
    module: str, *, prefix: str | None = None, also: str | None = None, renamed: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function of the language.

    The decorator gives an automatic name to a call without a name. The decorator also adds the function's name to the
    messages of the function's errors.

    Args:
        module: the sub-module of trainer_config_helpers that the function belongs to.
        prefix: the prefix of the automatic name `__<prefix>_<n>__`, by default the function's name. Only functions with
            an optional `name` argument get an automatic name.
        also: a second name for the same function.
        renamed: the argument names of earlier versions, with their current names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = signature.parameters.get("name")
        optional_name = name is not None and name.default is None
        auto_prefix = prefix or function.__name__

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = {(renamed or {}).get(key, key): value for key, value in kwargs.items()}
            bound = _bind(function, signature, args, given)
            try:
                parse = current()  # outside a configuration, `current` raises an error before a name is counted
                if optional_name and bound.arguments.get("name") is None:
                    bound.arguments["name"] = parse.auto_name(auto_prefix)
                return function(*bound.args, **bound.kwargs)
            except ArgumentError as error:
                error.enter(_title(function, bound))
                raise
            except ValueError as error:
                too_large = _BEYOND_MESSAGE.fullmatch(str(error))
                # an error of the user's own code, for example of a step function
                if too_large is None:
                    raise
                refused = _refuse_number(int(too_large[1]), bound)
                refused.enter(_title(function, bound))
                raise refused from None

        call.renamed = renamed or {}  # type: ignore[attr-defined]  # paddle.v2 takes the earlier names, too
        return public(module, also=also)(call)

    return decorate


def _bind(
    function: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        named = [name for name, one in signature.parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        remedy = f"its arguments are {', '.join(named)}" if named else "give each argument by its name, as name=value"
        raise ArgumentError(f"{function.__name__}(): {error}; {remedy}") from None


def _refuse_number(number: int, bound: inspect.BoundArguments) -> ArgumentError:
    names = [name for name, value in bound.arguments.items() if isinstance(value, int) and value == number]
    return wrong(names[0] if names else "a number", number, "it does not fit into the field of the config's message")


def _title(function: Callable[..., Any], bound: inspect.BoundArguments) -> str:
    name = bound.arguments.get("name")
    return f"{function.__name__}(name={name!r})" if isinstance(name, str) else f"{function.__name__}()"
