"""Tables of fields: with them, programs check the messages of a protocol, and the JSON files of other programs.

    RENDEZVOUS = Protocol(
        name="rendezvous",
        version=1,
        hello=Fields(address=Text(45)),
        welcome=Fields(attempt=Maybe(Fields(number=Integer(1)))),
        requests={"report": Call(Fields(status=Integer(0, 255), lines=Items(Text(1000), 20)), Fields())},
        pushes={"stop": Fields(reason=Text(1000))},
    )

A message or a file with a missing, unknown, out-of-range or wrongly typed field is refused, with an error that names
the field. No field of a message is optional. The two sides must therefore have the same version of a table, and a
change of a table needs a new `version`. Files that other releases may have written are `Record`s. No I/O.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from paddle_base.runtime.bounded_json import BoundedJsonError, is_integer, parse_bounded, show_value

JsonObject = dict[str, Any]

# The shapes are named tuples: every program imports this module at its start, and a frozen dataclass takes 0.4 ms to
# define, a named tuple 0.05.
_NUMBERS = (int, float)
MOST_EXACT = (1 << 63) - 1  # integers of all programs fit into 64 bits with a sign


class SchemaError(ValueError):
    """A message or a file does not match its table. `code` names the kind of mismatch by one word."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Shape(typing.Protocol):
    """The type and bounds of a value."""

    def fits(self, value: object) -> bool:
        """Return True only if `check` accepts a value; after False, the slower `check` must decide."""

    def check(self, value: object, path: str) -> None:
        """Return without an error if the value has this shape.

        Args: path: position of the value, for the error message.
        Raises: SchemaError: the text contains the field, the value and the expected shape.
        """


class Integer(typing.NamedTuple):
    """A whole number in [least, most]."""

    least: int = 0
    most: int = MOST_EXACT

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return type(value) is int and self.least <= value <= self.most

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not is_integer(value, self.least, self.most):
            _refuse(value, path, f"a whole number from {self.least} to {self.most}")


class Number(typing.NamedTuple):
    """A finite number in [least, most]."""

    least: float = -1e300
    most: float = 1e300

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return type(value) in _NUMBERS and self.least <= value <= self.most  # type: ignore[operator]

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not self.least <= value <= self.most:  # type: ignore[arg-type,operator]
            _refuse(value, path, f"a number from {self.least:g} to {self.most:g}")


class Text(typing.NamedTuple):
    """A text of `least` to `most` characters."""

    most: int
    least: int = 0

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return type(value) is str and self.least <= len(value) <= self.most

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not isinstance(value, str) or not self.least <= len(value) <= self.most:
            _refuse(value, path, f"a text of {self.least} to {self.most} characters")


class Truth:
    """True or false."""

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return value is True or value is False

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not isinstance(value, bool):
            _refuse(value, path, "true or false")


class Word(typing.NamedTuple):
    """A text that is one of several given texts."""

    words: tuple[str, ...]

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return type(value) is str and value in self.words

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if value not in self.words or not isinstance(value, str):
            _refuse(value, path, f"one of {', '.join(self.words)}")


class Maybe(typing.NamedTuple):
    """Null, or a value of another shape. The field itself must be present."""

    shape: Shape

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return value is None or self.shape.fits(value)

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if value is not None:
            self.shape.check(value, path)


class Either(typing.NamedTuple):
    """A value of one of several shapes. `expected` describes the shapes."""

    shapes: tuple[Shape, ...]
    expected: str

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return any(shape.fits(value) for shape in self.shapes)

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not self.fits(value):
            _refuse(value, path, self.expected)


class Such(typing.NamedTuple):
    """A value of another shape that a function accepts, for example a path. `expected` describes such a value.

    Attributes: is_secret: whether no error may show the value.
    """

    shape: Shape
    accepts: Callable[[Any], bool]
    expected: str
    is_secret: bool = False

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return self.shape.fits(value) and self.accepts(value)

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if self.is_secret and not self.fits(value):
            raise SchemaError("schema", f"{path} is not {self.expected}")
        self.shape.check(value, path)
        if not self.accepts(value):
            _refuse(value, path, self.expected)


class Row(typing.NamedTuple):
    """A list with one value of each shape, in this order. The last `optional` values may be absent."""

    shapes: tuple[Shape, ...]
    optional: int = 0

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return self._has_length(value) and all(shape.fits(one) for shape, one in zip(self.shapes, value, strict=False))  # type: ignore[call-overload]

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not self._has_length(value):
            _refuse(value, path, f"a list of {len(self.shapes)} values")
        for number, (shape, one) in enumerate(zip(self.shapes, value, strict=False)):  # type: ignore[call-overload]
            shape.check(one, f"{path}[{number}]")

    def _has_length(self, value: object) -> bool:
        return isinstance(value, list) and 0 <= len(self.shapes) - len(value) <= self.optional


