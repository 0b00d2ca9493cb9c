"""The data and the gradient of a trial in float64, for the workers and for the run with which they are compared."""

import numpy as np

FEATURES = 8
MOMENTUM, GAMMA = 0.5, 0.8  # of the optimizer of torch, and of its learning rate from epoch to epoch


def make_data(samples):
    """Return inputs (samples, FEATURES) and targets (samples,), which are the same in every process."""
    random = np.random.default_rng(1)
    x = random.standard_normal((samples, FEATURES))
    return x, x @ random.standard_normal(FEATURES) + random.standard_normal(samples)


def fit(weights, x, y):
    """Return the mean gradient of half the squared error."""
    return x.T @ (x @ weights - y) / len(x)


def replay(batches, samples, momentum=0.0, rates=None):
    """Return the weights after steps on these samples, computed in one process.

    Args: rates: the learning rate of each step; None: 0.05.
    """
    x, y = make_data(samples)
    weights, velocity = np.zeros(FEATURES), np.zeros(FEATURES)
    for batch, rate in zip(batches, rates or [0.05] * len(batches), strict=True):
        velocity = momentum * velocity + fit(weights, x[batch], y[batch])
        weights -= rate * velocity
    return weights
