"""The gradients of a backward pass between the layer that gives one and the layer that takes it."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.arrays.arguments import Array, DistinctGradient

DISTINCT = "distinct rows"  # no output has this name: it stands for the distinct rows of the default output


class GradientFlows:
    """The gradients on their way back, by layer and, where a layer has several outputs, by the output's name.

    Args: gradients: those that the way begins with: of the default outputs of some layers.
    Shapes: a gradient has the shape of its output; that of distinct rows has the shape of these.
    """

    def __init__(self, gradients: Mapping[str, Array]) -> None:
        self._gradients: dict[str, dict[str, Array]] = {name: {"": one} for name, one in gradients.items()}

    def add(self, name: str, part: Array | DistinctGradient, output: str = "") -> None:
        """Add a part to the gradient of a layer's output; the part itself is not changed."""
        gradients = self._gradients.setdefault(name, {})
        if isinstance(part, DistinctGradient):
            part, output = part.rows, DISTINCT
        gradients[output] = gradients[output] + part if output in gradients else part

    def scale(self, name: str, factor: float) -> None:
        """Multiply the gradient that a layer's default output has gathered so far."""
        gradients = self._gradients[name]
        for output in gradients.keys() & {"", DISTINCT}:
            gradients[output] = gradients[output] * gradients[output].dtype.type(factor)

    def reach(self, name: str) -> bool:
        """Return whether a gradient of the layer has been added."""
        return name in self._gradients

    def take(self, name: str) -> dict[str, Array]:
        """Return and forget the gradients of a layer's outputs; "" is the default one."""
        return self._gradients.pop(name)
