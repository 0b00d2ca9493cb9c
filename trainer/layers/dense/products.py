"""Layers that multiply rows with rows: dot, outer and bilinear products, circular convolution, interactions of pairs.

x, (rows, m), are the rows of the first input, and y, (rows, n), are the rows of the second input.
Source: the files of these layers in gserver/layers of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import sum_rows
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import require_matrix, require_rows, require_same_rows, require_weight


class PairLayer(Layer):
    """A layer with two dense inputs; it keeps the inputs for `backward`."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self.x: Array
        self.y: Array

    def multiply(self) -> Array:
        """Return the output, (rows, size), computed from x and y."""
        raise NotImplementedError

    def expected_size(self) -> int:
        """Return the size that the layer must have for the widths of x and y, or -1 if the widths do not match."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the result, with the sequences of the first input.

        Raises: ConfigError: the sizes do not fit together.
        """
        self.x, self.y = (require_rows(self, one) for one in inputs)
        require_same_rows(self, [self.x, self.y])
        if self.expected_size() != self.size:
            raise ConfigError(
                f"{self}: inputs of width {self.x.shape[1]} and {self.y.shape[1]} do not give size {self.size}"
            )
        return inputs[0].with_value(self.multiply())


class DotProductLayer(PairLayer):
    """The result is x . y, one number for each row."""

    def expected_size(self) -> int:
        """Return 1 if the inputs have equal widths, else -1."""
        return 1 if self.x.shape == self.y.shape else -1

    def multiply(self) -> Array:
        """Return x . y."""
        product: Array = np.einsum("ij,ij->i", self.x, self.y)[:, None]
        return product

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return gradient * y and gradient * x."""
        return [gradient * other if want else None for other, want in zip((self.y, self.x), wanted, strict=True)]


class DistanceLayer(PairLayer):
    """The result is |x - y|, one number for each row; if this number is zero, the gradient is zero, too."""

    _difference: Array
    _distance: Array

    def expected_size(self) -> int:
        """Return 1 if the inputs have equal widths, else -1."""
        return 1 if self.x.shape == self.y.shape else -1

    def multiply(self) -> Array:
        """Return |x - y|."""
        self._difference = self.x - self.y
        self._distance = np.sqrt(np.einsum("ij,ij->i", self._difference, self._difference))[:, None]
        return self._distance

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return gradient * (x - y) / |x - y|, and the negative of this array."""
        factor = gradient / np.where(self._distance > 0, self._distance, 1)
        part: Array = self._difference * factor
        return [part if wanted[0] else None, -part if wanted[1] else None]


