"""The events that the event handler of `trainer.SGD.train` receives."""

from trainer.v2.events import (
    BeginIteration,
    BeginPass,
    EndForwardBackward,
    EndIteration,
    EndPass,
    TestResult,
    WithMetric,
)

__all__ = [
    "BeginIteration",
    "BeginPass",
    "EndForwardBackward",
    "EndIteration",
    "EndPass",
    "TestResult",
    "WithMetric",
]
