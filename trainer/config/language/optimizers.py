"""settings(), optimisers, regularisation and model averaging, which write the settings into the message.

Source: legacy trainer_config_helpers/optimizers.py; spec/config.md section 10.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_float, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.names import public
from trainer.config.building.state import Parse, current


@public("optimizers")
class Optimizer:
    """The base class of the objects that settings() accepts.

    Such an object adds settings, and changes the default attributes of parameters that are created later.
    """

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the optimiser's part of the settings."""
        raise ArgumentError(f"{type(self).__name__} is only a base class; use one of the optimisers")

    def extra_settings(self, parse: Parse) -> None:
        """Change the defaults of later parameters."""


@public("optimizers")
class BaseSGDOptimizer(Optimizer):
    """An optimiser that takes one step per batch."""


@public("optimizers")
class MomentumOptimizer(BaseSGDOptimizer):
    """SGD with momentum: m <- momentum m - rate g; w <- w + m.

    If momentum is 0, the optimiser is plain SGD. If momentum is None, the momentum field of parameters is not written.
    """

    def __init__(self, momentum: float | None = None, sparse: bool = False):
        self.momentum = None if momentum is None else to_float("momentum", momentum)
        self.sparse = sparse

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the optimiser's part of the settings."""
        return {"learning_method": "sparse_momentum" if self.sparse else "momentum"}

    def extra_settings(self, parse: Parse) -> None:
        """Make the momentum the default of later parameters."""
        parse.defaults.momentum = self.momentum


@public("optimizers")
class AdamOptimizer(BaseSGDOptimizer):
    """Adam."""

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8):
        self.beta1 = to_float("beta1", beta1)
        self.beta2 = to_float("beta2", beta2)
        self.epsilon = to_float("epsilon", epsilon)

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the optimiser's part of the settings."""
        return {
            "learning_method": "adam",
            "adam_beta1": self.beta1,
            "adam_beta2": self.beta2,
            "adam_epsilon": self.epsilon,
        }


@public("optimizers")
class AdamaxOptimizer(BaseSGDOptimizer):
    """Adam with the infinity norm."""

    def __init__(self, beta1: float, beta2: float):
        self.beta1 = to_float("beta1", beta1)
        self.beta2 = to_float("beta2", beta2)

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the optimiser's part of the settings."""
        return {"learning_method": "adamax", "adam_beta1": self.beta1, "adam_beta2": self.beta2}


@public("optimizers")
class AdaGradOptimizer(BaseSGDOptimizer):
    """AdaGrad: a step is divided by the square root of the sum of all squared gradients so far."""

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the optimiser's part of the settings."""
        return {"learning_method": "adagrad"}


class _WindowedOptimizer(BaseSGDOptimizer):
    method = ""

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-6):
        self.rho = to_float("rho", rho)
        self.epsilon = to_float("epsilon", epsilon)

    def to_setting_kwargs(self) -> dict[str, Any]:
        return {"learning_method": self.method, "ada_rou": self.rho, "ada_epsilon": self.epsilon}


@public("optimizers")
class RMSPropOptimizer(_WindowedOptimizer):
    """RMSProp: a step is divided by the standard deviation of the gradients, computed from decaying averages."""

    method = "rmsprop"


@public("optimizers")
class DecayedAdaGradOptimizer(_WindowedOptimizer):
    """AdaGrad with a decaying mean of the squared gradients instead of their sum."""

    method = "decayed_adagrad"


@public("optimizers")
class AdaDeltaOptimizer(_WindowedOptimizer):
    """AdaDelta: a gradient is scaled by the decaying averages of earlier squared steps and squared gradients."""

    method = "adadelta"


@public("optimizers")
class BaseRegularization:
    """No regularisation."""

    def to_setting_kwargs(self, algorithm: str) -> dict[str, Any]:
        """Return the regularisation's part of the settings."""
        return {}

    def extra_settings(self, parse: Parse, algorithm: str) -> None:
        """Change the defaults of later parameters."""


