"""All public names of paddle.trainer_config_helpers. Modules register the function or class of a name with `public`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# the sub-modules of paddle.trainer_config_helpers with functions and classes of the language
HELPERS = (
    "activations",
    "attrs",
    "config_parser_utils",
    "data_sources",
    "evaluators",
    "layers",
    "networks",
    "optimizers",
    "poolings",
)
# the sub-modules of paddle.trainer_config_helpers
SUBMODULES = (*HELPERS, "default_decorators", "layer_math", "utils")
# what a provider module imports from paddle.trainer.PyDataProvider2
_PROVIDER = """
    provider CacheType CheckInputTypeWrapper CheckWrapper DataType InputOrderWrapper InputType SequenceType
    SingleSlotWrapper dense_array dense_slot dense_vector dense_vector_sequence dense_vector_sub_sequence
    deserialize_args index_slot integer_sequence integer_value integer_value_sequence integer_value_sub_sequence
    sparse_binary_vector sparse_binary_vector_sequence sparse_binary_vector_sub_sequence sparse_float_vector
    sparse_float_vector_sequence sparse_float_vector_sub_sequence sparse_non_value_slot sparse_value_slot"""
PROVIDER_NAMES = tuple(_PROVIDER.split())
# what only a module of the oldest providers imports, from paddle.trainer.PyDataProviderWrapper
_WRAPPER = """
    DenseSlot GeneralPyDataProvider IndexSlot PoolSize SlotType SparseNonValueSlot SparseValueSlot StringSlot
    default_init_hook init_hook_wrapper"""
WRAPPER_NAMES = tuple(_WRAPPER.split())
_OWN_TYPES = "a config cannot define layer types: docs/layers.md lists those that there are"
# names that scripts expect and that nothing resembles: a close name would mean something else
_ABSENT = {
    "L1Regularization": "v0.10 has none: ParamAttr(l1_rate=...) sets L1, which parameter servers apply",
    **{
        name: f"add the line `from paddle.trainer_config_helpers.data_sources import {name}`"
        for name in ("define_py_data_source", "define_py_data_sources")
    },
    **dict.fromkeys(("LayerBase", "config_class", "config_func", "config_layer"), _OWN_TYPES),
}
# names that scripts use for modules
_USUAL_IMPORTS = {"np": "import numpy as np", "numpy": "import numpy", "cPickle": "import cPickle"}

# for each key of `public`, the names with their functions or classes; the import of `all_names` fills the dictionaries
_built: dict[str, dict[str, Any]] = {module: {} for module in (*SUBMODULES, "v1", "unlisted")}


def public(module: str, *, also: str | None = None) -> Callable[[T], T]:
    """Register a function or class. Args: module: an item of SUBMODULES, "v1" or "unlisted". also: a second name."""

    def register(thing: T) -> T:
        names = _built[module]
        names[getattr(thing, "__name__")] = thing  # noqa: B009 - T has no bound that promises a __name__
        if also:
            names[also] = thing
        return thing

    return register


def built(module: str) -> Mapping[str, Any]:
    """Return the names registered for a sub-module or for the raw form ("v1"), with their functions or classes."""
    return _built[module]


def helper_names() -> list[str]:
    """Return the names of all functions and classes of paddle.trainer_config_helpers."""
    return [name for module in HELPERS for name in built(module)]


class UnknownName(AttributeError):
    """A name that paddle.trainer_config_helpers does not have."""


def lookup(name: str) -> Any:
    """Return the function or class with this name.

    Raises: UnknownName: paddle.trainer_config_helpers does not have the name.
    """
    for module in HELPERS:
        if name in built(module):
            return built(module)[name]
    raise UnknownName(f"paddle.trainer_config_helpers has no {name!r}{suggestion(name)}")


def suggestion(name: str) -> str:
    """Return what makes an unknown name work: the line that a script lacks, or `; did you mean 'fc_layer'?`, or ""."""
    helpers, raw = helper_names(), [*built("v1"), "Import"]  # each file gets its own `Import`
    if name in helpers or name in SUBMODULES:
        return "; add the line `from paddle.trainer_config_helpers import *`"
    if name in PROVIDER_NAMES:
        return "; add the line `from paddle.trainer.PyDataProvider2 import *`"
    if name in WRAPPER_NAMES:
        return "; add the line `from paddle.trainer.PyDataProviderWrapper import *`"
    if name in raw:
        return (
            f"; a config calls {name}(...) without an import, any other module adds the line `from "
            f"paddle.trainer.config_parser import {name}`"
        )
    if name in _ABSENT:
        return f"; {_ABSENT[name]}"
    known = [*raw, *PROVIDER_NAMES, *WRAPPER_NAMES, *helpers]
    close = closest(name, known)
    return f"; did you mean {close!r}?" if close else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that an unknown name resembles most, or "" if it resembles none."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return close[0] if close else ""


def module_line(name: str) -> str:
    """Return `; add the line ...` if a script uses a module of Python or numpy without an import, else ""."""
    line = f"import {name}" if name in sys.stdlib_module_names else _USUAL_IMPORTS.get(name)
    return f"; add the line `{line}`" if line else ""
