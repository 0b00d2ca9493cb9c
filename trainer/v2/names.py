"""The names that programs use for layers, networks, evaluators and so on, made from those of the config language.

Source: spec/v2.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer.config import all_names  # noqa: F401 - the import registers the names of the config language
from trainer.config.building.activations import SoftmaxActivation
from trainer.config.building.names import UnknownName, built, closest
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import identity_projection
from trainer.v2 import functions, groups
from trainer.v2.graph import PROGRAM_NAMES, LayerCall, get_layer
from trainer.v2.topology import parse_network

# layers of the config language without a name here, and those that `groups` and `functions` define
_WITHOUT = {"LayerOutput", "data_layer", "layer_support", "memory", "recurrent_group", "beam_search"}
_PRINTING = ("print_layer", "printer_layer")
_CLASSES = ("AggregateLevel", "ExpandLevel", "LayerType")  # classes of constants
_RENAMED = {"maxid_layer": "max_id"}
_COSTS = ("cross_entropy", "cross_entropy_with_selfnorm", "multi_binary_label_cross_entropy")
_INPUTS = {
    "StaticInput": groups.StaticGroupInput,
    "SubsequenceInput": groups.NestedGroupInput,
    "GeneratedInput": groups.GeneratedGroupInput,
    "BaseGeneratedInput": groups.BaseGeneratedGroupInput,
}
# prefixes of automatic names that are not the name of the function
_PREFIXES = {"mixed_layer": "mixed"}


def layer_names() -> dict[str, Any]:
    """Return the names of `paddle.layer`, of v0.10 and of v0.11."""
    found: dict[str, Any] = {}
    for name, thing in built("layers").items():
        if name in _CLASSES:
            found[name] = thing
        elif name in _PRINTING:
            found[_short(name)] = functions.lazy_child(thing)
        elif name not in _WITHOUT and name not in _INPUTS:
            found[_short(name)] = functions.lazy(thing, _PREFIXES.get(name, ""))
    found |= {f"{name}{end}": kind for name, kind in _INPUTS.items() for end in ("", "V2")}
    found |= {
        "data": functions.data,
        "memory": groups.memory,
        "recurrent_group": groups.recurrent_group,
        "beam_search": groups.beam_search,
        "get_layer": get_layer,
        "parse_network": parse_network,
        "Layer": LayerCall,
        "LayerV2": LayerCall,
        "LayerOutput": LayerCall,
        "MixedLayerV2": functions.Mixed,
        "MemoryV2": groups.Memory,
        "DataLayerV2": functions.Data,
        "layer_support": built("layers")["layer_support"],
    }
    PROGRAM_NAMES.update({name: f"layer.{_short(name)}" for name in built("layers")})
    return found


def network_names() -> dict[str, Any]:
    """Return the names of `paddle.networks`."""
    found = {
        name: functions.lazy_network(thing)
        for name, thing in built("networks").items()
        if name not in ("inputs", "outputs")
    }
    PROGRAM_NAMES.update({name: f"networks.{name}" for name in found})
    dropout = functions.lazy(built("layers")["dropout_layer"])
    return {**found, "dropout_layer": dropout}


def evaluator_names() -> dict[str, Any]:
    """Return the names of `paddle.evaluator`."""
    PROGRAM_NAMES.update({name: f"evaluator.{name.removesuffix('_evaluator')}" for name in built("evaluators")})
    return {
        name.removesuffix("_evaluator"): functions.lazy_child(thing)
        for name, thing in built("evaluators").items()
        if name != "evaluator_base"
    }


def operation_names() -> dict[str, Any]:
    """Return the names of `paddle.op`."""
    PROGRAM_NAMES.update({name: f"op.{name}" for name in built("layer_math")})
    return {name: functions.lazy(thing) for name, thing in built("layer_math").items()} | {"softmax": _softmax}


def _softmax(input: LayerCall, name: str | None = None) -> LayerCall:
    """Return the softmax of each row."""
    term = functions.lazy(identity_projection)(input=input)
    return functions.lazy(mixed_layer, "softmax")(input=[term], name=name, act=SoftmaxActivation())


def class_names(module: str, suffix: str) -> dict[str, Any]:
    """Return classes of the config language without the end of their names; their `__name__` stays the long one."""
    return {name.removesuffix(suffix): thing for name, thing in built(module).items() if isinstance(thing, type)}


def _short(name: str) -> str:
    if name in _RENAMED:
        return _RENAMED[name]
    if name in _COSTS:
        return f"{name}_cost"
    return name.removesuffix("_layer")


def getter(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return `__getattr__` for a module with these names.

    Raises: AttributeError: there is no such name; the text has the nearest one.
    """

    def get(name: str) -> Any:
        if name in names:
            return names[name]
        near = closest(name, names)
        raise UnknownName(f"{module} has no {name!r}{f'; did you mean {near!r}?' if near else ''}")

    return get
