"""Evaluators, which add metrics to the events of the trainer, for example `paddle.evaluator.auc`."""

from trainer.v2.names import evaluator_names, getter

_NAMES = evaluator_names()
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
