"""Layers that a config uses like costs, but that only measure: auc-validation and pnpair-validation.

For each of these layers the program creates an evaluator (trainer/evaluators/validation.py), which measures.

Source: gserver/layers/ValidationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.arrays.arguments import Argument
from trainer.layers.base import Layer


class ValidationLayer(Layer):
    """A layer without an output and without a cost; its inputs get no gradient."""

    takes_gradient = False

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return an empty output."""
        return Argument()
