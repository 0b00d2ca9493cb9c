"""The optimisers of programs: each is a settings() call of the config language.

Source: spec/v2.md sections 0 and 8.
"""

from __future__ import annotations

from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from trainer.config.building.state import Parse, parsing
from trainer.config.language import optimizers as language
from trainer.v2.functions import bind_arguments

# what an optimiser gives to each parameter that has not its own
_GIVEN = ("momentum", "decay_rate", "gradient_clipping_threshold")


class UpdateEquation:
    """A learning method with its settings: learning rate, schedule, regularisation, model average, clipping.

    Args: method: the learning method of the config language. settings: further arguments of settings(); batch_size has
        no effect.
    Raises: ConfigError: a setting is unknown, or has a wrong value.
    """

    def __init__(self, method: Any = None, **settings: Any) -> None:
        parse = Parse()
        settings.pop("batch_size", None)
        with parsing(parse):
            settings |= {"batch_size": 1, "learning_method": method}
            language.settings(**bind_arguments(language.settings, (), settings))
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


class Momentum(UpdateEquation):
    """SGD with momentum; see MomentumOptimizer."""

    def __init__(self, momentum: float | None = None, sparse: bool = False, **settings: Any) -> None:
        super().__init__(language.MomentumOptimizer(momentum, sparse), **settings)


class Adam(UpdateEquation):
    """Adam; see AdamOptimizer."""

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **settings: Any) -> None:
        super().__init__(language.AdamOptimizer(beta1, beta2, epsilon), **settings)


class Adamax(UpdateEquation):
    """Adam with the infinity norm; see AdamaxOptimizer."""

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, **settings: Any) -> None:
        super().__init__(language.AdamaxOptimizer(beta1, beta2), **settings)


class AdaGrad(UpdateEquation):
    """AdaGrad; see AdaGradOptimizer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(language.AdaGradOptimizer(), **settings)


class DecayedAdaGrad(UpdateEquation):
    """AdaGrad with a decaying mean; see DecayedAdaGradOptimizer."""

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-06, **settings: Any) -> None:
        super().__init__(language.DecayedAdaGradOptimizer(rho, epsilon), **settings)


class AdaDelta(UpdateEquation):
    """AdaDelta; see AdaDeltaOptimizer."""

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-06, **settings: Any) -> None:
        super().__init__(language.AdaDeltaOptimizer(rho, epsilon), **settings)


class RMSProp(UpdateEquation):
    """RMSProp; see RMSPropOptimizer."""

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-6, **settings: Any) -> None:
        super().__init__(language.RMSPropOptimizer(rho, epsilon), **settings)


ModelAverage = language.ModelAverage
L2Regularization = language.L2Regularization
