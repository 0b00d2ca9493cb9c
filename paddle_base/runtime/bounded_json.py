"""Parses JSON objects of other programs, and makes JSON for other programs, within limits of size and depth.

The depth and the number of values of a text are checked before the text is parsed. Some valid JSON is also refused,
because no program of this project writes it: infinite numbers, integers beyond 64 bits, an object that has a key twice,
and text that is not Unicode.
"""

from __future__ import annotations

import json
import json.encoder
import re
from collections.abc import Callable
from typing import Any, NoReturn

from paddle_base.runtime import glog

MAX_INTEGER = (1 << 64) - 1

_MAX_DIGITS = 20  # maximum characters of an integer with its sign; checked before the conversion
# An unclosed string matches to the end of the text; the search therefore examines each quote only once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class BoundedJsonError(ValueError):
    """The text exceeds the limits, or is not a JSON object.

    The message of the error continues the name of the text: "a note" + " that is not JSON".
    """


def _make_dump() -> Callable[[object], str]:
    """Return a function like json.JSONEncoder.encode; it creates its C encoder only once, and not at each call."""
    plain = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)  # plain.encode uses this encoder if json has its C part
    if make is None:
        return plain.encode
    escape, no_sort, no_skip, no_nan = json.encoder.encode_basestring_ascii, False, False, False
    encode = make(None, plain.default, escape, None, ":", ",", no_sort, no_skip, no_nan)
    return lambda value: "".join(encode(value, 0))


dump_compact = _make_dump()
"""Return a value as JSON.

Raises: TypeError, ValueError, RecursionError: the value cannot be written as JSON, or contains infinite numbers.
"""


def dump_bounded(value: object, *, depth: int, values: int) -> bytes:
    """Return a value, usually an object, as JSON.

    Args: depth: maximum levels.  values: maximum number of commas and opening brackets.
    Raises: BoundedJsonError: `parse_bounded` would refuse the result.
    """
    try:
        text = dump_compact(value).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise BoundedJsonError(f"that cannot be written as JSON ({exc})") from exc
    check_structure(text, depth=depth, values=values)
    return text


def parse_bounded(data: bytes, *, depth: int, values: int) -> dict[str, Any]:
    """Return the object that a text contains.

    Args: depth: maximum levels.  values: maximum number of commas and opening brackets.
    Raises: BoundedJsonError: the data exceed the limits, or are not a JSON object.
    """
    value = parse_value(data, depth=depth, values=values)
    if not isinstance(value, dict):
        raise BoundedJsonError(f"that is a {type(value).__name__} instead of an object")
    return value


def parse_value(data: bytes, *, depth: int, values: int) -> Any:
    """Return the value that a text contains, such as a list; see `parse_bounded`."""
    check_structure(data, depth=depth, values=values)
    try:
        text = data.decode()
        value = _decode(text)
        if "\\u" in text:
            _check_text(value)
    except BoundedJsonError:
        raise
    except (ValueError, RecursionError) as exc:
        raise BoundedJsonError(f"that is not JSON ({glog.clean(exc, 200)})") from exc
    return value


def check_structure(data: bytes, *, depth: int, values: int) -> None:
    """Check the number of values and levels of a text, without parsing the text.

    Raises: BoundedJsonError: the text has too many values or levels.
    """
    opened = data.count(b"[") + data.count(b"{")
    if opened <= depth and len(data) <= values:
        return
    plain = _STRING.sub(b"", data)
    found = plain.count(b",") + plain.count(b"[") + plain.count(b"{")
    if found > values:
        raise BoundedJsonError(f"with about {found} values; at most {values} are accepted")
    left = plain.translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(depth):  # each iteration removes the innermost brackets
        if not left:
            return
        left = left.replace(b"()", b"")
    if left:
        raise BoundedJsonError(f"with more than {depth} levels, or brackets that do not match")


def is_integer(value: object, least: int = 0, most: int = MAX_INTEGER) -> bool:
    """Return whether a value is an integer from `least` to `most`; true and false are not integers."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def show_value(value: object, limit: int = 100) -> str:
    """Return a value as printable text for a message, with at most about `limit` characters."""
    return glog.clean(repr(value), limit)


def _check_text(value: object) -> None:
    """Raise BoundedJsonError if a text contains an unpaired surrogate, which cannot be written as UTF-8."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str) and _SURROGATE.search(one):
            raise BoundedJsonError("with half of a surrogate pair")
        if isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one


def _decode(text: str) -> Any:
    """Return the result of JSONDecoder.decode, but faster if no white space surrounds the value."""
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    return value if end == len(text) else _DECODER.decode(text)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise BoundedJsonError("with an object that has a key twice")
    return made


def _read_integer(text: str) -> int:
    number = int(text) if len(text) <= _MAX_DIGITS else MAX_INTEGER + 1
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise BoundedJsonError("with an integer of more than 64 bits")
    return number


def _read_float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise BoundedJsonError("with a number that is not finite")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise BoundedJsonError(f"with {text}")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_integer,
    parse_float=_read_float,
    parse_constant=_refuse_constant,
)
