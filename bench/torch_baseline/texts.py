"""The networks lr, cnn and lstm of quick_start in torch."""

from __future__ import annotations

import numpy as np
import torch
from numpy_baseline.data import PackedLists, Texts, find_windows
from numpy_baseline.parameters import Parameters, order_gates
from torch import Tensor, nn
from torch.nn import functional

from torch_baseline.values import Connected, load, load_matrix, pad_row

WIDTH, FEATURES, CLASSES = 128, 512, 2


class BagOfWordsModule(nn.Module):
    """lr: every word has a row of two values, and a text has the sum of the rows of its words."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.table = load_matrix(parameters, "___fc_layer_0__.w0", CLASSES)
        self.bias = load(parameters.vector("___fc_layer_0__.wbias")[0])

    def read(self, numbers: np.ndarray) -> list[Tensor]:
        """Returns the arguments of `forward` for the texts of these numbers."""
        words, lengths = self._data.words.take(numbers)
        return [torch.from_numpy(one) for one in (words, np.cumsum(lengths) - lengths, self._data.labels[numbers])]

    def forward(self, words: Tensor, starts: Tensor, labels: Tensor) -> Tensor:
        """Returns the sum of the costs."""
        sums = functional.embedding_bag(words, self.table, starts, mode="sum") + self.bias
        return functional.cross_entropy(sums, labels, reduction="sum")


class ConvolutionModule(nn.Module):
    """cnn: 512 features of windows of three words, and the maximum of each feature over the windows."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.table = load_matrix(parameters, "___embedding_0__.w0", WIDTH)
        self.features = Connected(parameters, "___sequence_conv_pooling_0___conv_fc", FEATURES)
        self.classes = Connected(parameters, "___fc_layer_0__", CLASSES)

    def read(self, numbers: np.ndarray) -> list[Tensor]:
        """Returns the arguments of `forward` for the texts of these numbers."""
        words, lengths = self._data.words.take(numbers)
        arrays = words, find_windows(lengths, -1, 3), np.cumsum(lengths) - lengths, self._data.labels[numbers]
        return [torch.from_numpy(array) for array in arrays]

    def forward(self, words: Tensor, windows: Tensor, starts: Tensor, labels: Tensor) -> Tensor:
        """Returns the sum of the costs."""
        rows = pad_row(functional.embedding(words, self.table))
        features = self.features.add_up(functional.embedding(windows, rows).flatten(1))
        # `embedding_bag` is torch's fastest maximum over sequences of different lengths. tanh is increasing, so it can
        # follow the maximum, on fewer elements.
        largest = functional.embedding_bag(torch.arange(len(features)), features, starts, mode="max")
        return functional.cross_entropy(self.classes.add_up(torch.tanh(largest)), labels, reduction="sum")


class LstmModule(nn.Module):
    """lstm: one LSTM layer of size 128 without peepholes, dropout, and the maximum of each output over the steps.

    The sequences are padded to the length of the longest sequence, because nn.LSTM over a PackedSequence does not use
    oneDNN and takes twice as long.
    """

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data, self._drop = data, 1 - keep
        self.table = load_matrix(parameters, "___embedding_0__.w0", WIDTH)
        self.layer = nn.LSTM(WIDTH, WIDTH)
        self.classes = Connected(parameters, "___fc_layer_0__", CLASSES)
        names = ("_lstm_transform___lstm_0__.w0", "___lstm_0__.w0")
        self.layer.weight_ih_l0, self.layer.weight_hh_l0 = (
            load(order_gates(parameters.matrix(name, 4 * WIDTH)[0]).T) for name in names
        )
        bias = parameters.vector("___lstm_0__.wbias")[0][: 4 * WIDTH]
        self.layer.bias_ih_l0 = load(order_gates(bias))
        self.layer.bias_hh_l0 = nn.Parameter(torch.zeros(4 * WIDTH), requires_grad=False)

    def read(self, numbers: np.ndarray) -> list[Tensor]:
        """Returns the arguments of `forward` for the texts of these numbers."""
        packing = PackedLists(self._data.words, numbers)
        steps, samples = len(packing.live), len(numbers)
        inside = np.arange(samples) < np.array(packing.live)[:, None]
        words = np.zeros((steps, samples), np.int64)
        words[inside] = packing.ids
        labels = self._data.labels[numbers[packing.order]]
        return [torch.from_numpy(array) for array in (words, ~inside[:, :, None], labels)]

    def forward(self, words: Tensor, behind: Tensor, labels: Tensor) -> Tensor:
        """Returns the sum of the costs."""
        outputs = functional.dropout(self.layer(functional.embedding(words, self.table))[0], self._drop)
        # torch's dropout scales the values that it keeps, but the trainer's dropout does not
        largest = (1 - self._drop) * outputs.masked_fill(behind, -torch.inf).amax(0)
        return functional.cross_entropy(self.classes.add_up(largest), labels, reduction="sum")
