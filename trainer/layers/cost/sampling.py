"""The legacy's second random generator, which chooses samples of classes: C++'s std::minstd_rand0. Pure.

x <- 16807 x mod (2^31 - 1). Whole numbers and fractions are made of it as the GNU C++ library's distributions do.
Source: utils/ThreadLocal.cpp of v0.10; ISO C++ [rand.predef].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MODULUS = 2147483647
_MULTIPLIER = 16807
_VALUES = _MODULUS - 1  # states are 1 .. _VALUES

SEED = 1  # with --thread_local_rand_use_global_seed the flag's default; without, the legacy took the thread's number


class SampleStream:
    """One state of the generator."""

    def __init__(self, seed: int = SEED) -> None:
        self._state = seed % _MODULUS or 1

    @property
    def state(self) -> int:
        """The number that the next ones are made from."""
        return self._state

    def states(self, count: int) -> npt.NDArray[np.int64]:
        """Return the next `count` states, in order."""
        powers = np.ones(1, np.int64)  # of the multiplier, of which products with a state fit 62 bits
        while len(powers) <= count:
            powers = np.concatenate((powers, powers * pow(_MULTIPLIER, len(powers), _MODULUS) % _MODULUS))
        states: npt.NDArray[np.int64] = powers[1 : count + 1] * self._state % _MODULUS
        self._state = int(states[-1]) if count else self._state
        return states

    def integers(self, count: int, upper: int) -> npt.NDArray[np.int64]:
        """Return numbers in [0, upper), all alike."""
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
