"""The class of all layers."""

from trainer.v2.graph import LayerCall

Layer = LayerCall

__all__ = ["Layer"]
