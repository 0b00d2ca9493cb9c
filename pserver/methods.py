"""The learning methods: which state each keeps, which settings it uses, and how a stretch of values takes a step.

The arithmetic is in `pserver.rules`; here is what surrounds it: constants of a step, first updates, rows that are
updated only when a batch touches them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from kernels import rules as hot
from pserver import rules
from pserver.errors import ConfigError
from pserver.regularization import separate_decay
from pserver.rules import Array, Number, Optimization, ParameterSpec, Rows
from pserver.schedules import check_schedule, is_constant

FOLD_PERIOD = 16384  # batches after which adagrad moves its recent sums into the old ones
ALPHA_LIMIT = np.float32(1e6)  # of sparse_momentum, which starts afresh beyond it

Steps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traits:
    """The settings of parameters that a method uses.

    `decay` is the L2 rate that is part of the step, 0 where it is applied apart. `is_sparse` says that rows take their
    steps only in batches that touch them.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    decay: float = 0.0
    is_sparse: bool = False


class Method:
    """One method for parameters with the same traits.

    Class attributes: `uses_schedule`, `uses_momentum`, `uses_decay`: whether these settings matter.  `takes_rows`:
    whether rows may be left out of a step.  `rests`: whether a step without gradient, momentum and L2 leaves the values
    as they are.  `has_rates`: whether every element has a rate of its own.
    """

    uses_schedule: ClassVar[bool] = True
    uses_momentum: ClassVar[bool] = True
    uses_decay: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True
    rests: ClassVar[bool] = False
    has_rates: ClassVar[bool] = False
    averages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        self.optimization = optimization
        self.traits = traits
        self.mu, self.decay = np.float32(traits.momentum), np.float32(traits.decay)
        self.rate = np.float32(0)
        self.number = 0

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that go with the values."""
        velocity = ("velocity",) if self.uses_momentum and self.traits.momentum else ()
        return (*self.averages, *velocity)

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step.

        Args: rate: the scheduled rate.  number: of the batch since the start of the run, 1 for the first.
        """
        self.rate = np.float32(rate * self.traits.learning_rate)
        self.number = number

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place.

        Args: last: for rows, the step that each took last, a column; 0: none yet.  None: all took part in every step.
        Shapes: w, g and every array of state and scratch: the same, flat or (rows, width).
        """
        raise NotImplementedError

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are, if there is a compiled loop for it; return whether there is.

        Args: last: for each of `rows`, the step that it took last; 0: none yet.
        Shapes: w, g and every array of state: the whole (all rows, width); rows, last: (rows,).
        """
        return False

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Do what is due for all elements after a step, seldom if ever."""

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step, without the common one; if `has_rates`."""
        raise NotImplementedError

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Bring the state of elements without gradient forward by so many steps; if `rests`."""


# ----- Momentum -----


class Momentum(Method):
    """SGD, with momentum where the parameter has one."""

    rests = True

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        if self.traits.momentum:
            rules.momentum(w, g, state["velocity"], scratch[0], rate=self.rate, mu=self.mu, decay=self.decay)
        else:
            rules.sgd(w, g, scratch[0], rate=self.rate, decay=self.decay)

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        return hot.momentum(w, g, state.get("velocity"), rate=self.rate, mu=self.mu, decay=self.decay, rows=rows)


class TorchMomentum(Momentum):
    """Momentum whose rate is multiplied by 1 - mu, but for the very first batch."""

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        factor = 1.0 if number == 1 else float(np.float32(1.0 - self.traits.momentum))
        self.rate = np.float32(rate * self.traits.learning_rate * factor)


class SparseMomentum(Momentum):
    """Momentum for rows that most batches do not touch; dense parameters take the plain rule.

    Two running sums u and v stand for the velocity that a row would have if it had taken part in every step.
    """

    averages = ("momentum_u", "momentum_v")

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        super().__init__(optimization, traits)
        self._restart()

    def _restart(self) -> None:
        self.alpha, self.beta, self.tau = np.float32(1), np.float32(1), np.float32(-1)

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that go with the values."""
        if self.traits.is_sparse:
            return self.averages
        return ("velocity",) if self.traits.momentum else ()

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        if self.traits.is_sparse:
            self.tau += self.beta / self.alpha
            self.alpha /= self.mu
            self.beta /= np.float32(1) + self.decay * self.rate

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        if not self.traits.is_sparse:
            super().update(w, g, state, scratch)
            return
        u, v, part = state["momentum_u"], state["momentum_v"], scratch[0]
        if last is not None:
            np.copyto(v, w, where=last == 0)
        step = self.alpha * self.rate
        np.multiply(g, step, out=part)
        u -= part
        np.multiply(g, self.tau * step, out=part)
        v += part
        np.multiply(u, np.float32(float(self.tau / self.beta) + 1.0 / float(self.alpha)), out=w)
        np.multiply(v, np.float32(1.0 / float(self.beta)), out=part)
        w += part

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are: not compiled."""
        return False

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Start afresh before the sums become too large."""
        if self.traits.is_sparse and self.alpha > ALPHA_LIMIT:
            state["momentum_u"][...] /= self.alpha
            state["momentum_v"][...] = w
            self._restart()


# ----- The family of AdaGrad -----


