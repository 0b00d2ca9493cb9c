"""The error for wrong use of the config language, and checks of arguments that raise this error."""

import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

from paddle_base.runtime.errors import ConfigError

LARGEST = 2**63 - 1  # largest number that a message can hold


# the part of Python's default repr that tells a user nothing: the modules of a class, and the address
_ADDRESS = re.compile(r"(?<=<)(?:[A-Za-z_]\w*\.)+(?=\w+ object at 0x)| (?:object )?at 0x[0-9a-f]+(?=>)")


class ArgumentError(ConfigError):
    """A call has wrong arguments; the error's text begins with the innermost called function of the language."""

    def __init__(self, message: str):
        super().__init__(message)
        self.function: str | None = None

    def enter(self, function: str) -> None:
        """Add the name of the call to the message, unless an inner call has added its own name."""
        if self.function is None:
            self.function = function
            self.args = (f"{function}: {self.args[0]}",)


def wrong(argument: str, value: object, need: str) -> ArgumentError:
    """Return an error whose message contains the argument's name, its value, and what the value should be (`need`)."""
    text = _ADDRESS.sub("", repr(value))
    return ArgumentError(f"{argument} is {text if len(text) <= 80 else text[:77] + '...'}; {need}")


def set_field(message: Any, key: str, value: Any) -> None:
    """Set a field of a message, or add the items of a list to it, to the value of the argument `key`.

    Raises: ArgumentError: the field cannot have the value.
    """
    try:
        if message.DESCRIPTOR.fields_by_name[key].is_repeated:
            getattr(message, key).extend(to_list(value))
        else:
            setattr(message, key, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(key, value, "it does not fit into the field of the config's message") from error


def to_int(argument: str, value: Any) -> int:
    """Return the value as an integer; a float without a fraction is accepted, such as `256 / 4` of an old script."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(argument, value, "it must be an integer") from None
    if not -LARGEST <= number <= LARGEST:
        raise wrong(argument, value, "it must be an integer of 64 bits")
    return number


def to_size(argument: str, value: Any) -> int:
    """Return the value as an integer, which must be positive."""
    number = to_int(argument, value)
    if number <= 0:
        raise wrong(argument, value, "it must be a positive integer")
    return number


def to_float(argument: str, value: Any) -> float:
    """Return the value as a float; a string or a bool is an error."""
    if not is_number(value):
        raise wrong(argument, value, "it must be a number")
    return float(value)


def to_flag(argument: str, value: Any) -> bool:
    """Return the value as a bool; a number other than 0 and 1 is an error, because it belongs to another argument."""
    if is_number(value) and value not in (0, 1):
        raise wrong(argument, value, "it must be True or False")
    return bool(value)


def to_text(argument: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise wrong(argument, value, "it must be a text")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise wrong(argument, value, "it must be a text in UTF-8")
    return value


def is_number(value: Any) -> bool:
    """Return whether a value is a number of Python or numpy; bools and strings are not numbers."""
    return hasattr(value, "__float__") and not isinstance(value, bool)


def is_list(value: Any) -> bool:
    """Return whether a value is a list, a tuple, or the result of a script's map()."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def to_list(value: Any) -> list[Any]:
    """Return the items of an iterable; a string, bytes, a dictionary or a single object becomes a list of one item."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        return list(value)
    return [value]
