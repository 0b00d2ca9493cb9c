"""Functions that load the parameters saved by `paddle train` into TensorFlow, and a fully connected layer."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy_baseline.parameters import Parameters


def load_matrix(parameters: Parameters, name: str, width: int) -> tf.Variable:
    """Returns a variable with rows of this width."""
    return tf.Variable(parameters.matrix(name, width)[0])


def load_vector(parameters: Parameters, name: str) -> tf.Variable:
    return tf.Variable(parameters.vector(name)[0])


class Connected(tf.Module):
    """A fully connected layer with tanh; several inputs are concatenated, and their matrices are stacked."""

    def __init__(self, parameters: Parameters, name: str, width: int, *, inputs: int = 1) -> None:
        super().__init__()
        weights = [parameters.matrix(f"{name}.w{number}", width)[0] for number in range(inputs)]
        self.weight = tf.Variable(np.concatenate(weights))
        self.bias = load_vector(parameters, f"{name}.wbias")

    def add_up(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the outputs before tanh."""
        return tf.nn.bias_add(x @ self.weight, self.bias)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(self.add_up(x))


def take_windows(rows: tf.Tensor, windows: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the rows of each window as one row; the total number of rows stands for a row of zeros.

    Args: size: number of elements of all rows of a window.
    """
    return tf.reshape(tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), windows), [-1, size])
