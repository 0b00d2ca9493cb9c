"""The training steps of bench/train.py written out by hand in plain numpy: what the trainer is measured against.

usage: bench/yardstick.py WORKLOAD DIRECTORY MODEL [--passes N] [--keep P]

Reads the data of DIRECTORY and the parameters of MODEL (a pass directory of `paddle train`), trains N passes, and
prints the seconds and the mean cost of each. `--keep` is the share of values that dropout keeps.

Nothing here knows of layers or graphs: each step is the straight line of operations of one network, with buffers made
once, sequences side by side sorted by length so that every time step is a block of rows, sums over repeated ids
by rounds, and the optimiser in blocks that stay in the cache. Numbers of threads are numpy's own affair.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK = 65536
FEW = 16
Array = np.ndarray


# ----- Parameters and optimisers


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
        """Returns value and gradient with rows of this width."""
        return self._values[name].reshape(-1, width), self._gradients[name].reshape(-1, width)

    def vector(self, name: str) -> tuple[Array, Array]:
        return self._values[name], self._gradients[name]

    def add_rows(self, table: Array, ids: Array, gradient: Array) -> None:
        """Writes the sums of rows of equal id into a gradient that is zero, and remembers to clear it."""
        rows, sums = sum_by_id(ids, gradient)
        table[rows] = sums
        self._used_rows.append((table, rows))

    def clear_rows(self) -> None:
        for table, rows in self._used_rows:
            table[rows] = 0
        self._used_rows.clear()


def sum_by_id(ids: Array, rows: Array) -> tuple[Array, Array]:
    """Returns the distinct ids and, for each, the sum of its rows.

    Ids sorted by how often they occur: round k adds the k-th occurrence of all that have one.
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


class RmsProp:
    """The centred rule, rho 0.95, epsilon 1e-6; the first square counts fully."""

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


