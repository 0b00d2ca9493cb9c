"""The optimisers of programs: each is a settings() call of the config language.

Source: spec/v2.md sections 0 and 8.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from trainer.config.building.names import built
from trainer.config.building.state import Parse, parsing
from trainer.config.language import optimizers as language
from trainer.v2.functions import bind_arguments

# what an optimiser gives to each parameter that has not its own
_GIVEN = ("momentum", "decay_rate", "gradient_clipping_threshold")
# arguments that the config language requires
_DEFAULTS: Mapping[str, dict[str, float]] = {"Adamax": {"beta1": 0.9, "beta2": 0.999}}


class UpdateEquation:
    """A learning method with its settings: learning rate, schedule, regularisation, model average, clipping.

    Args: method: the learning method of the config language. settings: further arguments of settings(); batch_size has
        no effect.
    Raises: ConfigError: a setting is unknown, or has a wrong value.
    """

    def __init__(self, method: Any = None, **settings: Any) -> None:
        parse = Parse()
        with parsing(parse):
            settings |= {"batch_size": 1, "learning_method": method}
            language.settings(**bind_arguments(language.settings, (), settings, f"optimizer.{type(self).__name__}"))
            parse.finish()
        self.__opt_conf_proto__ = parse.config.opt_config
        self._defaults = {key: getattr(parse.defaults, key) for key in _GIVEN}

    @property
    def message(self) -> Any:
        """The OptimizationConfig message."""
        return self.__opt_conf_proto__

    def complete(self, model: ModelConfig) -> None:
        """Give momentum, L2 rate and clipping threshold to each parameter of a network that has not its own."""
        for parameter in model.parameters:
            for key, value in self._defaults.items():
                if value and getattr(parameter, key) == ParameterConfig.DESCRIPTOR.fields_by_name[key].default_value:
                    setattr(parameter, key, value)

    def enable_types(self) -> list[str]:
        """Return the names of the arrays that training keeps of each parameter."""
        return ["value", "gradient"]


def optimizer_names() -> dict[str, Any]:
    """Return the names of `paddle.optimizer`: a class for each learning method of the config language, and others."""
    methods = [
        one
        for one in built("optimizers").values()
        if isinstance(one, type) and issubclass(one, language.BaseSGDOptimizer) and one is not language.BaseSGDOptimizer
    ]
    return {
        **{one.__name__.removesuffix("Optimizer"): _make_class(one) for one in methods},
        "L2Regularization": language.L2Regularization,
        "ModelAverage": language.ModelAverage,
        "Optimizer": UpdateEquation,
    }


def _make_class(method: type[language.BaseSGDOptimizer]) -> type[UpdateEquation]:
    """Return a class that takes the arguments of a learning method, and the settings by their names."""
    name, own = method.__name__.removesuffix("Optimizer"), [*inspect.signature(method).parameters]

    def __init__(self: UpdateEquation, *arguments: Any, **settings: Any) -> None:
        missing = {key: _DEFAULTS[name][key] for key in own[len(arguments) :] if name in _DEFAULTS}
        given = {key: settings.pop(key) for key in own if key in settings}
        UpdateEquation.__init__(self, method(*arguments, **missing | given), **settings)

    return type(
        name, (UpdateEquation,), {"__init__": __init__, "__doc__": method.__doc__, "__module__": "paddle.v2.optimizer"}
    )
