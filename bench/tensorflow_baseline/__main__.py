"""The trainings of bench/train.py in TensorFlow: a `tf.function` for each whole step.

bench/baseline.py says how it is run. Only the LSTM is a layer of Keras. The optimisers are TensorFlow's own kernels,
one call for each variable; those of Keras are graphs of many small operations. The gradients of embeddings are made
dense: RMSProp and Adam then change every element, as the trainer's do. Batches have unequal shapes, and the graph is
made once for all of them.
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
    """Returns what trains on a batch."""
    make_network, make_optimizer = NETWORKS[options.workload]
    tf.random.set_seed(1)
    network = make_network(data, parameters, options.keep)
    optimizer = make_optimizer(network.trainable_variables, rate)

    @tf.function(input_signature=network.SIGNATURE)
    def run(*slots: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            cost = network.find_cost(*slots)  # the sum over the samples, as the trainer's
        optimizer.apply(tape.gradient(cost, network.trainable_variables))
        return cost

    def step(numbers: np.ndarray) -> float:
        return float(run(*network.read(numbers))) / len(numbers)

    return step


if __name__ == "__main__":
    run_passes(make_parser("tensorflow_baseline", __doc__).parse_args(), make_step)
