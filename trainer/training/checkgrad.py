"""The checkgrad job compares the gradients of a user's config with differences of the cost, for one batch.

Source: spec/trainer.md 7.3; trainer/Trainer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import UPPER, Stream
from trainer.network.check_grads import CheckedVariable, Comparison, check_grads
from trainer.network.data_parallel import AnyNetwork
from trainer.network.network import Batch
from trainer.training.parts import Parts

TOLERANCE = 0.01  # maximum relative difference of a parameter that the log does not mark


class GradientChecking:
    """The checkgrad job, which does not change the values of parameters.

    Raises (run): DataError: there is no sample, or the cost is not finite.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts, self._source = parts, parts.training_data()

    def run(self) -> None:
        """Log the cost, and a line for each trained parameter."""
        parts = self._parts
        self._source.start_pass()
        batch = self._source.next_batch(parts.batch_size)
        if batch is None or not batch[1]:
            raise DataError(f"the data provider delivers no sample; check {parts.data_text}")
        with np.errstate(all="ignore"):
            network = parts.session.network
            cost = run_forward(network, batch[0])
            if not np.isfinite(cost):
                raise DataError(f"the cost of layer {network.find_bad_cost()} is {cost:g}, so it has no gradient")
            glog.info(f"original cost={cost:g}")
            found = check_parameters(
                network, parts.session.table, batch[0], parts.flags.checkgrad_eps, parts.session.stream
            )
            for number, one in enumerate(found):
                glog.info(make_line(one, " ."[number % 2]))


def make_line(one: Comparison, fill: str) -> str:
    """Return the log line for a parameter. `fill` is the character that pads the columns."""
    columns = (
        ("", one.name, 20),
        ("step=", f"{one.step:g}", 15),
        ("cost1=", f"{one.costs[0]:g}", 10),
        ("cost2=", f"{one.costs[1]:g}", 10),
        ("true_delta=", f"{one.true_delta:g}", 15),
        ("analytic_delta=", f"{one.analytic_delta:g}", 15),
    )
    text = "".join(f"{label}{value:{fill}<{width}}" for label, value, width in columns)
    # a parameter with an undefined difference (nan) is also marked
    mark = "" if abs(one.difference) <= TOLERANCE else " ***"
    return f"{text}diff={one.difference:g}{mark}"


def run_forward(network: AnyNetwork, batch: Batch) -> float:
    """Return the cost of a batch in training mode, without dropout."""
    network.forward(batch, is_training=True)
    return network.cost()


def check_parameters(
    network: AnyNetwork, table: ParameterTable, batch: Batch, epsilon: float, stream: Stream
) -> Iterator[Comparison]:
    """Return the comparison for each trained parameter, in order.

    Args: epsilon: the desired relative change of the cost.  stream: the random stream for the directions of the steps.
    """
    cost = run_forward(network, batch)
    table.clear_gradients()
    network.backward()
    return check_grads(
        lambda: run_forward(network, batch),
        (CheckedVariable(one.name, one.value, one.gradient) for one in table.trained()),
        lambda gradient: draw_direction(gradient, stream),
        lambda slope: cost / slope * epsilon if slope else epsilon,
    )


def draw_direction(gradient: Array, stream: Stream) -> Array:
    """Return the gradient plus a random vector with half of its norm. For a zero gradient, return a random vector."""
    numbers = stream.draws(gradient.size) * (2.0 / UPPER) - 1
    direction: Array = numbers.astype(gradient.dtype)
    length = np.linalg.norm(gradient)
    if length > 0:
        direction *= 0.5 * length / np.linalg.norm(direction)
        direction += gradient
    return direction
