"""Projections: functions of one input of a mixed or concat2 layer; the layer adds or joins their results.

Source: spec/config.md 7; gserver/layers/*Projection.cpp of v0.10.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle_base.kernels.products import multiply
from paddle_base.kernels.rows import sum_rows
from paddle_base.proto.ModelConfig_pb2 import ProjectionConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import Parameter


class Projection:
    """A projection of one input: from (rows, input_size) to (rows, output_size).

    A subclass overrides `forward` and `backward`, and may keep values between `forward` and `backward`.

    Args: config: the message of the projection. weight: the projection's parameter, or None. where: the layer and the
        input, for error messages.
    """

    returns_view: ClassVar[bool] = False  # True: the result of `forward` may share memory with the input

    def __init__(self, config: ProjectionConfig, weight: Parameter | None, where: str) -> None:
        self.config = config
        self.where = where
        self.input_size: int = config.input_size
        self.output_size: int = config.output_size
        self._weight = weight
        size = self.weight_size()
        if weight is None and size:
            raise ConfigError(f"{self} needs a parameter of {size} values and has none")
        if weight is not None and weight.size != size:
            raise ConfigError(f"{self}: parameter {weight.name} has {weight.size} values instead of {size}")

    def __str__(self) -> str:
        return f"{self.where}: {self.config.type} projection"

    @property
    def weight(self) -> Parameter:
        """The projection's parameter, which must exist."""
        assert self._weight is not None  # __init__ refuses a projection that lacks its parameter
        return self._weight

    @property
    def trained_weight(self) -> Parameter | None:
        """The parameter if it is trained, else None."""
        return None if self._weight is None or self._weight.is_static else self._weight

    def weight_size(self) -> int:
        """Return the number of values that the parameter must have, or 0 for a projection without a parameter."""
        return 0

    def forward(self, one: Argument) -> Array:
        """Return the projected rows."""
        raise NotImplementedError

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add to the gradient of the parameter, and return the gradient of the input.

        Args: gradient: the gradient of the last result of `forward`; the method must not change this array.
        Returns: a new array, or the array `gradient`, or None for an input without gradient.
        """
        raise NotImplementedError

    def require_values(self, one: Argument) -> Array:
        """Return the dense rows of the input.

        Raises: ConfigError: the input has no dense rows, or rows of a different width.
        """
        if one.value is None:
            raise ConfigError(f"{self} needs an input of dense rows")
        if one.value.shape[1] != self.input_size:
            raise ConfigError(f"{self}: the input has width {one.value.shape[1]} instead of {self.input_size}")
        return one.value


class MatrixProjection(Projection):
    """Base class of projections whose parameter is a matrix W with a row or a column for each value of the input."""

    def weight_size(self) -> int:
        """Return the number of elements of W."""
        return self.input_size * self.output_size


class FullMatrixProjection(MatrixProjection):
    """Returns x W for dense or sparse rows x. W: (input_size, output_size)."""

    _input: Argument

    def forward(self, one: Argument) -> Array:
        """Return x W."""
        self._input = one
        if one.sparse is None:
            return multiply(self.require_values(one), self._matrix())
        if one.sparse.width != self.input_size:
            raise ConfigError(f"{self}: the input has width {one.sparse.width} instead of {self.input_size}")
        return sum_rows(self._matrix(), one.sparse.ids, one.sparse.offsets, one.sparse.values)

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add x^T g to the gradient of W, and return g W^T, where g is the gradient of the result."""
        x, sparse, weight = self._input.value, self._input.sparse, self.trained_weight
        if weight is not None and sparse is not None:
            weight.add_outer(gradient, sparse.ids, sparse.offsets, sparse.values)
        elif weight is not None and x is not None:
            weight.add_product(x, gradient)
        return gradient @ self._matrix().T if is_wanted and sparse is None else None

    def _matrix(self) -> Array:
        return self.weight.matrix(self.input_size, self.output_size)


