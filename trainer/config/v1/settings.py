"""Functions for settings, inputs, outputs and defaults of parameters, which a config can use without an import.

Source: legacy config_parser.py; spec/config.md sections 2 and 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle_base.proto import TrainerConfig_pb2
from trainer.config.building.argument_errors import ArgumentError, to_float, to_int, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.state import DEFAULT_SETTINGS, DEFAULT_TRAINER_SETTINGS, current
from trainer.config.language.networks.inputs_outputs import set_inputs, set_outputs

_TRUE = ("True", "1", "true")
_FALSE = ("False", "0", "false")


@helper("v1")
def get_config_arg(name: str, type: Callable[[Any], Any], default: Any = None) -> Any:
    """Return an argument of --config_args, converted to a type; return the default if the argument is missing.

    A bool can be True, 1, true, False, 0 or false. For any other type the default is converted too, as in v0.10.
    """
    current().asked.add(name)
    text = current().args.get(name)
    if type is not bool:
        return _convert(name, type, default if text is None else text)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text:
        raise ArgumentError(f"config_args has {name}={text}; a bool is one of {', '.join(_TRUE + _FALSE)}")
    return default


def _convert(name: str, type: Callable[[Any], Any], value: Any) -> Any:
    try:
        return type(value)
    except (TypeError, ValueError) as error:
        if value is None:
            raise ArgumentError(f"{name} is not in config_args and has no default") from error
        kind = getattr(type, "__name__", type)
        raise ArgumentError(f"config_args has {name}={value!r}, which is not of type {kind}: {error}") from error


@helper("v1")
def Settings(**settings: Any) -> None:
    """Set settings by name; old configurations call this function instead of settings()."""
    parse = current()
    for key, value in settings.items():
        if key == "usage_ratio":
            parse.usage_ratio = to_float(key, value)
        elif key not in parse.settings:
            raise ArgumentError(f"there is no setting {key!r}; the settings are {', '.join(sorted(parse.settings))}")
        else:
            _check_type(key, value)
            parse.settings[key] = value


def _check_type(key: str, value: Any) -> None:
    # the value is checked here, so that an error can name the line of the script
    scratch = TrainerConfig_pb2.OptimizationConfig() if key in DEFAULT_SETTINGS else TrainerConfig_pb2.TrainerConfig()
    try:
        setattr(scratch, key, value)
    except (TypeError, ValueError) as error:
        raise wrong(key, value, str(error)) from error


@helper("v1")
def Inputs(*names: str) -> None:
    """Name the input layers, which the script may create later."""
    set_inputs(to_text("names", name) for name in names)


@helper("v1")
def Outputs(*names: str) -> None:
    """Name the output layers, which the script may create later."""
    set_outputs(to_text("names", name) for name in names)


@helper("v1")
def HasInputsSet() -> bool:
    """Return whether input layers have been named."""
    return bool(current().model.input_layer_names)


@helper("v1")
def model_type(name: str) -> None:
    """Set the type of the model; the default is `nn`."""
    current().model.type = to_text("name", name)


@helper("v1")
def cluster_config(**_ignored: Any) -> None:
    """Do nothing: the arguments were for a job scheduler that no longer exists."""


@helper("v1")
def default_initial_std(val: float) -> None:
    """Set the default standard deviation of parameters created later."""
    current().defaults.initial_std = to_float("val", val)


@helper("v1")
def default_initial_mean(val: float) -> None:
    """Set the default mean of parameters created later."""
    current().defaults.initial_mean = to_float("val", val)


@helper("v1")
def default_initial_strategy(val: int) -> None:
    """Set the default distribution (0 normal, 1 uniform) of parameters created later."""
    if val not in (0, 1):
        raise wrong("val", val, "it must be 0 (normal) or 1 (uniform)")
    current().defaults.initial_strategy = val


@helper("v1")
def default_initial_smart(val: bool) -> None:
    """Set whether parameters created later have the standard deviation 1/sqrt(rows) by default (initial_smart)."""
    current().defaults.initial_smart = bool(val)


@helper("v1")
def default_momentum(val: float | None) -> None:
    """Set the default momentum of parameters created later."""
    current().defaults.momentum = None if val is None else to_float("val", val)


@helper("v1")
def default_decay_rate(val: float | None) -> None:
    """Set the default rate of L2 regularisation of parameters created later."""
    current().defaults.decay_rate = None if val is None else to_float("val", val)


@helper("v1")
def default_num_batches_regularization(val: int | None) -> None:
    """Set the default number of batches between two regularisations, for parameters created later."""
    current().defaults.num_batches_regularization = None if val is None else to_int("val", val)


@helper("v1")
def default_gradient_clipping_threshold(val: float | None) -> None:
    """Set the default clipping threshold of parameters created later."""
    current().defaults.gradient_clipping_threshold = None if val is None else to_float("val", val)


@helper("v1")
def default_device(val: int | None) -> None:
    """Set the default device of layers and parameters created later."""
    current().defaults.device = None if val is None else to_int("val", val)


@helper("v1")
def default_update_hooks(val: Any) -> None:
    """Set the default hooks of parameters created later."""
    current().defaults.update_hooks = val


@helper("v1")
def default_compact_func(val: Any) -> None:
    """Set the function that determines the storage of parameters created later.

    The function takes the name of a parameter and returns (is_sparse, format, need_compact).
    """
    if val is not None and not callable(val):
        raise wrong("val", val, "it must be a function of a parameter's name")

    def ask(name: str) -> tuple[bool, str, bool]:
        told = val(name)
        if not isinstance(told, list | tuple) or len(told) != 3:
            raise wrong("val", told, f"for {name!r} it must return is_sparse, format and need_compact")
        return bool(told[0]), to_text("format", told[1]), bool(told[2])

    current().defaults.compact = None if val is None else ask


def obsolete_settings() -> dict[str, Callable[..., None]]:
    """Return, for each setting, a function that raises an error; the error names the current form, Settings(x=...)."""

    def refuse(key: str) -> Callable[..., None]:
        def obsolete(*_arguments: Any) -> None:
            error = ArgumentError(f"this function is obsolete; use Settings({key}=...)")
            error.enter(f"{key}()")
            raise error

        return obsolete

    return {key: refuse(key) for key in (*DEFAULT_SETTINGS, *DEFAULT_TRAINER_SETTINGS)}
