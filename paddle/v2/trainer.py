"""The trainer."""

from trainer.v2.sgd import SGD

__all__ = ["SGD"]
