"""Functions of one layer, column by column; `+`, `-` and `*` are operators of every layer."""

from trainer.v2.names import getter, operation_names

_NAMES = operation_names()
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
