"""The learning methods by name, and what of the settings they do not use.

The arithmetic is in `pserver.rules`; a method is what surrounds it: constants of a step, first updates, rows that are
updated only when a batch touches them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pserver.errors import ConfigError
from pserver.methods.adagrad import AdaDelta, AdaGrad, DecayedAdaGrad, RMSProp
from pserver.methods.adam import Adam, Adamax
from pserver.methods.base import Method
from pserver.methods.delta import DELTA, Delta
from pserver.methods.momentum import Momentum, SparseMomentum, TorchMomentum
from pserver.regularization import separate_decay
from pserver.rules import Optimization, ParameterSpec
from pserver.schedules import check_schedule, is_constant

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
ALL_METHODS: dict[str, type[Method]] = {**METHODS, DELTA: Delta}  # also what no config can choose


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
