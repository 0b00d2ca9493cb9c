"""Arrays and floats as JSON, bit for bit, and what of a checkpoint cannot be decoded. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime import glog
from runtime.errors import DataError

# what making something of a value that has another form may raise; a provider's own errors have been translated
UNDECODABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


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


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """In this block something is made of what a checkpoint has of `what`.

    Raises: DataError: it is not what was written there.
    """
    try:
        yield
    except UNDECODABLE as error:
        raise DataError(
            f"what the checkpoint has of {what} is not what a trainer writes there ({type(error).__name__}: "
            f"{glog.clean(error)}); go on from another one"
        ) from error
