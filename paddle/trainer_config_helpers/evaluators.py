"""Evaluators."""

from trainer.config.language import exports

__all__, __getattr__ = exports("evaluators")
