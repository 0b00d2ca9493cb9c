"""A fully connected layer that computes only some of its columns for each row.

Source: spec/config.md 6; gserver/layers/SelectiveFullyConnectedLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.activations import find_activation
from trainer.arrays.arguments import Argument, Array, Ids, Sparse
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_bias, require_matrix, require_same_rows, require_weight


class SelectiveFullyConnectedLayer(Layer):
    """Computes some columns of y = sum over k of x_k W_k^T, plus a bias. The last input selects the columns.

    All rows select the same number of columns. The result has the selected columns side by side, in the order of the
    selection. If a cost reads this layer, the label of the cost is therefore a position in the selection. Without a
    selecting input (has_selected_colums=False), the layer computes all columns.

    With selective_fc_pass_generation, the network is not trained. Rows may then select different numbers of columns.
    The result then has sparse rows with the values of the selected columns, after the activation.

    Shapes: x_k: (rows, I_k), W_k: (size, I_k), the selection: sparse 0/1 rows of width `size` -> (rows, selected).
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._selects: bool = config.has_selected_colums
        many = len(config.inputs) - self._selects
        if many < 1:
            raise ConfigError(f"{self} needs an input beside the selection")
        self._generates: bool = self._selects and config.selective_fc_pass_generation
        self._activation = find_activation(config.active_type, config.name)
        self._parts = [self._make_part(position) for position in range(many)]
        self._column_bias = require_bias(self, self.size)
        self._x: list[Array] = []
        self._columns: Ids | None = None  # (rows, selected)

    def _make_part(self, position: int) -> Parameter:
        weight = self.weights[position]
        if weight is None or not self.size or weight.size % self.size:
            raise ConfigError(f"{self}: input {position} needs a parameter whose size is a multiple of {self.size}")
        return require_weight(self, position, weight.size)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the selected sums.

        Raises: ConfigError: the selection is not sparse. DataError: rows select different numbers of columns.
        """
        matrices = [self._matrix(weight) for weight in self._parts]
        self._x = [self._rows_of(one, w.shape[1], w.dtype) for one, w in zip(inputs, matrices, strict=False)]
        require_same_rows(self, self._x)
        if self._generates and not self.is_training:
            return self._select(inputs, matrices)
        self._columns = self._find_columns(inputs[-1], len(self._x[0])) if self._selects else None
        total: Array | None = None
        for x, w in zip(self._x, matrices, strict=True):
            part = x @ w.T if self._columns is None else np.einsum("ij,ikj->ik", x, w[self._columns])
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None  # __init__ refuses a layer without inputs
        if self._column_bias is not None:
            bias = self._column_bias.value
            total += bias if self._columns is None else bias[self._columns]
        return inputs[0].with_value(total)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add to the gradients of the selected rows of the parameters, and return the gradients of the inputs."""
        columns = self._columns
        if self._column_bias is not None and not self._column_bias.is_static:
            if columns is None:
                self._column_bias.add_gradient(sum_columns(gradient))
            else:
                self._column_bias.add_rows(columns.reshape(-1), gradient.reshape(-1, 1))
        results: list[Array | None] = [None] * len(wanted)
        for position, (x, weight) in enumerate(zip(self._x, self._parts, strict=True)):
            if not weight.is_static and columns is None:
                weight.add_product(gradient, x)
            elif not weight.is_static and columns is not None:
                weight.add_rows(columns.reshape(-1), (gradient[:, :, None] * x[:, None, :]).reshape(-1, x.shape[1]))
            if wanted[position]:
                w = self._matrix(weight)
                results[position] = gradient @ w if columns is None else np.einsum("ik,ikj->ij", gradient, w[columns])
        return results

    def _select(self, inputs: Sequence[Argument], matrices: Sequence[Array]) -> Argument:
        """Return the selected columns of each row, as sparse rows.

        Rows with the same number of selected columns are computed together.
        """
        selection = self._require_selection(inputs[-1], len(self._x[0]))
        values = np.empty(len(selection.ids), matrices[0].dtype)
        for length in np.unique(selection.lengths[selection.lengths > 0]).tolist():
            rows = np.flatnonzero(selection.lengths == length)
            places = selection.offsets[rows, None] + np.arange(length)
            columns = selection.ids[places]
            parts = [np.einsum("ij,ikj->ik", x[rows], w[columns]) for x, w in zip(self._x, matrices, strict=True)]
            total = sum(parts[1:], parts[0])
            if self._column_bias is not None:
                total += self._column_bias.value[columns]
            values[places] = self._activation.forward(total)
        sparse = Sparse(self.size, selection.offsets, selection.ids, values)
        return Argument(sparse=sparse, starts=inputs[0].starts, sub_starts=inputs[0].sub_starts)

    def _rows_of(self, one: Argument, width: int, dtype: np.dtype[np.floating]) -> Array:
        dense = Argument(value=one.sparse.to_dense(dtype)) if one.sparse is not None else one
        return require_matrix(self, dense, width)

    def _require_selection(self, one: Argument, rows: int) -> Sparse:
        if one.sparse is None or one.sparse.width != self.size:
            raise ConfigError(f"{self}: its last input must select columns: sparse_binary_vector({self.size})")
        if one.sparse.rows != rows:
            raise DataError(f"{self}: {rows} rows need as many selections of columns, not {one.sparse.rows}")
        return one.sparse

    def _find_columns(self, one: Argument, rows: int) -> Ids:
        selection = self._require_selection(one, rows)
        lengths = selection.lengths
        if rows and (lengths != lengths[0]).any():
            raise DataError(f"{self}: every row must select equally many columns")
        return selection.ids.reshape(rows, int(lengths[0]) if rows else 0)

    def _matrix(self, weight: Parameter) -> Array:
        return weight.matrix(self.size, weight.size // self.size)
