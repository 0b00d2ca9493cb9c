"""The layers: `paddle.layer.fc(input=..., size=...)`. Their arguments are those of docs/layers.md, by short names."""

from trainer.v2.names import getter, layer_names

_NAMES = layer_names()
__all__ = [name for name in _NAMES if name != "print"]  # `import *` must leave the function of Python
__getattr__ = getter(__name__, _NAMES)
