"""Optimisers, for example `paddle.optimizer.Adam(learning_rate=1e-3)`."""

from trainer.v2.optimizer import (
    AdaDelta,
    AdaGrad,
    Adam,
    Adamax,
    DecayedAdaGrad,
    L2Regularization,
    ModelAverage,
    Momentum,
    RMSProp,
    UpdateEquation,
)

Optimizer = UpdateEquation

__all__ = [
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "Adamax",
    "DecayedAdaGrad",
    "L2Regularization",
    "ModelAverage",
    "Momentum",
    "Optimizer",
    "RMSProp",
]
