"""Compute the random numbers of PaddlePaddle v0.10, draws of the C library's `rand_r`, many at a time.

One draw makes three steps of x <- x * 1103515245 + 12345 (mod 2^32) and uses 11, 10 and 10 bits of the three results.
A step is affine, so k steps replace x by a_k * x + c_k. With tables of a_k and c_k, n draws take a few array
operations.

Source: spec/trainer.md 5.4; glibc stdlib/rand_r.c.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.samples import fill

_MULTIPLIER = 1103515245
_INCREMENT = 12345
_MASK = 0xFFFFFFFF
_STEPS = 3  # steps of the generator per draw
_LARGEST_BLOCK = 1 << 16  # maximum number of draws computed at a time; the arrays of more draws would not fit the cache

UPPER = 1 << 31  # draws are in [0, UPPER)


def _jump(multiplier: int, increment: int, steps: int) -> tuple[int, int]:
    """Return (a, c) for which `steps` steps of x <- x * multiplier + increment change x to a * x + c."""
    a, c = 1, 0
    while steps:
        if steps & 1:
            a, c = a * multiplier & _MASK, (c * multiplier + increment) & _MASK
        multiplier, increment = multiplier * multiplier & _MASK, (increment * multiplier + increment) & _MASK
        steps >>= 1
    return a, c


class Stream:
    """The state of `rand_r` of one thread.

    Without --trainer_count all draws of a run come from the main thread's stream, in a fixed order.
    """

    # The two tables have the numbers a_k and c_k, with which k steps replace a state x by a_k * x + c_k. The streams of
    # all threads share the tables and extend them on demand.
    _tables = np.ones(1, np.uint32), np.zeros(1, np.uint32)

    def __init__(self, state: int) -> None:
        self.state = state & _MASK

    def draw(self) -> int:
        """Return the next draw, in [0, 2^31)."""
        x1 = (self.state * _MULTIPLIER + _INCREMENT) & _MASK
        x2 = (x1 * _MULTIPLIER + _INCREMENT) & _MASK
        x3 = (x2 * _MULTIPLIER + _INCREMENT) & _MASK
        self.state = x3
        return (x1 >> 16 & 2047) << 20 | (x2 >> 16 & 1023) << 10 | (x3 >> 16 & 1023)

    def draws(self, count: int) -> npt.NDArray[np.uint32]:
        """Return the next `count` draws, in order."""
        result = np.empty(count, np.uint32)
        after = fill(result, self.state)
        if after is not None:
            self.state = after
            return result
        for start in range(0, count, _LARGEST_BLOCK):
            block = result[start : start + _LARGEST_BLOCK]
            block[:] = self._block(len(block))
        return result

    def skip(self, count: int) -> None:
        """Advance by `count` draws without computing them."""
        a, c = _jump(_MULTIPLIER, _INCREMENT, count * _STEPS)
        self.state = (a * self.state + c) & _MASK

    def _block(self, count: int) -> npt.NDArray[np.uint32]:
        steps = count * _STEPS
        tables = self._tables
        a, c = tables if len(tables[0]) > steps else self._grow(steps)
        states = a[1 : steps + 1] * np.uint32(self.state)
        states += c[1 : steps + 1]
        self.state = int(states[-1]) if count else self.state
        bits = (states >> np.uint32(16)).reshape(count, _STEPS)
        draws: npt.NDArray[np.uint32] = (bits[:, 0] & np.uint32(2047)) << np.uint32(20)
        draws |= (bits[:, 1] & np.uint32(1023)) << np.uint32(10)
        draws |= bits[:, 2] & np.uint32(1023)
        return draws

    @classmethod
    def _grow(cls, steps: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Double the tables until they have an entry for `steps` steps.

        If the tables have m entries, the entry for k + m steps is computed from the entry for k steps and a jump of m
        steps.
        """
        tables = cls._tables
        while len(tables[0]) <= steps:
            a, c = _jump(_MULTIPLIER, _INCREMENT, len(tables[0]))
            further = tables[0] * np.uint32(a), tables[1] + tables[0] * np.uint32(c)
            tables = np.concatenate((tables[0], further[0])), np.concatenate((tables[1], further[1]))
        cls._tables = tables
        return tables


def start_state(seed: int, use_global_seed: bool) -> int:
    """Return the main thread's initial state: seed with --thread_local_rand_use_global_seed, otherwise seed - 1."""
    return (seed if use_global_seed else seed - 1) & _MASK


def replica_state(seed: int, number: int, use_global_seed: bool) -> int:
    """Return the initial state of the thread that computes part `number` of every batch; parts are numbered from 0.

    With --thread_local_rand_use_global_seed the state is the seed for every part. The number of the part replaces the
    thread number of v0.10, because thread numbers differ from run to run.
    """
    return (seed if use_global_seed else seed + number + 1) & _MASK
