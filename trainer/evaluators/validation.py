"""What the layers auc-validation and pnpair-validation measure: one line of its own at the end of a pass.

Source: spec/trainer.md section 7.2; gserver/layers/ValidationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto.ModelConfig_pb2 import EvaluatorConfig, LayerConfig
from runtime import glog
from trainer.arrays.arguments import Argument
from trainer.evaluators.auc import LastColumnAuc
from trainer.evaluators.base import Evaluator, Measure
from trainer.evaluators.pnpair import Pnpair

# type of layer -> the evaluator that measures, its type
MEASURES: Mapping[str, tuple[type[Evaluator], str]] = {
    "auc-validation": (LastColumnAuc, "last-column-auc"),
    "pnpair-validation": (Pnpair, "pnpair"),
}


class Validation(Evaluator):
    """Measures as the evaluator of its layer's type does; it says so at the end of a pass, and in no other line."""

    most_inputs = 4
    is_quiet = True

    def __init__(self, layer: LayerConfig) -> None:
        measure, kind = MEASURES[layer.type]
        names = [one.input_layer_name for one in layer.inputs]
        config = EvaluatorConfig(name=layer.name, type=kind, input_layers=names)
        super().__init__(config)
        self._measure = measure(config)

    def nothing(self) -> Measure:
        """Return the measure of no batch."""
        return self._measure.nothing()

    def measure(self, outputs: Mapping[str, Argument]) -> Measure:
        """Return the batch's measure."""
        return self._measure.measure(outputs)

    def finish_pass(self, total: Any) -> None:
        """Log the result."""
        self._measure.finish(total)
        glog.info(self._measure.text(total))


def make_validations(layers: Sequence[LayerConfig]) -> list[Evaluator]:
    """Return what measures for the validation layers of a model, in order."""
    return [Validation(layer) for layer in layers if layer.type in MEASURES]
