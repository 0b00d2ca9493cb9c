"""The registry of learning methods by their names in configs, and what of the settings they do not use.

To add an optimiser: copy `adam.py` beside this file, write in it the rule (a function with the one signature of
`pserver.optim.method`, in numpy) and the class with the rule's state and numbers, and add one line to `METHODS` here.
That is all: servers, local training, checkpoints and the check of configs find it by the registry, and the tests of
every method are parametrised by it. A compiled form in `kernels/rules.c` is optional; the class names it in `kernel`.
Configs choose a method by `settings(learning_method=...)`, with an object of a class that
`trainer/config/language/optimizers.py` defines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pserver.optim.adagrad import AdaDelta, AdaGrad, DecayedAdaGrad, RMSProp
from pserver.optim.adam import Adam, Adamax
from pserver.optim.delta import DELTA, Delta
from pserver.optim.method import Method
from pserver.optim.schedules import check_schedule, is_constant
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.optim.sgd import Momentum, SparseMomentum, TorchMomentum
from pserver.optim.weight_decay import separate_decay
from runtime.errors import ConfigError

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
ALL_METHODS: dict[str, type[Method]] = {**METHODS, DELTA: Delta}  # with the one that no config can choose


# ----- Checks -----


def check_supported(optimization: Optimization) -> None:
    """Return if the method and the schedule exist here.

    Raises: ConfigError: naming what is not supported and what is.
    """
    if optimization.learning_method not in ALL_METHODS:
        raise unknown(optimization.learning_method)
    if not math.isfinite(optimization.learning_rate):
        raise ConfigError(f"learning_rate is {optimization.learning_rate}; it must be a number")
    check_schedule(optimization)


def unknown(name: str) -> ConfigError:
    """Return the error of a learning_method that no config can choose."""
    return ConfigError(f"learning_method '{name}' is not known; known: {', '.join(METHODS)}")


def list_ignored(parameters: Sequence[ParameterSpec], optimization: Optimization, *, per_parameter: bool) -> list[str]:
    """Return one sentence for each setting that the legacy, and so this program, silently does not use.

    Args: per_parameter: whether every parameter has an optimiser of its own, which decays apart from the step in some
        cases.
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
