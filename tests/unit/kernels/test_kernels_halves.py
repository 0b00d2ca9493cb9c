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


@each("count", [1, 2, 3, 15, 16])
@each("divisor", [1.0, 3.0, 4.0])
def test_halves_are_added_in_float32_and_rounded_once(count, divisor):
    """With more arrays than the compiled module takes, numpy adds them."""
    random = np.random.default_rng(count)
    values = random.standard_normal((count, 3001)).astype(np.float32) * np.float32(300)
    floats = values.astype(np.float16)
    total = floats[0].astype(np.float32)
    for one in floats[1:]:
        total += one
    out = floats[-1]  # in place
    halves.add_float16(list(floats), out, divisor)
    assert out.tobytes() == (total / np.float32(divisor)).astype(np.float16).tobytes()

    uppers = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    total = (uppers[0].astype(np.uint32) << np.uint32(16)).view(np.float32)
    for one in uppers[1:]:
        total = total + (one.astype(np.uint32) << np.uint32(16)).view(np.float32)
    found, wanted = np.empty(3001, np.uint16), np.empty(3001, np.uint16)
    halves.add_bfloat16(list(uppers), found, divisor)
    plain.round_to_bfloat16(total / np.float32(divisor), wanted)
    assert found.tobytes() == wanted.tobytes()


def test_the_compiled_conversions_check_their_arguments():
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    with pytest.raises(ValueError, match="lengths"):
        kernels.compiled.widen_float16(np.empty(2, np.uint32), np.empty(3, np.uint16))
    with pytest.raises(TypeError, match="uint16"):
        kernels.compiled.widen_float16(np.empty(2, np.uint32), np.empty(2, np.uint32))
    two, three = np.empty(2, np.uint16), np.empty(3, np.uint16)
    with pytest.raises(ValueError, match="lengths"):
        kernels.compiled.add_float16(two, 1.0, two, three)
    with pytest.raises(TypeError, match="arguments"):
        kernels.compiled.add_bfloat16(two, 1.0, *[two] * 16)