@public("optimizers")
class L2Regularization(BaseRegularization):
    """L2 weight decay, which becomes the default of all later parameters, including biases."""

    def __init__(self, rate: float):
        self.decay_rate = to_float("rate", rate)

    def to_setting_kwargs(self, algorithm: str) -> dict[str, Any]:
        """Return the regularisation's part of the settings."""
        return {"l2weight": self.decay_rate} if algorithm == "owlqn" else {}

    def extra_settings(self, parse: Parse, algorithm: str) -> None:
        """Make the rate the default of later parameters."""
        if algorithm in ("sgd", "async_sgd"):
            parse.defaults.decay_rate = self.decay_rate


@public("optimizers")
class ModelAverage:
    """Tests and saved models use the average of the parameters over the last steps."""

    def __init__(self, average_window: float, max_average_window: int | None = None, do_average_in_cpu: bool = False):
        self.average_window = to_float("average_window", average_window)
        self.max_average_window = max_average_window
        if max_average_window is not None:
            self.max_average_window = to_int("max_average_window", max_average_window)
        self.do_average_in_cpu = bool(do_average_in_cpu)

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the part of the settings that describes the average."""
        settings = {"average_window": self.average_window, "do_average_in_cpu": self.do_average_in_cpu}
        if self.max_average_window is not None:
            settings["max_average_window"] = self.max_average_window
        return settings


def _merge(settings: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if key in settings:
            raise ArgumentError(f"{key} is set twice")
        settings[key] = value


def _instance(argument: str, value: Any, kind: type) -> Any:
    value = value() if isinstance(value, type) and issubclass(value, kind) else value
    if not isinstance(value, kind):
        raise wrong(argument, value, f"it must be an object of a class derived from {kind.__name__}")
    return value


@helper("optimizers")
def settings(
    batch_size: int,
    learning_rate: float = 1e-3,
    learning_rate_decay_a: float = 0.0,
    learning_rate_decay_b: float = 0.0,
    learning_rate_schedule: str = "poly",
    learning_rate_args: str = "",
    async_lagged_grad_discard_ratio: float = 1.5,
    learning_method: Any = None,
    regularization: Any = None,
    is_async: bool = False,
    model_average: Any = None,
    gradient_clipping_threshold: float | None = None,
    average_window: float | None = None,
    max_average_window: int | None = None,
    do_average_in_cpu: bool | None = None,
) -> None:
    """Set how the network is trained.

    average_window, max_average_window and do_average_in_cpu are the arguments of v0.9 that model_average replaces.

    Momentum, L2 rate and clipping threshold become the defaults of parameters that are created later, so scripts call
    settings() before the layer functions.
    """
    parse = current()
    method = _instance("learning_method", learning_method or MomentumOptimizer(), Optimizer)
    algorithm = ("async_sgd" if is_async else "sgd") if isinstance(method, BaseSGDOptimizer) else "owlqn"
    values: dict[str, Any] = {
        "batch_size": to_size("batch_size", batch_size),
        "learning_rate": to_float("learning_rate", learning_rate),
        "learning_rate_decay_a": to_float("learning_rate_decay_a", learning_rate_decay_a),
        "learning_rate_decay_b": to_float("learning_rate_decay_b", learning_rate_decay_b),
        "learning_rate_schedule": to_text("learning_rate_schedule", learning_rate_schedule),
        "learning_rate_args": to_text("learning_rate_args", learning_rate_args),
        "async_lagged_grad_discard_ratio": to_float("async_lagged_grad_discard_ratio", async_lagged_grad_discard_ratio),
        "algorithm": algorithm,
    }
    _merge(values, method.to_setting_kwargs())
    method.extra_settings(parse)
    for item in [] if regularization is None else to_list(regularization):
        regular = _instance("regularization", item, BaseRegularization)
        _merge(values, regular.to_setting_kwargs(algorithm))
        regular.extra_settings(parse, algorithm)
    if model_average is not None:
        _merge(values, _instance("model_average", model_average, ModelAverage).to_setting_kwargs())
    if gradient_clipping_threshold is not None:
        threshold = to_float("gradient_clipping_threshold", gradient_clipping_threshold)
        parse.defaults.gradient_clipping_threshold = threshold
        # both places, as in the original: parameters that are made later, and opt_config
        values["gradient_clipping_threshold"] = threshold
    averaging = {
        "average_window": average_window,
        "max_average_window": max_average_window,
        "do_average_in_cpu": do_average_in_cpu,
    }
    _merge(values, {key: value for key, value in averaging.items() if value is not None})
    parse.settings.update(values)
