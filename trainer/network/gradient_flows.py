"""The gradients of a backward pass. A layer takes the gradients of its outputs, and adds gradients of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainer.arrays.arguments import Array, DistinctGradient, PickedGradient

# key for the gradient of the default output's distinct rows; no output has this name
DISTINCT = "distinct rows"


class GradientFlows:
    """The gradients in a backward pass, by layer and by output name.

    Args: gradients: the initial gradients of the default outputs of some layers.
    Shapes: a gradient has the shape of its output; the gradient of distinct rows has the shape of the distinct rows.
    """

    def __init__(self, gradients: Mapping[str, Array]) -> None:
        self._gradients: dict[str, dict[str, Array]] = {name: {"": one} for name, one in gradients.items()}
        # by layer: the gradient of the default output, if it consists of only one PickedGradient
        self._picked: dict[str, PickedGradient] = {}

    def add(self, name: str, part: Array | DistinctGradient | PickedGradient, output: str = "") -> None:
        """Add a part to the gradient of a layer's output. The part itself is not changed."""
        if isinstance(part, PickedGradient):
            if not output and name not in self._gradients:
                self._gradients[name], self._picked[name] = {}, part
                return
            part = part.to_dense()
        self._spread(name)
        gradients = self._gradients.setdefault(name, {})
        if isinstance(part, DistinctGradient):
            part, output = part.rows, DISTINCT
        gradients[output] = gradients[output] + part if output in gradients else part

    def scale(self, name: str, factor: float) -> None:
        """Multiply the present gradient of a layer's default output by the factor."""
        gradients = self._gradients[name]
        picked = self._picked.get(name)
        if picked is not None:
            self._picked[name] = replace(picked, values=picked.values * picked.values.dtype.type(factor))
        for output in gradients.keys() & {"", DISTINCT}:
            gradients[output] = gradients[output] * gradients[output].dtype.type(factor)

    def begin(self, name: str, gradient: Array) -> None:
        """Set the gradient of a layer's default output, whatever has been added to it."""
        self._picked.pop(name, None)
        self._gradients.setdefault(name, {})[""] = gradient

    def reach(self, name: str) -> bool:
        """Return whether a gradient of a layer's output has been added."""
        return name in self._gradients

    def take_picked(self, name: str) -> PickedGradient | None:
        """Remove and return the gradient of the default output if it is a PickedGradient; otherwise return None."""
        return self._picked.pop(name, None)

    def take(self, name: str) -> dict[str, Array]:
        """Remove and return the gradients of a layer's outputs by name; "" is the default output."""
        self._spread(name)
        return self._gradients.pop(name)

    def _spread(self, name: str) -> None:
        """Replace a PickedGradient by a dense array."""
        picked = self._picked.pop(name, None)
        if picked is not None:
            self._gradients[name][""] = picked.to_dense()
