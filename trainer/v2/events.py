"""What `SGD.train` tells the event handler of a program.

Source: spec/v2.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.evaluators import Accumulator
from trainer.session import Session
from trainer.v2.fields import fields_of


class Metrics(dict[str, float]):
    """The metrics of a batch, a pass or a test: {name: number}, which do not change any more."""

    def getNames(self) -> list[str]:
        """Return the names."""
        return list(self)

    def getValue(self, name: str) -> float:
        """Return a number."""
        return self[name]


def read_metrics(total: Accumulator, configs: Sequence[EvaluatorConfig]) -> Metrics:
    """Return the metrics of a sum, under the names of v0.10.

    v0.10 called the recall of precision_recall `recal`; it has both names here. Without a positive label, v0.10
    also had numbers of no class, which are 0 here.
    """
    found = Metrics(total.metrics())
    for one in configs:
        if one.type != "precision_recall":
            continue
        for name in ("precision", "recall", "F1-score"):
            found.setdefault(f"{one.name}.{name}", 0.0)
        found[f"{one.name}.recal"] = found[f"{one.name}.recall"]
    return found


class Machine:
    """The network that trains, for event handlers: `event.gm`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def getLayerOutputs(self, layerNames: str | Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return {layer: {"value": matrix, "id": ids, "prob": matrix}} for the last batch; a layer lacks some of them.

        Raises: ConfigError: the network does not compute the layer.
        """
        names = [layerNames] if isinstance(layerNames, str) else list(layerNames)
        outputs = self._session.outputs(names)
        return {name: fields_of(output) for name, output in outputs.items()}

    def getLayerOutput(self, name: str) -> Mapping[str, Any]:
        """Return {"value": matrix, "id": ids, "prob": matrix} of one layer."""
        return self.getLayerOutputs([name])[name]


class WithMetric:
    """An event with metrics."""

    def __init__(self, evaluator: Metrics) -> None:
        self.evaluator = evaluator

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics by name."""
        return dict(self.evaluator)


class TestResult(WithMetric):
    """The result of `SGD.test`. Attributes: cost: the cost per sample."""

    __test__ = False  # pytest collects classes by this name

    def __init__(self, evaluator: Metrics, cost: float) -> None:
        super().__init__(evaluator)
        self.cost = cost


class BeginPass:
    """A pass begins."""

    def __init__(self, pass_id: int) -> None:
        self.pass_id = pass_id


class EndPass(WithMetric):
    """A pass has ended; the metrics are those of all its batches."""

    def __init__(self, pass_id: int, evaluator: Metrics, gm: Any = None) -> None:
        super().__init__(evaluator)
        self.pass_id, self.gm = pass_id, gm


class BeginIteration:
    """A batch begins."""

    def __init__(self, pass_id: int, batch_id: int) -> None:
        self.pass_id, self.batch_id = pass_id, batch_id


class EndForwardBackward:
    """The gradients of a batch are there, and the values have not changed yet."""

    def __init__(self, pass_id: int, batch_id: int, gm: Any) -> None:
        self.pass_id, self.batch_id, self.gm = pass_id, batch_id, gm


class EndIteration(WithMetric):
    """A batch has ended. Attributes: cost: the cost per sample."""

    def __init__(self, pass_id: int, batch_id: int, cost: float, evaluator: Metrics, gm: Any = None) -> None:
        super().__init__(evaluator)
        self.pass_id, self.batch_id, self.cost, self.gm = pass_id, batch_id, cost, gm
