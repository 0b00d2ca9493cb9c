"""Encodes objects as bytes without pickle. The bytes are JSON, followed by the bytes of the arrays.

None, truth values, numbers, texts, bytes, lists, tuples, dictionaries, and numpy arrays and scalars keep their type and
value. The reader limits the size and the depth of received bytes, and never runs code from them. No I/O.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_base.runtime.bounded_json import BoundedJsonError, dump_bounded, parse_bounded
from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.dtypes import DTYPES, name_dtype

MAX_DEPTH = 64  # maximum levels of the JSON; a level of an object takes up to three JSON levels
MAX_VALUES = 1 << 20
_DTYPES = {name_dtype(dtype): dtype for dtype in DTYPES}
_LENGTH = struct.Struct("<I")
_MOST_DIGITS = 4000  # maximum digits of an integer; the limit of Python is 4300
_MOST_BITS = 13_200  # maximum bits of an integer; such an integer has fewer than _MOST_DIGITS digits
_WHAT = (
    "None, truth values, numbers, texts, bytes, lists, tuples, dictionaries and numpy arrays of numbers can be sent; "
    "unsafe_pickle=True sends anything, and lets the sender run any code on every rank"
)


def dump_object(value: object, name: str = "the object", *, unsafe_pickle: bool = False) -> bytes:
    """Encode an object as bytes.

    Args: name: name of the object in error messages.  unsafe_pickle: use pickle, so that the reader runs any code that
        the writer chooses.
    Raises: TypeError: the object has a part that cannot be sent; the message names the place.
    """
    if unsafe_pickle:
        return pickle.dumps(value)
    blobs: list[bytes] = []
    try:
        head = dump_bounded({"value": _pack(value, blobs, name)}, depth=MAX_DEPTH, values=MAX_VALUES)
    except BoundedJsonError as exc:
        raise TypeError(f"{name} becomes JSON {exc}; {_WHAT}") from exc
    except RecursionError as exc:
        raise TypeError(f"{name} contains itself, or is nested too deeply; {_WHAT}") from exc
    return b"".join((_LENGTH.pack(len(head)), head, *blobs))


def drop_advice(error: TypeError) -> str:
    """Return why `dump_object` refused an object, without the advice of pickle, for callers that never pickle."""
    return str(error).partition("; unsafe_pickle")[0]


def load_object(data: bytes, *, unsafe_pickle: bool = False) -> Any:
    """Decode an object from the bytes of `dump_object`.

    Args: unsafe_pickle: use pickle, which runs any code that the writer chooses.
    Raises: DataError: the bytes are no encoded object.
    """
    if unsafe_pickle:
        return pickle.loads(data)
    try:
        (length,) = _LENGTH.unpack_from(data)
        head = parse_bounded(data[_LENGTH.size : _LENGTH.size + length], depth=MAX_DEPTH, values=MAX_VALUES)
        return _Unpacker(memoryview(data)[_LENGTH.size + length :]).unpack(head["value"])
    except (struct.error, BoundedJsonError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise DataError(f"another rank sent an object that cannot be read ({type(exc).__name__}: {exc})") from exc


def _pack(value: object, blobs: list[bytes], where: str) -> Any:
    """Return a value as JSON; append the bytes that follow the JSON to `blobs`."""
    if value is None or isinstance(value, bool | str):
        return value
    # before the numbers: np.float64 is a float, but has to arrive as np.float64
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        # a dtype's name does not tell its byte order
        dtype_name = name_dtype(array.dtype)
        if dtype_name not in _DTYPES or array.dtype != _DTYPES[dtype_name]:
            raise TypeError(f"{where} is an array of {array.dtype}; {_WHAT}")
        blobs.append(array.tobytes())
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [dtype_name, list(array.shape), len(blobs[-1])]}
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise TypeError(f"{where} is an integer of {value.bit_length()} bits; at most {_MOST_BITS} can be sent")
        return {"int": str(value)} if abs(value) >= 1 << 63 else value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        blobs.append(value)
        return {"bytes": len(value)}
    if isinstance(value, list | tuple):
        items = [_pack(one, blobs, f"{where}[{number}]") for number, one in enumerate(value)]
        # a subclass is refused, because it would arrive as another type
        return items if type(value) is list else {"tuple": items} if type(value) is tuple else _refuse(value, where)
    if type(value) is dict:
        pairs = value.items()
        return {
            "dict": [
                [_pack(key, blobs, f"a key of {where}"), _pack(one, blobs, f"{where}[{key!r}]")] for key, one in pairs
            ]
        }
    return _refuse(value, where)


def _refuse(value: object, where: str) -> Any:
    raise TypeError(f"{where} is a {type(value).__name__}; {_WHAT}")


class _Unpacker:
    """Decodes a value, and takes the bytes that follow the JSON in order."""

    def __init__(self, blobs: memoryview) -> None:
        self._blobs = blobs

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(one) for one in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind in ("array", "scalar"):
            return self._array(*inner, is_scalar=kind == "scalar")
        if kind == "dict":
            return {self.unpack(key): self.unpack(one) for key, one in inner}
        if kind == "tuple":
            return tuple(self.unpack(one) for one in inner)
        if kind == "bytes":
            return bytes(self._take(inner))
        return {"int": _read_integer, "float": float.fromhex}[kind](inner)

    def _array(self, name: str, shape: Sequence[int], length: int, *, is_scalar: bool) -> Any:
        array = np.frombuffer(bytes(self._take(length)), _DTYPES[name]).reshape(shape).copy()
        return array[()] if is_scalar else array

    def _take(self, length: int) -> memoryview:
        if not 0 <= length <= len(self._blobs):
            raise ValueError("an array is longer than the received bytes")
        taken, self._blobs = self._blobs[:length], self._blobs[length:]
        return taken


def _read_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("an integer has too many digits")
    return int(text)
