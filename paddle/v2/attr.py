"""Attributes of parameters and layers."""

from typing import Any

from trainer.config.building import attrs
from trainer.v2.errors import advising


def _of_programs(base: type[Any]) -> Any:
    """Return a class of the config language whose error about an unknown argument has the nearest name."""
    names = {"__init__": advising(base.__init__), "__doc__": base.__doc__, "__module__": __name__}
    return type(base.__name__, (base,), names)


Param = ParamAttr = ParameterAttribute = _of_programs(attrs.ParameterAttribute)
Extra = ExtraAttr = ExtraLayerAttribute = _of_programs(attrs.ExtraLayerAttribute)
Hook = HookAttr = HookAttribute = _of_programs(attrs.HookAttribute)
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
