"""Costs are refused: the outputs of a graph are the predictions from which they are computed. No I/O."""

from __future__ import annotations

from trainer.export.onnx.registry import refuse
from trainer.export.predictions import COSTS

VALIDATIONS = ("auc-validation", "pnpair-validation")

refuse("it measures a network, and has no output", *VALIDATIONS)
refuse("a cost that another layer reads has no meaning at inference", *COSTS)
