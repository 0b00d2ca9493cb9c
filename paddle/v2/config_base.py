"""The class of all layers."""

from trainer.v2.graph import Layer

__all__ = ["Layer"]
