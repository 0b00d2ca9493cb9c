"""Make the log lines that users and tools read, in the format of v0.10. Numbers have the format `%g`.

Source: spec/trainer.md section 2.
"""

from __future__ import annotations

import itertools

import numpy as np

from paddle_base.runtime import glog
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import Parameter
from trainer.evaluators import Accumulator
from trainer.network.data_parallel import AnyNetwork
from trainer.telemetry.legacy_words import AT


def batch_line(batches: int, since_start: Accumulator, window: Accumulator) -> str:
    """Return the progress line after `batches` batches of the pass."""
    return (
        f" Batch={batches} samples={since_start.samples} AvgCost={since_start.average_cost():g} "
        f"CurrentCost={window.average_cost():g} Eval: {since_start.text()} CurrentEval: {window.text()}"
    )


def pass_line(number: int, batches: int, since_start: Accumulator) -> str:
    """Return the line at the end of a pass."""
    return (
        f" Pass={number} Batch={batches} samples={since_start.samples} AvgCost={since_start.average_cost():g} "
        f"Eval: {since_start.text()}"
    )


def test_line(result: Accumulator) -> str:
    """Return the log line of a test during training."""
    return f" Test samples={result.samples} cost={result.average_cost():g} Eval: {result.text()}"


def average_line(result: Accumulator) -> str:
    """Return the log line with the cost and the measures of the averaged parameters on some training batches."""
    return f" Averaged parameter: cost={result.average_cost():g} Eval: {result.text()}"


def test_pass_line(number: int, result: Accumulator) -> str:
    """Return the line of --job=test for one model."""
    return f" Pass={number} samples={result.samples} AvgCost={result.average_cost():g} Eval: {result.text()}"


def test_batch_line(batches: int, result: Accumulator) -> str:
    """Return the progress line of --job=test."""
    return f" Batch={batches} samples={result.samples} AvgCost={result.average_cost():g}"


def statistics_line(parameter: Parameter, rates: Array | None = None) -> str:
    """Return the log line about a parameter: its values after the step, its summed gradient, and its learning rates.

    Args: rates: the learning rate of every element, if the learning method has different rates for the elements.
    """
    numbers = [*_mean_and_max(parameter.value)]
    numbers += [0.0, 0.0] if parameter.is_static else _mean_and_max(parameter.gradient)
    names = ("avg_abs_val", "max_val", "avg_abs_grad", "max_grad")
    columns = (f"{name}={f'{number:g}':<11}" for name, number in zip(names, numbers, strict=True))
    line = f"{parameter.name:<20} {' '.join(columns)}"
    if rates is None or not rates.size:
        return line
    mean = rates.mean(dtype=np.float64)
    return f"{line} max_lr={f'{rates.max():g}':>11} min_lr={f'{rates.min():g}':>11} avg_lr={f'{mean:g}':>11}"


def log_layers(network: AnyNetwork) -> None:
    """Log the statistics of every layer's output in each replica. Data layers and cost layers are omitted.

    Source: --show_layer_stat.
    """
    for replica, layer in itertools.product(network.replicas, network.config.layers):
        output = replica.outputs.get(layer.name)
        if output is not None and output.value is not None and not network.is_data_or_cost(layer.name):
            glog.info(layer_line(layer.name, output.value), at=AT["layer"])


def layer_line(name: str, values: Array) -> str:
    """Return the statistics of the output of a layer. As in v0.10, `std` is the variance."""
    if not values.size:
        return f"The number of output of {name} is 0, skip to show the statistics"
    mean = values.mean(dtype=np.float64)
    variance = max(np.square(values, dtype=np.float64).mean() - mean * mean, 0.0)
    return f"The output state of {name}: mean={mean:g}, std={variance:g}, min={values.min():g}, max={values.max():g}"


def _mean_and_max(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> list[float]:
    magnitudes = np.abs(values)
    return [float(magnitudes.mean()), float(magnitudes.max())] if values.size else [0.0, 0.0]
