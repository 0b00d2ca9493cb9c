"""The gradients of a backward pass, on their way from the layers that return them to the layers that need them."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.arrays.arguments import Array, DistinctGradient

DISTINCT = "distinct rows"  # not the name of any output: the key of the gradient of the default output's distinct rows


class GradientFlows:
    """The gradients in a backward pass, by layer and, for a layer with several outputs, by output name.

    Args: gradients: the initial gradients of the default outputs of some layers.
    Shapes: a gradient has the shape of its output; that of distinct rows has their shape.
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
        """Multiply the present gradient of a layer's default output."""
        gradients = self._gradients[name]
        for output in gradients.keys() & {"", DISTINCT}:
            gradients[output] = gradients[output] * gradients[output].dtype.type(factor)

    def reach(self, name: str) -> bool:
        """Return whether a gradient of the layer has been added."""
        return name in self._gradients

    def take(self, name: str) -> dict[str, Array]:
        """Return and remove the gradients of a layer's outputs; "" is the default output."""
        return self._gradients.pop(name)
