"""The trainings of bench/train.py in TensorFlow: a whole step is one `tf.function`.

bench/baseline.py describes the command line. Only the LSTM is a layer of Keras. The optimisers are TensorFlow's own
kernels, with one call for each variable, because those of Keras are graphs of many small operations. The gradients of
embeddings are converted to dense tensors, so that RMSProp and Adam change every element, as in the trainer. Batches
have different shapes, and one graph serves all shapes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from baseline import Step, make_parser, run_passes
from numpy_baseline.data import Ratings, Texts
from numpy_baseline.parameters import Parameters

from tensorflow_baseline.optimizers import AdamKernels, RmsPropKernels
from tensorflow_baseline.recommendation import RecommendationGraph
from tensorflow_baseline.texts import BagOfWordsGraph, ConvolutionGraph, LstmGraph

NETWORKS: Mapping[str, tuple[Callable, Callable]] = {
    "recommendation": (RecommendationGraph, RmsPropKernels),
    "lr": (BagOfWordsGraph, AdamKernels),
    "cnn": (ConvolutionGraph, AdamKernels),
    "lstm": (LstmGraph, AdamKernels),
}


def make_step(options: argparse.Namespace, data: Ratings | Texts, parameters: Parameters, rate: float) -> Step:
    """Returns a function that trains on a batch."""
    make_network, make_optimizer = NETWORKS[options.workload]
    tf.random.set_seed(1)
    network = make_network(data, parameters, options.keep)
    optimizer = make_optimizer(network.trainable_variables, rate)

    @tf.function(input_signature=network.SIGNATURE)
    def run(*slots: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            cost = network.find_cost(*slots)  # the cost is the sum over the samples, as in the trainer
        optimizer.apply(tape.gradient(cost, network.trainable_variables))
        return cost

    def step(numbers: np.ndarray) -> float:
        return float(run(*network.read(numbers))) / len(numbers)

    return step


if __name__ == "__main__":
    run_passes(make_parser("tensorflow_baseline", __doc__).parse_args(), make_step)
