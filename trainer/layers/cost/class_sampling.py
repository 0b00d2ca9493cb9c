"""Costs that use only some of many classes: noise-contrastive estimation (nce) and hierarchical sigmoid (hsigmoid).

Both costs compute scores of pairs. A pair consists of a row and a class (or an inner node of the tree over the
classes). The score of a pair is b[class] plus the scalar products of x_k and W_k[class], summed over the inputs k.

Source: gserver/layers/NCELayer.cpp, HierarchicalSigmoidLayer.cpp, math/MatrixBitCode.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.rows import sum_stretches
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.activations import find_activation
from trainer.arrays.arguments import Argument, Array, Ids, find_bad_id
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_aligned, require_bias, require_matrix, require_weight
from trainer.layers.ragged import starts_of
from trainer.layers.sampling import AliasTable, SampleStream

LIMIT = 40.0  # scores of the tree's inner nodes are limited to [-LIMIT, LIMIT]


class ClassCost(Layer):
    """A cost that scores pairs (row, class).

    Inputs: x_k, label, and further inputs of a subclass. W_k: (nodes, I_k), bias: (nodes,), where nodes is the number
    of classes or inner nodes, and I_k is the width of x_k.
    """

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable, nodes: int, further_inputs: int) -> None:
        super().__init__(config, parameters)
        self._weights: list[Parameter] = []
        for position, weight in enumerate(self.weights):
            if weight is None:
                break
            if weight.size % nodes:
                raise ConfigError(f"{self}: parameter {weight.name} has {weight.size} values, no multiple of {nodes}")
            self._weights.append(require_weight(self, position, weight.size))
        many = len(self._weights)
        if not many or not many + 1 <= len(config.inputs) <= many + 1 + further_inputs:
            raise ConfigError(f"{self} needs one or more inputs with parameters, and then a label")
        self._nodes = nodes
        self._node_bias = require_bias(self, nodes)
        self._inputs: list[Array] = []
        self._rows: Ids  # row of each pair, in ascending order
        self._classes: Ids  # class of each pair

    @property
    def label_position(self) -> int:
        """The position of the label among the inputs."""
        return len(self._weights)

    def score(self, inputs: Sequence[Argument], rows: Ids, classes: Ids) -> Array:
        """Return the scores of pairs, (pairs,). The numbers in `rows` must be ascending.

        Raises: DataError: the inputs and the label have different numbers of rows.
        """
        require_aligned(self, inputs[: self.label_position + 1])
        self._rows, self._classes = rows, classes
        matrices = [self._matrix(weight) for weight in self._weights]
        self._inputs = [require_matrix(self, one, w.shape[1]) for one, w in zip(inputs, matrices, strict=False)]
        scores = np.zeros(len(rows), matrices[0].dtype)
        for x, w in zip(self._inputs, matrices, strict=True):
            scores += np.einsum("ij,ij->i", x.take(rows, axis=0), w.take(classes, axis=0))
        if self._node_bias is not None:
            scores += self._node_bias.value[classes]
        return scores

    def spread(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add to the gradients of the parameters, and return the gradients of the inputs.

        `gradient` is the gradient of the scores, (pairs,).
        """
        if self._node_bias is not None and not self._node_bias.is_static:
            self._node_bias.add_rows(self._classes, gradient[:, None])
        results: list[Array | None] = [None] * len(wanted)
        for position, (x, weight) in enumerate(zip(self._inputs, self._weights, strict=True)):
            if not weight.is_static:
                weight.add_rows(self._classes, gradient[:, None] * x.take(self._rows, axis=0))
            if wanted[position]:
                pieces = gradient[:, None] * self._matrix(weight).take(self._classes, axis=0)
                results[position] = sum_stretches(pieces, starts_of(np.bincount(self._rows, minlength=len(x))))
        return results

    def _matrix(self, weight: Parameter) -> Array:
        return weight.matrix(self._nodes, weight.size // self._nodes)

    def require_labels(self, ids: Ids, upper: int) -> Ids:
        """Return the ids, which must be in [0, upper).

        Raises: DataError: an id is out of range; the text contains this id.
        """
        wrong = find_bad_id(ids, upper)
        if wrong is not None:
            raise DataError(f"{self}: label {wrong} is not in [0, {upper}), the number of classes")
        return ids


class NoiseContrastiveCost(ClassCost):
    """Distinguishes the class of the label from random classes.

    Let o be the score of a class after the activation. Let b be num_neg_samples times the probability of the class in a
    random draw. The probabilities are neg_sampling_dist; by default all classes are equally probable. The cost of a row
    is -ln(o / (o + b)) for its label, plus -ln(b / (o + b)) for each of its num_neg_samples random classes.

    The label is an id, or a sparse row of several classes; an optional last input contains weights of the rows.
    """

    applies_activation = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        if config.num_classes < 1 or config.num_neg_samples < 1:
            raise ConfigError(f"layer {config.name} (nce) needs num_classes and num_neg_samples over 0")
        super().__init__(config, parameters, config.num_classes, 1)
        self._activation = find_activation(config.active_type, config.name)
        self._noise: npt.NDArray[np.float64] = np.array(config.neg_sampling_dist)
        if len(self._noise) not in (0, config.num_classes):
            raise ConfigError(f"{self}: neg_sampling_dist has {len(self._noise)} values instead of {self._nodes}")
        self._samples = SampleStream()
        self._aliases = AliasTable(self._noise) if len(self._noise) else None
        self._scores: Array
        self._outputs: Array
        self._is_label: npt.NDArray[np.bool_]
        self._b: Array
        self._row_weights: Array | None = None

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs, (rows, 1)."""
        label = inputs[self.label_position]
        rows, classes, self._is_label = self._choose(label)
        self._scores = self.score(inputs, rows, classes)[:, None]
        self._outputs = self._activation.forward(self._scores, None)
        shares = self._noise[classes] if len(self._noise) else np.full(len(classes), 1 / self._nodes)
        self._b = (shares * self.config.num_neg_samples).astype(self._scores.dtype)[:, None]
        chosen = np.where(self._is_label[:, None], self._outputs, self._b)
        costs = -np.log(chosen / (self._outputs + self._b))
        weight = require_matrix(self, inputs[-1], 1) if len(inputs) > self.label_position + 1 else None
        self._row_weights = None if weight is None else weight.take(rows, axis=0)
        if self._row_weights is not None:
            costs *= self._row_weights
        return inputs[0].with_value(sum_stretches(costs, starts_of(np.bincount(rows, minlength=label.rows))))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the inputs."""
        o, b = self._outputs, self._b
        part = np.where(self._is_label[:, None], -b / o, 1) / (o + b)
        part *= gradient.take(self._rows, axis=0)
        if self._row_weights is not None:
            part *= self._row_weights
        return self.spread(self._activation.backward(part, o, self._scores, None)[:, 0], wanted)

    def _choose(self, label: Argument) -> tuple[Ids, Ids, npt.NDArray[np.bool_]]:
        """Return, for all pairs, the row, the class, and whether the class is a label.

        The pairs of a row contain first the labels of the row, and then its random classes.
        """
        if label.sparse is not None:
            lengths, labels = label.sparse.lengths, label.sparse.ids
        elif label.ids is not None:
            lengths, labels = np.ones(len(label.ids), np.int64), label.ids
        else:
            raise ConfigError(f"{self} needs a label of ids or of sparse 0/1 rows")
        self.require_labels(labels, self._nodes)
        many = self.config.num_neg_samples
        counts = np.stack((lengths, np.full(len(lengths), many)), axis=1).reshape(-1)
        is_label = np.repeat(np.tile([True, False], len(lengths)), counts)
        classes: Ids = np.empty(len(is_label), np.int64)
        classes[is_label] = labels
        classes[~is_label] = self._draw(len(lengths) * many)
        return np.repeat(np.arange(len(lengths)), lengths + many), classes, is_label

    def carried(self) -> Any:
        """Return the state of the generator."""
        return self._samples.state

    def carry_on(self, state: Any) -> None:
        """Restore the state of the generator."""
        self._samples = SampleStream(state)

    def _draw(self, count: int) -> Ids:
        if self.is_training and self.stream is None:
            self._samples = SampleStream()  # a gradient check draws equal samples in every pass
        if self._aliases is None:
            return self._samples.integers(count, self._nodes)
        return self._aliases.draw(self._samples, count)


class HierarchicalSigmoidCost(ClassCost):
    """The cost is -ln of the product of sigmoids along the path of the label in a binary tree over the classes.

    The path of class c follows the bits of c + num_classes, beginning with the lowest bit. The inner node at bit j is
    ((c + num_classes) >> (j + 1)) - 1. If a path is shorter than the longest path, each missing node costs ln 2, as in
    v0.10.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        if config.num_classes < 3:
            raise ConfigError(f"layer {config.name} (hsigmoid) needs num_classes over 2, not {config.num_classes}")
        super().__init__(config, parameters, config.num_classes - 1, 0)
        self._longest: int = (config.num_classes - 1).bit_length()
        self._scores: Array
        self._bits: npt.NDArray[np.bool_]

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs, (rows, 1)."""
        label = inputs[self.label_position]
        if label.ids is None:
            raise ConfigError(f"{self} needs a label of ids (integer_value)")
        codes = self.require_labels(label.ids, self.config.num_classes) + self.config.num_classes
        nodes = codes[:, None] >> np.arange(1, self._longest + 1)
        on_path = nodes > 0
        lengths = on_path.sum(axis=1)
        rows = np.repeat(np.arange(len(codes)), lengths)
        scores = self.score(inputs, rows, nodes[on_path] - 1)
        self._scores = np.clip(scores, -LIMIT, LIMIT)
        self._bits = ((codes[:, None] >> np.arange(self._longest)) & 1 == 1)[on_path]
        costs = np.logaddexp(0, self._scores, dtype=scores.dtype) - np.where(self._bits, self._scores, 0)
        sums = sum_stretches(costs[:, None], starts_of(lengths))
        sums += (np.log(2) * (self._longest - lengths)).astype(sums.dtype)[:, None]
        return inputs[0].with_value(sums)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the inputs; the gradient of each node's score is sigmoid(score) - bit."""
        part = np.exp(-np.logaddexp(0, -self._scores, dtype=self._scores.dtype)) - self._bits
        part *= gradient[:, 0].take(self._rows)
        return self.spread(part, wanted)
