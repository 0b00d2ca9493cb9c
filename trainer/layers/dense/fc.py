"""The fully connected layer: y = sum over the inputs of x_k W_k, plus a bias.

Inputs are dense or sparse rows (0/1 or with values). The work for a sparse input is proportional to the number of its
nonzeros: the forward pass sums rows of W, and the backward pass adds to these rows of W's gradient. If an id occurs
several times in a sparse row, the id's row of W is added several times. If rows of an input are repeated, the layer
multiplies each distinct row only once.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.kernels.rows import add_taken, sum_columns, sum_rows
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Flowing, sum_repeated
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_aligned


class FullyConnectedLayer(Layer):
    """The fully connected layer. This class also computes a mixed layer whose terms are all full-matrix projections.

    Shapes: x_k: (rows, I_k), dense or sparse; W_k: (I_k, size); bias: (size,); y: (rows, size).
    """

    takes_repeats = True
    owns_result = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._shapes: list[tuple[Parameter, tuple[int, int]]] = []
        for position, weight in enumerate(self.weights):
            if weight is None:
                raise ConfigError(f"{self}: its input {position} has no parameter")
            if self.size == 0 or weight.elements % self.size:
                raise ConfigError(
                    f"{self}: parameter {weight.name} has {weight.elements} values, no multiple of the "
                    f"layer's size {self.size}"
                )
            self._shapes.append((weight, (weight.elements // self.size, self.size)))
        self._inputs: Sequence[Argument] = ()

    @staticmethod
    def fits(config: LayerConfig) -> bool:
        """Return whether a mixed layer computes what an fc layer computes."""
        kinds = {one.proj_conf.type for one in config.inputs}
        return kinds == {"fc"} and not config.operator_confs and not config.shared_biases

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the weighted sums; if the only input has repeated rows, the result has repeated rows, too."""
        self._inputs = inputs
        first = inputs[0]
        if len(inputs) == 1:
            weight, shape = self._shapes[0]
            sums = self._add_bias(self._multiply(first, weight, shape))
            return first.with_value(sums) if first.distinct is None else first.with_distinct(sums)
        require_aligned(self, inputs)
        total: Array | None = None
        for one, (weight, shape) in sorted(zip(inputs, self._shapes, strict=True), key=_repeats):
            part = self._multiply(one, weight, shape)
            if total is None:
                total = part if one.index is None else part.take(one.index, axis=0)
            elif one.index is not None:
                add_taken(total, part, one.index)
            else:
                total += part
        assert total is not None  # __init__ refuses a layer without inputs
        return first.with_value(self._add_bias(total))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Flowing]:
        """Add x^T g to the gradients of the weights, and return g W^T for dense inputs, where g is `gradient`."""
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(sum_columns(gradient))
        results: list[Flowing] = []
        for one, (weight, shape), is_wanted in zip(self._inputs, self._shapes, wanted, strict=True):
            rows = gradient
            if one.index is not None and len(self._inputs) > 1:
                rows = sum_repeated(gradient, one.index)
            if not weight.is_static:
                _add_weight_gradient(one, rows, weight)
            flowing = weight.multiply(rows, shape, is_transposed=True) if is_wanted and one.sparse is None else None
            results.append(flowing if one.index is None or flowing is None else DistinctGradient(flowing))
        return results

    def _add_bias(self, total: Array) -> Array:
        if self.bias is not None:
            total += self.bias.value
        return total

    def _multiply(self, one: Argument, weight: Parameter, shape: tuple[int, int]) -> Array:
        x = one.value if one.distinct is None else one.distinct
        width = x.shape[1] if x is not None else one.sparse.width if one.sparse is not None else None
        if width is None:
            raise ConfigError(f"{self} has an input of ids; declare the slot as sparse_binary_vector or dense_vector")
        if width != shape[0]:
            raise ConfigError(f"{self}: an input has width {width}, but its weight has {shape[0]} rows")
        if x is not None:
            return weight.multiply(x, shape)
        assert one.sparse is not None  # the input has sparse rows, or width would be None
        return sum_rows(weight.matrix(*shape), one.sparse.ids, one.sparse.offsets, one.sparse.values)


def _repeats(term: tuple[Argument, object]) -> bool:
    """Return the sort key: inputs without repeated rows come first, because only their products have all rows.

    The products of the other inputs are added to the first product.
    """
    return term[0].index is not None


def _add_weight_gradient(one: Argument, gradient: Array, weight: Parameter) -> None:
    x = one.value if one.distinct is None else one.distinct
    if one.sparse is not None:
        weight.add_outer(gradient, one.sparse.ids, one.sparse.offsets, one.sparse.values)
    elif x is not None:
        weight.add_product(x, gradient)
