"""The networks lr, cnn and lstm of quick_start in TensorFlow."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy_baseline.data import PackedLists, Texts, find_windows
from numpy_baseline.parameters import Parameters, order_gates

from tensorflow_baseline.values import Connected, load_matrix, load_vector, take_windows

WIDTH, WINDOW, FEATURES, CLASSES = 128, 3, 512, 2
IDS = tf.TensorSpec([None], tf.int64)


def add_costs(sums: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the costs of all samples."""
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=sums))


class BagOfWordsGraph(tf.Module):
    """lr: every word has a row of two values, and a text has the sum of the rows of its words."""

    SIGNATURE = (IDS, IDS, IDS)

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.table = load_matrix(parameters, "___fc_layer_0__.w0", CLASSES)
        self.bias = load_vector(parameters, "___fc_layer_0__.wbias")

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the arguments of `find_cost` for the texts of these numbers."""
        words, lengths = self._data.words.take(numbers)
        return [words, np.repeat(np.arange(len(lengths)), lengths), self._data.labels[numbers]]

    def find_cost(self, words: tf.Tensor, texts: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the costs."""
        sums = tf.math.segment_sum(tf.gather(self.table, words), texts)
        return add_costs(tf.nn.bias_add(sums, self.bias), labels)


class ConvolutionGraph(tf.Module):
    """cnn: 512 features of windows of three words, and the maximum of each feature over the windows."""

    SIGNATURE = (IDS, tf.TensorSpec([None, WINDOW], tf.int64), IDS, IDS)

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.table = load_matrix(parameters, "___embedding_0__.w0", WIDTH)
        self.features = Connected(parameters, "___sequence_conv_pooling_0___conv_fc", FEATURES)
        self.classes = Connected(parameters, "___fc_layer_0__", CLASSES)

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the arguments of `find_cost` for the texts of these numbers."""
        words, lengths = self._data.words.take(numbers)
        texts = np.repeat(np.arange(len(lengths)), lengths)
        return [words, find_windows(lengths, -1, WINDOW), texts, self._data.labels[numbers]]

    def find_cost(self, words: tf.Tensor, windows: tf.Tensor, texts: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the costs."""
        features = self.features.add_up(take_windows(tf.gather(self.table, words), windows, WINDOW * WIDTH))
        # tanh is increasing, so it can follow the maximum, on fewer elements
        largest = tf.tanh(tf.math.segment_max(features, texts))
        return add_costs(self.classes.add_up(largest), labels)


class LstmGraph(tf.Module):
    """lstm: one LSTM layer of size 128 without peepholes, dropout, and the maximum of each output over the steps.

    The layer is the LSTM of Keras, because its loop takes only about half as long here as the kernel BlockLSTMV2. The
    sequences are padded to the length of the longest sequence.
    """

    SIGNATURE = (tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, None, 1]), IDS)

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data, self._keep = data, keep
        self.table = load_matrix(parameters, "___embedding_0__.w0", WIDTH)
        self._layer = tf.keras.layers.LSTM(WIDTH, return_sequences=True)
        self._layer.build((None, None, WIDTH))
        self.values = [one.value for one in self._layer.trainable_variables]
        names = ("_lstm_transform___lstm_0__.w0", "___lstm_0__.w0")
        weights = [parameters.matrix(name, 4 * WIDTH)[0] for name in names]
        bias = parameters.vector("___lstm_0__.wbias")[0][: 4 * WIDTH]
        self._layer.set_weights([order_gates(one) for one in (*weights, bias)])
        self.classes = Connected(parameters, "___fc_layer_0__", CLASSES)

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the arguments of `find_cost` for the texts of these numbers."""
        packing = PackedLists(self._data.words, numbers)
        inside = np.arange(len(numbers)) < np.array(packing.live)[:, None]
        words = np.zeros(inside.shape, np.int64)
        words[inside] = packing.ids
        # padding gets a large negative value, so that it is never the maximum
        behind = np.where(inside, np.float32(0), np.float32(-1e9))
        return [words.T, behind.T[:, :, None], self._data.labels[numbers[packing.order]]]

    def find_cost(self, words: tf.Tensor, behind: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the costs."""
        outputs = self._layer(tf.gather(self.table, words))
        if self._keep < 1:
            outputs *= tf.cast(tf.random.uniform(tf.shape(outputs)) < self._keep, tf.float32)
        return add_costs(self.classes.add_up(tf.reduce_max(outputs + behind, 1)), labels)
