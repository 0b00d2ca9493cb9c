"""A vector of all parameters and a vector of their gradients, the two update rules, and buffers that are reused."""

from __future__ import annotations

from pathlib import Path

import numpy as np

Array = np.ndarray
BLOCK = 65536  # number of elements that a rule updates at once, so that the elements stay in the cache
FEW = 16  # if fewer ids than this number have further rows, one call for each id adds all of its further rows


class Parameters:
    """All parameters in one vector, and their gradients in another, with views by name."""

    def __init__(self, directory: Path) -> None:
        files = sorted(path for path in directory.iterdir() if path.name.startswith("_"))
        pieces = [np.fromfile(path, np.float32, offset=16) for path in files]
        ends = np.cumsum([len(piece) for piece in pieces])[:-1]
        self.values = np.concatenate(pieces)
        self.gradients = np.zeros_like(self.values)
        names = [path.name for path in files]
        self._values = dict(zip(names, np.split(self.values, ends), strict=True))
        self._gradients = dict(zip(names, np.split(self.gradients, ends), strict=True))
        self._used_rows: list[tuple[Array, Array]] = []

    def matrix(self, name: str, width: int) -> tuple[Array, Array]:
        """Returns the values and the gradient of a parameter as matrices with rows of this width."""
        return self._values[name].reshape(-1, width), self._gradients[name].reshape(-1, width)

    def vector(self, name: str) -> tuple[Array, Array]:
        return self._values[name], self._gradients[name]

    def add_rows(self, table: Array, ids: Array, gradient: Array) -> None:
        """Writes the sums of the rows with equal ids into a gradient that is zero; `clear_rows` clears these rows."""
        rows, sums = sum_by_id(ids, gradient)
        table[rows] = sums
        self._used_rows.append((table, rows))

    def clear_rows(self) -> None:
        for table, rows in self._used_rows:
            table[rows] = 0
        self._used_rows.clear()


def order_gates(columns: Array) -> Array:
    """Returns the columns with the candidate behind the input gate and the forget gate.

    torch and TensorFlow's BlockLSTMV2 have this order: input gate, forget gate, candidate, output gate.
    """
    candidate, input_gate, forget_gate, output_gate = np.split(columns, 4, axis=-1)
    return np.concatenate([input_gate, forget_gate, candidate, output_gate], axis=-1)


def sum_by_id(ids: Array, rows: Array) -> tuple[Array, Array]:
    """Returns the distinct ids and, for each, the sum of its rows.

    The ids are sorted by their numbers of occurrences. Round k adds the row of the k-th occurrence of every id that
    occurs at least k times.
    """
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    ordered = ids[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(first, append=len(ids))
    by_count = np.argsort(-counts, kind="stable")
    first, counts = first[by_count], counts[by_count]
    sums = rows.take(order[first], axis=0)
    live = np.searchsorted(-counts, -np.arange(1, counts[0]), side="left")
    for occurrence, many in enumerate(live.tolist(), 1):
        if many < FEW:
            for number in range(many):
                start = first[number]
                rest = order[start + occurrence : start + counts[number]]
                sums[number] += rows.take(rest, axis=0).sum(axis=0)
            break
        sums[:many] += rows.take(order[first[:many] + occurrence], axis=0)
    return ordered[first], sums


class RmsPropRule:
    """The centred form of RMSProp with rho 0.95 and epsilon 1e-6; the first square has the weight 1."""

    def __init__(self, parameters: Parameters, rate: float) -> None:
        self._parameters, self._rate = parameters, np.float32(rate)
        self._squares, self._means = np.zeros_like(parameters.values), np.zeros_like(parameters.values)
        self._scratch = np.empty(BLOCK, np.float32)
        self._weight = np.float32(1)

    def step(self) -> None:
        rho = np.float32(0.95)
        rest = np.float32(1) - rho
        everything = self._parameters.values, self._parameters.gradients, self._squares, self._means
        for start in range(0, len(everything[0]), BLOCK):
            w, g, q, f = (one[start : start + BLOCK] for one in everything)
            s = self._scratch[: len(w)]
            np.multiply(g, g, out=s)
            s *= self._weight
            q *= rho
            q += s
            np.multiply(g, rest, out=s)
            f *= rho
            f += s
            np.multiply(f, f, out=s)
            np.subtract(q, s, out=s)
            s += np.float32(1e-6)
            np.sqrt(s, out=s)
            np.divide(g, s, out=s)
            s *= self._rate
            w -= s
        self._weight = rest
        self._parameters.clear_rows()


class AdamRule:
    """Adam with the betas 0.9 and 0.999; epsilon 1e-8 is added after the root, before the bias correction."""

    def __init__(self, parameters: Parameters, rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._means, self._squares = np.zeros_like(parameters.values), np.zeros_like(parameters.values)
        self._scratch = np.empty(BLOCK, np.float32)

    def step(self) -> None:
        self._steps += 1
        beta1, beta2 = np.float32(0.9), np.float32(0.999)
        rest1, rest2 = np.float32(1) - beta1, np.float32(1) - beta2
        rate = np.float32(self._rate * np.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps))
        everything = self._parameters.values, self._parameters.gradients, self._means, self._squares
        for start in range(0, len(everything[0]), BLOCK):
            w, g, m, v = (one[start : start + BLOCK] for one in everything)
            s = self._scratch[: len(w)]
            np.multiply(g, rest1, out=s)
            m *= beta1
            m += s
            np.multiply(g, g, out=s)
            s *= rest2
            v *= beta2
            v += s
            np.sqrt(v, out=s)
            s += np.float32(1e-8)
            np.divide(m, s, out=s)
            s *= rate
            w -= s
        self._parameters.clear_rows()


class Buffers:
    """Matrices by name. A matrix is reused, and is only allocated again when a batch needs more rows."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def __call__(self, name: str, rows: int, width: int, dtype: type = np.float32) -> Array:
        kept = self._kept.get(name)
        if kept is None or len(kept) < rows:
            kept = self._kept[name] = np.empty((rows + rows // 4, width), dtype)
        return kept[:rows]
