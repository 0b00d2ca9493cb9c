"""Initial values of parameters, bit-equal to those of PaddlePaddle v0.10.

The logarithm is the float32 `logf` of glibc 2.27 and later. The last bit of numpy's logarithm is sometimes different.

Source: spec/trainer.md 5.1 and 5.4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.arrays.rng import UPPER, Stream

Floats = npt.NDArray[np.float32]

NORMAL, UNIFORM = 0, 1  # ParameterConfig.initial_strategy

_CHUNK = 1 << 15  # number of values computed at a time; the float64 work arrays of more values would not fit the cache

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_A0, _A1, _A2 = (float.fromhex(x) for x in ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2"))
_TABLE = """
0x1.661ec79f8f3bep+0 -0x1.57bf7808caadep-2  0x1.571ed4aaf883dp+0 -0x1.2bef0a7c06ddbp-2
0x1.49539f0f010bp+0  -0x1.01eae7f513a67p-2  0x1.3c995b0b80385p+0 -0x1.b31d8a68224e9p-3
0x1.30d190c8864a5p+0 -0x1.6574f0ac07758p-3  0x1.25e227b0b8eap+0  -0x1.1aa2bc79c81p-3
0x1.1bb4a4a1a343fp+0 -0x1.a4e76ce8c0e5ep-4  0x1.12358f08ae5bap+0 -0x1.1973c5a611cccp-4
0x1.0953f419900a7p+0 -0x1.252f438e10c1ep-5  0x1p+0               0x0p+0
0x1.e608cfd9a47acp-1 0x1.aa5aa5df25984p-5   0x1.ca4b31f026aap-1  0x1.c5e53aa362eb4p-4
0x1.b2036576afce6p-1 0x1.526e57720db08p-3   0x1.9c2d163a1aa2dp-1 0x1.bc2860d22477p-3
0x1.886e6037841edp-1 0x1.1058bc8a07ee1p-2   0x1.767dcf5534862p-1 0x1.4043057b6ee09p-2
"""
_INV, _LOGC = np.array([float.fromhex(x) for x in _TABLE.split()]).reshape(16, 2).T.copy()


def logf(u: Floats) -> Floats:
    """Return the float32 natural logarithm of glibc for normal numbers > 0; only the result is rounded to float32."""
    bits = u.view(np.int32)
    shifted = bits - np.int32(0x3F330000)
    index = (shifted >> 19) & 15
    k = shifted >> 23
    z = (bits - (k << 23)).view(np.float32).astype(np.float64)
    rho = z * _INV.take(index) - 1.0
    y0 = _LOGC.take(index) + k * _LN2
    rho2 = rho * rho
    q = _A0 * rho2 + (_A1 * rho + _A2)
    result: Floats = (q * rho2 + (y0 + rho)).astype(np.float32)
    return result


def _unit(draws: npt.NDArray[np.uint32]) -> Floats:
    """Return (1 + draw) / 2^31; the result is rounded to float32 only once."""
    u: Floats = (draws + np.uint32(1)).astype(np.float32)
    u *= np.float32(1.0 / UPPER)
    return u


def fill_normal(out: Floats, mean: float, std: float, stream: Stream) -> None:
    """Fill a flat array with draws of the normal distribution N(mean, std^2), by the method of Box and Muller.

    For n values the function takes 2 * (n // 2 + 1) random numbers. As in v0.10, one more pair is drawn at the end,
    even if n is even. The value that this pair gives with the cosine becomes the last value.
    """
    pairs = out.size // 2
    if std == 0.0:
        out.fill(mean)
        stream.skip(2 * (pairs + 1))
        return
    for start in range(0, pairs, _CHUNK):
        stop = min(start + _CHUNK, pairs)
        values = out[2 * start : 2 * stop].reshape(-1, 2)
        values[:, 0], values[:, 1] = _box_muller(stream.draws(2 * (stop - start)), mean, std)
    out[-1] = _box_muller(stream.draws(2), mean, std)[0][0]


def _box_muller(draws: npt.NDArray[np.uint32], mean: float, std: float) -> tuple[Floats, Floats]:
    """Return two normally distributed values for each pair of draws: one from the cosine, and one from the sine."""
    u = _unit(draws)
    mean = float(np.float32(mean))  # v0.10 stores the mean in float32 and adds it in double precision
    radius = np.sqrt(np.float32(-2.0) * logf(u[0::2].copy()))
    p = (np.float32(std) * radius).astype(np.float64)
    theta = 2.0 * np.pi * u[1::2].astype(np.float64)
    return (mean + p * np.cos(theta)).astype(np.float32), (mean + p * np.sin(theta)).astype(np.float32)


def fill_uniform(out: Floats, low: float, high: float, stream: Stream) -> None:
    """Fill a flat array with uniform draws from [low, high), one for each value.

    A value is computed in double precision and rounded once. The bounds and their difference are float32 numbers, as in
    v0.10.
    """
    first = np.float32(low)
    low, width = float(first), float(np.float32(high) - first)
    for start in range(0, out.size, _CHUNK):
        values = out[start : start + _CHUNK]
        values[:] = stream.draws(values.size) * (1.0 / UPPER) * width + low
