"""Parameters with sparse storage: matrices whose elements are zero except at some fixed positions.

The TrainerConfig message has the number of values, and the format in which a file stores their positions ("csr" or
"csc"). Only the file of a model has the positions themselves. Optimisers and servers use only the values.

Source: spec/trainer.md 3.5; parameter/Parameter.cpp of v0.10.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Array

_NUMBER = np.dtype("<i4")  # type of the positions in a file
_FORMATS = ("csr", "csc")
_LARGEST = 1 << 31  # maximum number of elements of a whole matrix, as for every parameter


class SparsePattern:
    """The positions of a parameter's values in its matrix. They are unknown until a file is read.

    With format "csr" the values are stored row by row; with "csc" they are stored column by column. A line is a row for
    "csr" and a column for "csc". `size` is the number of elements of the whole matrix.
    """

    def __init__(self, config: ParameterConfig) -> None:
        self.name: str = config.name
        self._count: int = config.size
        self._rows, self._columns = list(config.dims)
        self._by_rows = config.format == "csr"
        self._lines, self._length = list(config.dims) if self._by_rows else list(config.dims)[::-1]
        self.size: int = self._rows * self._columns
        self._starts: npt.NDArray[np.int32] | None = None  # the position in `_ids` where each line begins
        self._ids: npt.NDArray[np.int32]
        self._places: npt.NDArray[np.int64]  # the index of each value in the flat matrix

    @property
    def file_bytes(self) -> int:
        """The number of bytes of the positions in a file. The file has first the values, and then their positions."""
        return (self._lines + 1 + self._count) * _NUMBER.itemsize

    def read(self, data: bytes, source: str) -> None:
        """Read the positions of the values from the `file_bytes` bytes of a file.

        Raises: DataError: the positions are truncated, outside the matrix, or repeated.
        """
        if len(data) < self.file_bytes:
            raise DataError(f"{source} is cut off: the positions have {len(data)} bytes instead of {self.file_bytes}")
        numbers = np.frombuffer(data, _NUMBER, self._lines + 1 + self._count)
        # the offsets of the lines come first in csr; in csc they come after the row indices
        cut = self._lines + 1 if self._by_rows else self._count
        starts, ids = (numbers[:cut], numbers[cut:]) if self._by_rows else (numbers[cut:], numbers[:cut])
        offsets = starts.astype(np.int64)
        lengths = offsets[1:] - offsets[:-1]
        if starts[0] != 0 or starts[-1] != self._count or (lengths < 0).any():
            kind = "rows" if self._by_rows else "columns"
            raise DataError(f"{source}: the offsets of its {self._lines} {kind} do not rise from 0 to {self._count}")
        if self._count and not 0 <= int(ids.min()) <= int(ids.max()) < self._length:
            kind = "column" if self._by_rows else "row"
            raise DataError(f"{source}: the {kind} of a value is not in [0, {self._length})")
        lines = np.repeat(np.arange(self._lines), lengths)
        places = lines * self._columns + ids if self._by_rows else ids.astype(np.int64) * self._columns + lines
        if len(np.unique(places)) != self._count:
            raise DataError(f"{source}: two values have the same position in the matrix")
        self._starts, self._ids, self._places = starts.copy(), ids.copy(), places

    def encode(self) -> bytes:
        """Return the positions as bytes in the format of the file."""
        self._require()
        assert self._starts is not None
        parts = (self._starts, self._ids) if self._by_rows else (self._ids, self._starts)
        return b"".join(part.astype(_NUMBER).tobytes() for part in parts)

    def spread(self, values: Array) -> Array:
        """Return the whole matrix."""
        self._require()
        matrix: Array = np.zeros(self.size, values.dtype)
        matrix[self._places] = values
        return matrix.reshape(self._rows, self._columns)

    def pick(self, matrix: Array) -> Array:
        """Return the values that a matrix has at the positions."""
        self._require()
        picked: Array = matrix.reshape(-1)[self._places]
        return picked

    def refuse_without_file(self) -> ConfigError:
        """Return the error for a parameter whose positions are unknown."""
        return ConfigError(
            f"parameter {self.name} has sparse storage: only a file has the positions of its {self._count} values; "
            "give a model that contains this parameter with --init_model_path"
        )

    def _require(self) -> None:
        if self._starts is None:
            raise self.refuse_without_file()


def sparse_pattern(config: ParameterConfig) -> SparsePattern | None:
    """Return the pattern of a parameter with sparse storage; None for other parameters.

    A parameter with need_compact is dense here: its file has all values, including many zeros.
    Raises: ConfigError: the parameter is not a matrix, has an unknown format, or is updated sparsely.
    """
    if not config.is_sparse or config.need_compact:
        return None
    if config.format not in _FORMATS:
        raise ConfigError(
            f"parameter {config.name}: the format of its sparse storage is {config.format!r}; there are csr and csc"
        )
    if len(config.dims) != 2 or not (0 < config.size <= config.dims[0] * config.dims[1] <= _LARGEST):
        raise ConfigError(
            f"parameter {config.name}: {config.size} values of sparse storage do not fit into dims {list(config.dims)}"
        )
    if config.sparse_update or config.sparse_remote_update:
        raise ConfigError(f"parameter {config.name} has sparse storage, and therefore cannot be updated sparsely")
    return SparsePattern(config)
