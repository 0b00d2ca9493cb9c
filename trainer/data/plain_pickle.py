"""Read pickles of plain values without running any code.

`define_py_data_sources2(args=...)` writes the arguments as a pickle of protocol 0, and merged model files of v0.10
contain such texts. The `pickle` module is unsafe for files of other people, because a pickle can name functions and
call them. This reader supports only the instructions that build plain values: None, bool, int, float, text, bytes,
list, tuple and dict. The reader has no instruction for a global, a call, or the state of an object.

Source: the instructions are those of Lib/pickletools.py, protocols 0 to 5.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

MOST_BYTES = 1 << 24  # maximum bytes of a pickle; a dictionary of 500,000 words has about 12 MB
MOST_VALUES = 1 << 22  # maximum number of values; a value in two lists counts twice
MOST_DEPTH = 64  # maximum levels of nested lists
MOST_INT_BYTES = 512  # maximum bytes of an integer

_MARK = object()


class PlainPickleError(ValueError):
    """The bytes are not a pickle of plain values, or they exceed a limit."""


def load_plain(data: bytes) -> Any:
    """Return the value of a pickle.

    Texts of Python 2 are decoded as UTF-8. Bytes that are not UTF-8 become surrogates.

    Raises: PlainPickleError: the message names the unsupported content or the exceeded limit.
    """
    if len(data) > MOST_BYTES:
        raise PlainPickleError(f"it has {len(data)} bytes, but the limit is {MOST_BYTES} bytes")
    try:
        value = _Machine(data).run()
    except PlainPickleError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, ArithmeticError, struct.error, SyntaxError) as error:
        raise PlainPickleError(f"it is no pickle ({type(error).__name__}: {str(error)[:100]})") from error
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Raise PlainPickleError if a value has too many parts or too many levels of lists.

    A part counts once for each list that contains it, so cyclic lists are refused.
    """
    waiting, seen = [(value, 1)], 0
    while waiting:
        item, depth = waiting.pop()
        seen += 1
        if depth > MOST_DEPTH:
            raise PlainPickleError(f"its lists have more than {MOST_DEPTH} levels")
        if isinstance(item, dict):
            waiting += ((part, depth + 1) for part in item.values())
            seen += len(item)  # the keys
        elif isinstance(item, list | tuple):
            waiting += ((part, depth + 1) for part in item)
        if seen + len(waiting) > MOST_VALUES:
            raise PlainPickleError(f"it has more than {MOST_VALUES} values")


