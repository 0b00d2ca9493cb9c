"""The gradient check, which compares the derivatives of a backward pass with differences of the cost.

    variables = [CheckedVariable(one.name, one.value, one.gradient.copy()) for one in table.trained()]
    for one in check_grads(cost, variables, draw_direction, choose_step):
        assert abs(one.difference) < 1e-6, one.name

The checkgrad job and the tests of all layers (tests/layer_checks.py) use this check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from trainer.arrays.arguments import Array

NEARLY_ZERO = 1e-20  # added to the measured and the predicted change of the cost, so that two zeros have the ratio 1


@dataclass(frozen=True)
class CheckedVariable:
    """An array that the cost depends on, and the derivative of the cost with respect to it.

    Shapes: value and gradient have equal shapes.
    """

    name: str
    value: Array
    gradient: Array


@dataclass(frozen=True)
class Comparison:
    """The change of the cost when one variable moves along a direction: the measured and the predicted change.

    Attributes: step: the variable moves by this multiple of the direction, once forward and once backward. costs: the
        cost after the move forward, and the cost after the move backward. analytic_delta: the change of the cost that
        the gradient predicts for the move forward.
    """

    name: str
    step: float
    costs: tuple[float, float]
    analytic_delta: float

    @property
    def true_delta(self) -> float:
        """The measured change of the cost: half the difference of the two costs."""
        return 0.5 * (self.costs[0] - self.costs[1])

    @property
    def difference(self) -> float:
        """The relative excess of the measured change of the cost over the change that the gradient predicts."""
        return (NEARLY_ZERO + self.true_delta) / (NEARLY_ZERO + self.analytic_delta) - 1


def check_grads(
    cost: Callable[[], float],
    variables: Iterable[CheckedVariable],
    draw_direction: Callable[[Array], Array],
    choose_step: Callable[[float], float],
) -> Iterator[Comparison]:
    """Yield the comparison for each variable, in order.

    Args: cost: computes the cost from the present values of the variables, always with the same random numbers.
        variables: the variables. Each variable in turn is changed in place along a direction, and then restored.
        draw_direction: takes a gradient, and returns a direction of the same shape.
        choose_step: takes the derivative of the cost along the direction, and returns the step.
    """
    for variable in variables:
        direction = draw_direction(variable.gradient)
        slope = float(np.vdot(direction.astype(np.float64), variable.gradient))
        step = choose_step(slope)
        move: Array = (step * direction).astype(direction.dtype)
        costs = _cost_at(cost, variable.value, move), _cost_at(cost, variable.value, -move)
        yield Comparison(variable.name, step, costs, slope * step)


def _cost_at(cost: Callable[[], float], value: Array, move: Array) -> float:
    """Return the cost at value + move, and restore the array `value`."""
    kept = value.copy()
    value += move
    try:
        return cost()
    finally:
        value[...] = kept