class AdaGrad(Method):
    """Steps divided by the root of the sum of all squared gradients."""

    uses_schedule = False
    rests = True
    has_rates = True
    averages = ("squares_before", "squares")

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adagrad(
            w,
            g,
            state["squares_before"],
            state["squares"],
            state.get("velocity"),
            scratch[0],
            scratch[1],
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=np.float32(self.optimization.ada_epsilon),
        )

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        return hot.adagrad(
            w,
            g,
            state["squares_before"],
            state["squares"],
            state.get("velocity"),
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=np.float32(self.optimization.ada_epsilon),
            rows=rows,
        )

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Move the recent sums into the old ones now and then: adding to a large sum would lose precision."""
        if self.number % FOLD_PERIOD == 0:
            state["squares_before"][...] += state["squares"]
            state["squares"][...] = 0

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.adagrad_rates(
            state["squares_before"], state["squares"], out, epsilon=np.float32(self.optimization.ada_epsilon)
        )


class _Decaying(Method):
    """What methods share whose averages decay; rows make up for the batches that did not touch them."""

    rests = True
    has_rates = True

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        super().__init__(optimization, traits)
        self.rho, self.epsilon = np.float32(optimization.ada_rou), np.float32(optimization.ada_epsilon)

    def factors(self, last: Steps | None) -> tuple[Number, Number]:
        """Return what the averages keep, and the weight of the new square, which is 1 in the first update."""
        rest = np.float32(1) - self.rho
        if last is None:
            return self.rho, np.float32(1) if self.number == 1 else rest
        # where rows rest in a dense parameter, only the first batch of the run is a first update
        is_first = last == 0 if self.traits.is_sparse else np.full(last.shape, self.number == 1)
        return self._power(self.number - last), np.where(is_first, np.float32(1), rest)

    def _power(self, steps: Steps) -> Array:
        return np.power(float(self.rho), steps).astype(np.float32)

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Let the averages decay."""
        kept = self._power(np.asarray(steps, np.int64))
        for name in self.averages:
            state[name][...] *= kept


class DecayedAdaGrad(_Decaying):
    """AdaGrad with a decaying mean instead of the sum."""

    averages = ("mean_square",)

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        kappa, weight = self.factors(last)
        rules.decayed_adagrad(
            w,
            g,
            state["mean_square"],
            state.get("velocity"),
            scratch[0],
            scratch[1],
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=self.epsilon,
            kappa=kappa,
            weight=weight,
        )

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        kappa, weight = self.factors(last)
        return hot.decayed_adagrad(
            w,
            g,
            state["mean_square"],
            state.get("velocity"),
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=self.epsilon,
            kappa=kappa,
            weight=weight,
            rows=rows,
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.decayed_adagrad_rates(state["mean_square"], out, epsilon=self.epsilon)


class RMSProp(_Decaying):
    """The centred form: the square of the mean gradient is taken off."""

    averages = ("mean_square", "mean_gradient")

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        kappa, weight = self.factors(last)
        rules.rmsprop(
            w,
            g,
            state["mean_square"],
            state["mean_gradient"],
            state.get("velocity"),
            scratch[0],
            scratch[1],
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=self.epsilon,
            rho=self.rho,
            kappa=kappa,
            weight=weight,
        )

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        kappa, weight = self.factors(last)
        return hot.rmsprop(
            w,
            g,
            state["mean_square"],
            state["mean_gradient"],
            state.get("velocity"),
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=self.epsilon,
            rest=np.float32(1) - self.rho,
            kappa=kappa,
            weight=weight,
            rows=rows,
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.rmsprop_rates(state["mean_square"], state["mean_gradient"], out, epsilon=self.epsilon)


class AdaDelta(Method):
    """Steps of the size of a decaying mean of earlier steps."""

    takes_rows = False
    has_rates = True
    averages = ("mean_square", "mean_square_step", "rates")  # the rates cannot be computed again from the others

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adadelta(
            w,
            g,
            state["mean_square"],
            state["mean_square_step"],
            state["rates"],
            state.get("velocity"),
            scratch[0],
            scratch[1],
            rate=self.rate,
            mu=self.mu,
            decay=self.decay,
            epsilon=np.float32(self.optimization.ada_epsilon),
            rho=np.float32(self.optimization.ada_rou),
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        np.copyto(out, state["rates"])


# ----- Adam -----


class Adam(Method):
    """Adam."""

    uses_schedule = uses_momentum = uses_decay = takes_rows = False
    averages = ("first_moment", "second_moment")

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        self.rate = rules.adam_rate(float(self.rate), self.optimization, number)

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adam(
            w,
            g,
            state["first_moment"],
            state["second_moment"],
            scratch[0],
            scratch[1],
            rate=self.rate,
            beta1=np.float32(self.optimization.adam_beta1),
            beta2=np.float32(self.optimization.adam_beta2),
            epsilon=np.float32(self.optimization.adam_epsilon),
        )


class Adamax(Method):
    """Adam with the infinity norm."""

    uses_schedule = uses_momentum = uses_decay = takes_rows = False
    averages = ("first_moment", "largest")

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        self.rate = rules.adamax_rate(float(self.rate), self.optimization, number)

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adamax(
            w,
            g,
            state["first_moment"],
            state["largest"],
            scratch[0],
            rate=self.rate,
            beta1=np.float32(self.optimization.adam_beta1),
            beta2=np.float32(self.optimization.adam_beta2),
        )


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


# ----- Checks -----


def check_supported(optimization: Optimization) -> None:
    """Return if the method and the schedule exist here.

    Raises: ConfigError: naming what is not supported and what is.
    """
    if optimization.learning_method not in METHODS:
        raise ConfigError(f"learning_method '{optimization.learning_method}' is not known; known: {', '.join(METHODS)}")
    if not math.isfinite(optimization.learning_rate):
        raise ConfigError(f"learning_rate is {optimization.learning_rate}; it must be a number")
    check_schedule(optimization)


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