class _Machine:
    """The stack machine that executes a pickle."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        while (code := self._take(1)) != b".":
            action = _ACTIONS.get(code)
            if action is None:
                what = _OBJECTS.get(code)
                if what is None:
                    raise PlainPickleError(f"it is no pickle: {code!r} at byte {self._at - 1} is no instruction")
                raise PlainPickleError(f"it does not consist of plain values only: {what} ({self._name(code)})")
            action(self)
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise PlainPickleError("it is no pickle: it does not end with one value")
        return self._stack[0]

    # ----- Reading -----

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise PlainPickleError(f"it is cut off after {len(self._data)} bytes")
        part = self._data[self._at : end]
        self._at = end
        return part

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise PlainPickleError(f"it is cut off after {len(self._data)} bytes")
        part = self._data[self._at : end]
        self._at = end + 1
        return part

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _counted(self, form: str) -> bytes:
        return self._take(self._number(form))

    def _name(self, code: bytes) -> str:
        """Return the class or function that an instruction names, or the instruction, for the error message."""
        if code not in b"ci":
            return f"instruction {code!r}"
        return ".".join(self._line().decode("ascii", "replace")[:60] for _ in range(2))

    def skip(self, count: int) -> None:
        """Skip bytes that do not affect the value."""
        self._take(count)

    # ----- Values -----

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def push_int_line(self) -> None:
        """Push the number in the next line. Protocol 0 writes False as 00 and True as 01."""
        line = self._line()
        self.push(line == b"01" if line in (b"00", b"01") else int(line))

    def push_long_line(self) -> None:
        """Push the number in the next line. Python 2 ends the line with an L."""
        self.push(int(self._line().removesuffix(b"L")))

    def push_long(self, form: str) -> None:
        """Push an integer; its number of bytes comes first."""
        count = self._number(form)
        if not 0 <= count <= MOST_INT_BYTES:
            raise PlainPickleError(f"a number has {count} bytes, but the limit is {MOST_INT_BYTES} bytes")
        self.push(int.from_bytes(self._take(count), "little", signed=True))

    def push_quoted(self) -> None:
        """Push a text of Python 2, which is written as a bytes literal, with quotes and escapes."""
        line = self._line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
            raise PlainPickleError("it is no pickle: a text of Python 2 is not enclosed in quotes")
        literal: bytes = codecs.escape_decode(line[1:-1])[0]  # the `pickle` module decodes the text in this way
        self.push(literal.decode("utf-8", "surrogateescape"))

    def push_old_text(self, form: str) -> None:
        """Push a text of Python 2; its number of bytes comes first."""
        self.push(self._counted(form).decode("utf-8", "surrogateescape"))

    def push_text(self, form: str) -> None:
        """Push a text; its number of bytes comes first."""
        self.push(self._counted(form).decode("utf-8", "surrogatepass"))

    def push_text_line(self) -> None:
        """Push the text in the next line."""
        self.push(self._line().decode("raw-unicode-escape"))

    def push_bytes(self, form: str) -> None:
        """Push bytes; their number comes first."""
        self.push(self._counted(form))

    # ----- Lists, tuples, dictionaries -----

    def _since_mark(self) -> list[Any]:
        place = len(self._stack) - 1
        while place >= 0 and self._stack[place] is not _MARK:
            place -= 1
        if place < 0:
            raise PlainPickleError("it is no pickle: there is no mark where a list, tuple or dict begins")
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def _last(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise PlainPickleError(f"it is no pickle: an instruction adds to a {kind.__name__} that does not exist")
        return self._stack[-1]

    def _pop(self, count: int) -> list[Any]:
        items = self._stack[len(self._stack) - count :] if len(self._stack) >= count else [_MARK]
        if any(item is _MARK for item in items):
            raise PlainPickleError("it is no pickle: a value is missing")
        del self._stack[len(self._stack) - count :]
        return items

    def make_tuple(self, count: int | None) -> None:
        """Replace the last values, or the values since the mark, by a tuple."""
        self.push(tuple(self._since_mark() if count is None else self._pop(count)))

    def make_list(self) -> None:
        """Replace the values since the mark by a list."""
        self.push(self._since_mark())

    def make_dict(self) -> None:
        """Replace the values since the mark, in which keys and values alternate, by a dictionary."""
        items = self._since_mark()
        self.push({})
        self._fill(items)

    def append(self, *, many: bool) -> None:
        """Append the last value, or the values since the mark, to the list below them on the stack."""
        items = self._since_mark() if many else self._pop(1)
        self._last(list).extend(items)

    def set_items(self, *, many: bool) -> None:
        """Add the last key and value, or those since the mark, to the dictionary below them on the stack."""
        self._fill(self._since_mark() if many else self._pop(2))

    def _fill(self, items: list[Any]) -> None:
        target = self._last(dict)
        if len(items) % 2:
            raise PlainPickleError("it is no pickle: a key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Keys of other types (long integers, tuples) can be chosen in such a way that their hashes collide. Filling
            # the dictionary would then take quadratic time.
            if not (isinstance(key, str | bytes | float) or key is None or _is_short(key)):
                raise PlainPickleError("a key of a dict is neither a text nor a number of 64 bits")
            target[key] = value

    def duplicate(self) -> None:
        """Push the last value again."""
        self.push(self._pop(1)[0])
        self.push(self._stack[-1])

    def drop(self) -> None:
        """Remove the last value from the stack."""
        self._stack.pop()

    def drop_since_mark(self) -> None:
        """Remove the values since the mark from the stack."""
        self._since_mark()

    # ----- Names for values -----

    def remember(self, number: int) -> None:
        """Store the last value under a number."""
        value = self._pop(1)[0]
        self.push(value)
        self._memo[number] = value

    def recall(self, number: int) -> None:
        """Push the value stored under a number."""
        self.push(self._memo[number])

    def memoize(self) -> None:
        """Store the last value under the next number."""
        self.remember(len(self._memo))


def _is_short(key: Any) -> bool:
    return isinstance(key, int) and -(1 << 63) <= key < 1 << 64


_Action = Callable[[_Machine], None]
_ACTIONS: dict[bytes, _Action] = {
    b"\x80": lambda one: one.skip(1),  # the number of the protocol
    b"\x95": lambda one: one.skip(8),  # the length of the frame that follows, in 8 bytes
    b"(": lambda one: one.push(_MARK),
    b"0": _Machine.drop,
    b"1": _Machine.drop_since_mark,
    b"2": _Machine.duplicate,
    b"N": lambda one: one.push(None),
    b"\x88": lambda one: one.push(True),
    b"\x89": lambda one: one.push(False),
    b"I": _Machine.push_int_line,
    b"L": _Machine.push_long_line,
    b"F": lambda one: one.push(float(one._line())),
    b"J": lambda one: one.push(one._number("<i")),
    b"K": lambda one: one.push(one._number("<B")),
    b"M": lambda one: one.push(one._number("<H")),
    b"\x8a": lambda one: one.push_long("<B"),
    b"\x8b": lambda one: one.push_long("<i"),
    b"G": lambda one: one.push(one._number(">d")),
    b"S": _Machine.push_quoted,
    b"T": lambda one: one.push_old_text("<I"),
    b"U": lambda one: one.push_old_text("<B"),
    b"V": _Machine.push_text_line,
    b"X": lambda one: one.push_text("<I"),
    b"\x8c": lambda one: one.push_text("<B"),
    b"\x8d": lambda one: one.push_text("<Q"),
    b"B": lambda one: one.push_bytes("<I"),
    b"C": lambda one: one.push_bytes("<B"),
    b"\x8e": lambda one: one.push_bytes("<Q"),
    b"]": lambda one: one.push([]),
    b")": lambda one: one.push(()),
    b"}": lambda one: one.push({}),
    b"l": _Machine.make_list,
    b"d": _Machine.make_dict,
    b"t": lambda one: one.make_tuple(None),
    b"\x85": lambda one: one.make_tuple(1),
    b"\x86": lambda one: one.make_tuple(2),
    b"\x87": lambda one: one.make_tuple(3),
    b"a": lambda one: one.append(many=False),
    b"e": lambda one: one.append(many=True),
    b"s": lambda one: one.set_items(many=False),
    b"u": lambda one: one.set_items(many=True),
    b"p": lambda one: one.remember(int(one._line())),
    b"q": lambda one: one.remember(one._number("<B")),
    b"r": lambda one: one.remember(one._number("<I")),
    b"\x94": _Machine.memoize,
    b"g": lambda one: one.recall(int(one._line())),
    b"h": lambda one: one.recall(one._number("<B")),
    b"j": lambda one: one.recall(one._number("<I")),
}
_OBJECTS = {  # instruction -> the reason why it is refused
    **dict.fromkeys((b"c", b"i", b"\x93", b"\x82", b"\x83", b"\x84"), "it names a class or function"),
    **dict.fromkeys((b"R", b"o", b"\x81", b"\x92", b"b"), "it makes an object"),
    **dict.fromkeys((b"P", b"Q"), "it refers to a value outside of the pickle"),
    **dict.fromkeys((b"\x8f", b"\x90", b"\x91"), "it has a set"),
    **dict.fromkeys((b"\x96", b"\x97", b"\x98"), "it has a buffer"),
}
