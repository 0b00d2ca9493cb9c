"""Arrays and floats as JSON, bit for bit. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def encode_array(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array of numbers as a record that JSON can hold."""
    text = base64.b64encode(np.ascontiguousarray(array).data).decode()
    return {"type": array.dtype.str, "shape": list(array.shape), "data": text}


def decode_array(record: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the array of such a record, a fresh one."""
    data = base64.b64decode(record["data"])
    return np.frombuffer(data, record["type"]).reshape(record["shape"]).copy()


def shorten_ids(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers that are not negative in the smallest type that holds them."""
    return ids.astype(np.min_scalar_type(int(ids.max(initial=0))))
