"""Encodes values as base64 text. Names are those of `horovod.runner.common.util.codec`.

Horovod's own texts are made by pickle. A text of pickle is refused here, because pickle runs any code that the writer
of the text has chosen.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal, overload

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES
from paddle_cluster.elastic.launching.references import dump_bounded_object
from paddle_cluster.elastic.process.objects import load_object


@overload
def dumps_base64(obj: object, to_ascii: Literal[True] = True) -> str: ...


@overload
def dumps_base64(obj: object, to_ascii: Literal[False]) -> bytes: ...


def dumps_base64(obj: object, to_ascii: bool = True) -> str | bytes:
    """Return plain data or arrays as base64, as text or as bytes.

    Raises: UsageError: the object is neither plain data nor arrays, or is too large.
    """
    encoded = base64.b64encode(dump_bounded_object(obj, f"a {type(obj).__name__}"))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: str | bytes) -> object:
    """Return the value from which `dumps_base64` has made a text.

    Raises: DataError: `dumps_base64` has not made the text; it may be a text of pickle.
    """
    if len(encoded) > 2 * MOST_VALUE_BYTES:
        raise DataError(f"a value has {len(encoded)} characters of base64, which is too many")
    try:
        return load_object(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as exc:
        raise DataError(f"a value is not base64: {exc}") from exc
