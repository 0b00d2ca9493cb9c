"""Conversions of float16 and bfloat16: C gives the bits of numpy, also of NaNs, infinities and denormals."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import halves, plain

ALL = np.arange(1 << 16, dtype=np.uint16)
RANDOM = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)


def list_floats():
    """Returns the float32 numbers at which a rounding changes, their neighbours, and others."""
    upper = ALL.astype(np.uint32) << np.uint32(16)
    of_float16 = ALL.view(np.float16).astype(np.float32).view(np.uint32)
    middles = of_float16 + np.uint32(1 << 12)
    edges = np.concatenate([upper, upper + np.uint32(1 << 15), of_float16, middles])
    return np.concatenate([edges - np.uint32(1), edges, edges + np.uint32(1), RANDOM]).view(np.float32)


CASES = {
    "widen float16": (halves.widen_float16, ALL.view(np.float16), np.float32, None),
    "round to float16": (halves.round_to_float16, list_floats(), np.float16, None),
    "widen bfloat16": (halves.widen_bfloat16, ALL, np.float32, plain.widen_bfloat16),
    "round to bfloat16": (halves.round_to_bfloat16, list_floats(), np.uint16, plain.round_to_bfloat16),
}


@each("case", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_c_converts_to_the_bits_of_numpy(case):
    convert, values, kind, by_numpy = CASES[case]
    found, wanted = np.empty(len(values), kind), np.empty(len(values), kind)
    convert(values, found)
    if by_numpy is None:
        wanted[...] = values
    else:
        by_numpy(values, wanted)
    assert found.tobytes() == wanted.tobytes()


@each("case", CASES)
def test_arrays_that_are_not_contiguous_are_converted_too(case):
    convert, values, kind, _ = CASES[case]
    values = values[: 1 << 10]
    found, wanted = np.zeros(2 * len(values), kind), np.zeros(len(values), kind)
    with np.errstate(all="ignore"):
        convert(values[::2], found[::4])
        convert(np.ascontiguousarray(values[::2]), wanted[: len(values) // 2])
    assert found[::4].tobytes() == wanted[: len(values) // 2].tobytes()


def test_the_compiled_conversions_check_their_arguments():
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    with pytest.raises(ValueError, match="lengths"):
        kernels.compiled.widen_float16(np.empty(2, np.uint32), np.empty(3, np.uint16))
    with pytest.raises(TypeError, match="uint16"):
        kernels.compiled.widen_float16(np.empty(2, np.uint32), np.empty(2, np.uint32))
