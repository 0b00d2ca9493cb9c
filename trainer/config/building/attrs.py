"""The attributes of parameters and layers: ParamAttr, ExtraAttr, HookAttr.

Source: legacy trainer_config_helpers/attrs.py; spec/config.md section 4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, is_number, to_float, to_int, wrong
from trainer.config.building.log import log
from trainer.config.building.names import public


@public("attrs", also="HookAttr")
class HookAttribute:
    """A hook on the updates of a parameter. A hook of the type 'pruning' keeps a share of the weights at zero."""

    def __init__(self, type: str, sparsity_ratio: float | None = None):
        if sparsity_ratio is not None and not 0 <= to_float("sparsity_ratio", sparsity_ratio) <= 1:
            raise wrong("sparsity_ratio", sparsity_ratio, "it must be in [0, 1]")
        self.type = type
        self.sparsity_ratio = sparsity_ratio


def _initialisation(mean: Any, std: Any, maximum: Any, minimum: Any) -> dict[str, Any]:
    if mean is None and std is None and maximum is None and minimum is None:
        return {"initial_smart": True}
    if is_number(std) or is_number(mean):
        given = {"initial_std": std, "initial_mean": mean}
        return {key: value for key, value in given.items() if value is not None} | {"initial_strategy": 0}
    if is_number(maximum) and is_number(minimum):
        if minimum >= maximum:
            raise ArgumentError(f"initial_min {minimum!r} must be less than initial_max {maximum!r}")
        # two integers are divided as in Python 2, which rounds down
        whole = isinstance(maximum, int) and isinstance(minimum, int)
        middle = (maximum + minimum) // 2 if whole else (maximum + minimum) / 2
        return {"initial_mean": middle, "initial_std": middle - minimum, "initial_strategy": 1}
    raise ArgumentError(
        "the initial_* arguments must be numbers: give initial_mean or initial_std or both (normal distribution), or "
        "initial_max and initial_min (uniform distribution)"
    )


_NO_NUMBER = "{} of ParamAttr is {!r}, which is no number, so it has no effect, as in v0.10"
_ARGUMENTS = {"decay_rate_l1": "l1_rate", "decay_rate": "l2_rate"}


@public("attrs", also="ParamAttr")
class ParameterAttribute:
    """The name of a parameter, and how it is initialised and updated.

    Without any initial_* argument, initial values are "smart": they have a normal distribution with standard deviation
    1/sqrt(rows). With initial_max and initial_min, initial values have a uniform distribution. A parameter with
    `is_static` is not updated, so its learning rate and decay rates are ignored. In a job (a configuration with data
    sources), the initial_* values of a static parameter are ignored, too; the default_initial_* functions set its
    initial values.
    """

    def __init__(
        self,
        name: str | None = None,
        is_static: bool = False,
        initial_std: Any = None,
        initial_mean: Any = None,
        initial_max: Any = None,
        initial_min: Any = None,
        l1_rate: Any = None,
        l2_rate: Any = None,
        learning_rate: Any = None,
        momentum: Any = None,
        gradient_clipping_threshold: Any = None,
        sparse_update: bool = False,
        update_hooks: Any = None,
        initializer: Callable[..., Any] | None = None,
    ):
        if isinstance(gradient_clipping_threshold, bool):  # v0.9 had no threshold: its 11th argument is sparse_update
            gradient_clipping_threshold, sparse_update = None, gradient_clipping_threshold or sparse_update
        self.attr: dict[str, Any] = {"is_static": True} if is_static else {}
        self.attr.update(_initialisation(initial_mean, initial_std, initial_max, initial_min))
        if is_static:  # v0.10 ignores the initial_* values of a static parameter
            self.attr["plain_in_jobs"] = True
            self.attr["loses_values"] = "initial_smart" not in self.attr
        rates = {"decay_rate_l1": l1_rate, "decay_rate": l2_rate, "learning_rate": learning_rate, "momentum": momentum}
        numbers = {} if is_static else rates
        numbers["gradient_clipping_threshold"] = gradient_clipping_threshold
        self.attr.update({key: float(value) for key, value in numbers.items() if is_number(value)})
        for argument, value in {**rates, "gradient_clipping_threshold": gradient_clipping_threshold}.items():
            if value is not None and not is_number(value):
                log(logging.WARNING, _NO_NUMBER.format(_ARGUMENTS.get(argument, argument), value), "attrs.py:146")
        if name is not None:
            self.attr["parameter_name"] = name
        if sparse_update:
            self.attr.update(sparse_update=True, sparse_remote_update=True)
        if update_hooks is not None:
            self.attr["update_hooks"] = update_hooks
        if initializer is not None:
            self.attr["initializer"] = initializer

    @property
    def name(self) -> str | None:
        """The name that the user gave the parameter, or None."""
        name = self.attr.get("parameter_name")
        return None if name is None else str(name)


@public("attrs", also="ExtraAttr")
class ExtraLayerAttribute:
    """Optional attributes of any layer: a limit for its gradients, the dropout rate, and the device."""

    def __init__(
        self, error_clipping_threshold: float | None = None, drop_rate: float | None = None, device: int | None = None
    ):
        self.attr: dict[str, Any] = {}
        if error_clipping_threshold is not None:
            self.attr["error_clipping_threshold"] = _not_negative("error_clipping_threshold", error_clipping_threshold)
        if drop_rate is not None:
            self.attr["drop_rate"] = _not_negative("drop_rate", drop_rate)
        if device is not None:
            self.attr["device"] = to_int("device", device)


def attr_and_coeff(layer_attr: Any, coeff: Any) -> tuple[Any, Any]:
    """Return layer_attr and coeff, which a call without keywords gives in v0.10's order or in that of later versions.

    v0.10 had no coeff in the costs that call this function. Later versions had it before layer_attr.
    """
    return (None if coeff == 1.0 else coeff, layer_attr) if is_number(layer_attr) else (layer_attr, coeff)


def _not_negative(argument: str, value: Any) -> float:
    number = to_float(argument, value)
    if number < 0:
        raise wrong(argument, value, "it must not be negative")
    return number


# the attribute of a bias for which the user gives no attributes
ZERO_BIAS = ParameterAttribute(initial_std=0.0, initial_mean=0.0)


def to_bias(bias_attr: Any, *, default: bool) -> ParameterAttribute | None:
    """Return the attributes of a bias, or None if the layer has no bias.

    Args:
        bias_attr: the user's argument: a ParamAttr, True, False, or None for a missing argument.
        default: whether the layer has a bias if the argument is missing.
    """
    if isinstance(bias_attr, ParameterAttribute):
        return bias_attr
    if bias_attr is None:
        return ZERO_BIAS if default else None
    if isinstance(bias_attr, bool | int) and bias_attr in (0, 1):
        return ZERO_BIAS if bias_attr else None
    raise wrong("bias_attr", bias_attr, "it must be True, False or a ParamAttr")