class TransposedMatrixProjection(MatrixProjection):
    """Returns x W^T. W: (output_size, input_size)."""

    _x: Array

    def forward(self, one: Argument) -> Array:
        """Return x W^T."""
        self._x = self.require_values(one)
        product: Array = self._x @ self._matrix().T
        return product

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add g^T x to the gradient of W, and return g W, where g is the gradient of the result."""
        if self.trained_weight is not None:
            self.trained_weight.add_product(gradient, self._x)
        return gradient @ self._matrix() if is_wanted else None

    def _matrix(self) -> Array:
        return self.weight.matrix(self.output_size, self.input_size)


class TableProjection(MatrixProjection):
    """Returns the row of W that each id selects; the id -1 gives a row of zeros, which has no gradient.

    W: (input_size, output_size).
    """

    _ids: Ids

    def forward(self, one: Argument) -> Array:
        """Return the rows of the ids.

        Raises: ConfigError: the input has no ids. DataError: an id is neither -1 nor a row of W.
        """
        if one.ids is None:
            raise ConfigError(f"{self} needs an input of ids; declare the slot as integer_value(_sequence)")
        self._ids = one.ids
        least, most = (int(one.ids.min()), int(one.ids.max())) if len(one.ids) else (0, 0)
        if least < -1 or most >= self.input_size:
            wrong = least if least < -1 else most
            remedy = "-1 means no id" if wrong < 0 else f"make the size of its data_layer at least {wrong + 1}"
            raise DataError(f"{self}: id {wrong} is not in [-1, {self.input_size}); {remedy}, or correct the data")
        rows: Array = self.weight.matrix(self.input_size, self.output_size).take(one.ids, axis=0, mode="wrap")
        if least < 0:
            rows[one.ids < 0] = 0
        return rows

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add each row of the gradient to the row of W's gradient that its id selects."""
        if self.trained_weight is not None:
            known = self._ids >= 0
            if known.all():
                self.trained_weight.add_rows(self._ids, gradient)
            else:
                self.trained_weight.add_rows(self._ids[known], gradient[known])
        return None


class IdentityProjection(Projection):
    """x unchanged."""

    returns_view = True

    def forward(self, one: Argument) -> Array:
        """Return x."""
        return self.require_values(one)

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Return the gradient."""
        return gradient if is_wanted else None


class SliceProjection(Projection):
    """Joins some ranges of the columns of x. An identity_offset projection has one range, which begins at `offset`."""

    returns_view = True

    def __init__(self, config: ProjectionConfig, weight: Parameter | None, where: str) -> None:
        super().__init__(config, weight, where)
        self._ranges = [(one.start, one.end) for one in config.slices]
        if config.type == "identity_offset":
            self._ranges = [(config.offset, config.offset + self.output_size)]
        if not self._ranges or any(begin >= end or end > self.input_size for begin, end in self._ranges):
            raise ConfigError(f"{self}: columns {self._ranges} are not all in the input's {self.input_size} columns")
        if sum(end - begin for begin, end in self._ranges) != self.output_size:
            raise ConfigError(f"{self}: the ranges {self._ranges} do not have {self.output_size} columns together")

    def forward(self, one: Argument) -> Array:
        """Return the columns."""
        x = self.require_values(one)
        parts = [x[:, begin:end] for begin, end in self._ranges]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Return the gradient in the selected columns, and zero in all other columns."""
        if not is_wanted:
            return None
        result: Array = np.zeros((len(gradient), self.input_size), gradient.dtype)
        place = 0
        for begin, end in self._ranges:
            result[:, begin:end] += gradient[:, place : place + end - begin]
            place += end - begin
        return result


class DotMulProjection(Projection):
    """Returns x * w, element by element. w: (input_size,)."""

    _x: Array

    def weight_size(self) -> int:
        """Return the number of elements of w."""
        return self.input_size

    def forward(self, one: Argument) -> Array:
        """Return x * w."""
        self._x = self.require_values(one)
        product: Array = self._x * self.weight.value
        return product

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add the sum over the rows of gradient * x to the gradient of w, and return gradient * w."""
        if self.trained_weight is not None:
            self.trained_weight.add_gradient(np.einsum("ij,ij->j", gradient, self._x))
        return gradient * self.weight.value if is_wanted else None


class ScalingProjection(Projection):
    """x times a single number w."""

    _x: Array

    def weight_size(self) -> int:
        """Return 1."""
        return 1

    def forward(self, one: Argument) -> Array:
        """Return w x."""
        self._x = self.require_values(one)
        product: Array = self._x * self.weight.value
        return product

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add the sum of gradient * x to the gradient of w, and return w * gradient."""
        if self.trained_weight is not None:
            self.trained_weight.add_gradient(np.einsum("ij,ij->", gradient, self._x).reshape(1))
        return gradient * self.weight.value if is_wanted else None


