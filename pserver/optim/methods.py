"""The registry of learning methods by their names in configs, and the settings that each method ignores.

To add an optimiser, copy `adam.py` in this directory. Write the rule (a function with the signature of
`pserver.optim.method`, in numpy) and the class with the rule's state and numbers, and add one line to `METHODS` here.
Servers, local training, checkpoints, the check of configs and the parametrized tests then find the optimiser in
`METHODS`.
A compiled form in `paddle_base/kernels/rules.c` is optional; the class names it in `kernel`. Configs choose a method by
`settings(learning_method=...)`, with an object of a class in `trainer/config/language/optimizers.py`; `paddle.v2` makes
its own class from this class. `SCALARS` of `tests/unit/pserver/optim/test_learning_methods.py` needs the formula of the
method for one number, by which the tests check the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddle_base.runtime.errors import ConfigError
from pserver.optim.adagrad import AdaDelta, AdaGrad, DecayedAdaGrad, RMSProp
from pserver.optim.adam import Adam, Adamax
from pserver.optim.delta import DELTA, Delta
from pserver.optim.method import Method
from pserver.optim.schedules import check_schedule, is_constant
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.optim.sgd import Momentum, SparseMomentum, TorchMomentum
from pserver.optim.weight_decay import separate_decay

METHODS: dict[str, type[Method]] = {
    "adadelta": AdaDelta,
    "adagrad": AdaGrad,
    "adam": Adam,
    "adamax": Adamax,
    "decayed_adagrad": DecayedAdaGrad,
    "momentum": Momentum,
    "rmsprop": RMSProp,
    "sparse_momentum": SparseMomentum,
    "torch_momentum": TorchMomentum,
}
# the methods by name, including the method that no config can choose
ALL_METHODS: dict[str, type[Method]] = {**METHODS, DELTA: Delta}


# ----- Checks -----


def check_supported(optimization: Optimization) -> None:
    """Check that the learning method and the learning-rate schedule exist, and that the learning rate is finite.

    Raises: ConfigError: a setting is invalid; the message names the setting. For an unknown name, it lists the known
        names.
    """
    if optimization.learning_method not in ALL_METHODS:
        raise unknown(optimization.learning_method)
    if not math.isfinite(optimization.learning_rate):
        raise ConfigError(f"learning_rate is {optimization.learning_rate}; it must be a finite number")
    check_schedule(optimization)


def unknown(name: str) -> ConfigError:
    """Return the error for an unknown learning_method."""
    return ConfigError(f"learning_method '{name}' is not known; known: {', '.join(METHODS)}")


def list_ignored(parameters: Sequence[ParameterSpec], optimization: Optimization, *, per_parameter: bool) -> list[str]:
    """Return one sentence for each setting that this program ignores, as the legacy program did.

    Args: per_parameter: whether every parameter has its own optimiser, in which case decay may be separate from the
        step.
    """
    name = optimization.learning_method
    method = METHODS[name]
    found = []
    if not method.uses_schedule and not is_constant(optimization):
        found.append(f"{name} does not use learning_rate_schedule '{optimization.learning_rate_schedule}'")
    trained = [p for p in parameters if not p.is_static]
    if not method.uses_momentum and any(p.momentum for p in trained):
        found.append(f"{name} does not use the momentum of parameters")
    if not method.uses_decay and any(p.decay_rate and not (per_parameter and separate_decay(p)) for p in trained):
        found.append(f"{name} does not use L2 regularization (decay_rate)")
    return found
