"""Evaluators measure the network's results. The log shows the measures beside the cost.

Each family of evaluators has a module. `make_evaluators` selects an evaluator's class by the type in its config; the
decorator `evaluates` of a class names this type.

Source: spec/trainer.md 6.2 - 6.10; gserver/evaluators of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError
from trainer.evaluators import (  # noqa: F401 - the modules enter their classes into EVALUATORS
    auc,
    chunk,
    classification,
    ctc,
    detection,
    pnpair,
    precision_recall,
    printers,
    sums,
)
from trainer.evaluators.base import EVALUATORS, Accumulator, Evaluator

__all__ = ["EVALUATORS", "Accumulator", "Evaluator", "make_evaluators"]


def make_evaluators(configs: Sequence[EvaluatorConfig]) -> list[Evaluator]:
    """Return the evaluators of a model, in order.

    Raises: ConfigError: a type is not supported; the text lists the supported types.
    """
    for config in configs:
        if config.type not in EVALUATORS:
            raise ConfigError(
                f"evaluator {config.name}: type '{config.type}' is not supported yet; "
                f"supported are {', '.join(sorted(EVALUATORS))}"
            )
    return [EVALUATORS[config.type](config) for config in configs]
