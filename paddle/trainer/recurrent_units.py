"""Recurrent units of raw configs under their old name; the implementation is trainer/config/v1/recurrent_units.py.

As in v0.10, the module also has the names of raw configs.
"""

from typing import Any

from paddle.trainer import config_parser
from trainer.config.v1.recurrent_units import (
    GatedRecurrentLayerGroup,
    GatedRecurrentUnit,
    GatedRecurrentUnitNaive,
    LstmRecurrentLayerGroup,
    LstmRecurrentUnit,
    LstmRecurrentUnitNaive,
)

__all__ = [
    "GatedRecurrentLayerGroup",
    "GatedRecurrentUnit",
    "GatedRecurrentUnitNaive",
    "LstmRecurrentLayerGroup",
    "LstmRecurrentUnit",
    "LstmRecurrentUnitNaive",
]


def __getattr__(name: str) -> Any:
    return getattr(config_parser, name)