class Items(typing.NamedTuple):
    """A list of at most `most` values of one shape."""

    shape: Shape
    most: int

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return type(value) is list and len(value) <= self.most and all(map(self.shape.fits, value))

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not isinstance(value, list) or len(value) > self.most:
            _refuse(value, path, f"a list of at most {self.most} values")
        for number, one in enumerate(value):
            self.shape.check(one, f"{path}[{number}]")


class Fields:
    """An object that has exactly these fields."""

    def __init__(self, **shapes: Shape) -> None:
        self.shapes = shapes
        self._fits = [(name, shape.fits) for name, shape in shapes.items()]
        self._names = frozenset(shapes)

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        if type(value) is not dict or value.keys() != self._names:
            return False
        for name, fits in self._fits:  # noqa: SIM110  # as a loop it takes half of the time
            if not fits(value[name]):
                return False
        return True

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if self.fits(value):
            return
        if not isinstance(value, dict):
            _refuse(value, path, "an object")
        missing = [name for name in self.shapes if name not in value]
        unknown = [name for name in value if name not in self.shapes]
        if missing:
            raise SchemaError("schema", f"{path} has no {missing[0]}")
        if unknown:
            raise SchemaError("schema", f"{path} has {show_value(unknown[0])}, which is not in the protocol")
        for name, shape in self.shapes.items():
            shape.check(value[name], f"{path}.{name}")


class Record:
    """An object that has these fields, and possibly others: other releases may have written it into a file.

    Args: optional: names of fields that may be absent.
    """

    def __init__(self, *optional: str, **shapes: Shape) -> None:
        self._optional, self._shapes = optional, shapes

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        return isinstance(value, dict) and all(
            shape.fits(value[name]) if name in value else name in self._optional for name, shape in self._shapes.items()
        )

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not isinstance(value, dict):
            _refuse(value, path, "an object")
        for name, shape in self._shapes.items():
            if name in value:
                shape.check(value[name], f"{path}.{name}")
            elif name not in self._optional:
                raise SchemaError("schema", f"{path} has no {name}")


class Named(typing.NamedTuple):
    """An object of at most `most` values of one shape, under names of one shape."""

    name: Shape
    value: Shape
    most: int

    def fits(self, value: object) -> bool:
        """See `Shape`."""
        is_short = isinstance(value, dict) and len(value) <= self.most
        return is_short and all(self.name.fits(name) and self.value.fits(one) for name, one in value.items())  # type: ignore[attr-defined]

    def check(self, value: object, path: str) -> None:
        """See `Shape`."""
        if not isinstance(value, dict) or len(value) > self.most:
            _refuse(value, path, f"an object of at most {self.most} values")
        for name, one in value.items():
            self.name.check(name, f"a name in {path}")
            self.value.check(one, f"{path}[{show_value(name)}]")


NO_FIELDS = Fields()


class Call(typing.NamedTuple):
    """A request's fields and its answer's fields."""

    question: Fields
    answer: Fields = NO_FIELDS


class Protocol(typing.NamedTuple):
    """All messages that the programs of one protocol may exchange.

    `hello` is the content of a member's join message, and `welcome` the content of the server's answer. Members send
    `requests` to the server, and the server sends `pushes` to members.
    """

    name: str
    version: int
    hello: Fields = NO_FIELDS
    welcome: Fields = NO_FIELDS
    requests: Mapping[str, Call] = MappingProxyType({})
    pushes: Mapping[str, Fields] = MappingProxyType({})

    @property
    def title(self) -> str:
        """The title, which is name and version. The two sides of a connection must have equal titles."""
        return f"{self.name}/{self.version}"


def parse_object(data: bytes | str, shape: Shape, name: str, *, depth: int, values: int) -> JsonObject:
    """Return the object that a text from outside contains.

    Args: name: name of the object in error messages.  depth, values: see `parse_bounded`.
    Raises: SchemaError: the text exceeds the limits, is no JSON, or does not match the shape; the message has the name.
    """
    try:
        text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data  # a surrogate is then an error
        found = parse_bounded(text, depth=depth, values=values)
    except BoundedJsonError as exc:
        raise SchemaError("form", f"{name} is a text {exc}") from exc
    shape.check(found, name)
    return found


def _refuse(value: object, path: str, expected: str) -> typing.NoReturn:
    raise SchemaError("schema", f"{path} is {show_value(value)}, not {expected}")
