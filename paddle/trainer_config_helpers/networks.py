"""Functions that create several layers, and `inputs` and `outputs`."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("networks")
