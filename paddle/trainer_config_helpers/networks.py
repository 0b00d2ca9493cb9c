"""Networks of several layers, inputs() and outputs()."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("networks")
