"""Poolings, for example `paddle.pooling.Max()`."""

from trainer.v2.names import class_names, getter

_NAMES = class_names("poolings", "Pooling")
_NAMES["BasePool"] = _NAMES.pop("BasePoolingType")
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