class OuterProductLayer(PairLayer):
    """The products x_i y_j for all i and j; j varies fastest."""

    def expected_size(self) -> int:
        """Return m n."""
        size: int = self.x.shape[1] * self.y.shape[1]
        return size

    def multiply(self) -> Array:
        """Return the products."""
        return outer(self.x, self.y)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the sum over j of g_ij y_j for each x_i, and the sum over i of g_ij x_i for each y_j.

        g is the gradient of the products x_i y_j.
        """
        return split_outer(gradient, self.x, self.y, wanted)


class TensorLayer(PairLayer):
    """The result is x W_k y^T for every k, plus a bias. W: (size, m, n)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        weight = self.weights[0] if self.weights else None
        if weight is None or not self.size or weight.size % self.size:
            raise ConfigError(f"{self}: its first input needs a parameter of the layer's size times both input sizes")
        self._weight = weight
        self._bias = Bias(self)
        self._outer: Array

    def expected_size(self) -> int:
        """Return the number of elements of the parameter, divided by the product m * n."""
        size: int = self._weight.size // max(1, self.x.shape[1] * self.y.shape[1])
        return size

    def multiply(self) -> Array:
        """Return x W_k y^T for every k; one product of the matrix of all x_i y_j and W computes these values."""
        self._outer = outer(self.x, self.y)
        product: Array = self._outer @ self._weight.matrix(self.size, self._outer.shape[1]).T
        return self._bias.add_to(product, is_fresh=True)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add the sums of gradient_k x_i y_j to the gradient of W, and return the gradients of x and y."""
        self._bias.backward(gradient)
        if not self._weight.is_static:
            self._weight.add_product(gradient, self._outer)
        return split_outer(gradient @ self._weight.matrix(self.size, self._outer.shape[1]), self.x, self.y, wanted)


def outer(x: Array, y: Array) -> Array:
    """Return x_i y_j of each row. Shapes: x: (rows, m), y: (rows, n) -> (rows, m n)."""
    products: Array = x[:, :, None] * y[:, None, :]
    return products.reshape(len(x), x.shape[1] * y.shape[1])


def split_outer(gradient: Array, x: Array, y: Array, wanted: Sequence[bool]) -> list[Array | None]:
    """Return the gradients of x and y from the gradient of `outer(x, y)`."""
    matrices = gradient.reshape(len(x), x.shape[1], y.shape[1])
    return [
        np.einsum("kij,kj->ki", matrices, y) if wanted[0] else None,
        np.einsum("kij,ki->kj", matrices, x) if wanted[1] else None,
    ]


class CircularConvolutionLayer(PairLayer):
    """Result i is the sum over j of x_(i + j - middle) y_j.

    The index of x wraps around. The length of y is odd, and middle is the index of its middle element.
    """

    def expected_size(self) -> int:
        """Return the width of x if the width of y is odd, else -1."""
        size: int = self.x.shape[1] if self.y.shape[1] % 2 else -1
        return size

    def multiply(self) -> Array:
        """Return the convolved rows."""
        result: Array = np.zeros_like(self.x)
        for j, offset in self._taps():
            result += np.roll(self.x, -offset, axis=1) * self.y[:, j : j + 1]
        return result

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of x and y."""
        of_x, of_y = np.zeros_like(self.x), np.empty_like(self.y)
        for j, offset in self._taps():
            of_x += np.roll(gradient * self.y[:, j : j + 1], offset, axis=1)
            of_y[:, j] = np.einsum("ij,ij->i", gradient, np.roll(self.x, -offset, axis=1))
        return [of_x if wanted[0] else None, of_y if wanted[1] else None]

    def _taps(self) -> list[tuple[int, int]]:
        """Return each j with its offset, j - middle."""
        length = self.y.shape[1]
        return [(j, j - (length - 1) // 2) for j in range(length)]


class LinearCombinationLayer(PairLayer):
    """The result is the sum over k of w_k v_k. Inputs: w (rows, n); v (rows, n * size), the v_k side by side."""

    def expected_size(self) -> int:
        """Return the width of v divided by the width of w."""
        width, many = self.y.shape[1], self.x.shape[1]
        return -1 if width % many else width // many

    def multiply(self) -> Array:
        """Return the combinations."""
        result: Array = np.einsum("ik,ikj->ij", self.x, self._vectors())
        return result

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return gradient . v_k and w_k * gradient for every k."""
        return [
            np.einsum("ij,ikj->ik", gradient, self._vectors()) if wanted[0] else None,
            outer(self.x, gradient) if wanted[1] else None,
        ]

    def _vectors(self) -> Array:
        return self.y.reshape(len(self.y), self.x.shape[1], self.size)


class FactorizationMachineLayer(Layer):
    """The result is the sum over all pairs i < j of (v_i . v_j) x_i x_j, one number for each row.

    The layer computes this number as half the sum over the factors f of (sum_i v_if x_i)^2 - sum_i v_if^2 x_i^2.

    Shapes: x: (rows, n), dense or sparse; V: (n, factor_size). A sparse row contains each column at most once.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        weight = self.weights[0]
        if weight is None or not config.factor_size or weight.size % config.factor_size:
            raise ConfigError(f"{self} needs a parameter of the input's size times factor_size {config.factor_size}")
        self._shape = weight.size // config.factor_size, config.factor_size
        self._weight = require_weight(self, 0, weight.size)
        self._input: Argument
        self._sums: Array  # (rows, factor_size)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sums."""
        self._input = inputs[0]
        v = self._weight.matrix(*self._shape)
        lengths = np.einsum("ij,ij->i", v, v)[:, None]
        sparse = self._input.sparse
        if sparse is None:
            x = require_matrix(self, self._input, len(v))
            self._sums, squares = x @ v, np.square(x) @ lengths
        else:
            if sparse.width != len(v):
                raise ConfigError(f"{self}: its input has width {sparse.width}, but its parameter has {len(v)} rows")
            self._sums = sum_rows(v, sparse.ids, sparse.offsets, sparse.values)
            squares = sum_rows(lengths, sparse.ids, sparse.offsets, _square(sparse))
        pairs = np.einsum("ij,ij->i", self._sums, self._sums)[:, None] - squares
        return inputs[0].with_value(pairs * pairs.dtype.type(0.5))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add g x_i s - g x_i^2 v_i to the gradient of v_i, where g is `gradient`, and s is the sum over i of v_i x_i.

        Returns: g (v_i . s - x_i |v_i|^2), the gradient of each x_i.
        """
        v, x, sparse = self._weight.matrix(*self._shape), self._input.value, self._input.sparse
        scaled = gradient * self._sums
        if not self._weight.is_static:
            if sparse is not None:
                self._weight.add_outer(scaled, sparse.ids, sparse.offsets, sparse.values)
                rows = gradient[sparse.row_of, 0] * (1 if sparse.values is None else np.square(sparse.values))
                squares = np.bincount(sparse.ids, rows, minlength=len(v)).astype(v.dtype)[:, None]
            else:
                assert x is not None  # `forward` refuses an input that has neither dense nor sparse rows
                self._weight.add_product(x, scaled)
                squares = np.square(x).T @ gradient
            self._weight.gradient_matrix(*self._shape)[...] -= squares * v
        if x is None or not wanted[0]:
            return [None]
        return [scaled @ v.T - gradient * x * np.einsum("ij,ij->i", v, v)]


def _square(sparse: Sparse) -> Array | None:
    return None if sparse.values is None else np.square(sparse.values)