class Adam:
    """beta 0.9 and 0.999, epsilon 1e-8 beside the root without bias correction."""

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
    """Matrices by name that grow when a batch needs more rows and are otherwise made once."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def __call__(self, name: str, rows: int, width: int, dtype: type = np.float32) -> Array:
        kept = self._kept.get(name)
        if kept is None or len(kept) < rows:
            kept = self._kept[name] = np.empty((rows + rows // 4, width), dtype)
        return kept[:rows]


# ----- Data


@dataclass(frozen=True)
class Lists:
    """Lists of ids one after the other."""

    ids: Array
    starts: Array

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Lists:
        starts = np.cumsum([0, *map(len, lists)])
        return cls(np.fromiter((one for ids in lists for one in ids), np.int64, starts[-1]), starts)


class Packing:
    """Some of the lists side by side, longest first, so that each time step is a block of rows.

    `order`: of the given numbers, by length; `live`: how many have the step; `starts`: first row of each step;
    `ids`: (rows,).
    """

    def __init__(self, lists: Lists, numbers: Array) -> None:
        lengths = lists.starts[numbers + 1] - lists.starts[numbers]
        self.order = np.argsort(-lengths, kind="stable")
        numbers, lengths = numbers[self.order], lengths[self.order]
        self.live = np.searchsorted(-lengths, -np.arange(1, lengths[0] + 1), side="right").tolist()
        self.starts = np.cumsum([0, *self.live]).tolist()
        self.rows = self.starts[-1]
        starts = np.asarray(self.starts[:-1])
        step = np.repeat(np.arange(len(self.live)), self.live)
        self.sequence = np.arange(self.rows) - starts[step]
        self.ids = lists.ids[lists.starts[numbers][self.sequence] + step]
        later = self.live[0]  # the rows of the first step have none before
        self.previous = (starts[step[later:] - 1] if self.rows > later else step[:0]) + self.sequence[later:]

    def span(self, step: int) -> slice:
        return slice(self.starts[step], self.starts[step + 1])


def read_files(directory: Path) -> list[str]:
    names = (directory / "data/train.list").read_text(encoding="utf-8").split()
    return [line for name in names for line in (directory / name).read_text(encoding="utf-8").splitlines()]


class Texts:
    """Words and label of each text."""

    def __init__(self, directory: Path) -> None:
        lines = (directory / "data/dict.txt").read_text(encoding="utf-8").splitlines()
        ids = {line.split()[0]: number for number, line in enumerate(lines)}
        texts = [line.split("\t", 1) for line in read_files(directory)]
        self.words = Lists.of([[ids.get(word, 0) for word in text.split()] for _, text in texts])
        self.labels = np.array([int(label) for label, _ in texts])
        self.samples = len(texts)


class Ratings:
    """Film, user and score of each rating, and what is known of each film and user."""

    def __init__(self, directory: Path) -> None:
        meta = json.loads((directory / "data/meta.json").read_text(encoding="utf-8"))
        films, users = ([side[str(n)] for n in range(1, len(side))] for side in (meta["movie"], meta["user"]))
        ratings = np.array([[int(one) for one in line.split("::")[:3]] for line in read_files(directory)])
        self.users, self.films = ratings[:, 0] - 1, ratings[:, 1] - 1
        self.scores = (2 * ratings[:, 2] - 5).astype(np.float32)
        self.titles = Lists.of([title for title, _ in films])
        self.genres = np.array([genres for _, genres in films], np.float32)
        self.user_fields = np.array(users)
        self.samples = len(ratings)


# ----- Parts of networks


def add_bias_and_squash(z: Array, bias: Array) -> None:
    z += bias
    np.tanh(z, out=z)


def unsquash(gradient: Array, y: Array, scratch: Array) -> None:
    """Turns the gradient of y = tanh(z) into that of z; y is used up."""
    np.multiply(y, y, out=scratch)
    np.subtract(np.float32(1), scratch, out=scratch)
    gradient *= scratch


def copy_windows(x: Array, packing: Packing, first: int, length: int, out: Array) -> None:
    """Writes beside each other the rows of the steps around each step; zeros where there is none.

    Shapes: x: (rows, width); out: (rows, length, width).
    """
    for step in range(len(packing.live)):
        rows = out[packing.span(step)]
        for place in range(length):
            other = step + first + place
            if not 0 <= other < len(packing.live):
                rows[:, place] = 0
                continue
            both = min(packing.live[step], packing.live[other])
            rows[:both, place] = x[packing.span(other)][:both]
            rows[both:, place] = 0


def sum_windows(windows: Array, packing: Packing, first: int, out: Array) -> None:
    """Adds up what each row has in the windows around it: the gradient of `copy_windows`."""
    out[:] = windows[:, -first]
    for place in range(windows.shape[1]):
        if place == -first:
            continue
        for step in range(len(packing.live)):
            other = step + first + place
            if 0 <= other < len(packing.live):
                both = min(packing.live[step], packing.live[other])
                out[packing.span(other)][:both] += windows[packing.span(step)][:both, place]


class MaxPool:
    """The largest value of each column over the steps of a sequence."""

    def __init__(self, width: int, buffers: Buffers, name: str) -> None:
        self._width, self._buffers, self._name = width, buffers, name

    def forward(self, x: Array, packing: Packing) -> Array:
        live = packing.live
        largest = self._buffers(self._name, live[0], self._width)
        is_largest = self._buffers(self._name + " found", packing.rows, self._width, np.bool_)
        largest[:] = x[packing.span(0)]
        for step in range(1, len(live)):
            np.maximum(largest[: live[step]], x[packing.span(step)], out=largest[: live[step]])
        for step, many in enumerate(live):
            np.equal(x[packing.span(step)], largest[:many], out=is_largest[packing.span(step)])
        rows, columns = np.divmod(np.flatnonzero(is_largest), self._width)
        places = self._buffers(self._name + " places", live[0], self._width, np.intp)
        places[packing.sequence[rows[::-1]], columns[::-1]] = rows[::-1]  # the first one wins
        self._places = places
        return largest

    def backward(self, gradient: Array, out: Array) -> None:
        out[:] = 0
        out[self._places, np.arange(self._width)] = gradient


class Classes:
    """Softmax over a fully connected layer, and cross-entropy."""

    def __init__(self, parameters: Parameters) -> None:
        self._w, self._d_w = parameters.matrix("___fc_layer_0__.w0", 2)
        self._b, self._d_b = parameters.vector("___fc_layer_0__.wbias")

    def run(self, x: Array, labels: Array) -> tuple[float, Array]:
        """Returns the mean cost and the gradient of x, and writes those of the parameters."""
        cost, d_z = self.costs(x @ self._w, labels)
        np.matmul(x.T, d_z, out=self._d_w)
        return cost, d_z @ self._w.T

    def costs(self, z: Array, labels: Array) -> tuple[float, Array]:
        """Returns the mean cost and the gradient of the sums without bias."""
        z += self._b
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        everyone = np.arange(len(z))
        cost = -float(np.log(z[everyone, labels]).mean())
        z[everyone, labels] -= 1
        z.sum(axis=0, out=self._d_b)
        return cost, z


# ----- The four networks: `run` computes cost and gradients of a batch


class BagOfWords:
    """lr: the sum of a row of two values for each word."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end = data, Classes(parameters)
        self._w, self._d_w = parameters.matrix("___fc_layer_0__.w0", 2)

    def run(self, numbers: Array) -> float:
        words = self._data.words
        firsts = words.starts[numbers]
        lengths = words.starts[numbers + 1] - firsts
        starts = np.cumsum(lengths) - lengths
        ids = words.ids[np.repeat(firsts - starts, lengths) + np.arange(int(lengths.sum()))]
        pairs = self._w.view(np.complex64)[:, 0]  # two columns are added at once
        z = np.add.reduceat(pairs[ids], starts).view(np.float32).reshape(-1, 2)
        cost, d_z = self._end.costs(z, self._data.labels[numbers])
        for column in (0, 1):
            self._d_w[:, column] = np.bincount(ids, np.repeat(d_z[:, column], lengths), len(self._w))
        return cost


