"""The network of the recommendation example; its `run` computes the cost and the gradients of a batch."""

from __future__ import annotations

import numpy as np

from numpy_baseline.data import PackedLists, Ratings
from numpy_baseline.parameters import Array, Buffers, Parameters
from numpy_baseline.parts import MaxPool, add_bias_and_squash, copy_windows, sum_windows, unsquash


class RecommendationNetwork:
    """recommendation: the cosine of a vector of a film's fields and a vector of a user's fields predicts the score."""

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
        # the whole batch is sorted by the lengths of the titles, so that nothing must be reordered later
        packing = PackedLists(data.titles, data.films[numbers])
        numbers = numbers[packing.order]
        films, users = data.films[numbers], data.users[numbers]
        fields = data.user_fields[users]
        ids = {0: films, 2: users, 3: fields[:, 0], 4: fields[:, 1], 5: fields[:, 2]}
        tables = {0: 0, 3: 2, 4: 3, 5: 4, 6: 5}  # number of the table of each layer
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
        """Writes the gradients of the parameters and of x, which may replace x; overwrites y and d_y."""
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
        """Returns the mean squared difference of the cosine and the score, and the gradients of both vectors."""
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
