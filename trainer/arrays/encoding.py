"""Store arrays in JSON without loss, and translate the errors that occur when a checkpoint is decoded."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.number_types import number_type

# the errors that the decoding of a malformed value can raise
UNDECODABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def encode_array(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return a numeric array as a record that JSON can store."""
    text = base64.b64encode(np.ascontiguousarray(array).data).decode()
    return {"type": array.dtype.str, "shape": list(array.shape), "data": text}


def decode_array(record: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return a new array with the data of a record that `encode_array` returned."""
    data = base64.b64decode(record["data"])
    return np.frombuffer(data, number_type(record["type"])).reshape(record["shape"]).copy()


def shorten_ids(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return non-negative integers in the smallest type that can store them."""
    return ids.astype(np.min_scalar_type(int(ids.max(initial=0))))


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Translate the errors of the `with` block, which decodes the data of `what` in a checkpoint, into DataError.

    Raises: DataError: the data do not have the form in which a trainer writes them.
    """
    try:
        yield
    except UNDECODABLE as error:
        raise DataError(
            f"the checkpoint's data of {what} are not in the form that a trainer writes ({type(error).__name__}: "
            f"{glog.clean(error)}); go on from another checkpoint"
        ) from error