class Convolution:
    """cnn: windows of three words, 512 features, the largest of each."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end, self._parameters, self._buffers = data, Classes(parameters), parameters, Buffers()
        self._table, self._d_table = parameters.matrix("___embedding_0__.w0", 128)
        self._w, self._d_w = parameters.matrix("___sequence_conv_pooling_0___conv_fc.w0", 512)
        self._b, self._d_b = parameters.vector("___sequence_conv_pooling_0___conv_fc.wbias")
        self._pool = MaxPool(512, self._buffers, "pool")

    def run(self, numbers: Array) -> float:
        packing, buffers = Packing(self._data.words, numbers), self._buffers
        rows = packing.rows
        x, windows = buffers("x", rows, 128), buffers("windows", rows, 384)
        np.take(self._table, packing.ids, axis=0, out=x, mode="clip")
        copy_windows(x, packing, -1, 3, windows.reshape(rows, 3, 128))
        y = np.matmul(windows, self._w, out=buffers("y", rows, 512))
        add_bias_and_squash(y, self._b)
        cost, d_pooled = self._end.run(self._pool.forward(y, packing), self._data.labels[numbers[packing.order]])
        d_y = buffers("d_y", rows, 512)
        self._pool.backward(d_pooled, d_y)
        unsquash(d_y, y, y)
        d_y.sum(axis=0, out=self._d_b)
        np.matmul(windows.T, d_y, out=self._d_w)
        d_windows = np.matmul(d_y, self._w.T, out=windows)
        sum_windows(d_windows.reshape(rows, 3, 128), packing, -1, x)
        self._parameters.add_rows(self._d_table, packing.ids, x)
        return cost


class Lstm:
    """lstm: one layer of 128 with peepholes, dropout, the largest of each value."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end, self._parameters, self._buffers = data, Classes(parameters), parameters, Buffers()
        self._table, self._d_table = parameters.matrix("___embedding_0__.w0", 128)
        self._w_in, self._d_w_in = parameters.matrix("_lstm_transform___lstm_0__.w0", 512)
        self._w, self._d_w = parameters.matrix("___lstm_0__.w0", 512)
        self._b, self._d_b = parameters.vector("___lstm_0__.wbias")
        self._pool = MaxPool(128, self._buffers, "pool")
        self._drop_below = round(256 * (1 - keep))  # of a random byte
        self._random = np.random.Generator(np.random.SFC64(1))

    def run(self, numbers: Array) -> float:
        packing, buffers = Packing(self._data.words, numbers), self._buffers
        rows = packing.rows
        x = np.take(self._table, packing.ids, axis=0, out=buffers("x", rows, 128), mode="clip")
        z = np.matmul(x, self._w_in, out=buffers("z", rows, 512))
        z += self._b[:512]
        c, h, y = buffers("c", rows, 128), buffers("h", rows, 128), buffers("y", rows, 128)
        self._run_steps(packing, z, c, h, y)
        if self._drop_below:
            kept = np.frombuffer(self._random.bytes(rows * 128), np.uint8).reshape(rows, 128) >= self._drop_below
            out = np.multiply(h, kept, out=buffers("dropped", rows, 128))
        else:
            kept, out = None, h
        cost, d_pooled = self._end.run(self._pool.forward(out, packing), self._data.labels[numbers[packing.order]])
        d_h = buffers("d_h", rows, 128)
        self._pool.backward(d_pooled, d_h)
        if kept is not None:
            d_h *= kept
        self._run_steps_back(packing, z, c, y, d_h)
        self._d_b[:512] = z.sum(axis=0)
        later, before = slice(packing.live[0], rows), packing.previous
        h_before = np.take(h, before, axis=0, out=buffers("before", len(before), 128), mode="clip")
        np.matmul(h_before.T, z[later], out=self._d_w)
        c_before = np.take(c, before, axis=0, out=h_before, mode="clip")
        np.einsum("ij,ij->j", z[later, 128:256], c_before, out=self._d_b[512:640])
        np.einsum("ij,ij->j", z[later, 256:384], c_before, out=self._d_b[640:768])
        np.einsum("ij,ij->j", z[:, 384:], c, out=self._d_b[768:])
        np.matmul(x.T, z, out=self._d_w_in)
        self._parameters.add_rows(self._d_table, packing.ids, np.matmul(z, self._w_in.T, out=x))
        return cost

    def _run_steps(self, packing: Packing, z: Array, c: Array, h: Array, y: Array) -> None:
        """Turns the sums in z into candidate and gates; y is tanh(c)."""
        p_i, p_f, p_o = self._b[512:].reshape(3, 128)
        half = np.float32(0.5)
        product, scratch = (self._buffers(name, packing.live[0], 512) for name in ("product", "scratch"))
        for step, live in enumerate(packing.live):
            this = packing.span(step)
            z_now, c_now, y_now, s = z[this], c[this], y[this], scratch[:live, :128]
            if step:
                before = slice(packing.starts[step - 1], packing.starts[step - 1] + live)
                c_before = c[before]
                z_now += np.matmul(h[before], self._w, out=product[:live])
                z_now[:, 128:256] += np.multiply(c_before, p_i, out=s)
                z_now[:, 256:384] += np.multiply(c_before, p_f, out=s)
            z_now[:, 128:384] *= half  # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2
            np.tanh(z_now[:, :384], out=z_now[:, :384])
            z_now[:, 128:384] *= half
            z_now[:, 128:384] += half
            np.multiply(z_now[:, :128], z_now[:, 128:256], out=c_now)
            if step:
                c_now += np.multiply(z_now[:, 256:384], c_before, out=s)
            o = z_now[:, 384:]
            o += np.multiply(c_now, p_o, out=s)
            o *= half
            np.tanh(o, out=o)
            o *= half
            o += half
            np.tanh(c_now, out=y_now)
            np.multiply(o, y_now, out=h[this])

    def _run_steps_back(self, packing: Packing, z: Array, c: Array, y: Array, d_h: Array) -> None:
        """Turns candidate and gates in z into the gradients of the sums; y and d_h are used up."""
        p_i, p_f, p_o = self._b[512:].reshape(3, 128)
        one = np.float32(1)
        w_transposed = np.ascontiguousarray(self._w.T)
        live_first = packing.live[0]
        product, scratch = self._buffers("product back", live_first, 128), self._buffers("scratch", live_first, 512)
        d_c = self._buffers("d_c", live_first, 128)
        d_c[:] = 0
        for step in reversed(range(len(packing.live))):
            live, this = packing.live[step], packing.span(step)
            z_now, y_now, d_h_now, d_c_now = z[this], y[this], d_h[this], d_c[:live]
            a, i, f, o = (z_now[:, k : k + 128] for k in (0, 128, 256, 384))
            s, t = scratch[:live, :128], scratch[:live, 128:256]
            if step + 1 < len(packing.live):
                more = packing.live[step + 1]
                d_h_now[:more] += np.matmul(z[packing.span(step + 1)], w_transposed, out=product[:more])
            np.multiply(d_h_now, o, out=s)  # the state's share: o (1 - y^2) d_h
            d_h_now *= y_now
            y_now *= y_now
            np.subtract(one, y_now, out=y_now)
            s *= y_now
            d_c_now += s
            np.subtract(one, o, out=s)
            o *= s
            o *= d_h_now
            d_c_now += np.multiply(o, p_o, out=s)
            np.multiply(a, a, out=s)  # the candidate's: (1 - a^2) i d_c
            np.subtract(one, s, out=s)
            s *= i
            np.multiply(a, i, out=t)  # the input gate's: a i (1 - i) d_c
            np.subtract(one, i, out=i)
            i *= t
            i *= d_c_now
            np.multiply(s, d_c_now, out=a)
            if not step:
                f[:] = 0
                continue
            c_before = c[packing.starts[step - 1] : packing.starts[step - 1] + live]
            np.subtract(one, f, out=s)  # the forget gate's: c' f (1 - f) d_c
            s *= c_before
            d_c_now *= f
            np.multiply(s, d_c_now, out=f)
            d_c_now += np.multiply(i, p_i, out=s)
            d_c_now += np.multiply(f, p_f, out=s)


