"""The digest of an array: the same bits in C and in numpy, and others for other arrays."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import digests

ROW = 8 * digests.LANES
SIZES = (0, 1, ROW - 1, ROW, 3 * ROW + 5)


@each("nbytes", SIZES)
def test_a_digest_has_the_same_bits_in_c_and_in_numpy(nbytes):
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes + 1).astype(np.uint8)
    for part in (data[:-1], data[1:]):  # the second one is not aligned
        found = digests.digest_array(part)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(digests, "compiled", None)
            assert digests.digest_array(part) == found


def test_other_arrays_have_other_digests():
    """Two signs that change in one lane must not cancel each other, as they do in a sum."""
    base = np.ones(3 * digests.LANES + 3)
    arrays = [base, base[:-1], np.zeros(0), base[::-1] * 2]
    for places in [(0,), (0, digests.LANES), (0, 1), (5, 2 * digests.LANES + 5), (len(base) - 1,)]:
        changed = base.copy()
        changed[list(places)] *= -1
        arrays.append(changed)
    swapped = base.copy()
    swapped[[0, digests.LANES]] = 2, 3
    arrays += [swapped, np.roll(swapped, digests.LANES)]
    assert len({digests.digest_array(one) for one in arrays}) == len(arrays)


def test_the_layout_does_not_count():
    matrix = np.arange(12.0).reshape(3, 4)
    assert digests.digest_array(matrix.T) == digests.digest_array(np.ascontiguousarray(matrix.T))
