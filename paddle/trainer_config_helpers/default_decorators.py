"""Decorators for functions of users that create layers."""

from trainer.config.language.default_decorators import (
    wrap_act_default,
    wrap_bias_attr_default,
    wrap_name_default,
    wrap_param_attr_default,
    wrap_param_default,
)

__all__ = [
    "wrap_act_default",
    "wrap_bias_attr_default",
    "wrap_name_default",
    "wrap_param_attr_default",
    "wrap_param_default",
]
