"""Compiled steps of recurrent layers: one step and all steps of an LSTM and of a GRU.

A row of gates is (a, i, f, o) for an LSTM: candidate, input gate, forget gate and output gate. A row of gates is (u, r,
c) for a GRU: update gate, reset gate and candidate. Each letter stands for `size` numbers. If a function returns False,
the caller must use numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits
from paddle_base.kernels.steps import KINDS, are_compiled

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def lstm_forward(
    gates: Array, peepholes: Array, before: Array, c: Array, h: Array, *, candidate: str, gate: str, state: str
) -> bool:
    """Replace the inputs of the gates by the gates (a, i, f, o), in place, and write the state c and the output h.

    Shapes: gates: (n, 4 * size); peepholes: (3, size); before (the previous state), c, h: (n, size).
    """
    kinds = candidate, gate, state
    if compiled is None or not are_compiled(kinds) or not fits(gates, peepholes, before, c, h):
        return False
    compiled.lstm_forward(c, gates, peepholes, before, h, c.shape[1], *map(KINDS.__getitem__, kinds))
    return True


def lstm_backward(
    gates: Array,
    peepholes: Array,
    before: Array,
    c: Array,
    d_h: Array,
    d_c: Array,
    d_peepholes: Array,
    *,
    candidate: str,
    gate: str,
    state: str,
) -> bool:
    """Replace the gates by the gradients of their inputs, and d_c by the gradient of the previous state.

    Shapes: see `lstm_forward`; d_h, d_c: (n, size); d_peepholes: (3, size). The function overwrites d_h, and adds the
        gradient of the peepholes to d_peepholes.
    """
    kinds = candidate, gate, state
    if compiled is None or not are_compiled(kinds) or not fits(gates, peepholes, before, c, d_h, d_c, d_peepholes):
        return False
    size = c.shape[1]
    compiled.lstm_backward(d_c, gates, peepholes, before, c, d_h, d_peepholes, size, *map(KINDS.__getitem__, kinds))
    return True


@dataclass(frozen=True)
class LstmRun:
    """All steps of an LSTM layer over packed sequences, with the arrays of the forward and the backward computation.

    In every packed array step t has the rows begins[t]:begins[t + 1]. No step has more rows than the previous step.

    Shapes: gates: (frames, 4 * size); peepholes: (3, size); c, y: (frames, size), the state and its activation;
    begins: (steps + 1,) int64.
    """

    gates: Array
    peepholes: Array
    c: Array
    y: Array
    begins: Ids
    kinds: Mapping[str, str]  # activation names of the candidate, the gates and the state

    def fits(self) -> bool:
        """Return whether `forward` and `backward` can be used; if not, the caller must use numpy."""
        return (
            compiled is not None
            and are_compiled(self.kinds.values())
            and fits(self.gates, self.peepholes, self.c, self.y)
        )

    def forward(self, x: Array, rows: Ids, w: Array, bias: Array, h: Array) -> None:
        """Run the steps; the input of the gates of a step is x[rows] + bias, plus w times the previous output.

        Write gates, c, y and h.

        Shapes: x: (any, 4 * size); rows: (frames,); w: (size, 4 * size); bias: (4 * size,); h: (frames, size).
        """
        assert compiled is not None  # fits
        compiled.lstm_run_forward(*self._arguments(x, rows, w), bias, self.c, self.y, h)

    def backward(self, gradient: Array, rows: Ids, transposed: Array, d_c: Array, d_peepholes: Array) -> None:
        """Run the steps from the last one to the first; change the gates and d_c as `lstm_backward` does.

        Args: gradient: the gradient of h; row rows[k] belongs to frame k.  transposed: the transposed matrix of w.
        Shapes: gradient: (any, size); transposed: (4 * size, size); d_c: (sequences, size).
        """
        assert compiled is not None  # fits
        compiled.lstm_run_backward(*self._arguments(gradient, rows, transposed), self.c, self.y, d_c, d_peepholes)

    def _arguments(self, x: Array, rows: Ids, w: Array) -> tuple[Any, ...]:
        kinds = (KINDS[self.kinds[name]] for name in ("candidate", "gate", "state"))
        size = self.c.shape[1]
        ids = np.ascontiguousarray(rows, np.int64)
        x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
        return self.gates, x, ids, w, self.peepholes, self.begins, size, *kinds


@dataclass(frozen=True)
class GruRun:
    """All steps of a GRU layer over packed sequences, with the arrays of the forward and the backward computation.

    In every packed array step t has the rows begins[t]:begins[t + 1]. No step has more rows than the previous step.

    Shapes: gates: (frames, 3 * size); reset, h: (frames, size): r times the previous output, and the output; begins:
        (steps + 1,) int64.
    """

    gates: Array
    reset: Array
    h: Array
    begins: Ids
    gate: str  # the activation of u and r
    candidate: str  # the activation of c

    def fits(self) -> bool:
        """Return whether `forward` and `backward` can be used; if not, the caller must use numpy."""
        return (
            compiled is not None and are_compiled((self.gate, self.candidate)) and fits(self.gates, self.reset, self.h)
        )

    def forward(self, x: Array, rows: Ids, w: Array, bias: Array | None) -> None:
        """Run the steps; the input of the gates of a step is x[rows] + bias, plus w times the previous output.

        Write gates, reset and h.

        Shapes: x: (any, 3 * size); rows: (frames,); bias: (3 * size,); w: a flat array of two successive matrices,
            (size, 2 * size) and (size, size).
        """
        assert compiled is not None  # fits
        compiled.gru_run_forward(*self._arguments(x, rows, w), bias, self.h)

    def backward(self, gradient: Array, rows: Ids, transposed: Array) -> None:
        """Run the steps from the last one to the first; replace the gates by the gradients of their inputs.

        Args: gradient: the gradient of h; row rows[k] belongs to frame k.  transposed: a flat array of the two matrices
            of w, both transposed.
        Shapes: gradient: (any, size); transposed: (3 * size * size,).
        """
        assert compiled is not None  # fits
        compiled.gru_run_backward(*self._arguments(gradient, rows, transposed), self.h)

    def _arguments(self, x: Array, rows: Ids, w: Array) -> tuple[Any, ...]:
        kinds = KINDS[self.gate], KINDS[self.candidate]
        ids = np.ascontiguousarray(rows, np.int64)
        return self.gates, np.ascontiguousarray(x), ids, w, self.reset, self.begins, self.h.shape[1], *kinds


@dataclass(frozen=True)
class GruStep:
    """The element-wise parts of a single step of a GRU, which the caller computes between its products.

    Shapes: u_r: (n, 2 * size), first the products of h' with W_u | W_r, then the gates; c: (n, size), first the product
        of r h' with W_c, then the candidate; h_before, reset: (n, size), h' and r h'; sums: (n, 3 * size), the inputs
        of the gates without these products.
    """

    u_r: Array
    h_before: Array
    reset: Array
    gate: str  # the activation of u and r
    candidate: str  # the activation of c

    def fits(self, sums: Array) -> bool:
        """Return whether the other methods can be used; if not, the caller must use numpy."""
        kinds = self.gate, self.candidate
        return compiled is not None and are_compiled(kinds) and fits(self.u_r, self.h_before, self.reset, sums)

    def compute_gates(self, sums: Array) -> None:
        """Compute the gates in `u_r`, and write r h' to `reset`."""
        self._call("gates", self.gate, self.u_r, self.reset, sums, self.h_before)

    def compute_output(self, sums: Array, c: Array, h: Array) -> None:
        """Compute the candidate in `c`, and write the output to `h`."""
        self._call("output", self.candidate, c, h, sums, self.u_r, self.h_before)

    def descend_output(self, c: Array, d_h: Array, d_sums: Array) -> None:
        """Write the gradients of u and of the sum of c to `d_sums`; replace d_h by its part that reaches h' directly.

        Shapes: d_h: (n, size), the gradient of h; d_sums: (n, 3 * size).
        """
        self._call("output_gradient", self.candidate, d_sums, d_h, self.u_r, self.h_before, c)

    def descend_gates(self, d_reset: Array, d_h: Array, d_sums: Array) -> None:
        """Write the gradients of the sums of u and r to `d_sums`, after `descend_output`.

        Also add to d_h the part of the gradient of h' that comes through r h', whose gradient is `d_reset`.
        """
        self._call("gates_gradient", self.gate, d_sums, d_h, self.u_r, self.h_before, d_reset)

    def _call(self, part: str, kind: str, *arrays: Array) -> None:
        assert compiled is not None  # fits
        getattr(compiled, f"gru_step_{part}")(KINDS[kind], self.h_before.shape[1], *arrays)
