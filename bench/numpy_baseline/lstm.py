"""The network lstm of quick_start; its `run` computes the cost and the gradients of a batch."""

from __future__ import annotations

import numpy as np

from numpy_baseline.data import PackedLists, Texts
from numpy_baseline.parameters import Array, Buffers, Parameters
from numpy_baseline.parts import Classes, MaxPool


class LstmNetwork:
    """lstm: one LSTM layer of size 128 with peepholes, dropout, and the maximum of each output over the steps."""

    def __init__(self, data: Texts, parameters: Parameters, keep: float) -> None:
        self._data, self._end, self._parameters, self._buffers = data, Classes(parameters), parameters, Buffers()
        self._table, self._d_table = parameters.matrix("___embedding_0__.w0", 128)
        self._w_in, self._d_w_in = parameters.matrix("_lstm_transform___lstm_0__.w0", 512)
        self._w, self._d_w = parameters.matrix("___lstm_0__.w0", 512)
        self._b, self._d_b = parameters.vector("___lstm_0__.wbias")
        self._pool = MaxPool(128, self._buffers, "pool")
        self._drop_below = round(256 * (1 - keep))  # a value is dropped if its random byte is below this number
        self._random = np.random.Generator(np.random.SFC64(1))

    def run(self, numbers: Array) -> float:
        packing, buffers = PackedLists(self._data.words, numbers), self._buffers
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

    def _run_steps(self, packing: PackedLists, z: Array, c: Array, h: Array, y: Array) -> None:
        """Replaces the weighted sums in z by the candidate and the gates; writes c, h, and y = tanh(c)."""
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

    def _run_steps_back(self, packing: PackedLists, z: Array, c: Array, y: Array, d_h: Array) -> None:
        """Replaces the candidate and the gates in z by the gradients of the weighted sums; overwrites y and d_h."""
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
            np.multiply(d_h_now, o, out=s)  # the part of d_c that comes through h: o (1 - y^2) d_h
            d_h_now *= y_now
            y_now *= y_now
            np.subtract(one, y_now, out=y_now)
            s *= y_now
            d_c_now += s
            np.subtract(one, o, out=s)
            o *= s
            o *= d_h_now
            d_c_now += np.multiply(o, p_o, out=s)
            np.multiply(a, a, out=s)  # the gradient of the candidate's sum: (1 - a^2) i d_c
            np.subtract(one, s, out=s)
            s *= i
            np.multiply(a, i, out=t)  # the gradient of the input gate's sum: a i (1 - i) d_c
            np.subtract(one, i, out=i)
            i *= t
            i *= d_c_now
            np.multiply(s, d_c_now, out=a)
            if not step:
                f[:] = 0
                continue
            c_before = c[packing.starts[step - 1] : packing.starts[step - 1] + live]
            np.subtract(one, f, out=s)  # the gradient of the forget gate's sum: c' f (1 - f) d_c, with the previous c'
            s *= c_before
            d_c_now *= f
            np.multiply(s, d_c_now, out=f)
            d_c_now += np.multiply(i, p_i, out=s)
            d_c_now += np.multiply(f, p_f, out=s)
