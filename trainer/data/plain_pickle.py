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
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

MOST_BYTES = 1 << 24  # maximum bytes of a pickle; a dictionary of 500,000 words has about 12 MB
MOST_VALUES = 1 << 22  # maximum number of values; a value in two lists counts twice
MOST_DEPTH = 64  # maximum levels of nested lists
MOST_INT_BITS = 4096
_SCALAR_BYTES = 8  # maximum bytes of a number of numpy

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
    return _load(data, MOST_BYTES, _PlainUnpickler)


def load_sample(data: bytes, most: int = MOST_BYTES) -> Any:
    """Return the value of a pickle whose values may also be arrays and numbers of numpy, of any version.

    Args: most: the maximum number of bytes.
    Raises: PlainPickleError: see `load_plain`.
    """
    return _finish(_load(data, most, _SampleUnpickler))


def _load(data: bytes, most: int, unpickler: type[_PlainUnpickler]) -> Any:
    if len(data) > most:
        raise PlainPickleError(f"it has {len(data)} bytes, but the limit is {most} bytes")
    try:
        value = unpickler(io.BytesIO(data), encoding="utf-8", errors="surrogateescape").load()
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


class _Dtype:
    """A type of numbers, as numpy pickles it: `dtype("f4", ...)`, then the byte order."""

    def __init__(self, kind: str, *_: Any) -> None:
        if not re.fullmatch(r"[<>=|]?([biuf][1248]|f2|\?)", kind):
            raise PlainPickleError(f"an array has elements of the type {kind[:20]!r}; numbers and bools are read")
        self.kind, self.order = kind.lstrip("<>=|"), "="

    def set(self, state: Any) -> None:
        """Take the byte order."""
        order = state[1]
        if order not in ("<", ">", "=", "|"):
            raise PlainPickleError("a type of numbers has no byte order")
        self.order = order

    def values(self, data: Any) -> np.ndarray[Any, Any]:
        """Return the values of bytes; Python 2 pickled them as a text."""
        content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return np.frombuffer(content, np.dtype(self.order + self.kind)).copy()


class _Array:
    """An array, as numpy pickles it: made empty, then filled with (version, shape, type, column order, bytes)."""

    content: np.ndarray[Any, Any] | None = None

    def set(self, state: Any) -> None:
        """Take the content."""
        _, shape, dtype, by_column, data = state
        self.content = dtype.values(data).reshape(shape, order="F" if by_column else "C")


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise PlainPickleError("an array is of a subclass")
    return _Array()


def _frombuffer(data: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    made = _Array()
    made.set((1, shape, dtype, order == "F", data))
    return made


def _scalar(dtype: _Dtype, data: Any) -> Any:
    (value,) = dtype.values(data[:_SCALAR_BYTES])
    return value


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1" if encoding != "utf-8" else encoding)


# {name in a pickle: what stands for it}; numpy 2 renamed its module, and Python 3 writes bytes for Python 2 as a call
_STANDING_FOR: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    **{
        (f"numpy.{core}.{module}", name): function
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _frombuffer),
        )
    },
}


class _SampleUnpickler(_PlainUnpickler):
    """The machine with the two instructions that make numpy's arrays, of the functions in `_STANDING_FOR` only."""

    def __init__(self, file: io.BytesIO, **options: Any) -> None:
        super().__init__(file, **options)
        self.most, self.copied = file.getbuffer().nbytes, 0

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a function of numpy."""
        found = _STANDING_FOR.get((module, name))
        return found or super().find_class(module, name)

    def call(self) -> None:
        """REDUCE: replace a function and the tuple of its arguments by the result."""
        arguments = self.stack.pop()
        function = self.stack.pop()
        if type(arguments) is not tuple or not any(function is one for one in _STANDING_FOR.values()):
            raise pickle.UnpicklingError("it calls what is no function of numpy")
        made = function(*arguments)
        self.append(made)
        self._count(made)

    def fill_made(self) -> None:
        """BUILD: give an array, or type of numbers, its content."""
        state = self.stack.pop()
        made = self.stack[-1]
        if not isinstance(made, _Array | _Dtype):
            raise pickle.UnpicklingError("it fills what is no array")
        made.set(state)
        self._count(made)

    def read_bytes(self) -> None:
        """BYTEARRAY8: the bytes of an array of protocol 5; `pickle` would make room for them before it reads."""
        size = int.from_bytes(self.read(8), "little")
        self.append(self.read(min(size, self.most)))

    def _count(self, made: Any) -> None:
        """Refuse bytes that stand once in the pickle and are copied over and over."""
        content = made.content if isinstance(made, _Array) else made
        if isinstance(content, np.ndarray):
            self.copied += content.nbytes
        elif isinstance(content, bytes):
            self.copied += len(content)
        if self.copied > 2 * self.most:  # Python 3 writes bytes for Python 2 as a text to encode: two copies
            raise PlainPickleError("its arrays have more bytes than the pickle")


_SampleUnpickler.dispatch = _Instructions({
    **_PlainUnpickler.dispatch,
    ord(pickle.REDUCE): _SampleUnpickler.call,
    ord(pickle.BUILD): _SampleUnpickler.fill_made,
    ord(pickle.BYTEARRAY8): _SampleUnpickler.read_bytes,
})  # fmt: skip


def _finish(value: Any) -> Any:
    """Return a value with arrays in place of what stood for them; `_check_size` has bounded its levels."""
    if isinstance(value, _Array):
        if value.content is None:
            raise PlainPickleError("an array has no content")
        return value.content
    if isinstance(value, list):
        value[:] = map(_finish, value)
        return value
    if isinstance(value, tuple):
        return tuple(map(_finish, value))
    if isinstance(value, dict):
        return {key: _finish(item) for key, item in value.items()}
    if isinstance(value, _Dtype) or any(value is one for one in _STANDING_FOR.values()):
        raise PlainPickleError("a value is a type or function of numpy")
    return value
