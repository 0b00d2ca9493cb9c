"""The second random generator of v0.10, for samples of classes: C++'s std::minstd_rand0. Pure.

x <- 16807 x mod (2^31 - 1). Integers and fractions are derived from x as in the distributions of the GNU C++ library.
Source: utils/ThreadLocal.cpp of v0.10; ISO C++ [rand.predef].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MODULUS = 2147483647
_MULTIPLIER = 16807
_VALUES = _MODULUS - 1  # states are 1 .. _VALUES

# The default of --seed. With --thread_local_rand_use_global_seed the seed of v0.10 was that of --seed; without this
# flag it was the number of the thread.
SEED = 1


class SampleStream:
    """One state of the generator."""

    def __init__(self, seed: int = SEED) -> None:
        self._state = seed % _MODULUS or 1

    @property
    def state(self) -> int:
        """The present state."""
        return self._state

    def states(self, count: int) -> npt.NDArray[np.int64]:
        """Return the next `count` states, in order."""
        powers = np.ones(1, np.int64)  # powers of the multiplier; a product of a power and a state fits into 62 bits
        while len(powers) <= count:
            powers = np.concatenate((powers, powers * pow(_MULTIPLIER, len(powers), _MODULUS) % _MODULUS))
        states: npt.NDArray[np.int64] = powers[1 : count + 1] * self._state % _MODULUS
        self._state = int(states[-1]) if count else self._state
        return states

    def integers(self, count: int, upper: int) -> npt.NDArray[np.int64]:
        """Return uniformly distributed numbers in [0, upper)."""
        scale = (_VALUES - 1) // upper
        parts: list[npt.NDArray[np.int64]] = []
        missing = count
        while missing:
            states = self.states(missing) - 1
            parts.append(states[states < upper * scale] // scale)
            missing -= len(parts[-1])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def fractions(self, count: int) -> npt.NDArray[np.float64]:
        """Return numbers in [0, 1)."""
        pairs = (self.states(2 * count) - 1).reshape(count, 2)
        fractions: npt.NDArray[np.float64] = (pairs[:, 0] + pairs[:, 1] * float(_VALUES)) / float(_VALUES) ** 2
        return np.minimum(fractions, np.nextafter(1.0, 0.0))


class AliasTable:
    """Draw classes with given probabilities; the time of a draw does not depend on the number of classes.

    This is Walker's method. The range [0, classes) has an interval of length one for each class. The part of the
    interval below a threshold stands for the class itself, and the part above the threshold stands for one other class.
    A class with less than the mean probability does not fill its interval; the rest of the interval goes to the first
    class that still has more than the mean.

    Source: gserver/layers/MultinomialSampler.cpp of v0.10. In all recorded runs of v0.10 the classes have equal
        probabilities, so no recorded run confirms the draws from different probabilities.
    """

    def __init__(self, shares: npt.NDArray[np.float64]) -> None:
        given = shares.astype(np.float32).astype(np.float64)
        thresholds = given * len(given) / given.sum()
        others = np.arange(len(given))
        filled = thresholds >= 1
        while True:  # a class whose probability falls below the mean in one round is filled in the next round
            small, big = np.flatnonzero(~filled), np.flatnonzero(thresholds > 1)
            if not len(small) or not len(big):
                break
            _fill(thresholds, others, filled, small.tolist(), big.tolist())
        thresholds[~filled] = 1  # rounding errors can leave classes unfilled
        self._thresholds = np.minimum(thresholds, 1).astype(np.float32)
        self._others: npt.NDArray[np.int64] = others

    def draw(self, samples: SampleStream, count: int) -> npt.NDArray[np.int64]:
        """Return `count` classes."""
        places = samples.fractions(count) * len(self._others)
        own = places.astype(np.int64)
        chosen: npt.NDArray[np.int64] = np.where(places < own + self._thresholds[own], own, self._others[own])
        return chosen


def _fill(
    thresholds: npt.NDArray[np.float64],
    others: npt.NDArray[np.int64],
    filled: npt.NDArray[np.bool_],
    small: list[int],
    big: list[int],
) -> None:
    """Assign to each small class, in order, a big class that fills its interval.

    A class is small below the mean probability and big above it; a big class may be small afterwards.
    """
    givers = iter(big)
    giver = next(givers)
    for one in small:
        while thresholds[giver] <= 1:
            following = next(givers, None)
            if following is None:
                return
            giver = following
        others[one], filled[one] = giver, True
        thresholds[giver] -= 1 - thresholds[one]
        filled[giver] = thresholds[giver] >= 1
