"""The parameters of the message: creation, sharing by name, defaults, and the "smart" initialisation.

Source: legacy config_parser.py, Parameter() and LayerBase.create_*_parameter; spec/config.md section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from paddle_base.proto import ParameterConfig_pb2
from trainer.config.building.argument_errors import LARGEST, ArgumentError, set_field, to_list, wrong
from trainer.config.building.attrs import HookAttribute
from trainer.config.building.log import logger
from trainer.config.building.state import Parse

# fields that are copied unchanged if the attribute has them
_PLAIN_FIELDS = (
    "learning_rate",
    "decay_rate_l1",
    "is_static",
    "is_shared",
    "sparse_update",
    "sparse_remote_update",
    "is_sparse",
    "format",
    "need_compact",
)
# fields that take the current default if the attribute does not have them
_DEFAULTED_FIELDS = (
    "initial_mean",
    "initial_std",
    "initial_strategy",
    "initial_smart",
    "momentum",
    "decay_rate",
    "num_batches_regularization",
    "gradient_clipping_threshold",
)


def add_parameter(
    parse: Parse, name: str, size: int, dims: Sequence[int], attr: dict[str, Any], device: int | None = None
) -> None:
    """Add a parameter to the message. If a parameter of the same name and shape exists, that parameter is shared.

    Args:
        parse: the current parse.
        name: the parameter's name.
        size: number of values.
        dims: the shape; empty if v0.10 wrote no shape.
        attr: the dictionary of a ParameterAttribute; missing items take the current defaults.
        device: the device of the layer.
    Raises: ArgumentError: a shared parameter has a different shape, or the attributes contradict each other.
    """
    known = parse.parameters.get(name)
    if known is not None:
        if known.size != size or list(known.dims) != list(dims):
            raise ArgumentError(
                f"the shared parameter {name!r} has size {known.size} and dims {list(known.dims)}; here it "
                f"would have size {size} and dims {list(dims)}"
            )
        return
    if size > LARGEST:
        raise ArgumentError(
            f"the parameter {name!r} would have {size} values, of shape {list(dims)}; make the layer smaller"
        )
    parameter = parse.model.parameters.add(name=name, size=size, dims=dims)
    parse.parameters[name] = parameter
    if device is not None:
        set_field(parameter, "device", device)
    attr = attr | _storage(parse, name)
    for key in _PLAIN_FIELDS:
        if attr.get(key) is not None:
            set_field(parameter, key, attr[key])
    for key in _DEFAULTED_FIELDS:
        value = attr.get(key, getattr(parse.defaults, key))
        if value is not None:
            set_field(parameter, key, value)
    _check(parameter)
    if parameter.sparse_remote_update:
        parse.config.opt_config.use_sparse_remote_updater = True
    _initialise(parse, parameter, attr)
    _add_hooks(parameter, attr.get("update_hooks", parse.defaults.update_hooks))


def _initialise(parse: Parse, parameter: ParameterConfig_pb2.ParameterConfig, attr: Mapping[str, Any]) -> None:
    """Set the "smart" initial values, and note a function for the initial values, or that jobs ignore all these."""
    if attr.get("initializer") is not None:
        parse.initializers[parameter.name] = attr["initializer"]
    if attr.get("plain_in_jobs"):
        plain = {key: getattr(parse.defaults, key) for key in _DEFAULTED_FIELDS if key.startswith("initial_")}
        parse.in_jobs.append(partial(_set_fields, parameter, plain, given=bool(attr.get("loses_values"))))
    if parameter.initial_smart:
        parameter.initial_mean = 0.0
        parameter.initial_std = 1.0 / math.sqrt(parameter.dims[0] if parameter.dims else parameter.size)


def _storage(parse: Parse, name: str) -> dict[str, Any]:
    if parse.defaults.compact is None:
        return {}
    return dict(zip(("is_sparse", "format", "need_compact"), parse.defaults.compact(name), strict=True))


def _set_fields(parameter: ParameterConfig_pb2.ParameterConfig, fields: Mapping[str, Any], *, given: bool) -> None:
    if given:
        logger.warning(
            "parameter %s is static: its initial_* values have no effect, as in v0.10; call the default_initial_* "
            "functions before its layer, or start from a model that has the parameter",
            parameter.name,
        )
    for key, value in fields.items():
        setattr(parameter, key, value)


def _check(parameter: ParameterConfig_pb2.ParameterConfig) -> None:
    if parameter.momentum and parameter.decay_rate_l1:
        raise ArgumentError(
            f"parameter {parameter.name!r} has momentum {parameter.momentum:g} and l1_rate "
            f"{parameter.decay_rate_l1:g}; they cannot both be non-zero"
        )
    if parameter.is_static and parameter.sparse_remote_update:
        raise ArgumentError(f"parameter {parameter.name!r} is static and updated sparsely; it cannot be both")


def _add_hooks(parameter: ParameterConfig_pb2.ParameterConfig, hooks: Any) -> None:
    for hook in [] if hooks is None else to_list(hooks):
        if not isinstance(hook, HookAttribute):
            raise wrong("update_hooks", hook, "it must be a HookAttr or a list of HookAttrs")
        added = parameter.update_hooks.add(type=hook.type)
        if hook.sparsity_ratio is not None:
            added.sparsity_ratio = hook.sparsity_ratio
