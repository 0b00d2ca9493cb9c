"""The compiled update rules, by name. Each rule makes one pass over the arrays and gives the result of `pserver.optim`.

A rule takes its arguments in this order: the values, the gradient, the arrays of the state (the velocity last), and
numbers such as the learning rate. The order is the same in this module, in `pserver.optim.method` and in `rules.c`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[np.float32]
Rows = npt.NDArray[np.integer[Any]]

PAGE, KILOBYTE = 4096, 1024  # bytes

# the last two numbers of these rules, kappa and weight, may be columns with one number for each row
WITH_FACTORS = frozenset({"decayed_adagrad", "rmsprop"})


def zeros_apart(size: int, number: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return an array of zeros; its address is `number` kilobytes behind the start of a memory page.

    A page takes no memory before it is written.

    An update rule reads several arrays in parallel. The allocator would place all large arrays at the same offset in a
    page. A processor at first compares only the last twelve bits of two addresses. The processor would therefore
    confuse a read from one array with a write to another array, and wait for the write. A step of Adam would then take
    up to three times as long.
    """
    item = np.dtype(dtype).itemsize
    memory = np.zeros(size * item + PAGE, np.uint8)
    begin = (number * KILOBYTE - memory.ctypes.data) % PAGE
    return memory[begin : begin + size * item].view(dtype)


def step(name: str, arrays: Sequence[Array | None], numbers: Sequence[Any], rows: Rows | None = None) -> bool:
    """Take one step of a rule in place, if the rule is compiled and the arrays fit. Return whether the step was taken.

    Args: name: name of the rule; "": no rule.  arrays: w, g and the state, whose last array, the velocity, may be None.
        numbers: the other arguments of the rule, float32, in the order of the rule.
        rows: numbers of the rows that the step updates, int64 and contiguous; None: all rows.
    Shapes: arrays: all have one shape, (rows, width) if `rows` is given.
    Raises: ValueError: a row is outside of the arrays, or kappa and weight do not have one number for each row.
    """
    compiled_step = getattr(compiled, f"step_{name}", None)
    if compiled_step is None or not fits(*arrays):
        return False
    if name in WITH_FACTORS:
        numbers = *numbers[:-2], *_columns(numbers[-2], numbers[-1])
    width = arrays[0].shape[-1] if arrays[0] is not None else 0
    compiled_step(*arrays, *numbers, rows, width)
    return True


def _columns(kappa: Any, weight: Any) -> tuple[Array, Array]:
    """Return kappa and weight as flat arrays of equal length."""
    one, other = (np.ascontiguousarray(each, np.float32).reshape(-1) for each in (kappa, weight))
    if len(one) != len(other):
        one, other = (np.ascontiguousarray(each) for each in np.broadcast_arrays(one, other))
    return one, other
