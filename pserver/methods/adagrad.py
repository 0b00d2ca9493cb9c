"""AdaGrad and its family: every element has a rate of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels import rules as hot
from pserver import rules
from pserver.methods.base import Method, Steps, Traits
from pserver.rules import Array, Number, Optimization, Rows

FOLD_PERIOD = 16384  # batches after which adagrad moves its recent sums into the old ones


class _Adaptive(Method):
    """What methods share whose elements have rates of their own."""

    has_rates = True

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        super().__init__(optimization, traits)
        self.epsilon = np.float32(optimization.ada_epsilon)

    def constants(self) -> dict[str, np.float32]:
        """Return the numbers that every rule takes in this step."""
        return {"rate": self.rate, "mu": self.mu, "decay": self.decay, "epsilon": self.epsilon}


class AdaGrad(_Adaptive):
    """Steps divided by the root of the sum of all squared gradients."""

    uses_schedule = False
    rests = True
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
            **self.constants(),
        )

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        return hot.adagrad(
            w,
            g,
            state["squares_before"],
            state["squares"],
            state.get("velocity"),
            **self.constants(),
            rows=rows,
        )

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Move the recent sums into the old ones now and then: adding to a large sum would lose precision."""
        if self.number % FOLD_PERIOD == 0:
            state["squares_before"][...] += state["squares"]
            state["squares"][...] = 0

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.adagrad_rates(state["squares_before"], state["squares"], out, epsilon=self.epsilon)


class Decaying(_Adaptive):
    """What methods share whose averages decay; rows make up for the batches that did not touch them."""

    rests = True

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        super().__init__(optimization, traits)
        self.rho = np.float32(optimization.ada_rou)

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


class DecayedAdaGrad(Decaying):
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
            **self.constants(),
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
            **self.constants(),
            kappa=kappa,
            weight=weight,
            rows=rows,
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.decayed_adagrad_rates(state["mean_square"], out, epsilon=self.epsilon)


class RMSProp(Decaying):
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
            **self.constants(),
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
            **self.constants(),
            rest=np.float32(1) - self.rho,
            kappa=kappa,
            weight=weight,
            rows=rows,
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        rules.rmsprop_rates(state["mean_square"], state["mean_gradient"], out, epsilon=self.epsilon)


class AdaDelta(_Adaptive):
    """Steps of the size of a decaying mean of earlier steps."""

    takes_rows = False
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
            **self.constants(),
            rho=np.float32(self.optimization.ada_rou),
        )

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step."""
        np.copyto(out, state["rates"])
