"""Refuses costs, whose predictions take their place (trainer/export/predictions.py). No I/O."""

from __future__ import annotations

from trainer.export.onnx.registry import refuse
from trainer.export.predictions import COSTS

refuse("a cost that another layer reads has no meaning at inference", *COSTS)