class ContextProjection(Projection):
    """A window of frames around each frame, side by side: block j of row t is frame t + context_start + j.

    If a window reaches outside the sequence, zeros replace the missing frames. With trainable_padding, rows of the
    parameter replace the missing frames. The parameter holds first the rows for frames before the sequence, and then
    the rows for frames after the sequence, both in the order of time.
    """

    def __init__(self, config: ProjectionConfig, weight: Parameter | None, where: str) -> None:
        self._length: int = config.context_length
        self._before = max(0, -config.context_start)
        self._after = max(0, config.context_start + config.context_length - 1)
        super().__init__(config, weight, where)
        if self._length < 1 or self.output_size != self.input_size * self._length:
            raise ConfigError(
                f"{self}: output_size {self.output_size} is not context_length {self._length} times "
                f"input_size {self.input_size}"
            )
        self._edges: list[tuple[Ids, Ids]] = []

    def weight_size(self) -> int:
        """Return the number of elements of the padding rows."""
        return (self._before + self._after) * self.input_size if self.config.trainable_padding else 0

    def forward(self, one: Argument) -> Array:
        """Return the windows.

        Raises: ConfigError: the rows form no sequences.
        """
        x = self.require_values(one)
        if one.starts is None:
            raise ConfigError(f"{self} needs an input of sequences; declare the slot as a ..._sequence type")
        self._edges = [_find_edge(one.starts, self._shift(block), self._before) for block in range(self._length)]
        result: Array = np.empty((len(x), self.output_size), x.dtype)
        padding = self.weight.matrix(-1, self.input_size) if self._weight is not None else None
        for block, (rows, padding_rows) in enumerate(self._edges):
            target = self._block(result, block)
            copy_shifted(x, self._shift(block), target)
            target[rows] = 0 if padding is None else padding[padding_rows]
        return result

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add to the gradient of the padding rows, and return the gradient of the frames.

        The gradient of a frame is the sum over all windows that contain the frame.
        """
        if self.trained_weight is not None:
            self._add_padding_gradient(gradient, self.trained_weight)
        if not is_wanted:
            return None
        result: Array = np.zeros((len(gradient), self.input_size), gradient.dtype)
        for block, (rows, _) in enumerate(self._edges):
            part = self._block(gradient, block)
            kept = part[rows]
            # Rows whose frame is outside their sequence must add nothing. The program sets these rows to zero and then
            # restores their values, which is faster than a copy of all rows.
            part[rows] = 0
            add_shifted(part, -self._shift(block), result)
            part[rows] = kept
        return result

    def _add_padding_gradient(self, gradient: Array, weight: Parameter) -> None:
        target = weight.gradient_matrix(-1, self.input_size)
        for block, (rows, padding_rows) in enumerate(self._edges):
            part = self._block(gradient, block)[rows]
            for number in np.unique(padding_rows):
                target[number] += part[padding_rows == number].sum(axis=0)

    def _shift(self, block: int) -> int:
        shift: int = self.config.context_start + block
        return shift

    def _block(self, matrix: Array, block: int) -> Array:
        return matrix[:, block * self.input_size : (block + 1) * self.input_size]


def _find_edge(starts: Ids, shift: int, before: int) -> tuple[Ids, Ids]:
    """Return the rows t for which frame t + shift is outside the sequence of t, and the padding row for each t."""
    lengths = np.diff(starts)
    many = np.minimum(lengths, abs(shift))
    ranks = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)  # 0, 1, ... in each sequence
    if shift < 0:
        return np.repeat(starts[:-1], many) + ranks, ranks + (before + shift)
    return np.repeat(starts[1:] - many, many) + ranks, ranks + np.repeat(before + shift - many, many)


def copy_shifted(x: Array, shift: int, result: Array) -> None:
    """Copy row t + shift of x to row t of `result` if x has a row t + shift; other rows of `result` do not change."""
    begin, end = max(0, -shift), len(x) - max(0, shift)
    if begin < end:
        result[begin:end] = x[begin + shift : end + shift]


def add_shifted(x: Array, shift: int, result: Array) -> None:
    """Add row t + shift of x to row t of `result` if x has a row t + shift."""
    begin, end = max(0, -shift), len(x) - max(0, shift)
    if begin < end:
        result[begin:end] += x[begin + shift : end + shift]


PROJECTIONS: dict[str, type[Projection]] = {
    "context": ContextProjection,
    "dot_mul": DotMulProjection,
    "fc": FullMatrixProjection,
    "identity": IdentityProjection,
    "identity_offset": SliceProjection,
    "scaling": ScalingProjection,
    "slice": SliceProjection,
    "table": TableProjection,
    "trans_fc": TransposedMatrixProjection,
}
