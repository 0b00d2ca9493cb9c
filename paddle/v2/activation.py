"""Activations, for example `paddle.activation.Softmax()`."""

from trainer.v2.names import class_names, getter

_NAMES = class_names("activations", "Activation")
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
