"""Attributes of parameters and layers."""

from trainer.config.building.attrs import (
    ExtraLayerAttribute,
    HookAttribute,
    ParameterAttribute,
)

Param = ParamAttr = ParameterAttribute
Extra = ExtraAttr = ExtraLayerAttribute
Hook = HookAttr = HookAttribute
__all__ = [
    "Extra",
    "ExtraAttr",
    "ExtraLayerAttribute",
    "Hook",
    "HookAttr",
    "HookAttribute",
    "Param",
    "ParamAttr",
    "ParameterAttribute",
]
