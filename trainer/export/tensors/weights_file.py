"""Reads a file of safetensors into the parameters of a network.

The library safetensors checks the header: its length, its JSON, and that the tensors cover the file without overlaps.
The numbers are then read tensor by tensor; how many a tensor may have is known from the network before.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError, MissingInputError, reading_error
from paddle_base.runtime.regular_files import open_regular
from trainer.arrays.parameters import Parameter
from trainer.export.model import TrainedModel
from trainer.export.tensors.shapes import Shape, find_shapes
from trainer.export.tensors.weights import (
    FLOAT,
    INTEGER,
    LENGTH,
    METADATA,
    MOST_HEADER,
    POSITIONS,
    VERSION,
    VERSION_KEY,
    list_tensors,
)

MOST_SHOWN = 8  # maximum number of names in a message
# the types of elements that become float32; bfloat16 is the upper half of a float32
_FLOATS: Mapping[str, npt.DTypeLike] = {FLOAT: "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}


class Tensor(NamedTuple):
    """A tensor in a file: the type of its elements, its shape, and where its bytes begin and end."""

    kind: str
    shape: Shape
    begin: int
    end: int


class WeightsFile:
    """A file of safetensors that is open for reading, in a `with` block.

    Raises: MissingInputError: it cannot be read. DataError: it is damaged, or another kind of file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open_regular(path)
        except OSError as error:
            raise reading_error(MissingInputError, f"{path} cannot be read; correct its name", error) from error
        try:
            self.tensors, self._metadata = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check_version(self) -> None:
        """Check that the names and shapes are those of this version. Raises: DataError."""
        version = self._metadata.get(VERSION_KEY, VERSION)
        if version != VERSION:
            raise DataError(
                f"{self._path} has the version {version[:20]!r} of this format; this program reads {VERSION}"
            )

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor: float32, or int32 if its elements are of this type.

        Raises: DataError: the type is not supported, or the file is cut off.
        """
        tensor = self.tensors[name]
        kind = _FLOATS.get(tensor.kind, "<i4" if tensor.kind == INTEGER else None)
        if kind is None:
            known = ", ".join((*_FLOATS, INTEGER))
            raise DataError(f"{self._path}: the tensor {name} has elements of type {tensor.kind}; known are {known}")
        try:
            self._file.seek(tensor.begin)
            data = self._file.read(tensor.end - tensor.begin)
        except OSError as error:
            raise reading_error(DataError, f"{self._path} cannot be read", error) from error
        if len(data) != tensor.end - tensor.begin:
            raise self._wrong(f"it is cut off in the tensor {name}")
        values = np.frombuffer(data, kind).reshape(tensor.shape)
        if tensor.kind == "BF16":
            return (values.astype("<u4") << 16).view("<f4")
        if tensor.kind == FLOAT or tensor.kind == INTEGER:
            return values
        with np.errstate(over="ignore", invalid="ignore"):  # large numbers, and signalling NaN
            return values.astype(np.float32)

    def _read_header(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return the tensors and the metadata. The library checks the header; what it accepts is then read again."""
        try:
            (length,) = LENGTH.unpack(self._file.read(LENGTH.size))
            if length > MOST_HEADER:
                raise self._wrong(f"its header has {length} bytes; this program reads at most {MOST_HEADER}")
            with safe_open(self._path, "numpy"):
                pass
            header = json.loads(self._file.read(length))
            metadata = header.pop(METADATA, None) or {}
            base = LENGTH.size + length
            tensors = {
                name: Tensor(one["dtype"], tuple(one["shape"]), *(base + place for place in one["data_offsets"]))
                for name, one in header.items()
            }
        except (SafetensorError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._wrong(str(error)) from error
        except (OSError, RecursionError) as error:
            raise self._wrong(str(error) or type(error).__name__) from error
        return tensors, metadata

    def _wrong(self, why: str) -> DataError:
        return DataError(f"{self._path} is no file of safetensors: {why[:200]}")


def read_weights(path: Path, model: TrainedModel) -> None:
    """Fill the parameters of a model from a file of safetensors, whose tensors must be those of the model.

    Numbers of other types become float32, and a line says so; infinities and NaN stay.

    Raises: MissingInputError: the file cannot be read, or has no tensor for a parameter. DataError: the file is
        damaged, or a tensor has another shape or type, or belongs to no parameter.
    """
    shapes = find_shapes(model.config)
    expected = {name: shape for one in model.parameters for name, _, shape in list_tensors(one, shapes)}
    with WeightsFile(path) as file:
        file.check_version()
        _compare(path, file.tensors, expected)
        converted = []
        for parameter in model.parameters:
            tensor = file.tensors[parameter.name]
            if tensor.kind != FLOAT:
                converted.append(f"{parameter.name} ({tensor.kind})")
            _fill(parameter, file, path)
    if converted:
        glog.warning(f"{path}: {_some(converted)} became float32")


def _fill(parameter: Parameter, file: WeightsFile, path: Path) -> None:
    values = file.read(parameter.name)
    if values.dtype != np.float32:
        raise DataError(f"{path}: the tensor {parameter.name} has integers; a parameter has floating point numbers")
    parameter.value[:] = values.reshape(-1)
    if parameter.pattern is not None:
        positions = file.read(parameter.name + POSITIONS)
        if positions.dtype != np.int32:
            raise DataError(f"{path}: the tensor {parameter.name}{POSITIONS} must have elements of type {INTEGER}")
        parameter.pattern.read(positions.tobytes(), f"{path}, {parameter.name}")


def _compare(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Shape]) -> None:
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise MissingInputError(
            f"{path} lacks {_some(missing)}, which the network needs; it has {_some(list(tensors)) or 'no tensors'}: "
            "name the file of this network, or the config of this file"
        )
    extra = [name for name in tensors if name not in expected]
    if extra:
        raise DataError(f"{path} has {_some(extra)}, which no layer of the network reads; name the config of this file")
    for name, shape in expected.items():
        found = tensors[name].shape
        if found != shape:
            raise DataError(
                f"{path}: the tensor {name} has the shape {list(found)}, but the network needs {list(shape)}; another "
                "config saved this file"
            )


def _some(names: Sequence[str]) -> str:
    """Return some names of a list for a message."""
    more = f" and {len(names) - MOST_SHOWN} more" * (len(names) > MOST_SHOWN)
    return ", ".join(one[:200] for one in names[:MOST_SHOWN]) + more