class Recommendation:
    """recommendation: films and users as vectors of 256 from their fields; the cosine against the score."""

    def __init__(self, data: Ratings, parameters: Parameters, keep: float) -> None:
        self._data, self._parameters, self._buffers = data, parameters, Buffers()
        self._layers: dict[str, tuple[Array, Array, Array, Array]] = {}
        for layer in [*(f"__fc_layer_{k}__" for k in range(7)), "__sequence_conv_pooling_0___conv_fc"]:
            self._layers[layer] = *parameters.matrix(f"_{layer}.w0", 256), *parameters.vector(f"_{layer}.wbias")
        self._tables = [parameters.matrix(f"___embedding_{k}__.w0", 256) for k in range(6)]
        self._fusions: dict[str, list[tuple[Array, Array]]] = {}
        for side, inputs in (("movie", 3), ("user", 4)):
            self._fusions[side] = [parameters.matrix(f"_{side}_fusion.w{k}", 256) for k in range(inputs)]
            self._fusions[side].append(parameters.vector(f"_{side}_fusion.wbias"))
        self._pool = MaxPool(256, self._buffers, "pool")

    def run(self, numbers: Array) -> float:
        data, n = self._data, len(numbers)
        # the films' order by length of title costs nothing when everything of the batch is in it
        packing = Packing(data.titles, data.films[numbers])
        numbers = numbers[packing.order]
        films, users = data.films[numbers], data.users[numbers]
        fields = data.user_fields[users]
        ids = {0: films, 2: users, 3: fields[:, 0], 4: fields[:, 1], 5: fields[:, 2]}
        tables = {0: 0, 3: 2, 4: 3, 5: 4, 6: 5}  # of each layer
        rows, outs = {}, {}
        for layer, table in tables.items():
            rows[layer] = self._take(table, ids[table])
            outs[layer] = self._connect(f"__fc_layer_{layer}__", rows[layer])
        genres = data.genres.take(films, axis=0)
        outs[1] = self._connect("__fc_layer_1__", genres)
        outs[2] = self._connect("__fc_layer_2__", outs[1])
        words = self._take(1, packing.ids)
        windows = self._buffers("windows", packing.rows, 1280)
        copy_windows(words, packing, -2, 5, windows.reshape(packing.rows, 5, 256))
        title = self._connect("__sequence_conv_pooling_0___conv_fc", windows)
        pooled = self._pool.forward(title, packing)

        film = self._fuse("movie", [outs[0], pooled, outs[2]])
        user = self._fuse("user", [outs[k] for k in (3, 4, 5, 6)])
        cost, d_film, d_user = self._compare(film, user, data.scores[numbers])

        d_id, d_pooled, d_genres = self._fuse_back("movie", film, d_film, [outs[0], pooled, outs[2]])
        d_users = self._fuse_back("user", user, d_user, [outs[k] for k in (3, 4, 5, 6)])
        for layer, gradient in zip((0, 3, 4, 5, 6), [d_id, *d_users], strict=True):
            d_rows = self._connect_back(f"__fc_layer_{layer}__", rows[layer], outs[layer], gradient, rows[layer])
            self._parameters.add_rows(self._tables[tables[layer]][1], ids[tables[layer]], d_rows)
        d_first = self._buffers("d genres", n, 256)
        self._connect_back("__fc_layer_2__", outs[1], outs[2], d_genres, d_first)
        self._connect_back("__fc_layer_1__", genres, outs[1], d_first, None)
        d_title = self._buffers("d title", packing.rows, 256)
        self._pool.backward(d_pooled, d_title)
        self._connect_back("__sequence_conv_pooling_0___conv_fc", windows, title, d_title, windows)
        sum_windows(windows.reshape(packing.rows, 5, 256), packing, -2, words)
        self._parameters.add_rows(self._tables[1][1], packing.ids, words)
        return cost

    def _take(self, table: int, ids: Array) -> Array:
        out = self._buffers(f"rows {table}", len(ids), 256)
        return np.take(self._tables[table][0], ids, axis=0, out=out, mode="clip")

    def _connect(self, layer: str, x: Array) -> Array:
        w, _, bias, _ = self._layers[layer]
        y = np.matmul(x, w, out=self._buffers(layer, len(x), 256))
        add_bias_and_squash(y, bias)
        return y

    def _connect_back(self, layer: str, x: Array, y: Array, d_y: Array, out: Array | None) -> Array | None:
        """Writes the parameters' gradients and that of x, which may take the place of x; y and d_y are used up."""
        w, d_w, _, d_bias = self._layers[layer]
        unsquash(d_y, y, y)
        d_y.sum(axis=0, out=d_bias)
        np.matmul(x.T, d_y, out=d_w)
        return None if out is None else np.matmul(d_y, w.T, out=out)

    def _fuse(self, side: str, inputs: list[Array]) -> Array:
        *weights, (bias, _) = self._fusions[side]
        n = len(inputs[0])
        y, product = self._buffers(side, n, 256), self._buffers("product", n, 256)
        np.matmul(inputs[0], weights[0][0], out=y)
        for x, (w, _) in zip(inputs[1:], weights[1:], strict=True):
            y += np.matmul(x, w, out=product)
        add_bias_and_squash(y, bias)
        return y

    def _fuse_back(self, side: str, y: Array, d_y: Array, inputs: list[Array]) -> list[Array]:
        *weights, (_, d_bias) = self._fusions[side]
        unsquash(d_y, y, y)
        d_y.sum(axis=0, out=d_bias)
        gradients = []
        for number, (x, (w, d_w)) in enumerate(zip(inputs, weights, strict=True)):
            np.matmul(x.T, d_y, out=d_w)
            gradients.append(np.matmul(d_y, w.T, out=self._buffers(f"d {side} {number}", len(y), 256)))
        return gradients

    def _compare(self, film: Array, user: Array, scores: Array) -> tuple[float, Array, Array]:
        """Returns the mean squared difference of cosine and score, and the gradients of both vectors."""
        squares = [np.einsum("ij,ij->i", one, one) for one in (film, user)]
        norm = np.sqrt(squares[0] * squares[1])
        cosine = np.einsum("ij,ij->i", film, user) / norm
        difference = cosine - scores
        slope = 2 * difference
        gradients, scratch = [], self._buffers("product", len(film), 256)
        for number, (one, other) in enumerate(((film, user), (user, film))):
            d = np.multiply(other, (slope / norm)[:, None], out=self._buffers(f"d_cos {number}", len(film), 256))
            d -= np.multiply(one, (slope * cosine / squares[number])[:, None], out=scratch)
            gradients.append(d)
        return float((difference * difference).mean()), gradients[0], gradients[1]


