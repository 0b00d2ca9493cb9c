"""Memories of a recurrent group: the values that a step reads from the previous step, and their gradients.

Source: spec/config.md 12; gserver/gradientmachines/RecurrentGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import MemoryConfig
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import Parameter


@dataclass
class GroupMemory:
    """A memory during one batch; the boot rows are the values before the first step, in packed order."""

    record: MemoryConfig
    size: int
    boot: Argument
    # gradient of the memory's agent in the next step; for a static memory, the sum of its gradients in all later steps
    gradient: Array | None = None
    bias: Parameter | None = None
    source: int | None = None
    rows: Ids | None = None  # the numbers of the boot layer's rows, in packed order

    @property
    def is_static(self) -> bool:
        """Whether the memory returns its boot rows at every step."""
        return bool(self.record.layer_name == self.record.link_name)

    def add_gradient(self, gradients: dict[str, Array], outputs: Mapping[str, Argument]) -> None:
        """Add the gradient that comes from the next step to the gradient of the layer that the memory remembers."""
        name = self.record.layer_name
        target = None if self.is_static or self.gradient is None else outputs[name].value
        if target is not None and self.gradient is not None:
            total = gradients[name].copy() if name in gradients else np.zeros_like(target)
            total[: len(self.gradient)] += self.gradient
            gradients[name] = total

    def take_gradient(self, part: Array | None) -> None:
        """Store the gradient of the memory's agent in a step; for a static memory, add it to the stored gradient."""
        if not self.is_static:
            self.gradient = part
        elif part is not None and self.boot.value is not None:
            if self.gradient is None:
                self.gradient = np.zeros_like(self.boot.value)
            self.gradient[: len(part)] += part
