"""The data and the gradient of a trial: numpy in float64, for the workers and for the run that they must equal."""

import numpy as np

FEATURES = 8


def make_data(samples):
    """Return (samples, FEATURES) inputs and (samples,) targets, the same ones in every process."""
    random = np.random.default_rng(1)
    x = random.standard_normal((samples, FEATURES))
    return x, x @ random.standard_normal(FEATURES) + random.standard_normal(samples)


def fit(weights, x, y):
    """Return the mean gradient of half the squared error."""
    return x.T @ (x @ weights - y) / len(x)


def replay(batches, samples):
    """Return the weights after steps on these samples, in one process."""
    x, y = make_data(samples)
    weights = np.zeros(FEATURES)
    for batch in batches:
        weights -= 0.05 * fit(weights, x[batch], y[batch])
    return weights
