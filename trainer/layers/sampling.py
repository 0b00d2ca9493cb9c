"""The random generator std::minstd_rand0 of C++, from which v0.10 draws samples of classes.

The state x changes by x <- 16807 x mod (2^31 - 1). Integers and fractions are derived from x as in the distributions of
the GNU C++ library.
Source: utils/ThreadLocal.cpp of v0.10; ISO C++ [rand.predef].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MODULUS = 2147483647
_MULTIPLIER = 16807
_VALUES = _MODULUS - 1  # a state is a number from 1 to _VALUES

# The default of --seed. v0.10 used --seed as the seed only with --thread_local_rand_use_global_seed; without this flag,
# the seed was the number of the thread.
SEED = 1


class SampleStream:
    """A random generator with its own state."""

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

    The class uses Walker's method. The range [0, classes) has an interval of length one for each class. The part of the
    interval below a threshold stands for the class itself, and the part above the threshold stands for one other class.
    A small class has less than the mean probability and does not fill its interval; the rest of the interval goes to a
    big class, which has more than the mean probability. Two positions move forward over the classes: the first over the
    small classes, and the second over the big classes. A big class can become small. A second sweep finds a class that
    becomes small behind the first position.

    Source: gserver/layers/MultinomialSampler.cpp of v0.10, which also computes in float32. In all recorded runs of
        v0.10, the classes have equal probabilities, so no recorded run confirms the draws from different probabilities.
    """

    def __init__(self, shares: npt.NDArray[np.float64]) -> None:
        given = shares.astype(np.float32).astype(np.float64)
        # Python's numbers, rounded to float32 in each step, are faster here than numpy's scalars
        thresholds: list[float] = (given * (len(given) / given.sum())).astype(np.float32).tolist()
        others = list(range(len(given)))
        for _ in range(2):
            _sweep(thresholds, others)
        self._thresholds = np.array(thresholds)
        self._others: npt.NDArray[np.int64] = np.array(others, np.int64)

    def draw(self, samples: SampleStream, count: int) -> npt.NDArray[np.int64]:
        """Return `count` classes."""
        places = samples.fractions(count) * len(self._others)
        own = places.astype(np.int64)
        chosen: npt.NDArray[np.int64] = np.where(places < own + self._thresholds[own], own, self._others[own])
        return chosen


def _sweep(thresholds: list[float], others: list[int]) -> None:
    """Assign to each small class, in order, a big class that fills its interval."""
    many = len(thresholds)

    def next_small(place: int) -> int:
        while place < many and (others[place] != place or thresholds[place] >= 1):
            place += 1
        return place

    small = next_small(0)
    for big in range(many):
        while thresholds[big] > 1 and small < many:
            others[small] = big
            rest = float(np.float32(1 - thresholds[small]))
            thresholds[big] = float(np.float32(thresholds[big] - rest))
            small = next_small(small + 1)
