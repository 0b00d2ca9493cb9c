"""The layers: `paddle.layer.fc(input=..., size=...)`. Their arguments are those of docs/layers.md, by short names."""

from trainer.v2.names import getter, layer_names

_NAMES = layer_names()
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
