"""Networks of several layers, inputs() and outputs()."""

from trainer.config.language import exports

__all__, __getattr__ = exports("networks")
