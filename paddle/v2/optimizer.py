"""Optimisers, for example `paddle.optimizer.Adam(learning_rate=1e-3)`."""

from trainer.v2.names import getter
from trainer.v2.optimizer import optimizer_names

_NAMES = optimizer_names()
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
