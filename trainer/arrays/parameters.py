"""The parameter table of a network: a flat array of values, a flat array of gradients, and views for each parameter.

If several networks compute parts of a batch in parallel, all but the first have a replica of the first network's table.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import rows as hot_rows
from paddle_base.kernels.products import multiply
from paddle_base.kernels.rules import zeros_apart
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError
from pserver.optim.settings import ParameterSpec
from trainer.arrays.arguments import Array, Ids, list_distinct
from trainer.arrays.initializers import NORMAL, UNIFORM, fill_normal, fill_uniform
from trainer.arrays.rng import Stream
from trainer.arrays.sparse_storage import sparse_pattern
from trainer.arrays.step_products import FEW, StepProducts

_NO_FILE_NAMES = ("", ".", "..", "done", "path.txt")  # the file of a parameter must not have one of these names
WIDE = 16  # columns; if a gradient has fewer, it is faster to process all rows than to store which ones are non-zero


class _Content(enum.Enum):
    """The content of a gradient buffer. Clearing a full buffer sets it to STALE; zeros are written on demand."""

    STALE = enum.auto()  # values of the last batch
    ZERO = enum.auto()
    ROWS = enum.auto()  # all rows except the added rows are zero
    FULL = enum.auto()


class Parameter:
    """One parameter: its ParameterConfig, and views of its value and (unless static) of its gradient.

    Several layers may add to the gradient. The first layer of a batch overwrites the buffer, so clearing is
    unnecessary. If the parameter is updated sparsely, or the input is sparse, only some rows of the gradient are not
    zero. The numbers of these rows are stored if the parameter is updated sparsely, or if the rows are wide (see WIDE).
    """

    def __init__(self, config: ParameterConfig) -> None:
        self.config = config
        self.size: int = config.size
        self.is_static: bool = config.is_static
        self.pattern = sparse_pattern(config)  # the positions of the values; None without sparse storage
        self.row_width: int = config.dims[1] if len(config.dims) == 2 and not self.pattern else config.size
        self.follows = False  # whether forward passes update the value, for example the running mean of batch norm
        self.value: Array
        self._gradient: Array
        # a sparsely updated parameter's gradient begins as zeros; a page of zeros takes no memory before it is written
        self._content = _Content.ZERO if config.sparse_update else _Content.STALE
        self._rows: list[Ids] = []
        self._averages: list[tuple[Array, float]] | None = None  # in a replica: averages for `follow_replica`
        self._steps: StepProducts | None = None  # products that `joined_products` collects; None outside it

    @property
    def name(self) -> str:
        """The name."""
        return str(self.config.name)

    @property
    def is_table(self) -> bool:
        """Whether the parameter is updated sparsely."""
        return bool(self.config.sparse_update or self.config.sparse_remote_update)

    @property
    def elements(self) -> int:
        """The number of elements of the matrix; with sparse storage this includes the zeros."""
        return self.size if self.pattern is None else self.pattern.size

    def matrix(self, rows: int, columns: int) -> Array:
        """Return the value as a matrix; with sparse storage it is read-only."""
        if self.pattern is not None:
            return self.pattern.spread(self.value)
        return self.value.reshape(rows, columns)

    def multiply(self, x: Array, shape: tuple[int, int], begin: int = 0, *, is_transposed: bool = False) -> Array:
        """Return x w, where w is the matrix of this shape that begins at element `begin`, or its transpose.

        Shapes: x: (n, rows of w) -> (n, columns of w).
        """
        if self.pattern is not None:
            w = self.pattern.spread(self.value)
        else:
            w = self.value[begin : begin + shape[0] * shape[1]].reshape(shape)
        if self._steps is not None and len(x) < FEW:
            product = self._steps.multiply(x, w, begin, is_transposed=is_transposed)
            if product is not None:
                return product
        return x @ w.T if is_transposed else multiply(x, w)

    # ----- Gradient (a static parameter has none) -----

    @property
    def gradient(self) -> Array:
        """The flat gradient of the batch so far; the caller may add to it in place."""
        self.settle_gradient()
        self._content = _Content.FULL
        return self._gradient

    def peek_gradient(self) -> Array:
        """Return the flat gradient of the batch so far, read-only."""
        self.settle_gradient()
        return self._gradient

    @property
    def touched_rows(self) -> Ids | None:
        """The numbers of the gradient's rows that may be non-zero, in ascending order; None if all rows may be."""
        if self._content is _Content.ZERO:
            return np.empty(0, np.int64)
        if self._content is not _Content.ROWS:
            return None
        return list_distinct(np.concatenate(self._rows), self.size // self.row_width)

    def gradient_matrix(self, rows: int, columns: int) -> Array:
        """Return the gradient as a matrix view; the caller may add to it in place."""
        return self.gradient.reshape(rows, columns)

    def add_gradient(self, part: Array) -> None:
        """Add an array to the gradient; the array may have any shape with as many elements as the gradient."""
        part = part.reshape(-1)
        if self._content is _Content.STALE:
            self._gradient[:] = part
        else:
            self._gradient += part
        self._content = _Content.FULL

    def add_product(self, x: Array, g: Array, begin: int = 0) -> None:
        """Add x^T g to the matrix that begins at element `begin`. Shapes: x: (n, rows), g: (n, columns)."""
        if self._steps is not None and len(x) < FEW:
            self._steps.add(x, g, begin)
            return
        if self.pattern is not None:
            self.add_gradient(self.pattern.pick(multiply(x.T, g)))
            return
        target = self._gradient[begin : begin + x.shape[1] * g.shape[1]].reshape(x.shape[1], g.shape[1])
        if target.size < self.size:
            self.settle_gradient()
        if self._content is _Content.STALE and g.shape[1] != 1:
            np.matmul(x.T, g, out=target)
        elif self._content is _Content.STALE:
            target[:] = multiply(x.T, g)
        else:
            target += multiply(x.T, g)
        self._content = _Content.FULL

    @contextmanager
    def joined_products(self) -> Iterator[None]:
        """Use `StepProducts` for the products of fewer than FEW rows in the `with` block.

        The block must not change the value. The products for the gradient are added to it at the end of the block.
        """
        if self._steps is not None:
            yield  # the products of a nested recurrent group wait for the end of the outer group
            return
        self._steps = steps = StepProducts()
        try:
            yield
        finally:
            self._steps = None
        for product in steps.join():
            self.add_product(*product)

    def add_rows(self, ids: Ids, rows: Array) -> None:
        """Add rows[i] to row ids[i] of the gradient matrix, for every i in order; an id may occur several times.

        Shapes: ids: (n,) not negative; rows: (n, width), where width divides the parameter's size.
        """
        width = rows.shape[1]
        self.settle_gradient()
        hot_rows.add_rows(self._gradient.reshape(-1, width), ids, rows)
        self._mark_rows(ids, width)

    def add_outer(self, rows: Array, ids: Ids, starts: Ids, values: Array | None = None) -> None:
        """Add values[k] * rows[i] to row ids[k] of the gradient matrix for every k in [starts[i], starts[i + 1]).

        Shapes: rows: (n, width), starts: (n + 1,), ids: (nonzeros,), values: (nonzeros,) or None for ones.
        """
        width = rows.shape[1]
        if self.pattern is not None:
            whole = np.zeros((self.pattern.size // width, width), rows.dtype)
            hot_rows.add_outer(whole, rows, ids, starts, values)
            self.add_gradient(self.pattern.pick(whole))
            return
        self.settle_gradient()
        hot_rows.add_outer(self._gradient.reshape(-1, width), rows, ids, starts, values)
        self._mark_rows(ids, width)

    def _mark_rows(self, ids: Ids, width: int) -> None:
        # a sparse update always needs the row numbers, because it changes only the rows that the batch uses
        is_worth_it = width >= WIDE or self.config.sparse_update
        if self._content is not _Content.FULL and width == self.row_width and is_worth_it:
            self._rows.append(ids)
            self._content = _Content.ROWS
        else:
            self._content = _Content.FULL

    def add_gradient_of(self, other: Parameter) -> None:
        """Add the gradient of the same parameter in another table."""
        if other._content is _Content.FULL:
            self.add_gradient(other._gradient)
        elif other._content is _Content.ROWS:
            rows = other.touched_rows
            assert rows is not None  # the content of the other gradient is not FULL
            self.add_rows(rows, other._gradient.reshape(-1, self.row_width).take(rows, axis=0))

    def clear_gradient(self) -> None:
        """Set the gradient to zero."""
        if self._content is _Content.ROWS:
            matrix = self._gradient.reshape(-1, self.row_width)
            matrix[self.touched_rows] = 0
            self._content = _Content.ZERO
        elif self._content is _Content.FULL:
            self._content = _Content.STALE
        self._rows.clear()

    def settle_gradient(self) -> None:
        """Fill the gradient with zeros if no layer has added to it in this batch."""
        if self._content is _Content.STALE:
            self._gradient.fill(0)
            self._content = _Content.ZERO

    def bind(self, value: Array, gradient: Array | None) -> None:
        """Use the given arrays for the value and the gradient."""
        self.value = value
        if gradient is not None:
            self._gradient = gradient

    # ----- Values that are updated without training -----

    def follow(self, average: Array, kept: float) -> None:
        """Update the value of a static parameter from a batch: the value becomes kept * value + (1 - kept) * average.

        In a replica the update waits for `follow_replica`, because other tables share the value.
        """
        if self._averages is not None:
            self._averages.append((average, kept))
            return
        self.follows = True
        self.value *= self.value.dtype.type(kept)
        self.value += (1 - average.dtype.type(kept)) * average

    def follow_replica(self, replica: Parameter) -> None:
        """Apply the updates that `follow` has stored in a replica of this parameter."""
        for average, kept in replica._averages or ():
            self.follow(average, kept)
        if replica._averages:
            replica._averages.clear()

    def share(self, other: Parameter) -> None:
        """Use the value array of a static parameter of another table."""
        self.value = other.value
        self._averages = []

    # ----- Records -----

    def randomize(self, stream: Stream) -> None:
        """Draw the initial values that the config asks for. Raises: ConfigError: the storage is sparse."""
        if self.pattern is not None:
            raise self.pattern.refuse_without_file()
        mean, std = self.config.initial_mean, self.config.initial_std
        if self.config.initial_strategy == UNIFORM:
            fill_uniform(self.value, mean - std, mean + std, stream)
        else:
            fill_normal(self.value, mean, std, stream)

    def spec(self) -> ParameterSpec:
        """Return the properties of this parameter that an optimiser needs."""
        config = self.config
        return ParameterSpec(
            name=config.name,
            size=config.size,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            decay_rate=config.decay_rate,
            gradient_clipping_threshold=config.gradient_clipping_threshold,
            is_static=config.is_static,
            decay_rate_l1=config.decay_rate_l1,
            num_batches_regularization=config.num_batches_regularization,
            sparse_update=config.sparse_update,
            row_width=self.row_width,
        )


class ParameterTable:
    """All parameters of a network, in the order of the config message.

    The trained parameters are stored one after the other in `values`. The gradients of the parameters, summed over the
    samples of a batch, are stored in `gradients`. An optimiser works on `values` and `gradients`. Each static parameter
    has its own array and no gradient.

    Args: tables_first: whether `values` begins with the parameters with sparse_update, which have `tables_size` values.
        free_names: whether names are allowed that no file can have, such as `_left/hidden.w0`.
    Raises: ConfigError: a parameter cannot be initialised, or has such a name.
    """

    def __init__(
        self,
        configs: Sequence[ParameterConfig],
        dtype: npt.DTypeLike = np.float32,
        *,
        tables_first: bool = False,
        free_names: bool = False,
    ) -> None:
        self._parameters = {config.name: Parameter(config) for config in configs}
        self._free_names = free_names
        if not free_names:
            self.check_file_names()
        _refuse_unsupported(configs)
        self._trained = [parameter for parameter in self if not parameter.is_static]
        self._tables = [parameter for parameter in self._trained if tables_first and parameter.is_table]
        self._trained = [*self._tables, *(one for one in self._trained if one not in self._tables)]
        self.tables_size = sum(p.size for p in self._tables)
        size = sum(p.size for p in self._trained)
        self.values: Array = zeros_apart(size, 0, dtype)
        self._gradients: Array = zeros_apart(size, 1, dtype)
        for parameter in self:
            if parameter.is_static:
                parameter.bind(np.zeros(parameter.size, dtype), None)
        self._make_views()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def check_file_names(self) -> None:
        """Raise ConfigError if a parameter has a name that no file can have: its file would have this name."""
        for name in self._parameters:
            if "/" in name or name in _NO_FILE_NAMES:
                raise ConfigError(
                    f"parameter {name!r} cannot be saved: its file has the name of the parameter, so that name must "
                    f"not contain a '/' nor be one of {', '.join(map(repr, _NO_FILE_NAMES))}; rename the layer or the "
                    "ParamAttr"
                )

    def trained(self) -> list[Parameter]:
        """Return the parameters that are not static, in order."""
        return list(self._trained)

    def tables(self) -> list[Parameter]:
        """Return the parameters at the start of `values` that have sparse_update; [] without `tables_first`."""
        return list(self._tables)

    def replicate(self) -> ParameterTable:
        """Return a table that shares the values with this table and has its own gradients."""
        configs = [parameter.config for parameter in self]
        replica = ParameterTable(
            configs, self.values.dtype, tables_first=bool(self._tables), free_names=self._free_names
        )
        replica.values = self.values
        replica._make_views()
        for parameter in self:
            replica[parameter.name].pattern = parameter.pattern
            if parameter.is_static:
                replica[parameter.name].share(parameter)
        return replica

    def randomize(self, stream: Stream) -> None:
        """Draw initial values for all parameters, also for static ones, in order and from one stream."""
        for parameter in self:
            parameter.randomize(stream)

    @property
    def gradients(self) -> Array:
        """The gradients of all trained parameters, one after the other."""
        for parameter in self.trained():
            parameter.settle_gradient()
        return self._gradients

    def gradients_from(self, start: int) -> Array:
        """Return all gradients; elements before `start` may be those of an earlier batch."""
        at = self._gradients.size
        for parameter in reversed(self._trained):
            at -= parameter.size
            if at < start:
                break
            parameter.settle_gradient()
        return self._gradients

    def peek_gradients(self) -> Array:
        """Return all gradients; a parameter that this batch does not use still has the gradient of an earlier batch."""
        return self._gradients

    def add_gradients_of(self, replica: ParameterTable) -> None:
        """Add the gradients of a replica."""
        for parameter, other in zip(self._trained, replica._trained, strict=True):
            parameter.add_gradient_of(other)

    def follow_replica(self, replica: ParameterTable) -> None:
        """Apply the updates of static parameters that `Parameter.follow` has stored in a replica."""
        for parameter, other in zip(self, replica, strict=True):
            if parameter.is_static:
                parameter.follow_replica(other)

    @contextmanager
    def joined_products(self) -> Iterator[None]:
        """Use `Parameter.joined_products` for every parameter."""
        with ExitStack() as stack:
            for parameter in self:
                stack.enter_context(parameter.joined_products())
            yield

    def clear_gradients(self) -> None:
        """Set all gradients to zero."""
        for parameter in self._trained:
            parameter.clear_gradient()

    def _make_views(self) -> None:
        start = 0
        for parameter in self.trained():
            stop = start + parameter.size
            parameter.bind(self.values[start:stop], self._gradients[start:stop])
            start = stop


def _refuse_unsupported(configs: Sequence[ParameterConfig]) -> None:
    for config in configs:
        if config.initial_strategy not in (NORMAL, UNIFORM):
            raise ConfigError(
                f"parameter {config.name}: unsupported initial_strategy {config.initial_strategy}; there are {NORMAL} "
                f"(normal) and {UNIFORM} (uniform)"
            )
