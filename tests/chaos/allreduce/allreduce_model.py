"""The data and the gradient of a trial in float64, for the workers and for the run with which they are compared."""

import numpy as np

FEATURES = 8


def make_data(samples):
    """Return inputs (samples, FEATURES) and targets (samples,), which are the same in every process."""
    random = np.random.default_rng(1)
    x = random.standard_normal((samples, FEATURES))
    return x, x @ random.standard_normal(FEATURES) + random.standard_normal(samples)


def fit(weights, x, y):
    """Return the mean gradient of half the squared error."""
    return x.T @ (x @ weights - y) / len(x)


def replay(batches, samples):
    """Return the weights after steps on these samples, computed in one process."""
    x, y = make_data(samples)
    weights = np.zeros(FEATURES)
    for batch in batches:
        weights -= 0.05 * fit(weights, x[batch], y[batch])
    return weights
