"""The checkgrad job: the gradients of a user's own config against differences of its cost, on one batch.

Source: spec/trainer.md 7.3; trainer/Trainer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pserver import glog
from pserver.errors import ConfigError, DataError
from trainer.arguments import Array
from trainer.network import Batch
from trainer.parameters import Parameter, ParameterTable
from trainer.rng import UPPER, Stream
from trainer.session import Parts
from trainer.shares import AnyNetwork

TOLERANCE = 0.01  # a relative difference over this is marked
NEARLY_ZERO = 1e-20  # so that two zeros agree


class GradientChecking:
    """The checkgrad job; values of parameters are afterwards what they were.

    Raises (run): DataError: if there is no sample, or the cost is not finite.
    """

    def __init__(self, parts: Parts) -> None:
        if parts.train is None:
            raise ConfigError("the config has no training data; define_py_data_sources2 needs a train_list")
        self._parts, self._source = parts, parts.train

    def run(self) -> None:
        """Log the cost and a line for each parameter that is trained."""
        parts = self._parts
        self._source.start_pass()
        batch = self._source.next_batch(parts.batch_size)
        if batch is None or not batch[1]:
            raise DataError("the data provider delivers no sample; check train_list and its files")
        with np.errstate(all="ignore"):
            cost = run_forward(parts.network, batch[0])
            if not np.isfinite(cost):
                raise DataError(f"the cost of layer {parts.network.find_bad_cost()} is {cost:g}; no gradient to check")
            glog.info(f"original cost={cost:g}")
            found = check_gradients(parts.network, parts.table, batch[0], parts.flags.checkgrad_eps, parts.stream)
            for number, one in enumerate(found):
                glog.info(one.line(" ."[number % 2]))


@dataclass(frozen=True)
class Comparison:
    """How the cost changes along a direction of one parameter, by difference and by gradient.

    `step` is how far the parameter was moved, in lengths of the direction; `costs` are those of both ends.
    """

    name: str
    step: float
    costs: tuple[float, float]
    analytic_delta: float

    @property
    def true_delta(self) -> float:
        """Half the difference of the costs."""
        return 0.5 * (self.costs[0] - self.costs[1])

    @property
    def difference(self) -> float:
        """By how much the difference of the costs exceeds what the gradient says, relative to that."""
        return (NEARLY_ZERO + self.true_delta) / (NEARLY_ZERO + self.analytic_delta) - 1

    def line(self, fill: str) -> str:
        """Return the line of the log, its columns filled up with this character."""
        columns = (
            ("", self.name, 20),
            ("step=", f"{self.step:g}", 15),
            ("cost1=", f"{self.costs[0]:g}", 10),
            ("cost2=", f"{self.costs[1]:g}", 10),
            ("true_delta=", f"{self.true_delta:g}", 15),
            ("analytic_delta=", f"{self.analytic_delta:g}", 15),
        )
        text = "".join(f"{label}{value:{fill}<{width}}" for label, value, width in columns)
        mark = "" if abs(self.difference) <= TOLERANCE else " ***"  # a difference that is no number is marked, too
        return f"{text}diff={self.difference:g}{mark}"


def run_forward(network: AnyNetwork, batch: Batch) -> float:
    """Return the cost of a batch as training sees it, but with nothing dropped."""
    network.forward(batch, is_training=True)
    return network.cost()


def check_gradients(
    network: AnyNetwork, table: ParameterTable, batch: Batch, epsilon: float, stream: Stream
) -> Iterator[Comparison]:
    """Yield the comparison for each trained parameter, in order.

    Args: epsilon: the relative change of the cost to aim at.  stream: draws the directions.
    """
    cost = run_forward(network, batch)
    table.clear_gradients()
    network.backward()
    for parameter in table.trained():
        direction = draw_direction(parameter.gradient, stream)
        slope = float(np.dot(direction.astype(np.float64), parameter.gradient))
        step = cost / slope * epsilon if slope else epsilon
        move: Array = (step * direction).astype(direction.dtype)
        costs = _cost_at(network, batch, parameter, move), _cost_at(network, batch, parameter, -move)
        yield Comparison(parameter.name, step, costs, slope * step)


def draw_direction(gradient: Array, stream: Stream) -> Array:
    """Return the gradient plus a random vector half as long; only that where the gradient is zero."""
    numbers = stream.draws(gradient.size) * (2.0 / UPPER) - 1
    direction: Array = numbers.astype(gradient.dtype)
    length = np.linalg.norm(gradient)
    if length > 0:
        direction *= 0.5 * length / np.linalg.norm(direction)
        direction += gradient
    return direction


def _cost_at(network: AnyNetwork, batch: Batch, parameter: Parameter, move: Array) -> float:
    """Return the cost with the parameter moved, which is moved back."""
    kept = parameter.value.copy()
    parameter.value += move
    try:
        return run_forward(network, batch)
    finally:
        parameter.value[:] = kept
