"""Layers that measure in the place of a cost: auc-validation and pnpair-validation.

The measuring is that of an evaluator (trainer/evaluators/validation.py), which the session makes for such a layer.

Source: gserver/layers/ValidationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.arrays.arguments import Argument
from trainer.layers.base import Layer


class ValidationLayer(Layer):
    """It has no output and no cost, and nothing flows back to its inputs."""

    takes_gradient = False

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return an output of nothing."""
        return Argument()


LAYERS: dict[str, type[Layer]] = {"auc-validation": ValidationLayer, "pnpair-validation": ValidationLayer}
