"""The networks lr and cnn of quick_start; their `run` computes the cost and the gradients of a batch."""

from __future__ import annotations

import numpy as np

from numpy_baseline.data import PackedLists, Texts
from numpy_baseline.parameters import Array, Buffers, Parameters
from numpy_baseline.parts import Classes, MaxPool, add_bias_and_squash, copy_windows, sum_windows, unsquash


class BagOfWordsNetwork:
    """lr: every word has a row of two values, and a text has the sum of the rows of its words."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end = data, Classes(parameters)
        self._w, self._d_w = parameters.matrix("___fc_layer_0__.w0", 2)

    def run(self, numbers: Array) -> float:
        ids, lengths = self._data.words.take(numbers)
        starts = np.cumsum(lengths) - lengths
        pairs = self._w.view(np.complex64)[:, 0]  # a row is one complex number, so that one addition adds both columns
        z = np.add.reduceat(pairs[ids], starts).view(np.float32).reshape(-1, 2)
        cost, d_z = self._end.costs(z, self._data.labels[numbers])
        for column in (0, 1):
            self._d_w[:, column] = np.bincount(ids, np.repeat(d_z[:, column], lengths), len(self._w))
        return cost


class ConvolutionNetwork:
    """cnn: 512 features of windows of three words, and the maximum of each feature over the windows."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end, self._parameters, self._buffers = data, Classes(parameters), parameters, Buffers()
        self._table, self._d_table = parameters.matrix("___embedding_0__.w0", 128)
        self._w, self._d_w = parameters.matrix("___sequence_conv_pooling_0___conv_fc.w0", 512)
        self._b, self._d_b = parameters.vector("___sequence_conv_pooling_0___conv_fc.wbias")
        self._pool = MaxPool(512, self._buffers, "pool")

    def run(self, numbers: Array) -> float:
        packing, buffers = PackedLists(self._data.words, numbers), self._buffers
        rows = packing.rows
        x, windows = buffers("x", rows, 128), buffers("windows", rows, 384)
        np.take(self._table, packing.ids, axis=0, out=x, mode="clip")
        copy_windows(x, packing, -1, 3, windows.reshape(rows, 3, 128))
        y = np.matmul(windows, self._w, out=buffers("y", rows, 512))
        add_bias_and_squash(y, self._b)
        cost, d_pooled = self._end.run(self._pool.forward(y, packing), self._data.labels[numbers[packing.order]])
        d_y = buffers("d_y", rows, 512)
        self._pool.backward(d_pooled, d_y)
        unsquash(d_y, y, y)
        d_y.sum(axis=0, out=self._d_b)
        np.matmul(windows.T, d_y, out=self._d_w)
        d_windows = np.matmul(d_y, self._w.T, out=windows)
        sum_windows(d_windows.reshape(rows, 3, 128), packing, -1, x)
        self._parameters.add_rows(self._d_table, packing.ids, x)
        return cost