# ----- The loop

NETWORKS: Mapping[str, tuple] = {
    "recommendation": (Recommendation, Ratings, RmsProp, 1e-3, 1600),
    "lr": (BagOfWords, Texts, Adam, 2e-3, 128),
    "cnn": (Convolution, Texts, Adam, 2e-3, 128),
    "lstm": (Lstm, Texts, Adam, 2e-3, 128),
}


def train(workload: str, directory: Path, model: Path, passes: int, keep: float) -> list[tuple[float, float]]:
    """Returns seconds and mean cost of each pass over the shuffled data."""
    make_network, read, make_rule, rate, batch_size = NETWORKS[workload]
    data, parameters = read(directory), Parameters(model)
    network, rule = make_network(data, parameters, keep), make_rule(parameters, rate)
    shuffler = np.random.default_rng(1)
    results = []
    for _ in range(passes):
        began, costs = time.perf_counter(), 0.0
        order = shuffler.permutation(data.samples)
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            costs += network.run(numbers) * len(numbers)
            rule.step()
        results.append((time.perf_counter() - began, costs / len(order)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=NETWORKS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--keep", type=float, default=0.75)
    options = parser.parse_args()
    for seconds, cost in train(options.workload, options.directory, options.model, options.passes, options.keep):
        print(f"{seconds:.6f} {cost:.6g}")


if __name__ == "__main__":
    main()
