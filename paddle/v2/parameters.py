"""The parameters of a network."""

from trainer.v2.parameters import Parameters, create

__all__ = ["Parameters", "create"]
