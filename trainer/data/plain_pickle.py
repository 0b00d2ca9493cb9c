"""Read pickles of plain values without running any code.

`define_py_data_sources2(args=...)` writes the arguments as a pickle of protocol 0, and merged model files of v0.10
contain such texts. The `pickle` module is unsafe for files of other people, because a pickle can name functions and
call them. This reader keeps only the instructions that build plain values: None, bool, int, float, text, bytes, list,
tuple and dict.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any, NoReturn

MOST_BYTES = 1 << 24  # maximum bytes of a pickle; a dictionary of 500,000 words has about 12 MB
MOST_VALUES = 1 << 22  # maximum number of values; a value in two lists counts twice
MOST_DEPTH = 64  # maximum levels of nested lists
MOST_INT_BITS = 4096

_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]  # the class in Python; see `_PlainUnpickler`

_NAMES = {ord(one.code): one.name for one in pickletools.opcodes}  # the instructions of protocols 0 to 5
# The instructions that build plain values. The last three name a class or function: `find_class` puts this name into
# the error.
_PLAIN = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "NONE NEWTRUE NEWFALSE INT LONG BININT BININT1 BININT2 LONG1 LONG4 FLOAT BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "BINBYTES SHORT_BINBYTES BINBYTES8 "
    "EMPTY_LIST EMPTY_TUPLE EMPTY_DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 DICT APPEND APPENDS SETITEM SETITEMS "
    "GLOBAL INST STACK_GLOBAL"
)


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
        value = _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="surrogateescape").load()
    except PlainPickleError:
        raise
    except EOFError as error:
        raise PlainPickleError(f"it is cut off after {len(data)} bytes") from error
    except Exception as error:  # `pickle` documents that a damaged pickle raises errors of many types
        raise PlainPickleError(f"it is no pickle ({type(error).__name__}: {str(error)[:100]})") from error
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Raise PlainPickleError if a value has too many parts, too many levels of lists, or too long a number.

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
        elif isinstance(item, int) and item.bit_length() > MOST_INT_BITS:
            raise PlainPickleError(f"a number has {item.bit_length()} bits, but the limit is {MOST_INT_BITS} bits")
        if seen + len(waiting) > MOST_VALUES:
            raise PlainPickleError(f"it has more than {MOST_VALUES} values")


class _Instructions(dict[int, Callable[[Any], None]]):
    """{code of an instruction: function that executes it}"""

    def __missing__(self, code: int) -> NoReturn:
        if code in _NAMES:
            raise PlainPickleError(f"it does not consist of plain values only: instruction {_NAMES[code]}")
        raise PlainPickleError(f"it is no pickle: {bytes([code])!r} is no instruction")


class _PlainUnpickler(_Unpickler):  # type: ignore[misc]
    """The machine of `pickle` with only the instructions of plain values.

    `pickle.Unpickler`, which is written in C, would not do. It hashes and compares the keys of a dict before any check,
    and tuples can be chosen in such a way that their hashes collide: a file of 16 MB would take hours. For the largest
    number of PUT it also allocates a table of up to 64 GB. The same class in Python has a dict instead, and a table of
    instructions, which can be reduced.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every class and function."""
        raise PlainPickleError(
            f"it does not consist of plain values only: it names a class or function ({module[:60]}.{name[:60]})"
        )

    def fill(self, items: list[Any]) -> None:
        """Add items, in which keys and values alternate, to the dict on top of the stack."""
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise pickle.UnpicklingError("a key has no value, or no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not (isinstance(key, str | bytes | float) or key is None or _is_short(key)):
                raise PlainPickleError("a key of a dict is neither a text nor a number of 64 bits")
            target[key] = value

    def fill_one(self) -> None:
        """SETITEM: add the last two values."""
        items = self.stack[-2:]
        del self.stack[-2:]
        self.fill(items)

    def fill_many(self) -> None:
        """SETITEMS: add the values since the mark."""
        self.fill(self.pop_mark())

    def make(self) -> None:
        """DICT: replace the values since the mark by a dict."""
        items = self.pop_mark()
        self.append({})
        self.fill(items)


_OWN = {
    "SETITEM": _PlainUnpickler.fill_one,
    "SETITEMS": _PlainUnpickler.fill_many,
    "DICT": _PlainUnpickler.make,
}
_PlainUnpickler.dispatch = _Instructions({
    code: _OWN.get(name, _Unpickler.dispatch[code]) for code, name in _NAMES.items() if name in _PLAIN.split()
})  # fmt: skip


def _is_short(key: Any) -> bool:
    return isinstance(key, int) and -(1 << 63) <= key < 1 << 64
