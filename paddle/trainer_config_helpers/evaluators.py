"""Evaluators."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("evaluators")
